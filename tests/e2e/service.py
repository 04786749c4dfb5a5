#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""End-to-end facts about tandemd as a service.  usage: service.py BIN_DIR FACT

A datagram socket plays the service manager; exit 77 where root lacks."""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PATIENCE, Appliance, run_fact  # noqa: E402
from unit_file import filtered  # noqa: E402

BIN = ""


class Manager:
    """What systemd hears of a service: hear() gives {name: value} of the next message."""

    def __init__(self, watchdog_us):
        self.dir = tempfile.TemporaryDirectory(prefix="tandem-manager-")
        path = os.path.join(self.dir.name, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        os.environ["NOTIFY_SOCKET"] = path
        os.environ["WATCHDOG_USEC"] = str(watchdog_us)
        self.beats = []

    def hear(self, key, seconds=PATIENCE):
        """The next message that has the key; heartbeats on the way are noted."""
        end = time.monotonic() + seconds
        while True:
            self.socket.settimeout(max(0.001, end - time.monotonic()))
            message = dict(line.split("=", 1) for line in
                           self.socket.recv(4096).decode().splitlines())
            if message.get("WATCHDOG") == "1":
                self.beats.append(time.monotonic())
            if key in message:
                return message


def a_service_manager_is_told():
    """READY after /ready, a heartbeat, RELOADING and READY at SIGHUP, STOPPING; the executor's
    death is a status and no end, and its child has no way to speak in our name."""
    manager = Manager(800_000)
    try:
        with Appliance(BIN, {"port.kind": "none", "exec.huge_plans": 0}, ready=False) as a:
            manager.hear("READY")
            assert a.get("/ready")[0] == 200
            with open(f"/proc/{a.executor_pid()}/environ", "rb") as f:
                assert b"NOTIFY_SOCKET" not in f.read()
            manager.hear("WATCHDOG")
            manager.beats.clear()
            for _ in range(5):
                manager.hear("WATCHDOG", 5)
            gaps = [b - a for a, b in zip(manager.beats, manager.beats[1:])]
            assert all(gap < 0.8 for gap in gaps), gaps  # else the manager would have killed it
            assert a.total("tandem_watchdog_withheld_total") == 0
            a.process.send_signal(signal.SIGHUP)
            told = manager.hear("RELOADING")
            now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            assert 0 <= now_us - int(told["MONOTONIC_USEC"]) < 10_000_000, told
            assert manager.hear("READY")["STATUS"] == "reloaded"
            os.kill(a.executor_pid(), signal.SIGKILL)
            assert "executor is down" in manager.hear("STATUS")["STATUS"]
            assert "life 2" in manager.hear("READY")["STATUS"]
            a.process.send_signal(signal.SIGTERM)
            told = manager.hear("STOPPING")
            assert int(told["EXTEND_TIMEOUT_USEC"]) > 10_000_000, told  # sched.drain_ms at least
            assert a.process.wait(PATIENCE) == 0
    finally:
        manager.socket.close()
        manager.dir.cleanup()


class Sandboxed(Appliance):
    """As tandemd.service runs it: an ordinary user, no capability but those named, no way to gain
    one; strace notes each system call of tandemd and of tandem-exec."""

    def __init__(self, settings, caps):
        super().__init__(BIN, settings)
        os.chmod(self.dir.name, 0o777)
        for name in ("tandemd", "tandem-exec"):  # the build may lie where only root may look
            shutil.copy(os.path.join(BIN, name), self.dir.name)
        self.calls_path = os.path.join(self.dir.name, "calls")
        self.caps = caps
        os.environ["RUNTIME_DIRECTORY"] = self.dir.name

    def command(self):
        keep = ",".join(["-all"] + ["+" + c for c in self.caps])
        own = [os.path.join(self.dir.name, "tandemd"), *super().command()[1:]]
        return ["strace", "-f", "--quiet=all", "-o", self.calls_path, "setpriv",
                "--reuid=65534", "--regid=65534", "--clear-groups", f"--inh-caps={keep}",
                f"--ambient-caps={keep}", f"--bounding-set={keep}", "--no-new-privs", *own]

    def daemon(self):
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(children, encoding="ascii") as f:
            return int(f.read().split()[0])

    def calls(self):
        """Names of the calls made from the start of tandemd on that the kernel did not refuse: DPDK
        asks for port I/O, which old virtio devices want, and goes on without."""
        with open(self.calls_path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        begin = re.search(r'execve\("[^"]*/tandemd"', text)
        assert begin, text[:400]
        text = re.sub(r"(?m)^\d+ +iopl\(\w+\) += -1 .*$", "", text[begin.start():])
        return set(re.findall(r"(?m)^\d+ +(\w+)\(", text))


def the_sandbox_of_the_unit_is_enough():
    """No capability for HTTP/1.1 alone, CAP_NET_ADMIN for a TAP port; all system calls of a start,
    requests, a reload, an executor's death and a stop are among those that the unit allows."""
    if not shutil.which("strace") or not shutil.which("systemd-analyze"):
        print("needs strace and systemd-analyze")
        sys.exit(77)
    unit = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "../../deploy/systemd/tandemd.service")
    allowed = filtered(unit)
    assert "read" in allowed and "sched_setaffinity" in allowed and "reboot" not in allowed
    for settings, caps in (({"port.kind": "none"}, []), ({}, ["net_admin"])):
        a = Sandboxed(settings, caps)
        with a:
            want = a.complete("hello", 8)
            if caps:
                assert a.generate_h3("hello", 8) == want[:8]
            pid = a.daemon()
            with open(f"/proc/{pid}/status", encoding="ascii") as f:
                status = f.read()
            assert re.search(r"(?m)^NoNewPrivs:\t1$", status) and "Uid:\t65534" in status, status
            os.kill(pid, signal.SIGHUP)
            a.until(lambda: a.total("tandem_config_revision") == 1)
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
                child = int(f.read().split()[0])
            with open(f"/proc/{child}/status", encoding="ascii") as f:  # its own sandbox is on: exec.sandbox
                assert re.search(r"(?m)^Seccomp:\t2$", f.read())
            os.kill(child, signal.SIGKILL)
            a.until(lambda: a.total("tandem_executor_epoch") == 2)
            a.wait_ready()
            assert a.complete("hello", 8) == want
            os.kill(pid, signal.SIGTERM)
            assert a.process.wait(PATIENCE) == 0, a.log()
            calls = a.calls()
        assert len(calls) > 40, calls
        print(f"{len(calls)} system calls with {caps}: not in the unit's filter: "
              f"{sorted(calls - allowed) or 'none'}")
        assert not calls - allowed


