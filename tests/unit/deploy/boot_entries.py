#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The boot entries of the image, in a folder that stands for the ESP.  usage: boot_entries.py ROOT

What systemd-boot does with names is modelled here: it starts the first of
entries with tries before those without, then by the highest turn."""
import os
import random
import re
import subprocess
import sys
import tempfile

NAME = re.compile(r"^(\d+)-([ab])(?:\+(\d+)(?:-(\d+))?)?\.efi$")


class Esp:
    def __init__(self, script, folder):
        self.script, self.folder = script, folder
        for name, kernel in (("2-a.efi", "first"), ("1-b.efi", "first")):
            self.write(name, kernel)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="ascii") as f:
            f.write(text)

    def boot(self, *words):
        r = subprocess.run([self.script, *words], capture_output=True, text=True, check=False,
                           env={"PATH": os.environ["PATH"], "TANDEM_ESP": self.folder})
        assert r.returncode == 0, (words, r)
        return r.stdout.strip()

    def entries(self):
        out = {}
        for name in os.listdir(self.folder):
            m = NAME.match(name)
            if m:
                assert m.group(2) not in out, os.listdir(self.folder)
                left = None if m.group(3) is None else int(m.group(3))
                with open(os.path.join(self.folder, name), encoding="ascii") as f:
                    out[m.group(2)] = (int(m.group(1)), left, name, f.read())
        return out

    def start(self):
        """As systemd-boot: the slot that starts, one try less."""
        found = self.entries()
        slot = min(found, key=lambda s: (found[s][1] == 0, -found[s][0]))
        turn, left, name, _ = found[slot]
        if left:
            done = int(NAME.match(name).group(4) or 0) + 1
            os.rename(os.path.join(self.folder, name), os.path.join(self.folder, f"{turn}-{slot}+{left - 1}-{done}.efi"))
        return slot


def install(esp, slot, kernel):
    """As RAUC: the slot is bad while it is written, then staged, then next."""
    esp.boot("set-state", slot, "bad")
    with tempfile.NamedTemporaryFile("w", suffix=".efi") as f:
        f.write(kernel)
        f.flush()
        esp.boot("stage", slot, f.name)
        assert slot not in esp.entries() and esp.boot("get-state", slot) == "bad"
        esp.boot("set-primary", slot)


def story(script):
    with tempfile.TemporaryDirectory() as folder:
        esp = Esp(script, folder)
        assert esp.boot("get-primary") == "a" == esp.start()
        install(esp, "b", "second")
        assert esp.entries()["a"][1] is None  # what runs was not touched
        assert esp.boot("get-primary") == "b" == esp.start()
        assert esp.entries()["b"][1] == 1
        esp.boot("set-state", "b", "good")
        assert esp.start() == "b" and esp.entries()["b"][1] is None
        install(esp, "a", "third")
        assert [esp.start() for _ in range(3)] == ["a", "a", "b"]  # two tries, then back
        assert esp.boot("get-state", "a") == "bad" and esp.boot("get-primary") == "b"
        esp.boot("set-state", "b", "bad")
        assert esp.start() in "ab"  # something always starts
        esp.boot("set-primary", "b")
        assert esp.start() == "b" and esp.entries()["b"][3] == "second"


def storm(script, seed):
    """Any order of operations: each touches one slot, and something always starts."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        esp = Esp(script, folder)
        for n in range(40):
            before = esp.entries()
            slot = rng.choice("ab")
            what = rng.randrange(5)
            if what == 0:
                install(esp, slot, f"kernel {n}")
                assert esp.boot("get-primary") == slot
            elif what == 1:
                esp.boot("set-state", slot, "good")
            elif what == 2:
                esp.boot("set-state", slot, "bad")
                assert esp.boot("get-state", slot) == "bad"
            elif what == 3:
                esp.boot("set-primary", slot)
                assert esp.boot("get-primary") == slot
            else:
                primary = esp.boot("get-primary")
                usable = [s for s in "ab" if before[s][1] != 0]
                slot = esp.start()
                assert not usable or slot == primary, (before, slot, primary)
            after, other = esp.entries(), "b" if slot == "a" else "a"
            assert after[other] == before[other] and slot in after, (what, slot, before, after)


def main():
    script = os.path.join(sys.argv[1], "deploy/image/files/usr/lib/tandem/boot")
    story(script)
    for seed in range(5):
        storm(script, seed)
    for words in ((), ("get-state",), ("get-state", "c"), ("set-state", "a")):
        assert subprocess.run([script, *words], capture_output=True, check=False).returncode == 2, words
    print("boot entries: one story, 5 storms of 40")


if __name__ == "__main__":
    main()
