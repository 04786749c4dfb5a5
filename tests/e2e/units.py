#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The packaged units under a real systemd, in a container of systemd-nspawn.  usage: units.py BUILD

First boot names the machine and renders its configuration; tandemd serves inside its sandbox and
is started anew when it no longer makes progress, while its executor dies with it; health is told
on the console; each unit, as loaded, is tight.  No device is in the container: the NIC's unit and
hugepages have tests of their own.  Exit 77 without root, mmdebstrap, systemd-nspawn or the mirror."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lifecycle import Root, run  # noqa: E402

EXPOSURE_MAX = 2.5
APPLIANCE = {"machine": {"hostname": "tandem-7", "house_cpus": "0"},
             "keys": {"api": ["chat " + "ab" * 32]},
             "serve": {"model": {"path": "dummy:tiny"}, "exec": {"huge_plans": 0}}}


def hierarchies():
    """Where this machine's control groups of systemd are: one hierarchy, or two."""
    with open("/proc/self/mounts", encoding="utf-8") as f:
        mounts = [line.split()[1:4] for line in f]
    found = {}  # by device, for a chroot elsewhere may have the same ones again
    for path, kind, options in mounts:
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options):
            found.setdefault(os.stat(path).st_dev, path)
    return list(found.values())


class Container:
    def __init__(self, root):
        self.root = root
        self.groups = [os.path.join(h, f"tandem-units-{os.getpid()}") for h in hierarchies()]
        for g in self.groups:
            os.mkdir(g)
        self.console = open(root + ".console", "w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            # A container may not call Landlock unless it is said; a machine may.
            ["systemd-nspawn", "-D", root, "--register=no", "--keep-unit", "--private-network", "--boot",
             "--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self"],
            stdin=subprocess.DEVNULL, stdout=self.console, stderr=self.console, preexec_fn=self.enter,
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"})
        self.init = None

    def enter(self):
        for g in self.groups:
            with open(os.path.join(g, "cgroup.procs"), "w", encoding="ascii") as f:
                f.write(str(os.getpid()))

    def said(self):
        self.console.flush()
        with open(self.console.name, encoding="utf-8", errors="replace") as f:
            return f.read()

    def until(self, what, seconds, why):
        end = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None and time.monotonic() < end, why + "\n" + self.said()[-4000:]
            time.sleep(0.1)

    def boot(self, seconds=120):
        def children():
            with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as f:
                return f.read().split()
        self.until(children, 30, "no init")
        self.init = children()[0]
        self.until(lambda: self.call("systemctl", "is-active", "multi-user.target", check=False).stdout == "active\n",
                   seconds, "multi-user.target is not reached")

    def call(self, *args, check=True):
        return run("nsenter", "-t", self.init, "-a", "env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *args, check=check)

    def show(self, unit, name):
        return self.call("systemctl", "show", "-P", name, unit).stdout.strip()

    def close(self):
        if self.process.poll() is None:
            os.kill(int(self.init) if self.init else self.process.pid, signal.SIGRTMIN + 4 if self.init else signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.console.close()
        for g in self.groups:
            for folder, _, _ in os.walk(g, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    pass  # systemd still leaves it; the kernel will not keep it for long


def prepare(root, build, folder):
    offer = os.path.join(folder, "offer")
    os.makedirs(offer)
    with open(os.path.join(offer, "appliance.json"), "w", encoding="utf-8") as f:
        json.dump(APPLIANCE, f)
    run(os.path.join(build, "bin/tandemctl"), "appliance", "accept", offer, "--root", root)
    for unit in ("tandem-first-boot.service", "tandem-health.service", "tandemd.service", "tandem-agent.socket"):
        run("systemctl", f"--root={root}", "enable", unit)
    # The container may not change the machine's hugepages.
    run("systemctl", f"--root={root}", "mask", "tandem-hugepages.service")
    dropin = os.path.join(root, "etc/systemd/system/tandemd.service.d")
    os.makedirs(dropin)
    with open(os.path.join(dropin, "test.conf"), "w", encoding="ascii") as f:
        f.write("[Service]\nWatchdogSec=4\nTimeoutAbortSec=5\n")


def ask(c):
    """One completion with this boot's local key, from inside."""
    key = c.call("cat", "/run/tandem-appliance/local.key").stdout
    script = ("exec 3<>/dev/tcp/127.0.0.1/8080; b='{\"model\":\"'$1'\",\"prompt\":\"hi\",\"max_tokens\":4,\"ignore_eos\":true}';"
              "printf 'POST /v1/completions HTTP/1.1\\r\\nHost: t\\r\\nAuthorization: Bearer %s\\r\\nContent-Type: "
              "application/json\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n%s' \"$2\" ${#b} \"$b\" >&3; cat <&3")
    model = re.search(r'"id":"([^"]+)"', c.call("tandemctl", "show", "models", "--key", key, "-o", "json").stdout.replace(" ", ""))
    reply = c.call("bash", "-c", script, "-", model.group(1), key).stdout
    assert " 200 " in reply.split("\r\n")[0] and '"completion_tokens":4' in reply.replace(" ", ""), reply


def story(c):
    begin = time.monotonic()

    def say(what):
        print(f"[{time.monotonic() - begin:5.1f} s] {what}", flush=True)

    c.boot()
    failed = c.call("systemctl", "--failed", "--no-legend", "--plain").stdout
    assert "tandem" not in failed, failed + c.call("journalctl", "--no-pager", "-n", "60").stdout
    assert c.call("hostname").stdout == "tandem-7\n"
    assert "--config /run/tandem-appliance/tandem.json" in c.show("tandemd.service", "ExecStart")
    assert c.show("tandemd.service", "Slice") == "tandem.slice"
    assert c.show("system.slice", "AllowedCPUs") == "0"
    c.call("tandemctl", "wait", "--seconds", "60")
    ask(c)
    c.until(lambda: "tandem: ready, nothing is wrong" in c.said(), 30, "the console hears of no health")
    log = c.call("journalctl", "--no-pager", "-u", "tandemd.service").stdout
    assert "executor's sandbox lacks" not in log, log
    say("booted to a token; the console has: tandem: ready, nothing is wrong")

    for unit in ("tandemd.service", "tandem-first-boot.service", "tandem-health.service",
                 "tandem-nic@0000:05:00.0.service", "tandem-agent@1.service"):
        told = c.call("systemd-analyze", "security", "--no-pager", unit, check=False)
        level = float(re.search(r"exposure level for \S+: ([0-9.]+)", told.stdout).group(1))
        print(f"        {level:.1f} {unit}")
        assert level <= EXPOSURE_MAX, unit

    agent = c.call("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8081; cat <&3").stdout
    assert re.fullmatch(r"up ready \d+%\n", agent), agent + c.call("journalctl", "--no-pager", "-n", "30").stdout
    say("the agent answers through its socket: " + agent.strip())

    before = c.show("tandemd.service", "MainPID")
    children = c.call("cat", f"/proc/{before}/task/{before}/children").stdout.split()
    stopped = time.monotonic()
    c.call("kill", "-STOP", before)
    c.until(lambda: c.show("tandemd.service", "NRestarts") == "1"
            and c.show("tandemd.service", "ActiveState") == "active", 60, "no restart")
    say(f"SIGSTOP of tandemd: started anew by the watchdog after {time.monotonic() - stopped:.1f} s "
        "(WatchdogSec=4 here, 60 in the unit)")
    assert "watchdog" in c.call("journalctl", "--no-pager", "-u", "tandemd.service").stdout.lower()
    for pid in children:
        assert c.call("test", "-d", f"/proc/{pid}", check=False).returncode, "an executor outlived its tandemd"
    c.call("tandemctl", "wait", "--seconds", "60")
    ask(c)

    c.call("bash", "-c", "rm /run/tandem-appliance/tandem.json; systemctl restart tandem-first-boot.service")
    c.call("test", "-s", "/run/tandem-appliance/tandem.json")
    c.call("systemctl", "stop", "tandemd.service")
    assert c.show("tandemd.service", "Result") == "success", c.call("systemctl", "status", "tandemd", check=False).stdout
    say("stopped as asked")


def main():
    if os.geteuid() != 0 or not shutil.which("mmdebstrap") or not shutil.which("systemd-nspawn"):
        print("needs root, mmdebstrap and systemd-nspawn")
        return 77
    build = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="tandem-units-") as folder:
        r = run("cpack", "-B", folder + "/packages", cwd=build, check=False)
        assert r.returncode == 0, r.stdout + r.stderr
        packages = sorted(glob.glob(folder + "/packages/tandem_*.deb") + glob.glob(folder + "/packages/tandemctl_*.deb"))
        root = Root(folder, packages, ("systemd-sysv", "udev", "dbus", "procps", "hostname"))
        root.install(packages)
        prepare(root.root, build, folder)
        c = Container(root.root)
        try:
            story(c)
        except BaseException:
            sys.stderr.write(c.said()[-3000:])
            raise
        finally:
            c.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
