#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The image's device nodes of GPUs, from what NVIDIA's driver says in /proc.  usage: image_gpu.py ROOT"""
import os
import subprocess
import sys
import tempfile

DEVICES = """Character devices:
  1 mem
195 nvidia
195 nvidia-modeset
195 nvidiactl
508 nvidia-uvm
509 nvidia-nvlink

Block devices:
 259 blkext
"""
VERSION = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (bob@example)
GCC version:  gcc version 12.2.0
"""
INFORMATION = """Model: \t\t NVIDIA H200
IRQ:   \t\t 77
GPU UUID: \t GPU-00000000-0000-0000-0000-000000000000
Device Minor: \t %d
"""


def put(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    os.chmod(path, mode)


def case(script, minors, there, want, want_said, devices=DEVICES, code=0):
    with tempfile.TemporaryDirectory() as here:
        put(here + "/mknod", '#!/bin/sh\necho "$*" | sed "s#$TANDEM_DEV/##" >>"$TANDEM_DEV/made"\n', 0o755)
        put(here + "/proc/devices", devices)
        put(here + "/proc/driver/nvidia/version", VERSION)
        for bus, minor in enumerate(minors):
            put(f"{here}/proc/driver/nvidia/gpus/0000:{bus:02x}:00.0/information", INFORMATION % minor)
        put(here + "/dev/made", "")
        for name in there:
            put(f"{here}/dev/{name}", "")
        env = {"PATH": here + ":" + os.environ["PATH"], "TANDEM_PROC": here + "/proc", "TANDEM_DEV": here + "/dev"}
        r = subprocess.run([script], capture_output=True, text=True, check=False, env=env, timeout=30)
        with open(here + "/dev/made", encoding="ascii") as f:
            made = f.read().splitlines()
        assert r.returncode == code and not r.stderr and r.stdout.strip().replace(here, "") == want_said, r
        assert made == [f"-m 0666 {n}" for n in want], made


def main():
    script = os.path.join(sys.argv[1], "deploy/image/files/usr/libexec/tandem/gpu")
    rest = ["nvidiactl c 195 255", "nvidia-uvm c 508 0", "nvidia-uvm-tools c 508 1"]
    case(script, [0], [], ["nvidia0 c 195 0", *rest], "GPUs: 1, driver 580.65.06")
    case(script, [1, 0], [], ["nvidia1 c 195 1", "nvidia0 c 195 0", *rest], "GPUs: 2, driver 580.65.06")
    case(script, [0], ["nvidia0", "nvidiactl"], rest[1:], "GPUs: 1, driver 580.65.06")
    case(script, [0], [], ["nvidia0 c 195 0", rest[0]], "GPUs: 1, driver 580.65.06",
         devices=DEVICES.replace("508 nvidia-uvm\n", ""))
    case(script, [], [], [], "NVIDIA's driver has no GPU")
    # before driver 545, Debian's own among them
    case(script, [0], [], ["nvidia0 c 195 0", *rest], "GPUs: 1, driver 580.65.06",
         devices=DEVICES.replace("195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n", "195 nvidia-frontend\n"))
    case(script, [0], [], [], "NVIDIA's driver runs, and /proc/devices does not name it: no device node is made",
         devices=DEVICES.replace("195 nvidia", "195 other"), code=1)
    print("gpu: 7 cases")


if __name__ == "__main__":
    main()
