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
  older      a signed bundle older than what served is refused, unless an admin allows it
  blocks     a byte flipped in a slot, then in both
  firmware   Secure Boot with our keys; an altered kernel is refused
  cuts       SIGKILL of QEMU at 10 seeded moments of updates, one after another on one disk
  lost       unflushed writes of an update lost or torn, in copies of the disk
  drivers    Secure Boot and a kernel module of the operator's: built, signed, loaded; altered or unsigned refused; made twice
  twice      two images from one cache: the same root hash; sizes
"""
import contextlib
import fcntl
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
import writes
from machine import DATA_NIC, MIB, Disk, Machine, Patience, medium, own_network, run

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
KEY, ADMIN_KEY = "image-key", "admin-key"
CUT_S = 150   # what an update takes, from its start to the proof of the new slot
BOOT_S = 480  # power-on to tokens, on a machine that does much else
TOOLS = ("qemu-system-x86_64", "qemu-img", "mmdebstrap", "mksquashfs", "veritysetup", "sgdisk", "mcopy", "sbsign",
         "rauc", "cert-to-efi-sig-list")
APPLIANCE = {
    "machine": {"hostname": "tandem-image", "hugepages_2m": 160, "iommu": "intel"},
    "data": {"nic": DATA_NIC, "ipv4": "10.88.0.2/24"},
    "keys": {"api": [f"image {hashlib.sha256(KEY.encode()).hexdigest()}"],
             "admin": [f"operator {hashlib.sha256(ADMIN_KEY.encode()).hexdigest()}"]},
    "serve": {"model": {"path": "dummy:tiny"}, "http": {"address": "0.0.0.0"}, "exec": {"sms": 2}, "port": {"mbufs": 2048}},
}


class House:
    """Where things are, and the images that were made there."""

    def __init__(self, build, work, scenario):
        self.build = build
        self.work = os.path.realpath(work)
        self.here = os.path.join(self.work, scenario)  # what is this scenario's alone
        os.makedirs(self.here, exist_ok=True)
        self.ctl = os.path.join(build, "bin/tandemctl")
        self.packages = os.path.join(self.work, "packages")

    def pack(self):
        """The packages of the build, anew where it is newer."""
        made = [os.path.getmtime(p) for p in glob.glob(self.packages + "/tandem*.deb")]
        built = [os.path.getmtime(os.path.join(self.build, "bin", p)) for p in ("tandemd", "tandem-exec", "tandemctl")]
        if not made or max(built) > min(made):
            shutil.rmtree(self.packages, ignore_errors=True)
            run("cpack", "-B", self.packages, cwd=self.build)

    def stamp(self, options):
        """What an image is made of."""
        inputs = sorted(glob.glob(self.packages + "/tandem*.deb"))
        for folder, _, files in sorted(os.walk(os.path.join(TOP, "deploy/image"))):
            inputs += [os.path.join(folder, f) for f in sorted(files) if f != "README.md"]
        digest = hashlib.sha256(repr((options, APPLIANCE)).encode())
        for path in inputs:
            with open(path, "rb") as f:
                digest.update(f.read())
        return digest.hexdigest()

    def image(self, name, *options):
        """The folder of an image, made where it is not there as it would be made."""
        out = os.path.join(self.work, name)
        with open(self.work + "/mutex", "w", encoding="ascii") as mutex:
            fcntl.flock(mutex, fcntl.LOCK_EX)
            self.pack()
            stamp, done = self.stamp(options), os.path.join(out, "done")
            if os.path.exists(done):
                with open(done, encoding="ascii") as f:
                    if f.read() == stamp:
                        return out
                os.unlink(done)
            self.make(name, out, options)
            with open(done, "w", encoding="ascii") as f:
                f.write(stamp)
            return out

    def make(self, name, out, options):
        appliance = os.path.join(self.work, "appliance.json")
        with open(appliance, "w", encoding="ascii") as f:
            json.dump(APPLIANCE, f)
        locks = os.path.join(self.work, "locks")
        args = [os.path.join(TOP, "deploy/image/make"), out, "--packages", self.packages, "--cache", self.work + "/cache",
                "--keys", self.work + "/keys", "--appliance", appliance, *options]
        model = os.path.join(TOP, "build/models/smollm2.gguf")
        if os.path.exists(model):
            args += ["--model", model]
        if os.path.exists(locks):
            args += ["--locks", locks]
        r = subprocess.run(args, capture_output=True, text=True, check=False)
        if r.returncode and "is not to be had any more" in r.stderr:
            print("the archive has moved on: resolving the lock anew for this run")
            run(os.path.join(TOP, "deploy/image/lock"), self.packages, locks)
            shutil.rmtree(self.work + "/cache")
            r = subprocess.run([*args, "--locks", locks], capture_output=True, text=True, check=False)
            if "is not to be had any more" in r.stderr:
                print("skipped: the archive's packages cannot be fetched", file=sys.stderr)
                sys.exit(77)
        assert r.returncode == 0, r.stdout + r.stderr
        print(f"image {name}: " + " ".join(re.findall(r"root hash \S+|done: .*", r.stdout)))

    def ask(self, seconds=30):
        """One streamed answer over HTTP/3: (tokens, when its first byte came), or None."""
        p = subprocess.Popen([self.ctl, "generate", "1 2 3", "--host", "10.88.0.2", "--insecure", "--max-tokens", "16",
                              "--temperature", "0", "--ids", "--seconds", str(seconds), "--key", KEY,
                              "--model", "dummy:tiny"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = p.stdout.read(1)
        at = time.monotonic()
        rest, self.said = p.communicate()
        tokens = len(re.findall(rb"\d+", first + rest))
        return (tokens, at) if p.returncode == 0 and tokens > 0 else None

    def manage(self, *words):
        """tandemctl with the admin's key, by the management NIC."""
        return run(self.ctl, *words, "--http", "http://127.0.0.1:8080", "--key", ADMIN_KEY).stdout

    def allow(self, version):
        """The operator wants an older version installed."""
        self.manage("config", "apply", "update.older=" + version, "--why", "the new one is slower here")

    def first_token(self, machine, seconds=BOOT_S):
        """Asks until there is an answer; seconds from power-on to its first token."""
        patience = Patience(seconds)
        while not patience.over() and machine.process.poll() is None:
            got = self.ask(5)
            if got:
                return got[1] - machine.start
            time.sleep(0.2)
        raise AssertionError(f"no token in {seconds} s: {self.said}\n{machine.console(60)}")


