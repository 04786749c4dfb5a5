#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The disk image of deploy/image, booted and hurt in QEMU (TCG, OVMF).

usage: image.py BUILD WORK SCENARIO
       BUILD is a build that ships (package_files made); images are made once
       in WORK.  Root.  Exit 77 where a tool is missing.
  serve      power-on to a token over HTTP/3 through the e1000e NIC
  update     a stick with a newer bundle, under load; the new slot proves itself
  rollback   a bundle that boots and gives no token: back by itself
  refused    bundles that are signed by another, altered, or not for this machine
  blocks     a byte flipped in a slot, then in both
  firmware   Secure Boot with our keys; an altered kernel is refused
  twice      two images from one cache: the same root hash; sizes
"""
import contextlib
import glob
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
from machine import DATA_NIC, MIB, Disk, Machine, medium, own_network, run

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
KEY = "image-key"
BOOT_S = 240  # power-on to tokens, on a busy machine
TOOLS = ("qemu-system-x86_64", "qemu-img", "mmdebstrap", "mksquashfs", "veritysetup", "sgdisk", "mcopy", "sbsign",
         "rauc", "cert-to-efi-sig-list")
APPLIANCE = {
    "machine": {"hostname": "tandem-image", "hugepages_2m": 160, "iommu": "intel"},
    "data": {"nic": DATA_NIC, "ipv4": "10.88.0.2/24"},
    "keys": {"api": [f"image {hashlib.sha256(KEY.encode()).hexdigest()}"]},
    "serve": {"model": {"path": "dummy:tiny"}, "exec": {"sms": 2}, "port": {"mbufs": 2048}},
}


class House:
    """Where things are, and the images that were made there."""

    def __init__(self, build, work):
        self.build = build
        self.work = os.path.realpath(work)
        os.makedirs(self.work, exist_ok=True)
        self.ctl = os.path.join(build, "bin/tandemctl")
        self.packages = os.path.join(self.work, "packages")
        self.made = {}

    def pack(self):
        shutil.rmtree(self.packages, ignore_errors=True)
        run("cpack", "-B", self.packages, cwd=self.build)

    def image(self, name, *options):
        """The folder of an image, made once for each name."""
        out = os.path.join(self.work, name)
        if os.path.exists(os.path.join(out, "sbom.spdx.json")):
            return out
        if not glob.glob(self.packages + "/tandem_*.deb"):
            self.pack()
        appliance = os.path.join(self.work, "appliance.json")
        with open(appliance, "w", encoding="ascii") as f:
            json.dump(APPLIANCE, f)
        lock = os.path.join(self.work, "lock")
        args = [os.path.join(TOP, "deploy/image/make"), out, "--packages", self.packages, "--cache", self.work + "/cache",
                "--keys", self.work + "/keys", "--appliance", appliance, *options]
        if os.path.exists(lock):
            args += ["--lock", lock]
        r = subprocess.run(args, capture_output=True, text=True, check=False)
        if r.returncode and "is not to be had any more" in r.stderr:
            print("the archive has moved on: resolving the lock anew for this run")
            run(os.path.join(TOP, "deploy/image/lock"), self.packages, lock)
            shutil.rmtree(self.work + "/cache")
            r = subprocess.run([*args, "--lock", lock], capture_output=True, text=True, check=False)
        assert r.returncode == 0, r.stdout + r.stderr
        print(f"image {name}: " + " ".join(re.findall(r"root hash \S+|done: .*", r.stdout)))
        return out

    def ask(self, seconds=30):
        """One streamed answer over HTTP/3: (tokens, when its first byte came), or None."""
        p = subprocess.Popen([self.ctl, "generate", "1 2 3", "--host", "10.88.0.2", "--insecure", "--max-tokens", "16",
                              "--temperature", "0", "--ids", "--seconds", str(seconds), "--key", KEY,
                              "--http", "http://127.0.0.1:9", "--model", "dummy:tiny"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = p.stdout.read(1)
        at = time.monotonic()
        rest, self.said = p.communicate()
        tokens = len(re.findall(rb"\d+", first + rest))
        return (tokens, at) if p.returncode == 0 and tokens > 0 else None

    def first_token(self, machine, seconds=BOOT_S):
        """Asks until there is an answer; seconds from power-on to its first token."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and machine.process.poll() is None:
            got = self.ask(5)
            if got:
                return got[1] - machine.start
            time.sleep(0.2)
        raise AssertionError(f"no token in {seconds} s: {self.said}\n{machine.console(60)}")


