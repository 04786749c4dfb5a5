# SPDX-License-Identifier: Apache-2.0
"""A sitting on a GPU host: what is worth measuring, and measuring it.

A plan (sitting.json):

  {"engine": the executor's hash, "profile_sum", "rest": of the profile (iterations.py), "is_model",
   "kv_pages", "window_s", "words": for tandemctl plan and replay, "door", "settings": {key: value}, "entries": {
     NAME: {"trace", "gap_ms", "rates": [[requests a second, warm decodes], ..],
            "cells": [PATH/POLICY, ..], "steps": of the simulator: {cell: [kept at each rate, ..]}}},
   "seen": {NAME: {cell: [[rate, kept], ..]}}: what this engine measured before and is not measured again,
   "hints": the same of other engines: where a knee is looked for first,
   "lanes": {"1", "2", "4": [[[NAME, cell, where], ..], ..]}}

where is a rate, which a window within NEAR of it serves; "guess": the highest
at which the simulator keeps the promise, moved by what was seen of its like, or
at which another engine kept it; "next": the one that
narrows a cell's capacity down, by what is measured so far (none, where the
highest rate that is kept and the lowest that is not are neighbours); "as CELL":
the highest rate at which CELL kept the promise, or the lowest that it was
measured at; "rest": what else has not been measured, near the guess first.
Lanes are listed by their number, each in the order of worth, so that wherever a
sitting ends what matters most is there.  A lane is one appliance on one GPU; a
comparison stands in one lane, as GPUs differ.  All cells of an entry get the
same arrivals and the same warm start at one rate."""
import datetime
import hashlib
import json
import os
import subprocess
import tempfile

TRACES = {"arxiv_sample": "arxiv_sample.csv", "azure_code": "AzureLLMInferenceTrace_code.csv",
          "mooncake": "conversation_trace.jsonl", "arxiv_long": "arxiv_long_online.csv"}
# Bursts and silence follow each other for minutes in this one (63 requests in its first 180 s, 531 in the next 60), so
# that a window needs a stretch of it that is busy throughout: from a second to a second since the first.
STRETCH = {"azure_code": (1740, 2100)}
SPREAD = {"mooncake": ["--spread"]}  # its arrivals are filed in steps of 3 s
FIXED = ["static:512", "static:1024", "static:1536", "static:2048"]
TTFT_MS = 5000
SHARES = [0.5, *(x / 40 for x in range(28, 43))]  # of fused/quantile's capacity: 0.70 to 1.05 by 0.025
COARSE = [x / 20 for x in range(12, 26)]


def ctl(bin_dir, *words, timeout=1800):
    r = subprocess.run([os.path.join(bin_dir, "tandemctl"), *map(str, words)], capture_output=True, text=True,
                       timeout=timeout, check=False)
    assert r.returncode == 0, (words, r.stderr)
    return r.stdout


def stretch_of(path, begin_s, end_s):
    """The rows of an Azure trace between two moments, as a file of its own."""
    stem, end = os.path.splitext(os.path.basename(path))
    out = os.path.join(tempfile.gettempdir(), f"tandem-traces-{os.getuid()}", f"{stem}_{begin_s}_{end_s}{end}")
    with open(path, encoding="ascii") as f:
        head, *rows = f.readlines()
    when = [datetime.datetime.fromisoformat(r.split(",")[0][:26]) for r in rows]
    os.makedirs(os.path.dirname(out), exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(out), delete=False) as f:
        f.write(head + "".join(r for r, t in zip(rows, when) if begin_s <= (t - when[0]).total_seconds() < end_s))
    os.replace(f.name, out)
    return out


def trace_of(folder, name):
    path = os.path.join(folder, TRACES.get(name, name))
    if os.path.isfile(path) and name in STRETCH:
        return stretch_of(path, *STRETCH[name])
    return path if os.path.isfile(path) else name


def plan(bin_dir, traces, profile, pages, trace, gap, *words):
    return json.loads(ctl(bin_dir, "plan", "--json", "--profile", profile, "--trace", trace_of(traces, trace),
                          "--kv-pages", pages, "--gap-ms", gap, "--ttft-ms", TTFT_MS, "--ttft-share", 0.9,
                          *SPREAD.get(trace, []), *words))


def spelt(rates):
    return ",".join(f"{r}@{n}" for r, n in rates)


def windows(bin_dir, traces, profile, entry, pages, window_s, policies, *words):
    """The simulator's word on an entry's windows: the same arrivals, warm starts and ends."""
    return plan(bin_dir, traces, profile, pages, entry["trace"], entry["gap_ms"], "--window", window_s, "--rates",
                spelt(entry["rates"]), "--requests", 100000, "--policies", ",".join(policies), *words)