@contextlib.contextmanager
def power(house, disk, variables=None, log=None):
    """A machine that is on; its console is shown where something fails."""
    machine = Machine(house.here, disk, variables, log)
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
    with power(house, Disk(house.here + "/serve.qcow2", image + "/disk.raw", "8G")) as machine:
        seconds = house.first_token(machine)
        told(machine, rf"nic: {DATA_NIC}: vfio-pci, group \d+", 5)
        good(house, machine, "a")
        grown = told(machine, r"/var has \d+ MiB", 60)  # it was 2048 MiB when made, on a disk of 5 GiB
        assert int(re.search(r"(\d+) MiB", machine.lines[grown - 1][1]).group(1)) > 4000
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
        asker = House(self.house.build, self.house.work, "load")
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
    medium(house.here + "/two.img", two + "/update.raucb")
    own_network()
    with power(house, Disk(house.here + "/update.qcow2", one + "/disk.raw")) as machine:
        at = good(house, machine, "a")
        load = Load(house)
        try:
            time.sleep(5)
            machine.plug(house.here + "/two.img")
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
    add = house.here + "/bad"
    dropin = add + "/usr/lib/systemd/system/tandemd.service.d"
    os.makedirs(dropin, exist_ok=True)
    with open(dropin + "/zz-bad.conf", "w", encoding="ascii") as f:
        f.write("[Service]\nType=exec\nWatchdogSec=0\nExecStart=\nExecStart=/bin/sleep infinity\n")
    os.makedirs(dropin.replace("tandemd", "tandem-good"), exist_ok=True)
    with open(dropin.replace("tandemd", "tandem-good") + "/quick.conf", "w", encoding="ascii") as f:
        f.write("[Service]\nEnvironment=TANDEM_GOOD_SECONDS=20\n")
    one, bad = house.image("one"), house.image("three", "--version", "3.0.0", "--add", add)
    medium(house.here + "/three.img", bad + "/update.raucb")
    own_network()
    with power(house, Disk(house.here + "/rollback.qcow2", one + "/disk.raw")) as machine:
        at = good(house, machine, "a")
        machine.plug(house.here + "/three.img")
        at = told(machine, "restarting into 3.0.0", 600, at)
        begin = machine.lines[at - 1][0]
        for _ in range(2):
            at = told(machine, "slot b gave no token in 20 s", BOOT_S, at)
        at = good(house, machine, "a", BOOT_S, at)
        print(f"back on the former slot {machine.lines[at - 1][0] - begin:.0f} s after the restart, nobody touched it")
        told(machine, "refused: 3.0.0 was tried and did not prove itself", 60, at)  # the stick is still there


