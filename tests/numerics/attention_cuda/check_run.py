#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Goal: a run_on_gpu starts what it means to, and says so where one did not run.
# Method: check_run.py RUN_ON_GPU PROGRAM...: the script with stand-ins for the machine's tools and
# for the programs of its folder.  compute-sanitizer, as the real one does, refuses a target that is
# no program.  All lines of the summary must be "rc 0"; without one program the exit must be 1.
import os
import subprocess
import sys
import tempfile

TOOLS = {
    "nvidia-smi": "echo a GPU",
    # Options are pairs; what follows them is the target.
    "compute-sanitizer": 'while [ "${1#--}" != "$1" ]; do shift 2; done\n'
                         '[ -x "$1" ] || { echo "no program: $1"; exit 1; }\nexec "$@"',
}


def stand_in(folder, name, script):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\n{script}\n")
    os.chmod(path, 0o755)


def run(script, programs):
    """Exit status and the summary's lines of a run beside these programs."""
    with tempfile.TemporaryDirectory() as d:
        tools, out = os.path.join(d, "tools"), os.path.join(d, "out")
        os.mkdir(tools)
        for name, text in TOOLS.items():
            stand_in(tools, name, text)
        for name in programs:
            stand_in(d, name, "echo done")
        env = dict(os.environ, PATH=tools + os.pathsep + os.environ["PATH"])
        rc = subprocess.run(["sh", script, d, out], env=env, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, timeout=50, check=False).returncode
        with open(os.path.join(out, "summary"), encoding="utf-8") as f:
            return rc, f.read().splitlines()


def main():
    script, programs = sys.argv[1], sys.argv[2:]
    rc, lines = run(script, programs)
    bad = [line for line in lines if not line.endswith(": rc 0 done")]
    if rc or bad or not lines:
        sys.exit(f"{script}: exit {rc}, {len(lines)} runs; not as meant: {bad}")
    for left_out in programs:
        rc, _ = run(script, [p for p in programs if p != left_out])
        if rc != 1:
            sys.exit(f"{script}: exit {rc} without {left_out}")
    print(f"{script}: {len(lines)} runs")


main()