# --- what is worth measuring ----------------------------------------------------------


def kept(found):
    return {f"{c['route']}/{c['policy'] or 'quantile'}": [p["kept"] for p in c["points"]] for c in found["curves"]}


def highest(states):
    """The number of the last rate before the first that is not kept; -1: none."""
    return next((i for i, k in enumerate(states) if not k), len(states)) - 1


def decodes_at(points, rate):
    """How many decodes run at a rate, between the points of a curve."""
    for a, b in zip(points, points[1:]):
        if rate <= b["rate"]:
            t = (rate - a["rate"]) / (b["rate"] - a["rate"])
            return a["decodes"] + t * (b["decodes"] - a["decodes"])
    return points[-1]["decodes"]


def rates_of(found, capacity, shares):
    """Rates at shares of a capacity, each with the decodes that run then."""
    knee = next(c for c in found["curves"] if (c["route"], c["policy"] or "quantile") == ("fused", "quantile"))
    return [[round(x * capacity, 3), max(1, min(200, round(decodes_at(knee["points"], x * capacity))))] for x in shares]


def around_edge(steps):
    """Shares by 0.025 around the last of COARSE that is kept, with the half."""
    return sorted({0.5, *(round(COARSE[max(0, highest(steps))] + x / 40, 3) for x in range(-8, 7))})


def in_order(policy):
    """A fixed chunk with prompts in order of arrival, as others serve it."""
    return policy.replace("static:", "fifo:")


def cells_of(fixed):
    """The ways to serve that are measured, by which fixed chunks of serial carry most."""
    return ["fused/quantile", "serial/quantile", f"serial/{fixed[0]}", "streams/quantile", f"fused/{fixed[0]}",
            f"serial/{fixed[1]}", f"serial/{in_order(fixed[0])}"]


def entry_of(want, trace, gap):
    """An entry, and which fixed chunks of serial carry most, by the simulator."""
    found = plan(want.bin, want.traces, want.profile, want.kv_pages, trace, gap, "--requests",
                 1200 if trace in STRETCH else 400, "--policies", ",".join(["quantile", *FIXED]), *want.words)
    best = {(c["route"], c["policy"]): c["best"] for c in found["curves"]}
    fixed = sorted(FIXED, key=lambda p: -best["serial", p])
    most = best["fused", "quantile"]
    assert most > 0, f"{trace}: no rate keeps {gap} ms"
    entry = {"trace": trace, "gap_ms": gap, "capacity": most, "fixed": fixed[:2],
             "rates": rates_of(found, most, COARSE if trace == "arxiv_sample" else SHARES), "cells": cells_of(fixed)}
    if trace == "arxiv_sample":  # whose knees are looked for: by windows they are lower than by a day
        entry["rates"] = rates_of(found, most, around_edge(stepped(want, entry, ["quantile"])["fused/quantile"]))
    return entry


def entry_again(want, entry, is_measured):
    """An earlier sitting's, at its rates, so that what it measured is gone on with; where it measured nothing and knees
    are looked for, at rates around the edge that this profile has."""
    entry = {**entry, "cells": cells_of(entry["fixed"])}
    if is_measured or entry["trace"] != "arxiv_sample":
        return entry
    found = plan(want.bin, want.traces, want.profile, want.kv_pages, entry["trace"], entry["gap_ms"], "--requests", 400,
                 "--rates", ",".join(f"{x * entry['capacity']:.4f}" for x in COARSE), "--policies", "quantile", *want.words)
    entry["rates"] = rates_of(found, entry["capacity"], COARSE)
    steps = stepped(want, entry, ["quantile"])["fused/quantile"]
    return {**entry, "rates": rates_of(found, entry["capacity"], around_edge(steps))}


def by_windows(entry):
    """An entry whose first fixed chunk is the one of both that windows carry further."""
    a, b = entry["fixed"]
    if guess(entry, f"serial/{a}") >= guess(entry, f"serial/{b}"):
        return entry
    return {**entry, "fixed": [b, a], "cells": cells_of([b, a])}


def stepped(want, entry, policies):
    return kept(windows(want.bin, want.traces, want.profile, entry, want.kv_pages, want.window_s, policies, *want.words))


def measured(folder, name, cell):
    """The measured windows of a way to serve in a folder of bench files."""
    path = os.path.join(folder, name + ".json")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [c for c in json.load(f)["cells"] if f"{c['path']}/{c['policy']}" == cell and "simulated" not in c]