def refused(house):
    one = house.image("one")
    bundle = house.here + "/bundle"
    folders = {"keys": house.work + "/keys", "others": house.here + "/others"}
    if not os.path.exists(folders["others"]):
        run(os.path.join(TOP, "deploy/image/keys"), folders["others"])
    manifest = one + "/bundle/manifest.raucm"
    with open(manifest, encoding="ascii") as f:
        text = f.read()
    cases = []
    for name, keys, compatible in (("signed by another", "others", "tandem-amd64"), ("of another machine", "keys", "other"),
                                   ("with one byte altered", "keys", "tandem-amd64")):
        shutil.rmtree(bundle, ignore_errors=True)
        shutil.copytree(one + "/bundle", bundle)
        with open(bundle + "/manifest.raucm", "w", encoding="ascii") as f:
            f.write(re.sub("version=.*", "version=4.0.0", text).replace("tandem-amd64", compatible))
        path = f"{house.here}/{name.split()[-1]}.raucb"
        if os.path.exists(path):
            os.unlink(path)
        run("rauc", f"--cert={folders[keys]}/update.crt", f"--key={folders[keys]}/update.key", "bundle", bundle, path)
        cases.append((name, path))
    # all that is wrong with the last one is a byte in the middle of its root
    with open(path, "r+b") as f:
        f.seek(40 * MIB)
        byte = f.read(1)
        f.seek(40 * MIB)
        f.write(bytes([byte[0] ^ 1]))
    own_network()
    with power(house, Disk(house.here + "/refused.qcow2", one + "/disk.raw")) as machine:
        at = good(house, machine, "a")
        for name, path in cases:
            print(f"a bundle {name}:")
            medium(house.here + "/stick.img", path)
            machine.plug(house.here + "/stick.img")
            at = told(machine, "refused: |failed, .* goes on: ", 300, at)
            assert house.ask(60), house.said
            machine.unplug()
        machine.command("system_reset")
        good(house, machine, "a", BOOT_S, at)


def older(house):
    one, two = house.image("one"), house.image("two", "--version", "2.0.0")
    medium(house.here + "/one.img", one + "/update.raucb")
    own_network()
    with power(house, Disk(house.here + "/older.qcow2", two + "/disk.raw")) as machine:
        at = good(house, machine, "a")
        machine.plug(house.here + "/one.img")
        at = told(machine, "refused: .* is older than 2.0.0, which served here", 120, at)
        assert house.ask(60), house.said
        machine.unplug()
        house.allow("0.1.0")
        entry = json.loads(house.manage("show", "audit", "-o", "json"))["entries"][0]
        print("audit: " + " ".join(entry[k] for k in ("who", "role", "what", "why", "result")))
        assert (entry["who"], entry["what"], entry["result"]) == ("key operator", "apply", "ok"), entry
        machine.plug(house.here + "/one.img")
        at = told(machine, "installing 0.1.0 beside 2.0.0", 120, at)
        at = told(machine, "restarting into 0.1.0", 600, at)
        at = good(house, machine, "b", 2 * BOOT_S, at)
        # What was allowed was allowed once: the stick's own version runs, and 2.0.0 remains the mark.
        told(machine, "nothing to do: 0.1.0 runs", 60, at)


def blocks(house):
    one = house.image("one")
    where = Disk.partitions(one + "/disk.raw")
    size = os.path.getsize(one + "/root.img")
    rng = random.Random(7)
    own_network()
    disk = Disk(house.here + "/blocks.qcow2", one + "/disk.raw")
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
        at = machine.wait("Words: ", 10, at)
        time.sleep(2)
        machine.say("ls")
        told(machine, "words: state, retry a", 20, at)
        machine.say("state")
        told(machine, "slot a: bad", 20, at)
        told(machine, "slot b: bad", 20, at)
        assert not any("tokens and is good" in line for _, line in machine.lines)
        machine.say("off")
        machine.process.wait(60)


