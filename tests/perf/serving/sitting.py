# SPDX-License-Identifier: Apache-2.0
"""A sitting on a GPU host: what is worth measuring, and measuring it.

A plan (sitting.json):

  {"profile", "profile_sum", "rest": of the profile (iterations.py), "is_model", "kv_pages", "window_s", "entries": {
     NAME: {"trace", "gap_ms", "rates": [[requests a second, warm decodes], ..],
            "cells": [PATH/POLICY, ..], "steps": of the simulator: {cell: [kept at each rate, ..]}}},
   "seen": {NAME: {cell: [[rate, kept], ..]}}: what earlier sittings measured and is not measured again,
   "lanes": {"1", "2", "4": [[[NAME, cell, where], ..], ..]}}

where is a rate; "guess": the highest at which the simulator keeps the promise,
moved by what was seen of its like; "next": the one that
narrows a cell's capacity down, by what is measured so far (none, where the
highest rate that is kept and the lowest that is not are neighbours); "as CELL":
the highest rate at which CELL kept the promise, or the lowest that it was
measured at; "rest": what else has not been measured, near the guess first.
Lanes are listed by their number, each in the order of worth, so that wherever a
sitting ends what matters most is there.  A lane is one appliance on one GPU; a
comparison stands in one lane, as GPUs differ.  All cells of an entry get the
same arrivals and the same warm start at one rate."""
import datetime
import glob
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time

import iterations
from appliance import Appliance

TRACES = {"arxiv_sample": "arxiv_sample.csv", "azure_code": "AzureLLMInferenceTrace_code.csv",
          "mooncake": "conversation_trace.jsonl", "arxiv_long": "arxiv_long_online.csv"}
# Bursts and silence follow each other for minutes in this one (63 requests in its first 180 s, 531 in the next 60), so
# that a window needs a stretch of it that is busy throughout: from a second to a second since the first.
STRETCH = {"azure_code": (1740, 2100)}
SPREAD = {"mooncake": ["--spread"]}  # its arrivals are filed in steps of 3 s
FIXED = ["static:512", "static:1024", "static:1536", "static:2048"]
TTFT_MS = 5000
REST_S = 8  # between two windows: configuration, warm start, what is cancelled
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


def entry_of(args, trace, gap):
    """An entry, and which fixed chunks of serial carry most, by the simulator."""
    found = plan(args.bin, args.traces, args.profile, args.kv_pages, trace, gap, "--requests",
                 1200 if trace in STRETCH else 400, "--policies", ",".join(["quantile", *FIXED]), *args.word)
    best = {(c["route"], c["policy"]): c["best"] for c in found["curves"]}
    fixed = sorted(FIXED, key=lambda p: -best["serial", p])
    most = best["fused", "quantile"]
    assert most > 0, f"{trace}: no rate keeps {gap} ms"
    entry = {"trace": trace, "gap_ms": gap, "capacity": most, "fixed": fixed[:2],
             "rates": rates_of(found, most, COARSE if trace == "arxiv_sample" else SHARES),
             "cells": ["fused/quantile", "serial/quantile", f"serial/{fixed[0]}", "streams/quantile",
                       f"fused/{fixed[0]}", f"serial/{fixed[1]}"]}
    if trace == "arxiv_sample":  # whose knees are looked for: by windows they are lower than by a day
        entry["rates"] = rates_of(found, most, around_edge(stepped(args, entry, ["quantile"])["fused/quantile"]))
    return entry


def entry_again(args, entry, is_measured):
    """An earlier sitting's, at its rates, so that what it measured is gone on with; where it measured nothing and knees
    are looked for, at rates around the edge that this profile has."""
    if is_measured or entry["trace"] != "arxiv_sample":
        return entry
    found = plan(args.bin, args.traces, args.profile, args.kv_pages, entry["trace"], entry["gap_ms"], "--requests", 400,
                 "--rates", ",".join(f"{x * entry['capacity']:.4f}" for x in COARSE), "--policies", "quantile", *args.word)
    entry["rates"] = rates_of(found, entry["capacity"], COARSE)
    steps = stepped(args, entry, ["quantile"])["fused/quantile"]
    return {**entry, "rates": rates_of(found, entry["capacity"], around_edge(steps))}