class Hanging(Appliance):
    """Whose executor hangs in its first `cnt` loads, as in a driver that does not come back."""

    def __init__(self, cnt, settings):
        super().__init__(BIN, {"port.kind": "none", "exec.huge_plans": 0, **settings}, ready=False)
        shutil.copy(os.path.join(BIN, "tandemd"), self.dir.name)
        path = os.path.join(self.dir.name, "tandem-exec")
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"""#!/bin/sh
for k in $(seq {cnt}); do mkdir {self.dir.name}/load-$k 2>/dev/null && exec sleep 1000; done
exec {BIN}/tandem-exec "$@"
""")
        os.chmod(path, 0o755)

    def command(self):
        return [os.path.join(self.dir.name, "tandemd"), *super().command()[1:]]


def a_load_that_hangs_is_ended():
    """Within exec.load_stall_ms: a new one serves, and /metrics says so.  One that always hangs ends the start,
    in one line, when the restarts are used up."""
    with Hanging(2, {"exec.load_stall_ms": 4000}) as a:  # what a busy machine needs to start one that does not hang
        a.wait_ready()
        a.until(lambda: a.total("tandem_executor_epoch") == 3)
        assert a.total("tandem_executor_load_stalls_total") == 2
        assert a.total("tandem_faults_total") == 0  # it did not end by itself
        assert a.log().count("no progress past 0 % for 4 s: killed") == 2, a.log()
        assert len(a.complete("hello", 8)) == 8
    with Hanging(2, {"exec.load_stall_ms": 1000, "exec.restarts": 1}) as a:
        assert a.process.wait(PATIENCE) == 1
        assert "the executor was killed: its load told no progress for 1 s" in a.log().splitlines()[-1], a.log()


def deaths_without_end_are_told():
    """An executor that dies more often than exec.restarts ends tandemd with status 3; the last line names the key and
    how it died last, and the recorder of that life is still there."""
    with Appliance(BIN, {"port.kind": "none", "exec.restarts": 1}) as a:
        for life in (1, 2):
            a.until(lambda: a.total("tandem_executor_epoch") == life and a.get("/ready")[0] == 200)
            os.kill(a.executor_pid(), signal.SIGKILL)
        assert a.process.wait(PATIENCE) == 3
        last = a.log().splitlines()[-1]
        assert "ended 2 times in ten minutes, exec.restarts is 1: the executor got signal 9" in last, a.log()
        a.start()
        a.ctl("trace", "--flight", a.settings["flight.path"] + ".last")


def tandemctl_fits_the_units_that_start_it():
    """What the scripts of first boot, health and the balancer's agent call is in their units' filters."""
    if not shutil.which("strace") or not shutil.which("systemd-analyze"):
        print("needs strace and systemd-analyze")
        sys.exit(77)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    env = {**os.environ, "PATH": BIN + ":" + os.environ["PATH"]}
    with tempfile.TemporaryDirectory(prefix="tandem-calls-") as folder:
        cases = (("tandem-first-boot", ["deploy/first-boot"], {"TANDEM_ROOT": folder}),
                 ("tandem-health", ["timeout", "1", "deploy/health"], {}),
                 ("tandem-agent@", ["deploy/fleet/agent"], {}))
        for unit, command, more in cases:
            allowed = filtered(os.path.join(root, f"deploy/systemd/{unit}.service"))
            log = os.path.join(folder, "calls")
            subprocess.run(["strace", "-f", "--quiet=all", "-o", log, *command], cwd=root, env={**env, **more},
                           stdout=subprocess.DEVNULL, check=False)
            with open(log, encoding="utf-8", errors="replace") as f:
                calls = set(re.findall(r"(?m)^\d+ +(\w+)\(", f.read()))
            assert len(calls) > 20, calls
            print(f"{unit}: {len(calls)} system calls, not in the filter: {sorted(calls - allowed) or 'none'}")
            assert not calls - allowed
            assert calls - (allowed - {"set_mempolicy"}) == {"set_mempolicy"}  # which the filter names by itself


if __name__ == "__main__":
    sys.exit(run_fact(globals(), needs_tun=False))