def guess(entry, cell):
    return max(0, highest(entry["steps"][cell]))


def rate_at(entry, share):
    """The rate at a share of what fused/quantile is to carry, which by windows may be less than by a day: a window can
    end in the midst of a burst.  Where none is within 3 % it comes in, and the highest goes."""
    rates = entry["rates"]
    want = share * min(entry["capacity"], rates[guess(entry, "fused/quantile")][0])
    at = min(range(len(rates)), key=lambda i: abs(rates[i][0] - want))
    if abs(rates[at][0] - want) < 0.03 * want or not rates[0][0] < want:
        return rates[at][0]
    i = next(i for i, (r, _) in enumerate(rates) if r > want)
    t = (want - rates[i - 1][0]) / (rates[i][0] - rates[i - 1][0])
    rates.insert(i, [round(want, 3), round(rates[i - 1][1] + t * (rates[i][1] - rates[i - 1][1]))])
    rates.pop()
    for steps in entry["steps"].values():  # between two that are kept it is; nobody looks for a knee there
        steps.insert(i, steps[i])
        steps.pop()
    return rates[i][0]


def knees(name, cells, first):
    """Steps that close the capacities of some cells, one after the other, twice as far where that was not enough."""
    begin = [[name, c, "guess"] for c in cells] if first else []
    return begin + [[name, c, "next"] for cnt in (3, 4) for c in cells for _ in range(cnt)]


def below(name, entry, cells, shares):
    """A way to serve beside another at shares of what is carried."""
    return [[name, entry["cells"][c], rate_at(entry, x)] for x in shares for c in cells]


def lanes_of(entries):
    """Who measures what, for 1, 2 and 4 lanes: the lists of this file's head.  A lane has some 20 windows in half an
    hour, which the knees of both promises take; then what the plan is held against, other traces near their capacity
    and the other ways to serve, each at five rates; what is worth less than those comes last."""
    a, b = "arxiv_sample_60", "arxiv_sample_30"
    order = ("knees", "short", "low", "high", "ways", "at_short", "traces", "rest_low", "second", "short_edge", "series", "short_low", "grid")
    parts = {k: [] for k in order}
    if a in entries:
        fused, serial, fixed, streams, fused_fixed, fixed2, arrival = entries[a]["cells"]
        parts["knees"] = [*knees(a, [fused, serial, fixed], False), [a, fused, f"as {fixed}"], [a, fused, f"as {serial}"]]
        parts["low"] = below(a, entries[a], [0], (0.85, 0.7, 0.5))
        parts["ways"] = [*knees(a, [streams], True)[:3], *knees(a, [fused_fixed], True)[:3],
                         *knees(a, [arrival], True)[:3], [a, fused, f"as {arrival}"]]
        parts["rest_low"] = below(a, entries[a], [1, 2, 3], (0.85, 0.7, 0.5))
        parts["second"] = [*knees(a, [fixed2], True)[:3], *below(a, entries[a], [5, 4], (0.7, 0.5, 0.85))]
        parts["grid"] = [*([a, c, "next"] for c in (streams, fused_fixed, fixed2) for _ in range(3)),
                         *([a, c, "rest"] for c in entries[a]["cells"] for _ in SHARES)]
    if b in entries:
        fused, serial, fixed = entries[b]["cells"][:3]
        parts["short"] = [s for c in (fused, serial) for s in knees(b, [c], True)[:3]] + knees(b, [fused, serial], False)
        parts["at_short"] = [[b, fused, f"as {serial}"]]
        parts["short_edge"] = [*knees(b, [fixed], True), [b, fused, f"as {fixed}"]]
        parts["short_low"] = below(b, entries[b], [0, 1, 2], (0.85, 0.7, 0.5))
    others = [(k, e) for k, e in entries.items() if e["trace"] != "arxiv_sample"]
    for part, share in (("high", 0.95), ("traces", 0.7)):
        for name, entry in others:
            parts[part] += below(name, entry, [0, 2], (share,))
            parts["series"] += below(name, entry, [1], (share,))

    def one_of(*ks):
        return sum((parts[k] for k in ks), [])

    short = [k for k in order if "short" in k or k in ("high", "traces", "series")]
    return {"1": [one_of(*order)],
            "2": [one_of(*(k for k in order if k not in short)), one_of(*short)],
            "4": [one_of("knees", "low", "rest_low", "second", "grid"), one_of(*(k for k in short if "short" in k)),
                  parts["ways"], one_of("high", "traces", "series")]}