def by_windows(entry):
    """An entry whose first fixed chunk is the one of both that windows carry further."""
    a, b = entry["fixed"]
    if guess(entry, f"serial/{a}") >= guess(entry, f"serial/{b}"):
        return entry
    cells = ["fused/quantile", "serial/quantile", f"serial/{b}", "streams/quantile", f"fused/{b}", f"serial/{a}"]
    return {**entry, "fixed": [b, a], "cells": cells}


def stepped(args, entry, policies):
    return kept(windows(args.bin, args.traces, args.profile, entry, args.kv_pages, args.window, policies, *args.word))


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
    """Who measures what, for 1, 2 and 4 lanes: the lists of this file's head."""
    a, b = "arxiv_sample_60", "arxiv_sample_30"
    parts = {"knees": [], "low": [], "ways": [], "same": [], "short": [], "short_low": [], "traces": [], "series": []}
    if a in entries:
        fused, serial, fixed, streams, fused_fixed, fixed2 = entries[a]["cells"]
        parts["knees"] = [*knees(a, [fused, serial, fixed], False), [a, fused, f"as {fixed}"], [a, fused, f"as {serial}"]]
        parts["low"] = below(a, entries[a], [0], (0.85, 0.7, 0.5))
        parts["ways"] = knees(a, [streams], True)[:3] + knees(a, [fused_fixed], True)[:3] + knees(a, [fixed2], True)[:3]
        parts["ways"] += [[a, c, "next"] for c in (streams, fused_fixed, fixed2) for _ in range(3)]
        parts["ways"] += below(a, entries[a], [3, 4, 5], (0.7, 0.5))
        parts["same"] = below(a, entries[a], [1, 2], (0.7, 0.5))
    if b in entries:
        fused, serial, fixed = entries[b]["cells"][:3]
        steps = [s for c in (fused, serial, fixed) for s in knees(b, [c], True)[:3]]
        parts["short"] = [*steps, *knees(b, [fused, serial, fixed], False), [b, fused, f"as {fixed}"],
                          [b, fused, f"as {serial}"]]
        parts["short_low"] = below(b, entries[b], [0, 1, 2], (0.85, 0.7, 0.5))
    others = [(k, e) for k, e in entries.items() if e["trace"] != "arxiv_sample"]
    for share in (0.95, 0.7):
        for name, entry in others:
            parts["traces"] += below(name, entry, [0, 2], (share,))
            parts["series"] += below(name, entry, [1], (share,))
    rest = [[a, c, "rest"] for c in entries[a]["cells"] for _ in SHARES] if a in entries else []
    one, two = parts["knees"] + parts["low"] + parts["ways"] + parts["same"], parts["short"] + parts["traces"] + parts["series"] + parts["short_low"]
    return {"1": [one + two + rest],
            "2": [one + rest, two],
            "4": [parts["knees"] + parts["low"] + parts["same"] + rest, parts["short"] + parts["short_low"],
                  parts["ways"], parts["traces"] + parts["series"]]}


