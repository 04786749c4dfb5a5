#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What deploy/nic and deploy/hugepages do to a machine.  usage: host.py ROOT

A folder plays /sys, /proc and /dev; a thread plays the part of the kernel
that answers drivers_probe."""
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = ""
NIC, OTHER, BRIDGE = "0000:05:00.0", "0000:05:00.1", "0000:00:1c.0"


class Tree:
    """A machine with a NIC eth1 at NIC, driver ixgbe, alone with a bridge in IOMMU group 7."""

    def __init__(self, answers=True):
        self.root = tempfile.mkdtemp(prefix="tandem-host-")
        self.pci = self.path("sys/bus/pci")
        for name in ("ixgbe", "vfio-pci", "pcieport", "nvme"):
            self.put(f"sys/bus/pci/drivers/{name}/unbind", "")
        self.put("sys/bus/pci/drivers_probe", "")
        self.device(NIC, "0x020000", "ixgbe", 7)
        self.device(BRIDGE, "0x060400", "pcieport", 7)
        os.makedirs(self.path(f"sys/bus/pci/devices/{NIC}/net/eth1"))
        self.put("proc/net/route", "Iface\tDestination\tGateway\nlo\t0000007F\t00000000\n")
        zero = "0" * 32
        self.put("proc/net/ipv6_route", "".join(
            f"{to} {n} {zero} 00 {zero} 00000100 00000001 00000000 00000001 {dev}\n" for to, n, dev in (
                ("fe80" + "0" * 28, "40", "eth1"), ("ff00" + "0" * 28, "08", "eth1"), (zero, "00", "lo"))))
        self.stop = threading.Event()
        self.kernel = threading.Thread(target=self.answer if answers else lambda: None)
        self.kernel.start()

    def path(self, name):
        return os.path.join(self.root, name)

    def put(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(text)

    def get(self, name):
        with open(self.path(name), encoding="utf-8") as f:
            return f.read()

    def device(self, address, kind, driver, group):
        folder = f"sys/bus/pci/devices/{address}"
        self.put(f"{folder}/class", kind + "\n")
        self.put(f"{folder}/driver_override", "(null)\n")
        self.link(f"{folder}/driver", self.path(f"sys/bus/pci/drivers/{driver}"))
        if group is not None:
            devices = self.path(f"sys/kernel/iommu_groups/{group}/devices")
            os.makedirs(devices, exist_ok=True)
            self.link(f"{folder}/iommu_group", os.path.dirname(devices))
            os.symlink(self.path(folder), os.path.join(devices, address))

    def link(self, name, to):
        if os.path.lexists(self.path(name)):
            os.unlink(self.path(name))
        os.symlink(to, self.path(name))

    def answer(self):
        while not self.stop.wait(0.01):
            address = self.get("sys/bus/pci/drivers_probe").strip()
            if not address:
                continue
            self.put("sys/bus/pci/drivers_probe", "")
            folder = f"sys/bus/pci/devices/{address}"
            override = self.get(f"{folder}/driver_override").strip()
            self.link(f"{folder}/driver", self.path(f"sys/bus/pci/drivers/{override or 'ixgbe'}"))

    def driver(self, address=NIC):
        return os.path.basename(os.readlink(self.path(f"sys/bus/pci/devices/{address}/driver")))

    def run(self, script, *args, **env):
        return subprocess.run([os.path.join(ROOT, "deploy", script), *args], capture_output=True,
                              text=True, check=False,
                              env={"PATH": os.environ["PATH"], "TANDEM_ROOT": self.root, **env})

    def close(self):
        self.stop.set()
        self.kernel.join()
        shutil.rmtree(self.root)


class Host(unittest.TestCase):
    def tree(self, **how):
        t = Tree(**how)
        self.addCleanup(t.close)
        return t

    def refused(self, t, word, address=NIC, **env):
        r = t.run("nic", "bind", address, **env)
        self.assertEqual(r.returncode, 1, r)
        self.assertIn(word, r.stderr)
        self.assertEqual(r.stderr.count("\n"), 1, r.stderr)
        if os.path.exists(t.path(f"sys/bus/pci/devices/{address}/driver")):
            self.assertEqual(t.driver(address), "ixgbe")
            self.assertEqual(t.get(f"sys/bus/pci/devices/{address}/driver_override"), "(null)\n")

    def test_a_free_nic_is_bound_and_given_back(self):
        t = self.tree()
        for _ in range(2):  # twice is once
            r = t.run("nic", "bind", NIC)
            self.assertEqual((r.returncode, r.stdout), (0, f"nic: {NIC}: vfio-pci, group 7\n"), r)
            self.assertEqual(t.driver(), "vfio-pci")
            self.assertEqual(t.get(f"sys/bus/pci/devices/{NIC}/driver_override"), "vfio-pci\n")
        self.assertEqual(t.get("sys/bus/pci/drivers/ixgbe/unbind"), NIC + "\n")
        for _ in range(2):
            r = t.run("nic", "unbind", NIC)
            self.assertEqual((r.returncode, r.stdout), (0, f"nic: {NIC}: ixgbe\n"), r)
        self.assertEqual(t.get(f"sys/bus/pci/devices/{NIC}/driver_override").strip(), "")

    def test_the_management_nic_is_refused(self):
        t = self.tree()
        t.put("proc/net/route", "Iface\tDestination\tGateway\neth1\t00000000\t010200C0\n")
        self.refused(t, "eth1 has routes")
        t.put("proc/net/route", "Iface\tDestination\tGateway\neth10\t00000000\t010200C0\n")
        self.assertEqual(t.run("nic", "bind", NIC).returncode, 0)  # another's name begins alike
        t = self.tree()
        t.put("proc/net/ipv6_route", f"20010db8{'0' * 24} 40 {'0' * 32} 00 {'0' * 32} 0 0 0 1 eth1\n")
        self.refused(t, "eth1 has routes")

    def test_a_part_of_something_is_refused(self):
        t = self.tree()
        net = f"sys/bus/pci/devices/{NIC}/net/eth1"
        os.makedirs(t.path("sys/class/net/br0"))
        t.link(f"{net}/master", t.path("sys/class/net/br0"))
        self.refused(t, "eth1 belongs to br0")
        os.unlink(t.path(f"{net}/master"))
        os.makedirs(t.path(f"{net}/upper_eth1.10"))
        self.refused(t, "eth1.10 stands on eth1")

    def test_a_named_nic_is_refused(self):
        t = self.tree()
        self.refused(t, "names its interface eth1", TANDEM_MANAGEMENT="eth0 eth1")
        self.refused(t, "TANDEM_MANAGEMENT names it", TANDEM_MANAGEMENT=NIC)

    def test_what_vfio_would_not_protect_is_refused(self):
        t = self.tree()
        t.device(OTHER, "0x010802", "nvme", 7)
        self.refused(t, f"{OTHER} of its IOMMU group belongs to nvme")
        t = self.tree()
        os.unlink(t.path(f"sys/bus/pci/devices/{NIC}/iommu_group"))
        self.refused(t, "no IOMMU group")
        t = self.tree()
        shutil.rmtree(t.path("sys/bus/pci/drivers/vfio-pci"))
        self.refused(t, "modprobe vfio-pci")

    def test_what_is_no_nic_is_refused(self):
        t = self.tree()
        self.refused(t, "no such PCI device", OTHER)
        t.put(f"sys/bus/pci/devices/{NIC}/class", "0x010802\n")
        self.refused(t, "no network controller")
        for bad in ("eth1", "../../../etc", "0000:05:00.8", ""):
            self.assertEqual(t.run("nic", "bind", bad).returncode, 2, bad)
        self.assertEqual(t.run("nic", "steal", NIC).returncode, 2)

    def test_a_bind_that_fails_is_taken_back(self):
        t = self.tree(answers=False)
        r = t.run("nic", "bind", NIC)
        self.assertEqual(r.returncode, 1, r)
        self.assertIn("its driver is ixgbe after 2 s, not vfio-pci", r.stderr)
        self.assertEqual(t.get(f"sys/bus/pci/devices/{NIC}/driver_override").strip(), "")

    def test_hugepages_are_held_once_and_released(self):
        t = self.tree()
        held = t.path("held")
        t.put("proc/sys/vm/nr_hugepages", "10\n")
        t.put("proc/meminfo", "HugePages_Free: 96\nHugepagesize: 2048 kB\n")
        self.assertEqual(t.run("hugepages", "hold", "96", held).returncode, 0)
        self.assertEqual(t.get("held"), "0\n")
        os.unlink(held)
        t.put("held", "40\n")  # as a hold that added 40 left it
        t.put("proc/sys/vm/nr_hugepages", "50\n")
        self.assertEqual(t.run("hugepages", "hold", "96", held).returncode, 0)
        self.assertEqual(t.get("proc/sys/vm/nr_hugepages"), "50\n")
        self.assertEqual(t.run("hugepages", "release", held).returncode, 0)
        self.assertEqual(t.get("proc/sys/vm/nr_hugepages"), "10\n")
        self.assertFalse(os.path.exists(held))
        self.assertEqual(t.run("hugepages", "release", held).returncode, 0)
        self.assertEqual(t.get("proc/sys/vm/nr_hugepages"), "10\n")

    def test_reserved_hugepages_are_not_free(self):
        t = self.tree()
        t.put("proc/sys/vm/nr_hugepages", "96\n")
        t.put("proc/meminfo", "HugePages_Total: 96\nHugePages_Free: 96\nHugePages_Rsvd: 90\nHugepagesize: 2048 kB\n")
        r = t.run("hugepages", "take", "96")
        self.assertEqual(r.returncode, 1, r)  # nothing answers here: the pool is left as it was
        self.assertEqual(t.get("proc/sys/vm/nr_hugepages"), "96\n")
        r = t.run("hugepages", "take", "6")
        self.assertEqual((r.returncode, r.stdout), (0, "0\n"), r)

    def test_hugepages_that_come_late_are_asked_for_again(self):
        t = self.tree()
        t.put("proc/sys/vm/nr_hugepages", "0\n")
        t.put("proc/sys/vm/compact_memory", "")
        t.put("proc/meminfo", "HugePages_Free: 0\nHugePages_Rsvd: 0\nHugepagesize: 2048 kB\n")
        asked = []

        def kernel():  # finds 100 pages, then 511, then all, one of them in use already
            pool = "0"
            for found in (100, 511, 512):
                while (now := t.get("proc/sys/vm/nr_hugepages").strip()) in ("", pool):
                    time.sleep(0.005)
                asked.append((int(now), t.get("proc/sys/vm/compact_memory")))
                pool = str(found + 1)
                t.put("proc/sys/vm/nr_hugepages", pool)
                t.put("proc/meminfo", f"HugePages_Free: {found}\nHugepagesize: 2048 kB\n")

        thread = threading.Thread(target=kernel, daemon=True)
        thread.start()
        r = t.run("hugepages", "take", "512")
        self.assertEqual((r.returncode, r.stdout), (0, "513\n"), r)
        thread.join()
        self.assertEqual(asked, [(512, ""), (101 + 412, "1\n"), (512 + 1, "1\n")])

    def test_hugepages_that_are_not_there_change_nothing(self):
        t = self.tree()
        t.put("proc/sys/vm/nr_hugepages", "10\n")
        t.put("proc/meminfo", "HugePages_Free: 4\nHugepagesize: 2048 kB\n")
        r = t.run("hugepages", "hold", "96", t.path("held"))
        self.assertEqual(r.returncode, 1, r)
        self.assertIn("need 96 free pages of 2048 KiB, the kernel was 92 short after 5 tries", r.stderr)
        self.assertEqual(t.get("proc/sys/vm/nr_hugepages"), "10\n")
        self.assertFalse(os.path.exists(t.path("held")))
        for bad in ("", "-1", "1e3", "12345678"):
            self.assertEqual(t.run("hugepages", "take", bad).returncode, 2, bad)


if __name__ == "__main__":
    ROOT = sys.argv.pop(1)
    unittest.main()
