# SPDX-License-Identifier: Apache-2.0
"""The iterations of a window, from the flight recorder: what the mean of a window
hides.  Of each kind (decodes alone, prefill alone, both) how many there were, the
seconds that they took and that attention took of it, what the profile says of the
rest, and the SM clock as it was measured inside attention."""
import csv
import gzip
import json
import os
import subprocess

COLUMNS = ["prefill_tokens", "decodes", "kv_tokens", "pairs", "attention_ms", "predicted_ms", "profile_ms", "clock_mhz", "planned",
           "fallback"]


def rest_of(profile):
    """What a profile says of everything but attention, in seconds by tokens: straight between its points, and from
    stair_from on that of the next."""
    points, stair = sorted((p[0], p[1]) for p in profile["lin"]), profile.get("stair_from", 0)

    def told(tokens):
        k = next((i for i, (n, _) in enumerate(points) if n >= tokens), len(points) - 1)
        (n, ns), (m, ms) = points[max(0, k - 1)], points[k]
        if n == m or (stair and tokens >= stair):
            return (profile["fixed_ns"] + ms) / 1e9
        return (profile["fixed_ns"] + ns + (ms - ns) * (tokens - n) / (m - n)) / 1e9
    return told


def kind_of(row):
    return "both" if row["prefill_tokens"] and row["decodes"] else "prefill" if row["prefill_tokens"] else "decodes"


def summed(rows, told):
    """{kind: {...}} of rows with ms and COLUMNS."""
    out = {}
    for row in rows:
        k = out.setdefault(kind_of(row), {"cnt": 0, "s": 0.0, "attention_s": 0.0, "rest_told_s": 0.0, "predicted_s": 0.0, "profile_s": 0.0,
                                          "clock_s": 0.0, "clock_mhz": 0.0})
        k["cnt"] += 1
        k["s"] += row["ms"] / 1e3
        k["attention_s"] += row["attention_ms"] / 1e3
        k["predicted_s"] += row["predicted_ms"] / 1e3
        k["profile_s"] += row["profile_ms"] / 1e3
        k["rest_told_s"] += told(row["prefill_tokens"] + row["decodes"])
        if row["clock_mhz"]:
            k["clock_s"] += row["ms"] / 1e3
            k["clock_mhz"] += row["clock_mhz"] * row["ms"] / 1e3
    for k in out.values():  # a mean over the time that it was measured in
        k["clock_mhz"] = k["clock_mhz"] / k["clock_s"] if k["clock_s"] else 0
        del k["clock_s"]
    return {kind: {n: round(v, 4) for n, v in k.items()} for kind, k in out.items()}


def window_rows(bin_dir, flight, seconds, window_s):
    """The iterations of the last window_s before the newest; nothing later than seconds ago is looked at."""
    r = subprocess.run([os.path.join(bin_dir, "tandemctl"), "trace", "--flight", flight, "--seconds", str(int(seconds) + 1)],
                       capture_output=True, text=True, check=False, timeout=60)
    if r.returncode != 0:
        return []
    events = json.loads(r.stdout)
    events = events["traceEvents"] if isinstance(events, dict) else events
    found = [e for e in events if e.get("cat") == "iteration" and e.get("ph") == "X"]
    end = max((e["ts"] + e["dur"] for e in found), default=0)
    return [{"ms": e["dur"] / 1e3, **{c: e["args"][c] for c in COLUMNS}} for e in found if e["ts"] >= end - window_s * 1e6]


def file(rows, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with gzip.open(path, "wt", encoding="ascii", newline="") as f:
        w = csv.DictWriter(f, ["ms", *COLUMNS])
        w.writeheader()
        w.writerows(rows)


def self_test():
    """Seconds are counted once, by kind, and the profile is read as the scheduler reads it."""
    told = rest_of({"fixed_ns": 1e6, "stair_from": 100, "lin": [[1, 4e6], [64, 10.3e6], [128, 20e6], [256, 30e6]]})
    assert [round(told(n), 6) for n in (1, 33, 64, 110, 128, 129, 999)] == [0.005, 0.0082, 0.0113, 0.021, 0.021, 0.031, 0.031]
    row = {"ms": 20.0, "prefill_tokens": 0, "decodes": 1, "kv_tokens": 9, "attention_ms": 5.0, "predicted_ms": 18.0, "profile_ms": 17.0,
           "clock_mhz": 0, "planned": "fused", "fallback": "none"}
    got = summed([row, {**row, "prefill_tokens": 128, "ms": 40.0, "clock_mhz": 1500}, {**row, "prefill_tokens": 128, "ms": 20.0, "clock_mhz": 1200}], told)
    assert got["decodes"] == {"cnt": 1, "s": 0.02, "attention_s": 0.005, "rest_told_s": 0.005, "predicted_s": 0.018, "profile_s": 0.017, "clock_mhz": 0}
    assert got["both"]["cnt"] == 2 and got["both"]["clock_mhz"] == 1400 and got["both"]["s"] == 0.06, got
    print("iterations: summed by kind")
    return 0