def make(args):
    os.makedirs(args.out, exist_ok=True)
    keep = args.keep.split(",") if args.keep else []
    assert bool(args.seen) == bool(keep), "--seen and --keep: which cells of it stay valid"
    was = {}
    if args.seen:
        with open(os.path.join(args.seen, "sitting.json"), encoding="utf-8") as f:
            was = json.load(f)["entries"]
    entries, seen = {}, {}
    for name in args.only.split(","):
        trace, gap = name.rsplit("_", 1)
        have = {c: [[x["rate"], x["kept"]] for x in measured(args.seen, name, c)] for c in keep} if keep else {}
        seen[name] = {c: rows for c, rows in have.items() if rows}
        e = entry_again(args, was[name], seen[name]) if name in was else entry_of(args, trace, int(gap))
        e["steps"] = stepped(args, e, ["quantile", *e["fixed"]])
        entries[name] = e = e if seen[name] else by_windows(e)
        print(f"{name}: {e['capacity']:.3f}/s by a day; of {args.window} s the simulator keeps "
              + ", ".join(f"{c} {e['rates'][guess(e, c)][0]}" for c in e["cells"])
              + f"; {sum(map(len, seen[name].values()))} windows seen", flush=True)
    one = json.loads(ctl(args.bin, "plan", "--json", "--profile", args.profile, "--trace", "azure_code", "--requests", 2,
                         "--rates", 0.1))
    lanes = lanes_of(entries)
    with open(args.profile, encoding="utf-8") as f:
        profile = json.load(f)
    rest = {k: profile.get(k, 0) for k in ("fixed_ns", "stair_from", "lin")}
    with open(os.path.join(args.out, "sitting.json"), "w", encoding="utf-8") as f:
        json.dump({"profile": os.path.basename(args.profile), "profile_sum": sum_of(args.profile), "rest": rest,
                   "is_model": one["is_model"], "kv_pages": args.kv_pages, "window_s": args.window, "words": args.word,
                   "entries": entries, "seen": seen, "lanes": lanes}, f)
    return 0


def sum_of(path):
    """Which file it is, in short."""
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:16]


# --- measuring it -----------------------------------------------------------------------


def narrowed(have, cnt):
    """The next number to look at, of cnt, where have says which were kept: upwards one by one, as a rate counts as
    carried up to the first that is missed; half-way where those two are far apart."""
    bad = min((i for i, k in have.items() if not k), default=None)
    good = max((i for i, k in have.items() if k and (bad is None or i < bad)), default=None)
    if good is None:
        return max(bad - 1, 0)
    if bad is None or bad - good <= 3:
        return min(good + 1, cnt - 1)
    return (good + bad) // 2


class Bench:
    """What OUT holds of the entries, and what was known before."""

    def __init__(self, out, sitting, also=()):
        self.folders, self.entries, self.seen = [out, *also], sitting["entries"], sitting.get("seen", {})

    def kept(self, name, cell):
        """{number of the rate: kept} of the windows that are measured."""
        rows = list(self.seen.get(name, {}).get(cell, []))
        for folder in self.folders:
            rows += [[c["rate"], c["kept"]] for c in measured(folder, name, cell)]
        return {i: k for i, (r, _) in enumerate(self.entries[name]["rates"]) for x, k in rows if abs(x - r) < 1e-3 * r}

    def shift(self, name, cell):
        """By how many rates the simulator was wrong about a cell's like, as far as that is known: its path, here or
        under another promise, or fused."""
        like, trace = cell.split("/")[0] + "/quantile", self.entries[name]["trace"]
        twins = [n for n, e in self.entries.items() if e["trace"] == trace and n != name]
        for n, c in [(name, like), *((n, like) for n in twins), (name, "fused/quantile")]:
            if self.kept(n, c):
                return self.shift_of(n, c)
        return 0

    def shift_of(self, name, cell):
        have, said = self.kept(name, cell), guess(self.entries[name], cell)
        bad = min((i for i, k in have.items() if not k), default=None)
        good = max((i for i, k in have.items() if k and (bad is None or i < bad)), default=None)
        if good is None:
            return min(0, bad - 1 - said) if bad is not None else 0
        return max(0, good - said) if bad is None else min(bad - 1, max(good, said)) - said

    def choose(self, name, cell, where):
        """The number of the rate that a step comes to; None: nothing is left to measure."""
        have, rates = self.kept(name, cell), self.entries[name]["rates"]
        here = max(0, min(len(rates) - 1, guess(self.entries[name], cell) + self.shift(name, cell)))
        if isinstance(where, float):
            at = min(range(len(rates)), key=lambda i: abs(rates[i][0] - where))
        elif where == "guess":
            at = -1 if have else here
        elif where == "next":
            at = narrowed(have, len(rates)) if have else here
        elif where == "rest":
            at = min((i for i in range(len(rates)) if i not in have), key=lambda i: abs(i - here), default=-1)
        else:
            other = self.kept(name, where[3:])
            bad = min((i for i, k in other.items() if not k), default=len(rates))
            at = max((i for i, k in other.items() if k and i < bad), default=min(other, default=-1))
        return at if 0 <= at < len(rates) and at not in have else None