@contextlib.contextmanager
def power(house, disk, variables=None):
    """A machine that is on; its console is shown where something fails."""
    machine = Machine(house.work, disk, variables)
    try:
        yield machine
    except BaseException:
        sys.stderr.write(machine.console(80) + "\n")
        raise
    finally:
        machine.cut()


def good(house, machine, slot, seconds=BOOT_S, after=0):
    """Waits until a slot is proven; the number of the line after that."""
    at = machine.wait(r"slot [ab] gave \d+ tokens and is good", seconds, after)
    line = machine.lines[at - 1][1]
    assert f"slot {slot} " in line, line
    assert house.ask(60), house.said
    print(f"{machine.lines[at - 1][0]:7.1f} s: {line.split('] ')[-1]}")
    return at


def told(machine, pattern, seconds, after=0):
    at = machine.wait(pattern, seconds, after)
    print(f"{machine.lines[at - 1][0]:7.1f} s: {machine.lines[at - 1][1].split('] ')[-1]}")
    return at


def serve(house):
    image = house.image("one")
    own_network()
    with power(house, Disk(house.work + "/serve.qcow2", image + "/disk.raw")) as machine:
        seconds = house.first_token(machine)
        told(machine, rf"nic: {DATA_NIC}: vfio-pci, group \d+", 5)
        good(house, machine, "a")
        print(f"first token over HTTP/3 {seconds:.1f} s after power-on (TCG, 2 processors)")
        machine.off()


class Load:
    """Clients that ask without a pause; what became of each request."""

    def __init__(self, house, count=2):
        self.house, self.results, self.over = house, [], False
        self.threads = [threading.Thread(target=self.work) for _ in range(count)]
        for t in self.threads:
            t.start()

    def work(self):
        asker = House(self.house.build, self.house.work)
        while not self.over:
            begin = time.monotonic()
            got = asker.ask(20)
            said = b"" if got else asker.said
            what = "whole" if got else "draining" if b"draining" in said or b"503" in said else said.decode().strip()
            self.results.append((begin, time.monotonic(), what))
            if not got:
                time.sleep(0.5)

    def stop(self):
        self.over = True
        for t in self.threads:
            t.join()


def update(house):
    one, two = house.image("one"), house.image("two", "--version", "2.0.0")
    medium(house.work + "/two.img", two + "/update.raucb")
    own_network()
    with power(house, Disk(house.work + "/update.qcow2", one + "/disk.raw")) as machine:
        at = good(house, machine, "a")
        load = Load(house)
        try:
            time.sleep(5)
            machine.plug(house.work + "/two.img")
            begun = told(machine, "installing 2.0.0", 120, at)
            installed = told(machine, "installed 2.0.0; draining", 400, begun)
            at = told(machine, "restarting into 2.0.0", 90, installed)
            at = good(house, machine, "b", 2 * BOOT_S, at)
            time.sleep(5)
        finally:
            load.stop()
        begun, installed = (machine.start + machine.lines[n - 1][0] for n in (begun, installed))
        during = [what for begin, end, what in load.results if end > begun and begin < installed - 1]
        whole = [end for _, end, what in load.results if what == "whole"]
        gap = max(b - a for a, b in zip(sorted(whole), sorted(whole)[1:]))
        print(f"{during.count('whole')} answers while the slot was written, {len(during) - during.count('whole')} not whole; "
              f"{sum(what == 'draining' for _, _, what in load.results)} refused by name while draining; "
              f"no answer for {gap:.1f} s around the restart")
        assert during.count("whole") > 5 and during.count("whole") == len(during), during
        # It is the new one from now on, without a trial.
        machine.command("system_reset")
        good(house, machine, "b", BOOT_S, at)


