#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Goal: the Hopper kernels (prefill, decode, fused) are the machine code that they are meant to be.
# Method: check_sass.py NVCC ROOT FILE.cu: compiles the instance for sm_90a and reads what ptxas says:
# at most 128 registers (512 threads fill the file), nothing spilled, no stack, wgmma not serialised
# (C7510 to C7520).  Where a disassembler is on the path: HGMMA for prefill, HMMA for decode, the bulk
# copy engine, registers re-shared, and in the plain step of prefill nothing that brings a descriptor
# from a lane's register (R2UR) between its wgmma: a branch that ptxas does not know uniform, anywhere in
# the loop around, does that to all of them and costs 8 %.
import re
import shutil
import subprocess
import sys
import tempfile


PREFILL, DECODE = 1, 2
IMAGES = {PREFILL: "prefill", DECODE: "decode", PREFILL | DECODE: "fused"}


def fail(what):
    print("FAIL:", what)
    sys.exit(1)


def check_ptxas(text):
    found = re.findall(r"Used (\d+) registers", text)
    if len(found) != len(IMAGES):
        fail(f"{len(found)} kernels, {len(IMAGES)} expected")
    if max(map(int, found)) > 128:
        fail(f"{found} registers")
    for spill in re.findall(r"\d+ bytes stack frame, \d+ bytes spill stores, \d+ bytes spill loads", text):
        if re.search(r"[1-9]", spill):
            fail("stack or spills: " + spill)
    serial = re.findall(r"\(C75(?:1[0-8]|20)\).*", text)
    if serial:
        fail("wgmma is serialised: " + serial[0])


def check_sass(text):
    """By image: what it must hold, and what the other kind's would."""
    for name, body in re.findall(r"^\.text\.(\S+):\n(.*?)(?=^\.text\.|\Z)", text, re.M | re.S):
        kinds = int(re.search(r"ELj(\d)EE", name)[1])
        ops = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ +)?([A-Z][A-Z0-9_.]*)", body, re.M)
        has = lambda op: any(o.startswith(op) for o in ops)
        for op, of in (("UTMALDG", kinds), ("HGMMA", kinds & PREFILL), ("USETMAXREG", kinds & PREFILL),
                       ("HMMA", kinds & DECODE)):
            if has(op) != bool(of):
                fail(f"{IMAGES[kinds]}: {'no ' if of else ''}{op}")
        if kinds & PREFILL:
            check_step(ops, IMAGES[kinds])


def check_step(ops, image):
    # From the wait of the first block's scores to the first of the plain step.
    waits = [i for i, op in enumerate(ops) if op == "WARPGROUP.DEPBAR.LE"]
    step = ops[waits[0] + 1:waits[1]]
    mma = [i for i, op in enumerate(step) if op.startswith("HGMMA")]
    if len(mma) < 9:
        fail(f"{image}: {len(mma)} wgmma in the plain step")
    moves = step[mma[0]:mma[-1]].count("R2UR")
    if moves:
        fail(f"{image}: {moves} descriptors of the plain step come from lanes' registers")


def main():
    nvcc, root, source = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as tmp:
        cubin = tmp + "/kernel.cubin"
        flags = ["-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-I" + root, "-Xptxas", "-v"]
        run = subprocess.run([nvcc, *flags, "-cubin", "-o", cubin, root + "/" + source],
                             capture_output=True, text=True)
        if run.returncode:
            fail(run.stderr)
        check_ptxas(run.stderr + run.stdout)
        tool = shutil.which("nvdisasm")
        if tool:
            check_sass(subprocess.run([tool, "-c", cubin], capture_output=True, text=True).stdout)
    print("ok:", source, "with its machine code" if tool else "as ptxas reports it")


main()
