#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The units of deploy/systemd and deploy/image are sound and tight, and CUDA's driver can work.  usage: units.py ROOT

systemd-analyze judges them as files, no systemd runs.  Exit 77 without it."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../e2e"))
from unit_file import filtered, values  # noqa: E402

EXPOSURE_MAX = 2.5
# What libcuda and NVML 580.159.04 asked of Linux from cuInit to a kernel's end, with root's rights, on a host of
# two H200s: all calls, and all that was opened.  Only root may open nvidia-cap1, and they look whether they may.
DRIVER_CALLS = """access arch_prctl bind brk clock_nanosleep clone3 close connect dup eventfd2 execve exit_group fcntl fstat
    ftruncate futex get_mempolicy getdents64 geteuid getpid getrandom gettid ioctl listen lseek memfd_create mkdir mmap
    mprotect munmap newfstatat openat pipe2 poll pread64 prlimit64 read readlink rseq rt_sigaction rt_sigprocmask
    sched_get_priority_max sched_get_priority_min sched_getaffinity set_robust_list set_tid_address setsockopt socket stat
    symlink sysinfo uname unlink write""".split()
DRIVER_FAMILIES = ("AF_UNIX",)
# Each node, and the names that /proc/devices has for its number: of this driver, of older ones.
DRIVER_NODES = {"nvidiactl": ("nvidia", "nvidia-frontend"), "nvidia0": ("nvidia", "nvidia-frontend"),
                "nvidia1": ("nvidia", "nvidia-frontend"), "nvidia-uvm": ("nvidia-uvm",),
                "nvidia-caps/nvidia-cap1": ("nvidia-caps",), "nvidia-caps/nvidia-cap2": ("nvidia-caps",)}
DRIVER_PATHS = """/etc/ld.so.cache /etc/localtime /lib/x86_64-linux-gnu/libc.so.6 /usr/local/nvidia/lib64/libcuda.so.1 /proc/cpuinfo
    /proc/devices /proc/driver/nvidia/capabilities/mig/config /proc/driver/nvidia/capabilities/mig/monitor
    /proc/driver/nvidia/params /proc/self/maps /proc/self/status /proc/self/task/1/comm /proc/sys/vm/mmap_min_addr
    /sys/bus/pci/devices/0000:00:06.0/numa_node /sys/devices/system/cpu/online
    /sys/devices/system/memory/block_size_bytes /sys/devices/system/node/node0/cpumap""".split()
# What a setting hides.
HIDES = {"ProtectHome=yes": ("/home/", "/root/", "/run/user/"), "PrivateTmp=yes": ("/tmp/", "/var/tmp/"),
         "PrivateDevices=yes": ("/dev/nvidia",), "ProcSubset=pid": ("/proc/c", "/proc/d", "/proc/sys")}
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


def check_driver(unit):
    """What the unit would refuse to CUDA's driver."""
    with open(unit, encoding="utf-8") as f:
        text = f.read()
    out = [f"call {c}" for c in DRIVER_CALLS if c not in filtered(unit)]
    out += [f"family {f}" for f in DRIVER_FAMILIES if f not in values(unit, "RestrictAddressFamilies")]
    allowed = re.findall(r"(?m)^DeviceAllow=char-(\S+) rw$", text)
    out += [f"node {n}" for n, names in DRIVER_NODES.items() if not set(names) <= set(allowed)]
    paths = DRIVER_PATHS + ["/dev/" + n for n in DRIVER_NODES]
    out += [f"{setting} hides {p}" for setting, under in HIDES.items() if f"\n{setting}\n" in text
            for p in paths if p.startswith(under)]
    print(f"tandemd.service and CUDA's driver: {len(DRIVER_CALLS)} calls, {len(DRIVER_NODES)} nodes, {len(paths)} paths; "
          f"refused: {out or 'none'}")
    return out


def check_order(unit, preset):
    """CUDA begins only behind these, where they are there: on boards with NVSwitch it says 802 before."""
    before = ("nvidia-persistenced.service", "nvidia-fabricmanager.service")
    with open(preset, encoding="utf-8") as f:
        enabled = re.findall(r"(?m)^enable (\S+)$", f.read())
    return [f"tandemd.service does not start after {b}" for b in before if b not in values(unit, "After")] + \
           [f"the image does not start {b}" for b in before if b not in enabled]


def main():
    if not shutil.which("systemd-analyze"):
        sys.exit(77)
    base = os.path.join(sys.argv[1], "deploy/systemd")
    image = os.path.join(sys.argv[1], "deploy/image/files/usr/lib/systemd/system")
    units = sorted(glob.glob(os.path.join(base, "*.service")) + glob.glob(os.path.join(image, "*.service")))
    examples = sorted(glob.glob(os.path.join(base, "examples", "*.conf")))
    assert len(units) == 10 and examples
    findings = check(units, examples, glob.glob(os.path.join(base, "*.socket")))
    findings += check_driver(os.path.join(base, "tandemd.service"))
    findings += check_order(os.path.join(base, "tandemd.service"),
                            os.path.join(image, "../system-preset/00-tandem-image.preset"))
    with tempfile.TemporaryDirectory() as folder:  # each check can fail
        loose = os.path.join(folder, "tandemd.service")
        with open(os.path.join(base, "tandemd.service"), encoding="utf-8") as f:
            text = f.read()
        with open(loose, "w", encoding="utf-8") as f:
            f.write(re.sub(r"(?m)^(Protect|Restrict|Private|SystemCall|NoNew|Capab).*\n", "", text)
                    .replace("Type=notify", "Type=notify\nBogus=1"))
        found = " ".join(check([loose], []))
        if "exposure" not in found or "Bogus" not in found:
            findings.append(f"a loose unit passed: {found}")
        narrow = os.path.join(folder, "narrow.service")
        with open(narrow, "w", encoding="utf-8") as f:
            f.write(text.replace("char-nvidia-uvm rw", "char-nvidia-uvm r").replace("=AF_UNIX ", "=")
                    .replace("=~@privileged", "=~@privileged @network-io").replace("\nUMask", "\nPrivateDevices=yes\nUMask")
                    .replace(" nvidia-fabricmanager.service", ""))
        found = check_driver(narrow) + check_order(narrow, os.devnull)
        for word in ("call bind", "call listen", "family AF_UNIX", "node nvidia-uvm", "PrivateDevices=yes hides /dev/nvidiactl",
                     "tandemd.service does not start after nvidia-fabricmanager.service",
                     "the image does not start nvidia-persistenced.service"):
            if word not in found:
                findings.append(f"a narrow unit passed: {word} not in {found}")
    print("\n".join(findings) or "the units are sound")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