class Lane:
    """One appliance, window by window."""

    def __init__(self, args, sitting):
        self.args, self.sitting = args, sitting
        self.bench = Bench(args.out, sitting, args.also)
        self.end = time.monotonic() + args.seconds
        self.log = open(os.path.join(args.out, "log"), "a", encoding="utf-8")
        self.seen = set()  # paths whose kernels have run
        self.words = [*sitting.get("words", []), *args.word]
        cpus = sorted(os.sched_getaffinity(0))
        # tiles have three cores for themselves, the client has the last third
        self.tiles = cpus[1:4] if len(cpus) >= 12 else []
        self.client = cpus[2 * len(cpus) // 3:] if self.tiles else cpus
        self.server = [c for c in cpus if c not in self.tiles and c not in self.client] or cpus

    def say(self, text):
        line = f"{time.strftime('%H:%M:%S', time.gmtime())} {text}"
        print(line, flush=True)
        self.log.write(line + "\n")
        self.log.flush()

    def settings(self):
        given = dict(x.split("=", 1) for x in self.args.set)
        if self.tiles:
            given = {"tile.cpus": ",".join(map(str, self.tiles)), **given}
        return {"api.warm_start": 1, "sched.ttft_ms": TTFT_MS, "sched.prefix_cache": 0, "exec.huge_plans": 0,
                "port.mbufs": 8192, "door.exchanges": 512, **given}

    def pack(self):
        """All so far in one file, so that a cut loses the window that runs and no other."""
        if not self.args.archive:
            return
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.abspath(self.args.archive)), delete=False) as f:
            with tarfile.open(fileobj=f, mode="w:gz") as tar:
                tar.add(self.args.out, os.path.basename(os.path.abspath(self.args.out)))
        os.replace(f.name, self.args.archive)

    def first_s(self, cell):
        """Of a window before, for memory and kernels that are touched for the first time."""
        if cell.split("/")[0] in self.seen:
            return 0
        return min(2.0 if self.seen else 5.0, self.args.window / 8)

    def window(self, a, name, cell, at):
        e = self.sitting["entries"][name]
        rate, warm = e["rates"][at]
        begin = time.monotonic()
        words = ["bench", "serve", "--out", os.path.join(self.args.out, name), "--trace",
                 trace_of(self.args.traces, e["trace"]), "--door", self.args.door, "--window", self.args.window, "--first",
                 self.first_s(cell), "--cells", ",".join(e["cells"]), "--rates", f"{rate}@{warm}", "--only", f"{cell}@{rate}",
                 "--gap-ms", e["gap_ms"], "--ttft-ms", TTFT_MS, "--requests", 100000, *SPREAD.get(e["trace"], []),
                 *self.words]
        for note in (f"profile={self.sitting['profile_sum']}", *self.args.note):
            words += ["--note", note]
        if self.args.door == "h3":
            words += ["--insecure"]
        os.sched_setaffinity(0, self.client)
        p = subprocess.run([os.path.join(self.args.bin, "tandemctl"), *map(str, words)], check=False, capture_output=True,
                           text=True, env={**os.environ, "TANDEM_SOCKET": a.settings["control.socket"]},
                           timeout=self.args.window + 120)
        self.seen.add(cell.split("/")[0])
        if p.returncode == 0:
            self.count(a, name, cell, rate, time.monotonic() - begin)
        self.say(f"{name} {cell}@{rate} warm {warm}: {time.monotonic() - begin:.1f} s, rc {p.returncode}\n  "
                 + p.stderr.strip().replace("\n", "\n  "))
        return p.returncode == 0

    def count(self, a, name, cell, rate, seconds):
        """The window by its iterations: a line of iterations.jsonl, and all of them in a file for who wants to look."""
        try:
            rows = iterations.window_rows(self.args.bin, a.settings["flight.path"], seconds, self.args.window)
        except (OSError, ValueError, subprocess.TimeoutExpired) as e:  # the window itself is measured
            self.say(f"iterations: {e}")
            return
        iterations.file(rows, os.path.join(self.args.out, "iterations", f"{name}_{cell.replace('/', '_').replace(':', '-')}_{rate}.csv.gz"))
        with open(os.path.join(self.args.out, "iterations.jsonl"), "a", encoding="utf-8") as f:
            f.write(json.dumps({"name": name, "cell": cell, "rate": rate,
                                "kinds": iterations.summed(rows, iterations.rest_of(self.sitting["rest"]))}) + "\n")

    def promise(self, a, gap_ms):
        """The promise is a live key: what serves need not start again for it."""
        a.ctl("config", "apply", f"sched.gap_ms={gap_ms}", "--why", "bench")

    def serve(self, steps):
        """With one appliance; ends early where it no longer serves."""
        os.sched_setaffinity(0, self.server)
        begin, gap, bad = time.monotonic(), None, 0
        with Appliance(self.args.bin, {**self.settings(), "sched.gap_ms": self.gap_of(steps[0])}) as a:
            self.say(f"ready after {time.monotonic() - begin:.1f} s")
            gap = self.gap_of(steps[0])
            while steps:
                name, cell, where = steps[0]
                at = self.bench.choose(name, cell, where)
                if at is None:
                    steps.pop(0)
                    continue
                if time.monotonic() + self.args.window + self.first_s(cell) + REST_S > self.end:
                    steps.clear()
                    break
                if self.gap_of(steps[0]) != gap:
                    gap = self.gap_of(steps[0])
                    self.promise(a, gap)
                steps.pop(0)
                is_good = self.window(a, name, cell, at)
                self.keep(a)
                self.pack()
                bad = 0 if is_good else bad + 1
                if bad == 2 or a.process.poll() is not None:
                    self.say("serves no longer: " + a.log()[-3000:])
                    return

    def gap_of(self, step):
        return self.sitting["entries"][step[0]]["gap_ms"]

    def keep(self, a):
        """What the appliance says of itself, as of now."""
        for name, path in (("status.json", "/status"), ("metrics.txt", "/metrics")):
            try:
                with open(os.path.join(self.args.out, name), "wb") as f:
                    f.write(a.get(path)[1])
            except OSError as e:
                self.say(f"{path}: {e}")
        with open(os.path.join(self.args.out, "tandemd.log"), "w", encoding="utf-8") as f:
            f.write(a.log()[-200000:])

    def run(self):
        steps = list(self.sitting["lanes"][str(self.args.lanes)][self.args.lane][self.args.skip:])
        for _ in range(3):  # lives of an appliance
            self.seen.clear()
            if steps and time.monotonic() + self.args.start + self.args.window + 5 + REST_S < self.end:
                self.serve(steps)
        self.pack()
        files = glob.glob(os.path.join(self.args.out, "*_*.json"))
        done = 0
        for path in files:
            with open(path, encoding="utf-8") as f:
                done += len(json.load(f).get("cells", []))
        self.say(f"{done} windows are measured")
        return 0 if done else 1


