# SPDX-License-Identifier: Apache-2.0
"""The ledger of measured figures, tests/perf/results/ledger.jsonl: one line a
name, the newest; how a figure came about stands in its line."""
import datetime
import json
import os
import re
import subprocess

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PATH = os.path.join(ROOT, "tests", "perf", "results", "ledger.jsonl")


def device():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        model = re.search(r"model name\s*: (.*)", f.read())
    return f"{model.group(1) if model else 'unknown'} VM, {os.cpu_count()} cores"


def line(name, value, unit, aim, regime, command, note):
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False).stdout.strip()
    return {"name": name, "value": value, "unit": unit, "aim": aim, "device": device(),
            "regime": regime, "command": command, "date": datetime.date.today().isoformat(),
            "commit": commit, "note": note}


def put(lines):
    """Each line takes the place of the one of its name."""
    names = {x["name"] for x in lines}
    with open(PATH, encoding="utf-8") as f:
        kept = [x for x in f if json.loads(x)["name"] not in names]
    with open(PATH, "w", encoding="utf-8") as f:
        f.writelines(kept)
        f.writelines(json.dumps(x) + "\n" for x in lines)
