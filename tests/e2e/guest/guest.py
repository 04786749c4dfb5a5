#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernel bypass without hardware: tandemd with the tiny model in a QEMU
guest (TCG) whose NIC belongs to vfio-pci behind an emulated VT-d, or to
uio_pci_generic; an HTTP/3 client outside, on the other end of a TAP.

usage: guest.py BIN_DIR WORK_DIR vfio|e1000e|uio|boot
       (root; qemu-system-x86, busybox-static; a Debian kernel is fetched
       once with apt-get download; exit 77 where one is missing.
       vfio and uio: a virtio NIC; e1000e: that of Intel, by vfio, with its
       descriptor rings; boot: none, only that the guest starts)
"""
import ctypes
import glob
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIB = "/usr/lib/x86_64-linux-gnu"
DRIVERS = ["bus_pci", "bus_vdev", "mempool_ring", "net_virtio", "net_e1000", "net_tap", "net_ring",
           "common_iavf"]
VFIO = ["vfio", "irqbypass", "vfio_virqfd", "vfio_iommu_type1", "vfio-pci-core", "vfio-pci"]
MODULES = {"vfio": VFIO, "e1000e": VFIO, "uio": ["uio", "uio_pci_generic"], "boot": []}
NIC = "0000:00:05.0"
SECONDS = 300
KEY = "guest-key"


def need(what, found):
    if not found:
        print(f"skipped: {what}", file=sys.stderr)
        sys.exit(77)


# --- the image -----------------------------------------------------------------

def kernel(work):
    """Unpacks Debian's cloud kernel below work, once; gives its folder."""
    folder = os.path.join(work, "kernel")
    if not glob.glob(folder + "/boot/vmlinuz-*"):
        os.makedirs(folder, exist_ok=True)
        r = subprocess.run(["apt-cache", "depends", "linux-image-cloud-amd64"], capture_output=True,
                           text=True, check=False)
        name = re.search(r"Depends: (linux-image-\S+)", r.stdout)
        need("no kernel package in the lists of apt", name)
        subprocess.run(["apt-get", "download", "-qq", name.group(1)], cwd=folder, check=False,
                       stderr=subprocess.DEVNULL)
        debs = glob.glob(folder + "/*.deb")
        need("the kernel package cannot be fetched", debs)
        subprocess.run(["dpkg-deb", "-x", debs[0], folder], check=True)
    return folder


def closure(paths):
    """The shared libraries of programs and libraries, by ldd."""
    found = set()
    for path in paths:
        out = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        found |= set(re.findall(r"(/\S+\.so\S*)", out))
    return sorted(found)


class Image:
    """A cpio archive in newc format, written by hand: no device nodes, no root files needed."""

    def __init__(self):
        self.data = bytearray()
        self.count = 0
        self.folders = set()
        self.entry(".", 0o40755)  # DPDK takes no driver from below a folder open to all

    def entry(self, name, mode, body=b""):
        self.count += 1
        head = [self.count, mode, 0, 0, 1, 0, len(body), 0, 0, 0, 0, len(name) + 1, 0]
        self.data += b"070701" + "".join(f"{v:08x}" for v in head).encode() + name.encode() + b"\0"
        self.data += bytes(-len(self.data) % 4) + body
        self.data += bytes(-len(self.data) % 4)

    def folder(self, name):
        parts = name.strip("/").split("/")
        for i in range(1, len(parts) + 1):
            path = "/".join(parts[:i])
            if path and path not in self.folders:
                self.folders.add(path)
                self.entry(path, 0o40755)

    def file(self, name, body, mode=0o755):
        self.folder(os.path.dirname(name))
        self.entry(name.strip("/"), 0o100000 | mode, body)

    def copy(self, path, name=None):
        with open(path, "rb") as f:
            self.file(name or path, f.read())

    def link(self, name, to):
        self.folder(os.path.dirname(name))
        self.entry(name.strip("/"), 0o120777, to.encode())

    def save(self, path):
        self.entry("TRAILER!!!", 0)
        with gzip.open(path, "wb", 1) as f:
            f.write(bytes(self.data))