def rollback(house):
    add = house.work + "/bad"
    dropin = add + "/usr/lib/systemd/system/tandemd.service.d"
    os.makedirs(dropin, exist_ok=True)
    with open(dropin + "/zz-bad.conf", "w", encoding="ascii") as f:
        f.write("[Service]\nType=exec\nWatchdogSec=0\nExecStart=\nExecStart=/bin/sleep infinity\n")
    os.makedirs(dropin.replace("tandemd", "tandem-good"), exist_ok=True)
    with open(dropin.replace("tandemd", "tandem-good") + "/quick.conf", "w", encoding="ascii") as f:
        f.write("[Service]\nEnvironment=TANDEM_GOOD_SECONDS=20\n")
    one, bad = house.image("one"), house.image("three", "--version", "3.0.0", "--add", add)
    medium(house.work + "/three.img", bad + "/update.raucb")
    own_network()
    with power(house, Disk(house.work + "/rollback.qcow2", one + "/disk.raw")) as machine:
        at = good(house, machine, "a")
        machine.plug(house.work + "/three.img")
        at = told(machine, "restarting into 3.0.0", 600, at)
        begin = machine.lines[at - 1][0]
        for _ in range(2):
            at = told(machine, "slot b gave no token in 20 s", BOOT_S, at)
        at = good(house, machine, "a", BOOT_S, at)
        print(f"back on the former slot {machine.lines[at - 1][0] - begin:.0f} s after the restart, nobody touched it")
        told(machine, "refused: 3.0.0 was tried and gave no token", 60, at)  # the stick is still there


def refused(house):
    one = house.image("one")
    bundle = house.work + "/bundle"
    if not os.path.exists(house.work + "/others"):
        run(os.path.join(TOP, "deploy/image/keys"), house.work + "/others")
    manifest = one + "/bundle/manifest.raucm"
    with open(manifest, encoding="ascii") as f:
        text = f.read()
    cases = []
    for name, keys, compatible in (("signed by another", "others", "tandem-amd64"), ("of another machine", "keys", "other")):
        shutil.rmtree(bundle, ignore_errors=True)
        shutil.copytree(one + "/bundle", bundle)
        with open(bundle + "/manifest.raucm", "w", encoding="ascii") as f:
            f.write(re.sub("version=.*", "version=4.0.0", text).replace("tandem-amd64", compatible))
        path = f"{house.work}/{keys}.raucb"
        if os.path.exists(path):
            os.unlink(path)
        run("rauc", f"--cert={house.work}/{keys}/update.crt", f"--key={house.work}/{keys}/update.key", "bundle", bundle, path)
        cases.append((name, path))
    altered = house.work + "/altered.raucb"
    shutil.copy(house.work + "/keys.raucb", altered)
    with open(altered, "r+b") as f:
        f.seek(40 * MIB)
        byte = f.read(1)
        f.seek(40 * MIB)
        f.write(bytes([byte[0] ^ 1]))
    cases.append(("with one byte altered", altered))
    own_network()
    with power(house, Disk(house.work + "/refused.qcow2", one + "/disk.raw")) as machine:
        at = good(house, machine, "a")
        for name, path in cases:
            print(f"a bundle {name}:")
            medium(house.work + "/stick.img", path)
            machine.plug(house.work + "/stick.img")
            at = told(machine, "refused: |failed, .* goes on: ", 300, at)
            assert house.ask(60), house.said
            machine.unplug()
        machine.command("system_reset")
        good(house, machine, "a", BOOT_S, at)