def enrol(house, raw, how):
    """What systemd-boot does with the keys on the ESP of a machine in setup mode; force: what an operator chooses in its menu."""
    with open(house.here + "/loader.conf", "w", encoding="ascii") as f:
        f.write(f"timeout 0\neditor no\nsecure-boot-enroll {how}\n")
    esp = f"{raw}@@{Disk.partitions(raw)['tandem-esp'][0]}"
    run("mcopy", "-o", "-i", esp, house.here + "/loader.conf", "::/loader/loader.conf", env=dict(os.environ, MTOOLS_SKIP_CHECK="1"))
    return esp


def firmware(house):
    one = house.image("one")
    raw, variables = house.here + "/firmware.raw", house.here + "/enrolled.fd"
    run("cp", "--sparse=always", one + "/disk.raw", raw)
    shutil.copy("/usr/share/OVMF/OVMF_VARS_4M.fd", variables)
    env = dict(os.environ, MTOOLS_SKIP_CHECK="1")
    own_network()
    esp = enrol(house, raw, "force")
    with power(house, Disk(house.here + "/firmware.qcow2", raw), variables) as machine:
        good(house, machine, "a", 2 * BOOT_S)
        print("keys enrolled; the signed kernel serves")
        machine.off()
    enrol(house, raw, "manual")
    run("mcopy", "-o", "-i", esp, "::/EFI/Linux/2-a.efi", house.here + "/kernel.efi", env=env)
    with open(house.here + "/kernel.efi", "r+b") as f:
        f.seek(9 * MIB)
        byte = f.read(1)
        f.seek(9 * MIB)
        f.write(bytes([byte[0] ^ 1]))
    run("mcopy", "-o", "-i", esp, house.here + "/kernel.efi", "::/EFI/Linux/2-a.efi", env=env)
    with power(house, Disk(house.here + "/firmware.qcow2", raw), variables) as machine:
        at = told(machine, r"Error loading \\EFI\\Linux\\2-a.efi: (Access Denied|Security Violation)", 60)
        machine.wait("No bootable option", 60, at)
        machine.command("system_reset")
        machine.wait("BdsDxe: starting", 60, at + 4)
        for _ in range(20):  # whoever stands there holds a key and takes the other entry
            machine.type(" ")
            time.sleep(0.2)
        machine.type("\x1b[B")
        time.sleep(1)
        machine.type("\r")
        good(house, machine, "b", BOOT_S, at)
        assert not any("slot a gave" in line for _, line in machine.lines)


def cuts(house):
    one, two = house.image("one"), house.image("two", "--version", "2.0.0")
    sticks = {"1": house.here + "/one.img", "2": house.here + "/two.img"}
    medium(sticks["1"], one + "/update.raucb")
    medium(sticks["2"], two + "/update.raucb")
    rng = random.Random(10)
    disk = Disk(house.here + "/cuts.qcow2", one + "/disk.raw")
    own_network()
    begin = time.monotonic()
    runs = "1"
    for n in range(11):
        with power(house, disk) as machine:
            seconds = house.first_token(machine, 2 * BOOT_S)
            at = machine.wait(r"slot [ab] gave \d+ tokens and is good", 60)
            slot = re.search("slot ([ab])", machine.lines[at - 1][1]).group(1)
            print(f"{n}: slot {slot} gave a token {seconds:.0f} s after power-on")
            if n == 10:
                break
            house.allow("0.1.0")  # every other update is a step back
            machine.plug(sticks["2" if runs == "1" else "1"])
            at = machine.wait("installing|nothing to do", 120, at)
            if "nothing to do" in machine.lines[at - 1][1]:  # the former update had come through
                runs = "2" if runs == "1" else "1"
                machine.unplug()
                machine.plug(sticks["2" if runs == "1" else "1"])
                at = machine.wait("installing", 120, at)
            time.sleep(rng.uniform(0, CUT_S))
            machine.cut()
            print(f"   cut {time.monotonic() - machine.start - machine.lines[at - 1][0]:.0f} s into the update, "
                  f"after: {machine.lines[-1][1].split('] ')[-1]}")
    print(f"11 starts, 10 cuts, {time.monotonic() - begin:.0f} s")


