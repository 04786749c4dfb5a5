#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The executor inside exec.sandbox: does it serve as outside, and what was refused to it and its driver?

usage: sandbox.py BIN_DIR [--set key=value ...]

On a GPU host: sandbox.py BIN_DIR --set exec.backend=cuda --set model.path=dummy:llama-3-8b, twenty seconds.
Asks the same with the sandbox off, then on, then on under strace, where that is installed and may trace.  Prints each
refusal once with its count, and one line of JSON last: is it as outside and if not why, are Landlock and seccomp in
force, what was refused.  A start that fails inside is traced all the same."""
import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from appliance import Appliance, orphans  # noqa: E402

PROMPTS = [[3 + i * 7 % 200 for i in range(n)] for n in (5, 40, 200)]
REFUSED = re.compile(r"^\d+\s+(\w+)\((.*)\)\s+= -1 (EPERM|EACCES)\b")
RESUMED = re.compile(r"^(\d+)\s+<\.\.\. (\w+) resumed>(.*)$")
# What strace writes where two threads call at once, and what is to be read from it.
PLANTED = ("""7 openat(AT_FDCWD, "/etc/keys", O_RDONLY <unfinished ...>
8 connect(3, {sa_family=AF_UNIX, sun_path="/run/mps"}, 26) = -1 EPERM (Operation not permitted)
7 <... openat resumed>) = -1 EACCES (Permission denied)
8 openat(AT_FDCWD, "/etc/none", O_RDONLY) = -1 ENOENT (No such file or directory)
9 <... bind resumed>) = -1 EPERM (Operation not permitted)
""", {"openat /etc/keys: EACCES": 1, "connect /run/mps: EPERM": 1, "bind : EPERM": 1})


def served(folder, args, sandbox):
    """The tokens of all prompts, what the log says of the sandbox, and why there are none."""
    settings = {"port.kind": "none", **dict(pair.split("=", 1) for pair in args.set), "exec.sandbox": sandbox}
    a = Appliance(folder, settings, ready=False)
    try:
        with a:
            a.wait_ready(120)
            tokens = [a.complete(p, 16) for p in PROMPTS]
            return tokens, [line for line in a.log().splitlines() if "sandbox" in line], None
    except AssertionError as e:
        return None, [], str(e).strip().splitlines()[-1]


def traced_bin(folder, args, log):
    """A folder of programs in which the executor is under strace, which is not its parent (-D): tandemd is, and ends it."""
    for name in ("tandemd", "tandemctl"):
        shutil.copy2(os.path.join(args.bin, name), os.path.join(folder, name))
    path = os.path.join(folder, "tandem-exec")
    with open(path, "w", encoding="ascii") as f:
        f.write(f'#!/bin/sh\nexec strace -D -f -qq -Z -s 80 -o "{log}" "{os.path.join(args.bin, "tandem-exec")}" "$@"\n')
    os.chmod(path, 0o755)
    return folder


def may_trace():
    return shutil.which("strace") and subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], capture_output=True,
                                                     check=False).returncode == 0


def await_tracer():
    """Until strace has written all and ended."""
    end = time.monotonic() + 30
    while orphans("strace"):
        assert time.monotonic() < end, "strace did not end"
        time.sleep(0.05)


def whole(lines):
    """Each call on one line."""
    begun = {}
    for line in map(str.rstrip, lines):
        m = RESUMED.match(line)
        if line.endswith("<unfinished ...>"):
            begun[line.split()[0]] = line.removesuffix("<unfinished ...>").rstrip()
        else:
            yield begun.pop(m.group(1), f"{m.group(1)} {m.group(2)}(") + m.group(3) if m else line


def refusals(lines):
    """Call and what it was about, to how often it was refused."""
    found, failed = collections.Counter(), 0
    for line in whole(lines):
        failed += " = -1 " in line
        m = REFUSED.match(line)
        if m:
            about = re.search(r'"([^"]*)"', m.group(2))
            found[f"{m.group(1)} {about.group(1) if about else m.group(2).split(',')[0]}: {m.group(3)}"] += 1
    assert failed > 0, "a start in which no call fails was not traced"
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    args.bin = os.path.realpath(args.bin)
    assert refusals(PLANTED[0].splitlines()) == PLANTED[1]
    outside, _, why = served(args.bin, args, "off")
    assert outside, f"it does not serve outside either: {why}"
    inside, lacks, why = served(args.bin, args, "on")
    as_outside, found = inside == outside, None
    if may_trace():
        with tempfile.TemporaryDirectory(prefix="tandem-sandbox-") as folder:
            log = os.path.join(folder, "calls")
            traced = served(traced_bin(folder, args, log), args, "on")[0]
            await_tracer()
            with open(log, encoding="utf-8", errors="replace") as f:
                found = refusals(f)
        as_outside = as_outside and traced == inside
        for what, count in sorted(found.items()):
            print(f"refused {count:5} {what}")
    else:
        print("strace is not here or may not trace: what was refused is not known")
    for line in [*lacks, *([f"inside it does not serve: {why}"] if why else [])]:
        print(line)
    print(json.dumps({"as_outside": as_outside, "why": why, "tokens": sum(map(len, inside or [])), "lacks": lacks,
                      "refused": None if found is None else sum(found.values())}))
    return 0 if as_outside else 1


if __name__ == "__main__":
    sys.exit(main())