def build(bin_dir, work, mode, kernel_dir):
    image = Image()
    for name in ("proc", "sys", "dev", "tmp", "run", "root"):
        image.folder(name)
    image.link("/var/run", "/run")
    programs = [os.path.join(bin_dir, p) for p in ("tandemd", "tandem-exec", "tandemctl")]
    for p in programs:
        image.copy(p, "/bin/" + os.path.basename(p))
    pmds = [p for d in DRIVERS for p in glob.glob(f"{LIB}/dpdk/pmds-23.0/librte_{d}.so.23.0")]
    for p in pmds:
        image.copy(p)
    for p in closure(programs + pmds):
        real = os.path.realpath(p)
        if real in pmds:
            image.link(p, real)  # one file, or the loader takes it for two libraries
        else:
            image.copy(real, p)
    image.copy(shutil.which("busybox"), "/bin/busybox")
    for name in ("sh", "mount", "mkdir", "ip", "sed", "cat", "insmod", "echo", "basename", "readlink",
                 "wget", "grep", "poweroff", "tail", "sleep", "kill"):
        image.link("/bin/" + name, "busybox")
    order = []
    for m in MODULES[mode]:
        path = glob.glob(f"{kernel_dir}/lib/modules/*/kernel/**/{m}.ko", recursive=True)
        assert path, f"the kernel has no {m}"
        image.copy(path[0], f"/modules/{m}.ko")
        order.append(m + ".ko")
    image.file("/modules/order", "\n".join(order).encode(), 0o644)
    image.copy(os.path.join(HERE, "init"), "/init")
    image.file("/keys", f"guest {hashlib.sha256(KEY.encode()).hexdigest()}\n".encode(), 0o600)
    path = os.path.join(work, f"initramfs-{mode}.gz")
    image.save(path)
    return path


# --- the machine ------------------------------------------------------------------

class Guest:
    """A running guest; its console is read line by line."""

    def __init__(self, kernel_image, initramfs, mode):
        net = [] if mode == "boot" else ["-netdev", "tap,id=n0,ifname=q0,script=no,downscript=no"]
        nic, line = "", ""
        settings = "port.kind=none,exec.sms=2"
        if mode != "boot":
            settings = (f"port.kind=pci,port.device={NIC},port.mbufs=2048,exec.sms=2,"
                        "port.ipv4=10.88.0.2/24,port.ipv6=,api.keys_file=/keys")
            line = f" tandem.driver={'uio_pci_generic' if mode == 'uio' else 'vfio-pci'} tandem.nic={NIC}"
        machine = ["-machine", "q35"]
        if mode in ("vfio", "e1000e"):
            machine += ["-device", "intel-iommu,intremap=on,caching-mode=on,device-iotlb=on"]
            machine[1] += ",kernel-irqchip=split"
            nic = "virtio-net-pci,netdev=n0,addr=5,romfile=,disable-legacy=on,iommu_platform=on,ats=on"
            line += " intel_iommu=on iommu=nopt"
        if mode == "e1000e":
            nic = "e1000e,netdev=n0,addr=5,romfile="
        if mode == "uio":
            nic = "virtio-net-pci,netdev=n0,addr=5,romfile="
        # The kernel waits for a few ticks and panics where none came: on a busy
        # host the emulated timer may be that late (x86 boot option no_timer_check).
        append = f"console=ttyS0 quiet panic=-1 no_timer_check hugepages=160 tandem.key={KEY} tandem.set={settings}{line}"
        self.lines = []
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", *machine, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2",
             "-m", "1280", "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
             "-kernel", kernel_image, "-initrd", initramfs, "-append", append, *net,
             *(["-device", nic] if nic else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.decode(errors="replace").rstrip())

    def wait(self, mark, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for line in self.lines:
                if mark in line:
                    return line
                if "GUEST failed" in line or "Kernel panic" in line:
                    raise AssertionError(line)
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"no {mark!r} on the console")

    def say(self, word):
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def metrics(self):
        seen = len(self.lines)
        self.say("metrics")
        end = time.monotonic() + 60
        while not any("GUEST metrics end" in x for x in self.lines[seen:]):
            assert time.monotonic() < end, "no metrics"
            time.sleep(0.1)
        out = {}
        for line in self.lines[seen:]:
            m = re.match(r"METRIC (\S+) (\S+)$", line)
            if m:
                out[m.group(1)] = float(m.group(2))
        assert out, "the guest gives no metrics"
        return out


def pick(m, name, label=""):
    return sum(v for k, v in m.items() if k.split("{")[0] == name and label in k)


