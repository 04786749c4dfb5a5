#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The units of deploy/systemd and deploy/image are sound and tight.  usage: units.py ROOT

systemd-analyze judges them as files, no systemd runs.  Exit 77 without it."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

EXPOSURE_MAX = 2.5
# What only a packaged machine has, and other packages' units that ours name.
STAND_INS = ("usr/sbin/tandemd", "usr/libexec/tandem/hugepages", "usr/libexec/tandem/nic",
             "usr/libexec/tandem/agent", "usr/libexec/tandem/first-boot", "usr/libexec/tandem/health",
             "usr/libexec/tandem/good", "usr/libexec/tandem/update", "usr/libexec/tandem/gpu", "usr/libexec/tandem/grow",
             "bin/kill")
TARGETS = ("network-online.target", "multi-user.target", "sysinit.target", "basic.target",
           "shutdown.target", "sockets.target", "local-fs.target", "network-pre.target")


def run(*args):
    return subprocess.run(args, capture_output=True, text=True, check=False)


def mount_name(path):
    """A mount unit is named by its path, escaped."""
    with open(path, encoding="utf-8") as f:
        where = re.search(r"(?m)^Where=(.+)$", f.read()).group(1)
    return run("systemd-escape", "--path", "--suffix=mount", where).stdout.strip()


def stage(folder, units, dropin=None):
    """A root folder with our units, and stand-ins for the programs they start."""
    system = os.path.join(folder, "etc/systemd/system")
    os.makedirs(system)
    for unit in units:
        shutil.copy(unit, system)
    for mount in glob.glob(os.path.join(sys.argv[1], "deploy/image/*.mount")):
        shutil.copy(mount, os.path.join(system, mount_name(mount)))
    if dropin:
        os.makedirs(os.path.join(system, "tandemd.service.d"))
        shutil.copy(dropin, os.path.join(system, "tandemd.service.d/port.conf"))
    for name in STAND_INS:
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n")
        os.chmod(path, 0o755)
    for name in TARGETS:
        with open(os.path.join(system, name), "w", encoding="ascii") as f:
            f.write("[Unit]\nDescription=stand-in\nDefaultDependencies=no\n")
    for name in ("modprobe@.service", "rauc.service"):
        with open(os.path.join(system, name), "w", encoding="ascii") as f:
            f.write("[Service]\nType=oneshot\nExecStart=/bin/kill\n")


def exposure(root, unit):
    r = run("systemd-analyze", "security", "--offline=true", f"--root={root}", "--no-pager", unit)
    found = re.search(r"exposure level for \S+: ([0-9.]+)", r.stdout)
    assert found, (unit, r)
    return float(found.group(1))


def check(units, examples, sockets=()):
    out = []
    for socket in sockets:
        with tempfile.TemporaryDirectory() as root:
            stage(root, [*units, socket])
            words = run("systemd-analyze", "verify", f"--root={root}", "--man=no", os.path.basename(socket))
        if words.returncode or words.stderr.strip():
            out.append(f"{os.path.basename(socket)}: {words.stderr.strip() or words.stdout.strip()}")
    cases = [(u, None) for u in units]
    cases += [(u, e) for u in units for e in examples if u.endswith("/tandemd.service")]
    for unit, dropin in cases:
        name = os.path.basename(unit)
        with tempfile.TemporaryDirectory() as root:
            stage(root, units, dropin)
            level = exposure(root, name)
            words = run("systemd-analyze", "verify", f"--root={root}", "--man=no", name)
        title = name + (f" with {os.path.basename(dropin)}" if dropin else "")
        print(f"{level:.1f} {title}")
        if level > EXPOSURE_MAX:
            out.append(f"{title}: exposure {level}, at most {EXPOSURE_MAX}")
        if words.returncode or words.stderr.strip():
            out.append(f"{title}: {words.stderr.strip() or words.stdout.strip()}")
    return out


def main():
    if not shutil.which("systemd-analyze"):
        sys.exit(77)
    base = os.path.join(sys.argv[1], "deploy/systemd")
    image = os.path.join(sys.argv[1], "deploy/image/files/usr/lib/systemd/system")
    units = sorted(glob.glob(os.path.join(base, "*.service")) + glob.glob(os.path.join(image, "*.service")))
    examples = sorted(glob.glob(os.path.join(base, "examples", "*.conf")))
    assert len(units) == 10 and examples
    findings = check(units, examples, glob.glob(os.path.join(base, "*.socket")))
    with tempfile.TemporaryDirectory() as folder:  # both checks can fail
        loose = os.path.join(folder, "tandemd.service")
        with open(os.path.join(base, "tandemd.service"), encoding="utf-8") as f:
            text = f.read()
        with open(loose, "w", encoding="utf-8") as f:
            f.write(re.sub(r"(?m)^(Protect|Restrict|Private|SystemCall|NoNew|Capab).*\n", "", text)
                    .replace("Type=notify", "Type=notify\nBogus=1"))
        found = " ".join(check([loose], []))
        if "exposure" not in found or "Bogus" not in found:
            findings.append(f"a loose unit passed: {found}")
    print("\n".join(findings) or "the units are sound")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
