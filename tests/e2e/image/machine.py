# SPDX-License-Identifier: Apache-2.0
"""A machine that the appliance's disk is put into: QEMU (TCG), OVMF, q35, an
emulated VT-d, a data NIC on a TAP of this network namespace, a management NIC
whose door is port 8080 of this namespace's loopback, a serial console that is read, a watchdog, a USB port."""
import ctypes
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time

DATA_NIC = "0000:00:05.0"
FIRMWARE = "/usr/share/OVMF/OVMF_CODE_4M.fd"
VARIABLES = "/usr/share/OVMF/OVMF_VARS_4M.fd"
MIB = 1 << 20


def run(*args, **how):
    return subprocess.run(args, check=True, capture_output=True, text=True, **how)


def own_network():
    """A network namespace of our own, with the TAP of the data NIC."""
    clone_newnet = 0x40000000
    assert ctypes.CDLL(None, use_errno=True).unshare(clone_newnet) == 0, os.strerror(ctypes.get_errno())
    for cmd in (["link", "set", "lo", "up"], ["tuntap", "add", "q0", "mode", "tap"],
                ["addr", "add", "10.88.0.1/24", "dev", "q0"], ["link", "set", "q0", "up"]):
        run("ip", *cmd)


class Patience:
    """Seconds to wait, less those in which this process was stopped."""

    def __init__(self, seconds):
        self.left, self.last = seconds, time.monotonic()

    def over(self):
        now = time.monotonic()
        self.left -= min(now - self.last, 10.0)
        self.last = now
        return self.left < 0


class Disk:
    """A copy of a disk that remembers only what differs; larger than the base where size says so."""

    def __init__(self, path, base, size=None):
        self.path = path
        if os.path.exists(path):
            os.unlink(path)
        kind = "qcow2" if base.endswith(".qcow2") else "raw"
        run("qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", kind, path, *([size] if size else []))

    @staticmethod
    def partitions(raw):
        """Name to (first byte, bytes) of a raw disk."""
        out = {}
        for line in run("sgdisk", "-p", raw).stdout.splitlines():
            m = re.match(r"\s+\d+\s+(\d+)\s+(\d+)\s+\S+ \S+\s+\S+\s+(\S+)$", line)
            if m:
                out[m.group(3)] = (int(m.group(1)) * 512, (int(m.group(2)) - int(m.group(1)) + 1) * 512)
        return out

    def flip(self, offset):
        """Changes one byte."""
        found = run("qemu-io", "-c", f"read -v {offset} 1", self.path).stdout
        value = int(re.search(r"^[0-9a-f]{8}:\s+([0-9a-f]{2})", found, re.M).group(1), 16)
        run("qemu-io", "-c", f"write -P {value ^ 0x01} {offset} 1", self.path)


class Machine:
    """A machine that is on.  lines: (seconds since power-on, text) of its console.
    log: a file that gets every write and flush of the disk (writes.py)."""

    def __init__(self, work, disk, variables=None, log=None):
        self.lines = []
        self.start = time.monotonic()
        self.work = work
        flash = variables or os.path.join(work, "variables.fd")
        if variables is None:
            shutil.copy(VARIABLES, flash)
        top = "image"
        logged = []
        if log:
            with open(log, "wb"):
                pass
            top = "logged"
            logged = ["-blockdev", f"driver=file,node-name=log,filename={log}",
                      "-blockdev", "driver=blklogwrites,node-name=logged,file=image,log=log,log-super-update-interval=1"]
        control = os.path.join(work, "qmp")
        if os.path.exists(control):
            os.unlink(control)
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi", "-cpu", "max",
             "-smp", "2", "-m", "1536", "-nodefaults", "-display", "none", "-serial", "stdio",
             "-qmp", f"unix:{control},server=on,wait=off",
             "-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={FIRMWARE}",
             "-drive", f"if=pflash,format=raw,unit=1,file={flash}",
             "-device", "intel-iommu,intremap=on,caching-mode=on,device-iotlb=on",
             "-blockdev", f"driver=qcow2,node-name=image,file.driver=file,file.filename={disk.path}", *logged,
             "-device", f"virtio-blk-pci,drive={top},addr=4,bootindex=1",
             "-netdev", "user,id=m0,restrict=on,hostfwd=tcp:127.0.0.1:8080-:8080", "-device", "virtio-net-pci,netdev=m0,addr=3,romfile=",
             "-netdev", "tap,id=n0,ifname=q0,script=no,downscript=no", "-device", "e1000e,netdev=n0,addr=5,romfile=",
             "-device", "qemu-xhci,id=usb", "-device", "i6300esb", "-action", "watchdog=reset"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=self.read, daemon=True).start()
        end = time.monotonic() + 30
        self.control = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self.control.connect(control)
                break
            except OSError:
                assert time.monotonic() < end and self.process.poll() is None, self.lines
                time.sleep(0.05)
        self.answers = self.control.makefile("r")
        self.answers.readline()
        self.command("qmp_capabilities")

    def read(self):
        with open(os.path.join(self.work, "console.log"), "w", encoding="utf-8") as log:
            for line in self.process.stdout:
                text = re.sub(r"\x1b[\[(][0-9;=?]*[A-Za-z]", "", line.decode(errors="replace")).strip()
                if text:
                    self.lines.append((time.monotonic() - self.start, text))
                    print(f"{self.lines[-1][0]:7.1f} {text}", file=log, flush=True)

    def command(self, name, **arguments):
        self.control.sendall(json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = json.loads(self.answers.readline())
            if "return" in answer or "error" in answer:
                assert "return" in answer, answer
                return answer["return"]

    def wait(self, pattern, seconds, after=0):
        """The number after that of the first line from `after` on that matches."""
        patience = Patience(seconds)
        at = after
        while True:
            while at < len(self.lines):
                at += 1
                if re.search(pattern, self.lines[at - 1][1]):
                    return at
            if patience.over() or self.process.poll() is not None:
                raise AssertionError(f"no {pattern!r} on the console in {seconds} s\n{self.console(60)}")
            time.sleep(0.1)

    def console(self, count):
        return "\n".join(f"{t:7.1f} {text}" for t, text in self.lines[-count:])

    def type(self, keys):
        self.process.stdin.write(keys.encode())
        self.process.stdin.flush()

    def say(self, words):
        self.type(words + "\r")

    def plug(self, path):
        """A USB stick."""
        self.command("blockdev-add", **{"driver": "raw", "node-name": "stick", "read-only": True,
                                        "file": {"driver": "file", "filename": path}})
        self.command("device_add", driver="usb-storage", drive="stick", bus="usb.0", id="stick")

    def unplug(self):
        self.command("device_del", id="stick")
        time.sleep(2)
        self.command("blockdev-del", **{"node-name": "stick"})

    def off(self):
        """Power off as the button does, at most a minute."""
        self.command("system_powerdown")
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.cut()

    def cut(self):
        """The plug is pulled."""
        self.process.kill()
        self.process.wait()


def medium(path, bundle):
    """A stick labelled TANDEM-UPD that holds a bundle."""
    size = os.path.getsize(bundle) + 32 * MIB
    with open(path, "wb") as f:
        f.truncate(size // MIB * MIB)
    env = dict(os.environ, MTOOLS_SKIP_CHECK="1")
    run("mformat", "-i", path, "-F", "-v", "TANDEM-UPD", "::", env=env)
    run("mcopy", "-i", path, bundle, "::/update.raucb", env=env)