def tap():
    """Frames from and to the guest; /sys would show another namespace."""
    with open("/proc/net/dev", encoding="ascii") as f:
        fields = next(x for x in f if x.strip().startswith("q0:")).split(":")[1].split()
    return int(fields[1]), int(fields[9])


def accounts(guest):
    """Frames by direction as the host's TAP and as the guest count them."""
    m = guest.metrics()
    lost = pick(m, "tandem_net_drops_total", '"nic_missed"') + pick(m, "tandem_net_drops_total", '"no_mbuf"')
    out_of, into = tap()
    return {"in": (into, pick(m, "tandem_net_packets_total", '"rx"') + lost),
            "out": (out_of, pick(m, "tandem_net_packets_total", '"tx"')), "lost": lost,
            "drops": pick(m, "tandem_net_drops_total")}


def settled(guest, before):
    """Accounts once both sides have counted the same since before."""
    for _ in range(20):
        now = accounts(guest)
        if all(now[d][0] - before[d][0] == now[d][1] - before[d][1] for d in ("in", "out")):
            return now
        time.sleep(0.25)
    raise AssertionError(f"frames unaccounted: {before} then {now}")


def talk(bin_dir, guest):
    """Tokens over HTTP/3, and no frame unaccounted."""
    before = accounts(guest)
    for i in range(5):
        r = subprocess.run([os.path.join(bin_dir, "tandemctl"), "generate", f"packet {i}", "--host",
                            "10.88.0.2", "--insecure", "--max-tokens", "16", "--temperature", "0", "--ids",
                            "--seconds", "60", "--key", KEY, "--model", "dummy:tiny"],
                           capture_output=True, text=True, timeout=90, check=False)
        assert r.returncode == 0, (r.returncode, r.stdout, r.stderr)
        assert len(re.findall(r"\d+", r.stdout)) >= 16, r.stdout
    now = settled(guest, before)
    frames_in, frames_out = (int(now[d][1] - before[d][1]) for d in ("in", "out"))
    print(f"80 tokens in {frames_out} frames out, {frames_in} in, {now['lost']:.0f} lost, "
          f"{now['drops'] - before['drops']:.0f} dropped by name, none unaccounted")
    assert frames_in > 20 and frames_out > 20 and now["lost"] == 0, now


def own_network():
    """A network namespace of our own, once nothing has to be fetched any more."""
    clone_newnet = 0x40000000
    assert ctypes.CDLL(None, use_errno=True).unshare(clone_newnet) == 0, os.strerror(ctypes.get_errno())


def main():
    bin_dir, work, mode = sys.argv[1:4]
    need("root", os.geteuid() == 0)
    help_text = subprocess.run([os.path.join(bin_dir, "tandemd"), "--help-config"], capture_output=True,
                               text=True, check=True).stdout
    need("this tandemd has no PCI port", mode == "boot" or "port.device" in help_text)
    need("qemu-system-x86 or busybox-static is missing",
         shutil.which("qemu-system-x86_64") and shutil.which("busybox"))
    os.makedirs(work, exist_ok=True)
    kernel_dir = kernel(work)
    initramfs = build(bin_dir, work, mode, kernel_dir)
    own_network()
    for cmd in (["link", "set", "lo", "up"], ["tuntap", "add", "q0", "mode", "tap"],
                ["addr", "add", "10.88.0.1/24", "dev", "q0"], ["link", "set", "q0", "up"]):
        subprocess.run(["ip", *cmd], check=True)
    with open("/proc/sys/net/ipv6/conf/q0/disable_ipv6", "w", encoding="ascii") as f:
        f.write("1")  # the kernel's own chatter would blur the accounts
    start = time.monotonic()
    guest = Guest(glob.glob(kernel_dir + "/boot/vmlinuz-*")[0], initramfs, mode)
    try:
        guest.wait("GUEST ready", SECONDS)
        print(f"ready after {time.monotonic() - start:.1f} s")
        if mode == "boot":
            guest.metrics()
        else:
            print(guest.wait("has driver", 1))
            talk(bin_dir, guest)
        guest.say("stop")
        assert "ended with 0" in guest.wait("tandemd ended", 60)
        guest.process.wait(30)
    except BaseException:
        sys.stderr.write("\n".join(guest.lines[-60:]) + "\n")
        raise
    finally:
        if guest.process.poll() is None:
            guest.process.kill()
            guest.process.wait()
    print(f"done after {time.monotonic() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