def seen_of(results, name, cells):
    """{engine: {cell: [[rate, kept], ..]}} of an entry in a folder of results, which has a folder for each engine."""
    engines = sorted(os.listdir(results)) if results else []
    found = {e: {c: [[x["rate"], x["kept"]] for x in measured(os.path.join(results, e), name, c)] for c in cells} for e in engines}
    return {e: {c: rows for c, rows in of.items() if rows} for e, of in found.items()}


def make(want):
    """The plan of a sitting, by want: bin, engine, traces, profile, results (or None), was: {NAME: entry} of the plan that
    those were measured by, only: NAMEs, and what of the head of this file is asked for."""
    was, entries, seen, hints = want.was, {}, {}, {}
    for name in want.only:
        trace, gap = name.rsplit("_", 1)
        by_engine = seen_of(want.results, name, was[name]["cells"]) if name in was else {}
        seen[name] = by_engine.pop(want.engine, {})
        hints[name] = {}
        for cells in by_engine.values():
            for c, rows in cells.items():
                hints[name].setdefault(c, []).extend(rows)
        is_measured = bool(seen[name] or hints[name])
        e = entry_again(want, was[name], is_measured) if name in was else entry_of(want, trace, int(gap))
        e["steps"] = stepped(want, e, ["quantile", *e["fixed"], in_order(e["fixed"][0])])
        entries[name] = e = e if is_measured else by_windows(e)
        print(f"{name}: {e['capacity']:.3f}/s by a day; of {want.window_s} s the simulator keeps "
              + ", ".join(f"{c} {e['rates'][guess(e, c)][0]}" for c in e["cells"])
              + f"; {sum(map(len, seen[name].values()))} windows seen, {sum(map(len, hints[name].values()))} of other engines",
              flush=True)
    with open(want.profile, encoding="utf-8") as f:
        profile = json.load(f)
    return {"engine": want.engine, "profile_sum": sum_of(want.profile),
            "rest": {k: profile.get(k, 0) for k in ("fixed_ns", "stair_from", "lin")}, "is_model": bool(profile["is_model"]),
            "kv_pages": want.kv_pages, "window_s": want.window_s, "words": want.words, "door": want.door,
            "settings": want.settings, "entries": entries, "seen": seen, "hints": hints, "lanes": lanes_of(entries)}


def sum_of(path):
    """Which file it is, in short."""
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:16]


def self_test():
    """Rates at shares of what is carried, and every lane's work."""
    rates, said = [[1.0 + i, 1 + i] for i in range(6)], [True] * 3 + [False] * 3
    burst = {"capacity": 6.0, "rates": rates, "steps": {"fused/quantile": said}}
    assert rate_at(burst, 1.0) == 3.0, "a rate at which the plan's own windows miss"
    assert rate_at(burst, 0.5) == 1.5 and rates[1:3] == [[1.5, 2], [2.0, 2]] and len(rates) == 6, rates
    assert said == [True] * 4 + [False] * 2, "the steps go with their rates"
    entries = {n: {"trace": n.rsplit("_", 1)[0], "capacity": 3.0, "rates": [[1.0 + i / 4, 1] for i in range(16)],
                   "cells": [f"{n}{i}" for i in range(7)], "steps": {"fused/quantile": [True] * 9 + [False] * 7}}
               for n in ("arxiv_sample_60", "azure_code_60", "arxiv_sample_30")}
    lanes = lanes_of(entries)
    for cnt, lists in lanes.items():
        assert len(lists) == int(cnt) and all(lists), cnt
        assert {(n, c) for x in lists for n, c, _ in x} == {(n, c) for x in lanes["1"] for n, c, _ in x}, cnt
        assert sum(any(n == "arxiv_sample_30" for n, _, _ in x) for x in lists) == 1, "a comparison stands in one lane"
    with tempfile.TemporaryDirectory() as results:
        for engine, rate, more in (("a" * 16, 2.0, {}), ("b" * 16, 3.0, {}), ("b" * 16, 3.0, {"simulated": {}})):
            os.makedirs(os.path.join(results, engine), exist_ok=True)
            with open(os.path.join(results, engine, f"e_{len(more)}.json"), "w", encoding="utf-8") as f:
                json.dump({"cells": [{"path": "fused", "policy": "quantile", "rate": rate, "kept": True, **more}]}, f)
        seen = seen_of(results, "e_0", ["fused/quantile", "serial/quantile"])
        assert seen == {"a" * 16: {"fused/quantile": [[2.0, True]]}, "b" * 16: {"fused/quantile": [[3.0, True]]}}, seen
        assert not seen_of(results, "e_1", ["fused/quantile"])["b" * 16], "what is simulated was not seen"
    print("sitting: every lane has its work, in the order of worth")
    return 0
