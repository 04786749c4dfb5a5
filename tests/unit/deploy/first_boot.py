#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""First boot, in a root folder of its own, and what the console hears of health.
usage: first_boot.py ROOT TANDEMCTL TANDEMD

The partition is a folder: who mounts it is the unit's business, shown where a systemd runs."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = CTL = DAEMON = ""
HASH = "ab" * 32


class Machine:
    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="tandem-first-boot-")

    def path(self, name):
        return os.path.join(self.root, name)

    def offer(self, **files):
        folder = self.path("run/tandem-appliance/offer")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for name, text in files.items():
            with open(os.path.join(folder, name.replace("_", ".")), "w", encoding="utf-8") as f:
                f.write(text if isinstance(text, str) else json.dumps(text))

    def boot(self):
        r = subprocess.run([os.path.join(ROOT, "deploy/first-boot")], capture_output=True, text=True, check=False,
                           env={"PATH": os.environ["PATH"], "TANDEM_ROOT": self.root, "TANDEM_CTL": CTL})
        assert r.returncode == 0 and not r.stderr, r
        return r.stdout

    def power_off(self):
        shutil.rmtree(self.path("run"))

    def get(self, name):
        with open(self.path(name), encoding="utf-8") as f:
            return f.read()

    def files(self):
        return {os.path.relpath(os.path.join(d, f), self.root): self.get(os.path.join(d, f))
                for d, _, fs in os.walk(self.root) for f in fs if "/offer" not in d}

    def close(self):
        shutil.rmtree(self.root)


class FirstBoot(unittest.TestCase):
    def setUp(self):
        self.m = Machine()
        self.addCleanup(self.m.close)

    def test_nothing_is_offered(self):
        said = self.m.boot()
        key = re.search(r"api key, shown this once: (tdm-[0-9a-f]{48})\n", said)
        self.assertTrue(key, said)
        self.assertFalse([n for n, text in self.m.files().items() if key.group(1) in text])
        self.m.power_off()
        self.assertEqual(self.m.boot(), "")  # the key is made once
        config = self.m.get("run/tandem-appliance/tandem.json")
        r = subprocess.run([DAEMON, "--config", self.m.path("run/tandem-appliance/tandem.json"), "--print-config"],
                           capture_output=True, text=True, check=False)
        self.assertEqual(r.returncode, 0, r.stderr + config)
        self.assertEqual(json.loads(r.stdout)["port"]["kind"], "none")

    def test_what_is_offered_stays_without_the_partition(self):
        self.m.offer(appliance_json={"machine": {"hostname": "one"}, "keys": {"api": ["chat " + HASH]}})
        self.assertEqual(self.m.boot(), "tandem: appliance.json: accepted\n")
        once = {n: t for n, t in self.m.files().items() if "local.key" not in n and "api.keys" not in n}
        self.assertEqual(self.m.boot(), "tandem: appliance.json: as before\n")
        self.m.power_off()
        self.assertEqual(self.m.boot(), "")
        again = self.m.files()
        self.assertEqual({n: t for n, t in again.items() if n in once}, once)
        self.assertEqual(again["run/tandem-appliance/hostname"], "one\n")
        self.assertIn("chat " + HASH, again["run/tandem-appliance/api.keys"])

    def test_what_is_refused_is_told_and_changes_nothing(self):
        self.m.offer(appliance_json={"machine": {"hostname": "one"}, "keys": {"api": ["chat " + HASH]}})
        self.m.boot()
        before = self.m.files()
        for bad, word in (("{", "line 1"), ({"machine": {"hostname": "a;reboot"}}, "machine.hostname"),
                          ({"serve": {"port": {"kind": "tap"}}}, "port.kind"),
                          ({"keys": {"api": ["x"]}}, "keys.api")):
            self.m.offer(appliance_json=bad)
            said = self.m.boot()
            self.assertRegex(said, "^tandem: refused: .*" + re.escape(word))
            self.assertIn(word, self.m.get("run/tandem-appliance/refused"))
            after = self.m.files()
            del after["run/tandem-appliance/refused"]
            self.assertEqual(after, before)
        self.m.offer(appliance_json={"machine": {"hostname": "two"}})
        self.m.boot()
        self.assertFalse(os.path.exists(self.m.path("run/tandem-appliance/refused")))

    def test_health_is_told_when_it_changes(self):
        folder = self.m.path("bin")
        os.makedirs(folder)
        with open(os.path.join(folder, "tandemctl"), "w", encoding="ascii") as f:
            f.write(f'#!/bin/sh\nn=$(cat {folder}/n 2>/dev/null || echo 0); echo $((n + 1)) >{folder}/n\n'
                    'case $n in 0 | 1) exit 4 ;; 2) echo "warning   loading" ;; *) echo "ready, nothing is wrong" ;;'
                    ' esac\necho second line\n')
        os.chmod(os.path.join(folder, "tandemctl"), 0o755)
        p = subprocess.Popen([os.path.join(ROOT, "deploy/health")], stdout=subprocess.PIPE, text=True,
                             env={"PATH": folder + ":" + os.environ["PATH"], "TANDEM_HEALTH_S": "0.05"})
        try:
            said = [p.stdout.readline() for _ in range(3)]
        finally:
            p.terminate()
            p.wait()
            p.stdout.close()
        self.assertEqual(said, ["tandem: nobody answers: systemctl status tandemd\n", "tandem: warning loading\n",
                                "tandem: ready, nothing is wrong\n"])


if __name__ == "__main__":
    ROOT, CTL, DAEMON = sys.argv[1:4]
    del sys.argv[1:4]
    unittest.main()