def kernels(house, esp):
    """The entries of an ESP: name to the name of the image whose kernel it is."""
    env = dict(os.environ, MTOOLS_SKIP_CHECK="1")
    out = {}
    listing = subprocess.run(["mdir", "-b", "-i", esp, "::/EFI/Linux"], capture_output=True, text=True, check=False, env=env).stdout
    for name in re.findall(r"::/EFI/Linux/(\S+\.efi)", listing):
        body = subprocess.run(["mtype", "-i", esp, "::/EFI/Linux/" + name], capture_output=True, check=False, env=env).stdout
        digest = hashlib.sha256(body).hexdigest()
        out[name] = house.known.get(digest, "broken")
    return out


def lost(house):
    one, two = house.image("one"), house.image("two", "--version", "2.0.0")
    house.known = {}
    for image in (one, two):
        for slot in "ab":
            with open(f"{image}/tandem-{slot}.efi", "rb") as f:
                house.known[hashlib.sha256(f.read()).hexdigest()] = f"{os.path.basename(image)}-{slot}"
    medium(house.here + "/two.img", two + "/update.raucb")
    own_network()
    log = house.here + "/writes.log"
    with power(house, Disk(house.here + "/lost.qcow2", one + "/disk.raw"), log=log) as machine:
        at = good(house, machine, "a")
        first = writes.count(log)
        machine.plug(house.here + "/two.img")
        at = told(machine, "restarting into", 600, at)
        good(house, machine, "b", 2 * BOOT_S, at)
        time.sleep(5)
        last = writes.count(log)
    rng = random.Random(11)
    raw, esp = house.here + "/lost.raw", house.here + "/lost.esp"
    run("cp", "--sparse=always", one + "/disk.raw", raw)
    where = Disk.partitions(raw)
    replay = writes.Replay(log, raw)
    start, size = where["tandem-esp"]
    # Moments that lie between two flushes of the ESP are where entries may tear.
    touching = [w.index for w in replay.writes[first:last] if w.size and start <= w.offset < start + size]
    moments = sorted(set(rng.sample(range(first, last), 60) + [min(i + rng.randrange(1, 4), last) for i in
                                                                  rng.sample(touching, min(140, len(touching)))]))
    chosen = set(rng.sample(moments, 3))
    fates, seen, boots = [0, 0, 0], {}, []
    for moment in moments:
        pending = replay.forward(moment)
        seed = rng.random()
        writes.part(raw, where["tandem-esp"], esp)
        replay.cut(esp, pending, random.Random(seed), start, size)
        found = kernels(house, esp)
        usable = {name: k for name, k in found.items() if "+0" not in name}
        state = ", ".join(f"{n} {k}" for n, k in sorted(found.items()))
        seen[state] = seen.get(state, 0) + 1
        assert usable and "broken" not in usable.values(), (moment, found)
        if moment in chosen:
            copy = f"{house.here}/lost-{len(boots)}.raw"
            run("cp", "--sparse=always", raw, copy)
            got = replay.cut(copy, pending, random.Random(seed))
            fates = [a + b for a, b in zip(fates, got)]
            boots.append((moment, copy, got))
    print(f"{len(moments)} cuts in {last - first} writes and flushes of the update: whole kernels, an entry to start in each:")
    for state, n in sorted(seen.items(), key=lambda x: -x[1]):
        print(f"{n:6} {state}")
    for moment, copy, got in boots:
        with power(house, Disk(house.here + "/lost.qcow2", copy)) as machine:
            seconds = house.first_token(machine, 2 * BOOT_S)
            print(f"cut at {moment}: {got[0]} unflushed writes there, {got[1]} lost, {got[2]} torn; token after {seconds:.0f} s")
        os.unlink(copy)