def blocks(house):
    one = house.image("one")
    where = Disk.partitions(one + "/disk.raw")
    size = os.path.getsize(one + "/root.img")
    rng = random.Random(7)
    own_network()
    disk = Disk(house.work + "/blocks.qcow2", one + "/disk.raw")
    offset = rng.randrange(size)
    disk.flip(where["tandem-root-a"][0] + offset)
    print(f"slot a: byte {offset} of {size} flipped")
    with power(house, disk) as machine:
        at = told(machine, "slot a: a block is not what was signed", BOOT_S)
        at = told(machine, "starting slot b", 10, at)
        good(house, machine, "b", BOOT_S, at)
        assert not any("slot a gave" in line for _, line in machine.lines)
        machine.off()
    offset = rng.randrange(size)
    disk.flip(where["tandem-root-b"][0] + offset)
    print(f"slot b: byte {offset} of {size} flipped")
    with power(house, disk) as machine:
        at = told(machine, "Tandem recovery: ", BOOT_S)
        machine.wait("recovery>", 10, at)
        machine.say("ls")
        told(machine, "words: state, retry a", 20, at)
        machine.say("state")
        told(machine, "slot a: bad", 20, at)
        told(machine, "slot b: bad", 20, at)
        assert not any("tokens and is good" in line for _, line in machine.lines)
        machine.say("off")
        machine.process.wait(60)


def firmware(house):
    one = house.image("one")
    raw, variables = house.work + "/firmware.raw", house.work + "/enrolled.fd"
    run("cp", "--sparse=always", one + "/disk.raw", raw)
    shutil.copy("/usr/share/OVMF/OVMF_VARS_4M.fd", variables)
    esp = f"{raw}@@{Disk.partitions(raw)['tandem-esp'][0]}"
    env = dict(os.environ, MTOOLS_SKIP_CHECK="1")

    def enrol(how):
        with open(house.work + "/loader.conf", "w", encoding="ascii") as f:
            f.write(f"timeout 0\neditor no\nsecure-boot-enroll {how}\n")
        run("mcopy", "-o", "-i", esp, house.work + "/loader.conf", "::/loader/loader.conf", env=env)

    own_network()
    enrol("force")  # what an operator chooses in the menu of a machine in setup mode
    with power(house, Disk(house.work + "/firmware.qcow2", raw), variables) as machine:
        good(house, machine, "a", 2 * BOOT_S)
        print("keys enrolled; the signed kernel serves")
        machine.off()
    enrol("manual")
    for name, offset in (("2-a.efi", 9 * MIB), ("1-b.efi", 9 * MIB)):
        run("mcopy", "-o", "-i", esp, f"::/EFI/Linux/{name}", house.work + "/kernel.efi", env=env)
        with open(house.work + "/kernel.efi", "r+b") as f:
            f.seek(offset)
            byte = f.read(1)
            f.seek(offset)
            f.write(bytes([byte[0] ^ 1]))
        run("mcopy", "-o", "-i", esp, house.work + "/kernel.efi", f"::/EFI/Linux/{name}", env=env)
    with power(house, Disk(house.work + "/firmware.qcow2", raw), variables) as machine:
        told(machine, r"Failed to execute.*(Access denied|Security violation)", 60)
        time.sleep(30)
        assert not any("tandem" in line and "Failed" not in line for _, line in machine.lines), machine.console(20)


def twice(house):
    first = house.image("one")
    shutil.rmtree(house.work + "/again", ignore_errors=True)
    second = house.image("again", "--root-only")
    hashes = []
    for folder in (first, second):
        with open(folder + "/roothash", encoding="ascii") as f:
            hashes.append(f.read().strip())
    print("\n".join(hashes))
    assert hashes[0] == hashes[1]
    for name in ("root.img", "tandem-a.efi", "update.raucb"):
        print(f"{os.path.getsize(os.path.join(first, name)) / 1e6:8.1f} MB {name}")
    with open(first + "/sizes", encoding="ascii") as f:
        parts = [line.split() for line in f]
    print(f"{sum(int(n) for n, _ in parts) / 1e6:8.1f} MB in the root, unpacked; its largest packages:")
    for n, name in parts[:10]:
        print(f"{int(n) / 1e6:8.1f} MB {name}")


SCENARIOS = {f.__name__: f for f in (serve, update, rollback, refused, blocks, firmware, twice)}


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in SCENARIOS:
        sys.stderr.write(__doc__)
        return 2
    missing = [t for t in TOOLS if not shutil.which(t)]
    if os.geteuid() != 0 or missing:
        print(f"skipped: root and {', '.join(missing) or 'nothing else'} wanted", file=sys.stderr)
        return 77
    SCENARIOS[sys.argv[3]](House(sys.argv[1], sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