def self_test():
    """Wherever the capacity is and whatever the plan said, its neighbours are found, each rate looked at once."""
    cnt = 16
    for knee in range(cnt + 1):  # so many rates are kept
        for said in range(cnt):
            have = {said: said < knee}
            for _ in range(cnt):
                at = narrowed(have, cnt)
                if at in have:
                    break
                have[at] = at < knee
            good, bad = max((i for i in have if have[i]), default=-1), min((i for i in have if not have[i]), default=cnt)
            assert (good, bad) == (knee - 1, knee), (knee, said, have)
    rates, said = [[1.0 + i, 1 + i] for i in range(6)], [True] * 3 + [False] * 3
    burst = {"capacity": 6.0, "rates": rates, "steps": {"fused/quantile": said}}
    assert rate_at(burst, 1.0) == 3.0, "a rate at which the plan's own windows miss"
    assert rate_at(burst, 0.5) == 1.5 and rates[1:3] == [[1.5, 2], [2.0, 2]] and len(rates) == 6, rates
    assert said == [True] * 4 + [False] * 2, "the steps go with their rates"
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as before:
        entry = {"trace": "e", "rates": [[1.0 + i, 1] for i in range(8)],
                 "steps": {"fused/quantile": [True] * 5 + [False] * 3, "serial/quantile": [True] * 4 + [False] * 4,
                           "serial/static:512": [True] * 8}}
        sitting = {"entries": {"e_60": entry}, "seen": {"e_60": {"serial/static:512": [[2.0, True], [2.5, False]]}}}
        bench = Bench(out, sitting, [before])

        def seen(folder, *cells):
            with open(os.path.join(folder, "e_60.json"), "w", encoding="utf-8") as f:
                json.dump({"cells": [{"path": p, "policy": "quantile", "rate": 1.0 + i, "kept": k, **more}
                                     for p, i, k, more in cells]}, f)
        assert bench.choose("e_60", "fused/quantile", "guess") == 4
        assert bench.choose("e_60", "serial/static:512", "next") == 2  # by what was seen, not by what is simulated
        assert bench.choose("e_60", "serial/static:512", "guess") is None and bench.choose("e_60", "serial/static:512", 2.0) is None
        seen(out, ("fused", 4, False, {}), ("fused", 2, True, {}), ("fused", 3, True, {"simulated": {}}))
        assert bench.choose("e_60", "fused/quantile", 5.0) is None
        assert bench.choose("e_60", "fused/quantile", "next") == 3
        assert bench.choose("e_60", "serial/quantile", "guess") == 2  # as fused carries one less than was said
        assert bench.choose("e_60", "serial/quantile", "as fused/quantile") == 2
        assert bench.choose("e_60", "serial/quantile", "as streams/quantile") is None
        seen(before, ("fused", 3, True, {}))  # by another lane, earlier
        assert bench.choose("e_60", "fused/quantile", "next") is None
        sitting["entries"]["e_30"] = entry
        seen(before, ("fused", 3, True, {}), ("serial", 5, True, {}))
        assert bench.choose("e_30", "serial/quantile", "guess") == 5  # its own path's, under the other promise
        assert bench.choose("e_30", "serial/static:512", "guess") == 7 and bench.choose("e_30", "fused/quantile", "guess") == 3
    entries = {n: {"trace": n.rsplit("_", 1)[0], "capacity": 3.0, "rates": [[1.0 + i / 4, 1] for i in range(16)],
                   "cells": [f"{n}{i}" for i in range(6)], "steps": {"fused/quantile": [True] * 9 + [False] * 7}}
               for n in ("arxiv_sample_60", "azure_code_60", "arxiv_sample_30")}
    lanes = lanes_of(entries)
    for cnt, lists in lanes.items():
        assert len(lists) == int(cnt) and all(lists), cnt
        assert {(n, c) for x in lists for n, c, _ in x} == {(n, c) for x in lanes["1"] for n, c, _ in x}, cnt
        assert sum(any(n == "arxiv_sample_30" for n, _, _ in x) for x in lists) == 1, "a comparison stands in one lane"
    print("sitting: capacities are narrowed down")
    return 0


def sit(args):
    os.makedirs(args.out, exist_ok=True)
    with open(args.plan, encoding="utf-8") as f:
        sitting = json.load(f)
    args.window = args.window or sitting["window_s"]
    return Lane(args, sitting).run()


def merge(args):
    os.makedirs(args.out, exist_ok=True)
    names = sorted({os.path.basename(f) for d in args.sitting for f in glob.glob(os.path.join(d, "*_*.json"))})
    keep = ["--keep", args.keep] if args.keep else []
    for name in names:
        files = [f for f in (os.path.join(d, name) for d in args.sitting) if os.path.exists(f)]
        sys.stdout.write(ctl(args.bin, "bench", "merge", "--out", os.path.join(args.out, name[:-5]), *keep, *files))
    lines = []
    for path in (os.path.join(d, "iterations.jsonl") for d in args.sitting):
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                lines += [x for x in f if x not in lines]
    with open(os.path.join(args.out, "iterations.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(lines)
    return 0
