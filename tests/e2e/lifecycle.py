#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The packages in a clean Debian root: install, run, upgrade, remove, purge; nothing is left.
usage: lifecycle.py BUILD

The root is made by mmdebstrap from the mirror that this machine uses and has what the packages
depend on; no systemd runs in it, the test plays its part.  Call it in a network namespace of its
own.  Exit 77 without root, mmdebstrap or the mirror."""
import ctypes
import glob
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

# What dpkg and apt keep about packages, and backups that useradd makes.
OURS_NOT = re.compile(r"^(proc|sys|var/lib/dpkg|var/lib/apt|var/cache|var/log|tmp|packages)(/|$)"
                      r"|^etc/((passwd|group|shadow|gshadow|subuid|subgid)-|\.pwd\.lock)$")
CLONE_NEWNET = 0x40000000
CONFIG = "etc/tandem/tandem.json"


def run(*args, check=True, **how):
    r = subprocess.run(args, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **how)
    assert not check or r.returncode == 0, (args, r.returncode, r.stdout[-2000:], r.stderr[-2000:])
    return r


def field(package, name):
    return run("dpkg-deb", "-f", package, name).stdout.strip()


class Root:
    def __init__(self, folder, packages, more=()):
        self.root = os.path.join(folder, "root")
        depends = {d.split("|")[0].split("(")[0].strip()
                   for p in packages for d in field(p, "Depends").split(",") if d.strip()}
        depends -= {field(p, "Package") for p in packages}
        sources = glob.glob("/etc/apt/sources.list") + [
            p for p in sorted(glob.glob("/etc/apt/sources.list.d/*")) if p.endswith((".list", ".sources"))]
        options = os.path.join(folder, "apt.conf")
        with open(options, "w", encoding="utf-8") as f:
            f.write(run("apt-config", "dump", "Acquire").stdout)
        os.chmod(folder, 0o755)
        release = run("sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME").stdout.strip()
        r = run("mmdebstrap", "--variant=minbase", f"--aptopt={options}", "--skip=cleanup/tmp",
                "--include=" + ",".join(sorted(depends) + list(more)), release, self.root, *sources, check=False)
        if r.returncode:
            print("no clean root can be made here: " + r.stderr[-1500:])
            sys.exit(77)
        os.makedirs(self.path("packages"))
        os.makedirs(self.path("dev/shm"), exist_ok=True)
        os.chmod(self.path("dev/shm"), 0o1777)

    def path(self, name):
        return os.path.join(self.root, name)

    def chroot(self, *args, check=True):
        return run("unshare", "--mount", "--pid", "--fork", "sh", "-c",
                   f'mount -t proc proc "{self.root}/proc" && exec chroot "{self.root}" "$@"', "-",
                   "env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", *args,
                   check=check)

    def dpkg(self, *args):
        return self.chroot("dpkg", *args)

    def install(self, packages):
        for p in packages:
            shutil.copy(p, self.path("packages"))
        self.dpkg("--force-confdef", "--force-confold", "-i",
                  *("/packages/" + os.path.basename(p) for p in packages))

    def snapshot(self):
        out = {}
        for folder, folders, files in os.walk(self.root):
            for name in folders + files:
                path = os.path.join(folder, name)
                short = os.path.relpath(path, self.root)
                if OURS_NOT.search(short):
                    continue
                s = os.lstat(path)
                what = ""
                if stat.S_ISLNK(s.st_mode):
                    what = os.readlink(path)
                elif stat.S_ISREG(s.st_mode):
                    with open(path, "rb") as f:
                        what = hashlib.sha256(f.read()).hexdigest()
                out[short] = (s.st_mode, s.st_uid, s.st_gid, what)
        return out

    def serve(self):
        """Starts what tandemd.service would, asks it, and stops it."""
        account = self.chroot("sh", "-c", "id -u tandem; id -g tandem").stdout.split()
        for name in ("run/tandem", "var/lib/tandem"):  # RuntimeDirectory=, StateDirectory=
            os.makedirs(self.path(name), exist_ok=True)
            os.chown(self.path(name), int(account[0]), int(account[1]))
        with open(self.path("lib/systemd/system/tandemd.service"), encoding="utf-8") as f:
            start = re.search(r"(?m)^ExecStart=(.*)$", f.read()).group(1).split()
        with open(self.path("tmp/log"), "wb") as log:
            daemon = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c",
                 f'mount -t proc proc "{self.root}/proc" && exec chroot "{self.root}" "$@"', "-",
                 "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "RUNTIME_DIRECTORY=/run/tandem",
                 "setpriv", "--reuid=tandem", "--regid=tandem", "--init-groups", "--inh-caps=-all",
                 "--bounding-set=-all", "--no-new-privs", *start, "--set", "exec.huge_plans=0"],
                stdout=log, stderr=log)
        try:
            self.chroot("tandemctl", "wait", "--seconds", "60")
            version = self.chroot("tandemctl", "show", "version").stdout
            c = http.client.HTTPConnection("127.0.0.1", 8080, timeout=30)
            c.request("GET", "/v1/models")
            model = json.loads(c.getresponse().read())["data"][0]["id"]
            c.request("POST", "/v1/completions", json.dumps({"model": model, "prompt": "hi", "max_tokens": 4,
                                                             "ignore_eos": True}),
                      {"content-type": "application/json"})
            r = c.getresponse()
            reply = json.loads(r.read())
            c.close()
            assert r.status == 200 and reply["usage"]["completion_tokens"] == 4, reply
        except BaseException:
            with open(self.path("tmp/log"), encoding="utf-8") as f:
                sys.stderr.write(f.read())
            raise
        finally:
            daemon.send_signal(signal.SIGTERM)
            rc = daemon.wait(30)
        assert rc == 0, rc
        return version


def next_version(package, folder):
    """The same package, one version on, with another default configuration."""
    tree = tempfile.mkdtemp(dir=folder)
    run("dpkg-deb", "-R", package, tree + "/t")
    control = tree + "/t/DEBIAN/control"
    with open(control, encoding="utf-8") as f:
        text = f.read()
    old = field(package, "Version")
    with open(control, "w", encoding="utf-8") as f:
        f.write(text.replace(f"Version: {old}\n", f"Version: {old}+next\n").replace(f"(= {old})", f"(= {old}+next)"))
    for conffile in glob.glob(tree + "/t/etc/tandem/*") + glob.glob(tree + "/t/etc/default/*"):
        with open(conffile, "a", encoding="utf-8") as f:
            f.write("\n")
    out = os.path.join(folder, os.path.basename(package).replace(old, old + "+next"))
    run("dpkg-deb", "--root-owner-group", "-b", tree + "/t", out)
    return out


def difference(before, after):
    return [f"{'left' if n not in before else 'gone' if n not in after else 'changed'}: {n}"
            for n in sorted(before.keys() | after.keys()) if before.get(n) != after.get(n)]


def life(folder, packages):
    begin = time.monotonic()

    def say(what):
        print(f"[{time.monotonic() - begin:5.1f} s] {what}", flush=True)

    root = Root(folder, packages)
    say(f"a clean root: {run('du', '-sm', root.root).stdout.split()[0]} MiB")
    assert ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    run("ip", "link", "set", "lo", "up")
    before = root.snapshot()

    root.install(packages)
    assert not glob.glob(root.path("etc/systemd/system/*.wants/tandem*")), "a unit was enabled"
    owner = os.stat(root.path("etc/tandem"))
    assert owner.st_mode & 0o777 == 0o750 and owner.st_gid != 0, oct(owner.st_mode)
    groups = root.chroot("getent", "group", "tandem", "tandem-admin", "tandem-operator", "tandem-viewer").stdout
    assert groups.count("\n") == 4, groups
    say("installed: " + root.serve().strip())

    with open(root.path(CONFIG), "w", encoding="utf-8") as f:
        f.write('{"model": {"path": "dummy:tiny", "name": "mine"}, "port": {"kind": "none"}}\n')
    keys = root.path("etc/tandem/keys")
    with open(keys, "w", encoding="ascii") as f:
        f.write("# an operator's file\n")
    root.install([next_version(p, folder) for p in packages])
    with open(root.path(CONFIG), encoding="utf-8") as f:
        assert '"mine"' in f.read(), "an upgrade took the operator's configuration"
    with open(root.path("etc/default/tandem"), encoding="utf-8") as f:
        assert f.read().endswith("\n\n"), "an upgrade kept an old default"
    assert os.path.exists(keys)
    say("upgraded: " + root.serve().strip())

    names = [field(p, "Package") for p in packages]
    root.dpkg("--remove", *names)
    assert os.path.exists(root.path(CONFIG)) and os.path.exists(keys)
    assert not os.path.exists(root.path("usr/sbin/tandemd"))
    assert os.path.isdir(root.path("var/lib/tandem"))
    say("removed: configuration and state stay")

    root.dpkg("--purge", *names)
    left = difference(before, root.snapshot())
    assert not left, "\n".join(left)
    say("purged: nothing is left")
    # the comparison can fail
    with open(root.path("var/lib/surplus"), "w", encoding="ascii") as f:
        f.write("x")
    os.chmod(root.path("dev/shm"), 0o777)
    assert difference(before, root.snapshot()) == ["changed: dev/shm", "left: var/lib/surplus"]


def main():
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        print("needs root and mmdebstrap")
        return 77
    with tempfile.TemporaryDirectory(prefix="tandem-life-") as folder:
        r = run("cpack", "-B", folder + "/packages", cwd=sys.argv[1], check=False)
        assert r.returncode == 0, r.stdout + r.stderr
        life(folder, sorted(glob.glob(folder + "/packages/*.deb")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