CHECK = """#!/bin/sh
# What this kernel takes as a module, said on the console.
echo "lockdown: $(cat /sys/kernel/security/lockdown)"
grep -q '^acpi_call ' /proc/modules && echo "loaded at boot: acpi_call, signed by $(modinfo -F signer acpi_call)"
rmmod acpi_call
module=$(modinfo -n acpi_call)
cp "$module" /run/altered.ko
printf '\\377' | dd of=/run/altered.ko bs=1 seek=4000 conv=notrunc 2>/dev/null
set -- $(tail -c 32 "$module" | od -An -tu1 -N4) # the length of the signature
head -c -$(($3 * 256 + $4 + 40)) "$module" >/run/unsigned.ko
for kind in altered unsigned; do
    why=$(insmod /run/$kind.ko 2>&1) && echo "$kind: taken" || echo "$kind: ${why##*: }"
done
echo "the kernel: $(dmesg | grep -i 'unsigned module' | tail -n 1 | sed 's/^\\[[^]]*\\] *//')"
insmod "$module" && echo "as it was: taken"
[ ! -e /usr/bin/gcc ] && [ ! -e /usr/sbin/dkms ] && [ -z "$(ls -A /usr/src)" ] && echo "no compiler, no headers"
"""
CHECK_UNIT = """[Unit]
After=systemd-modules-load.service
[Service]
Type=oneshot
ExecStart=/usr/lib/operator/check
StandardOutput=journal+console
StandardError=journal+console
SyslogIdentifier=operator
"""


def put(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    os.chmod(path, mode)


def drivers(house):
    folder, tree, add = house.here + "/packages", house.here + "/tree", house.here + "/add"
    for path in (folder, tree, add):
        shutil.rmtree(path, ignore_errors=True)
    os.makedirs(folder)
    put(tree + "/DEBIAN/control", "Package: operator-driver\nVersion: 1\nArchitecture: amd64\n"
        "Maintainer: operator <o@example.org>\nDepends: acpi-call-dkms\nDescription: stands for a driver\n")
    put(tree + "/usr/lib/operator/firmware", "bytes\n")
    put(tree + "/usr/lib/modules-load.d/operator.conf", "acpi_call\n")
    run("dpkg-deb", "--root-owner-group", "-b", tree, folder + "/operator-driver_1_amd64.deb")
    # A module that needs no hardware, and comes as NVIDIA's do: as source, for DKMS.
    got = subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", "acpi-call-dkms"], cwd=folder,
                         capture_output=True, text=True, check=False)
    if got.returncode:
        print("skipped: acpi-call-dkms cannot be fetched", file=sys.stderr)
        sys.exit(77)
    put(add + "/usr/lib/operator/check", CHECK, 0o755)
    unit = add + "/usr/lib/systemd/system/operator.service"
    put(unit, CHECK_UNIT)
    os.makedirs(os.path.dirname(unit) + "/multi-user.target.wants")
    os.symlink("../operator.service", os.path.dirname(unit) + "/multi-user.target.wants/operator.service")
    out = house.image("driven", "--drivers", folder, "--add", add)
    with open(out + "/sizes", encoding="ascii") as f:
        there = {line.split()[1] for line in f}
    assert {"operator-driver", "acpi-call-dkms"} <= there and not {"gcc-12", "make", "dkms", "linux-headers-amd64"} & there, there
    raw, variables = house.here + "/drivers.raw", house.here + "/enrolled.fd"
    run("cp", "--sparse=always", out + "/disk.raw", raw)
    shutil.copy("/usr/share/OVMF/OVMF_VARS_4M.fd", variables)
    enrol(house, raw, "force")
    own_network()
    with power(house, Disk(house.here + "/drivers.qcow2", raw), variables) as machine:
        at = 0
        for line in (r"lockdown: none \[integrity\]", "loaded at boot: acpi_call, signed by Tandem db",
                     "altered: Key was rejected by service", "unsigned: Key was rejected by service", "the kernel: .*unsigned module is rejected", "as it was: taken",
                     "no compiler, no headers"):
            at = told(machine, line, BOOT_S if at else 2 * BOOT_S, at)
        good(house, machine, "a")
        machine.off()
    shutil.rmtree(house.work + "/driven-again", ignore_errors=True)
    again = house.image("driven-again", "--drivers", folder, "--add", add, "--root-only")
    hashes = []
    for made in (out, again):
        with open(made + "/roothash", encoding="ascii") as f:
            hashes.append(f.read().strip())
    print("\n".join(hashes))
    assert hashes[0] == hashes[1]


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


SCENARIOS = {f.__name__: f for f in (serve, update, rollback, refused, older, blocks, firmware, cuts, lost, drivers, twice)}


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in SCENARIOS:
        sys.stderr.write(__doc__)
        return 2
    missing = [t for t in TOOLS if not shutil.which(t)]
    if os.geteuid() != 0 or missing:
        print(f"skipped: root and {', '.join(missing) or 'nothing else'} wanted", file=sys.stderr)
        return 77
    SCENARIOS[sys.argv[3]](House(*sys.argv[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
