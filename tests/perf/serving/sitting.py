# SPDX-License-Identifier: Apache-2.0
"""A sitting on a GPU host: what is worth measuring, and measuring it.

A plan (sitting.json):

  {"profile", "is_model", "kv_pages", "window_s", "entries": {
     NAME: {"trace", "gap_ms", "rates": [[requests a second, warm decodes], ..],
            "cells": [PATH/POLICY, ..], "steps": of the simulator: {cell: [kept at each rate, ..]}}},
   "lanes": [[[NAME, cell, where], ..], ..]}

where is the number of a rate; "guess": the highest at which the simulator keeps
the promise, moved by what fused/quantile has shown of it; "next": the one that narrows a cell's capacity
down, by what is measured so far (none, where the highest rate that is kept and
the lowest that is not are neighbours), "kept": that too, until one is kept, or
"as CELL": the highest rate at which
CELL kept the promise, or the lowest that it was measured at; "rest": what else
has not been measured, near the guesses first.  A lane is one appliance on one GPU; a comparison stands
in one lane, as GPUs differ.  All cells of an entry get the same arrivals and
the same warm start at one rate."""
import datetime
import glob
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time

from appliance import Appliance

TRACES = {"arxiv_sample": "arxiv_sample.csv", "azure_code": "AzureLLMInferenceTrace_code.csv",
          "mooncake": "conversation_trace.jsonl", "arxiv_long": "arxiv_long_online.csv"}
# Bursts and silence follow each other for minutes in this one (63 requests in its first 180 s, 531 in the next 60), so
# that a window needs a stretch of it that is busy throughout: from a second to a second since the first.
STRETCH = {"azure_code": (1740, 2100)}
SPREAD = {"mooncake": ["--spread"]}  # its arrivals are filed in steps of 3 s
FIXED = ["static:512", "static:1024", "static:1536", "static:2048"]
TTFT_MS = 5000
REST_S = 3  # between two windows: configuration, warm start, what is cancelled
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


def entry_of(bin_dir, traces, profile, pages, trace, gap, window_s, words):
    """An entry, and which fixed chunks of serial carry most, by the simulator."""
    found = plan(bin_dir, traces, profile, pages, trace, gap, "--requests", 1200 if trace in STRETCH else 400, "--policies",
                 ",".join(["quantile", *FIXED]), *words)
    best = {(c["route"], c["policy"]): c["best"] for c in found["curves"]}
    fixed = sorted(FIXED, key=lambda p: -best["serial", p])
    knee = next(c for c in found["curves"] if (c["route"], c["policy"]) == ("fused", "quantile"))
    assert knee["best"] > 0, f"{trace}: no rate keeps {gap} ms"

    def rates_of(shares):
        return [[round(x * knee["best"], 3), max(1, min(200, round(decodes_at(knee["points"], x * knee["best"]))))]
                for x in shares]
    entry = {"trace": trace, "gap_ms": gap, "capacity": knee["best"], "fixed": fixed[:2], "rates": rates_of(COARSE),
             "cells": ["fused/quantile", "serial/quantile", f"serial/{fixed[0]}", "streams/quantile",
                       f"fused/{fixed[0]}", f"serial/{fixed[1]}"]}
    shares = SHARES
    if trace == "arxiv_sample":  # whose knees are looked for: by windows they are lower than by a day
        there = kept(windows(bin_dir, traces, profile, entry, pages, window_s, ["quantile"], *words))["fused/quantile"]
        shares = sorted({0.5, *(round(COARSE[max(0, highest(there))] + x / 40, 3) for x in range(-10, 5))})
    entry["rates"] = rates_of(shares)
    entry["steps"] = kept(windows(bin_dir, traces, profile, entry, pages, window_s, ["quantile", *fixed[:2]], *words))
    return entry


def measured(folder, name, cell):
    """The measured windows of a way to serve in a folder of bench files."""
    path = os.path.join(folder, name + ".json")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [c for c in json.load(f)["cells"] if f"{c['path']}/{c['policy']}" == cell and "simulated" not in c]


def guess(entry, cell):
    return max(0, highest(entry["steps"][cell]))


def believed(states, rates, cells):
    """The simulator's word on a cell's rates, where cells were measured: what was kept is, with the next rate, to
    be kept again, what was missed is missed."""
    good = max((c["rate"] for c in cells if c["kept"]), default=0)
    bad = min((c["rate"] for c in cells if not c["kept"]), default=None)
    if bad is None:
        good = next((r for r, _ in rates if r > 1.001 * good), good) if good else 0
    return [k if r > 1.001 * good and (bad is None or r < 0.999 * bad) else bad is None or r < 0.999 * bad
            for k, (r, _) in zip(states, rates)]


def rate_at(entry, share):
    """The number of the rate at a share of what fused/quantile is to carry, which by windows may be less than by a
    day: a window can end in the midst of a burst."""
    most = min(entry["capacity"], entry["rates"][guess(entry, "fused/quantile")][0])
    return min(range(len(entry["rates"])), key=lambda i: abs(entry["rates"][i][0] - share * most))


def lanes_of(entries, gap):
    """One lane narrows the capacities on arxiv_sample down; the other has the other traces, below their knees."""
    first, second = [], []  # of [entry, cell, where]
    name = f"arxiv_sample_{gap}"
    e = entries[name]
    fused, serial, fixed, streams, fused_fixed, fixed2 = e["cells"]
    # One ratio is closed before the next is begun: with rates that are kept alone it says nothing.
    first += [[name, fused, "guess"], [name, fused, "kept"]]
    for base in (serial, fixed):
        first += [[name, base, "guess"], [name, fused, "next"], *([[name, base, "next"]] * 4), [name, fused, f"as {base}"],
                  [name, fused, "next"]]
    for part in (0.95, 0.7):
        for key, o in entries.items():
            if key == name or o["gap_ms"] != gap:
                continue
            at = rate_at(o, part)
            second += [[key, o["cells"][0], at], [key, o["cells"][2], at]]
        if part == 0.95:
            second += [[name, streams, "guess"], [name, fused, "guess"]]
    second += [[name, fused_fixed, "guess"], [name, fixed2, "guess"]]
    low = [[name, fused, rate_at(e, x)] for x in (0.85, 0.7, 0.5)]
    again = [[name, c, "next"] for _ in range(3) for c in (fused, serial, fixed)]
    rest = [[name, c, "rest"] for c in e["cells"] for _ in SHARES]
    return [first + low + again + rest,
            second + [[name, c, "next"] for c in (streams, fused_fixed, fixed2)] + rest]


def make(args):
    os.makedirs(args.out, exist_ok=True)
    entries = {}
    for gap in map(int, args.gaps.split(",")):
        for trace in args.only.split(","):
            entries[f"{trace}_{gap}"] = e = entry_of(args.bin, args.traces, args.profile, args.kv_pages, trace, gap,
                                                     args.window, args.word)
            for cell, states in e["steps"].items():
                seen = measured(args.seen, f"{trace}_{gap}", cell) if args.seen else []
                e["steps"][cell] = believed(states, e["rates"], seen) if seen else states
            print(f"{trace}_{gap}: fused/quantile carries {e['capacity']:.3f}/s; of {args.window} s, fused "
                  f"{e['rates'][guess(e, 'fused/quantile')][0]}, serial {e['rates'][guess(e, 'serial/quantile')][0]}, "
                  f"serial/{e['fixed'][0]} {e['rates'][guess(e, 'serial/' + e['fixed'][0])][0]}", flush=True)
    one = json.loads(ctl(args.bin, "plan", "--json", "--profile", args.profile, "--trace", "azure_code", "--requests", 2,
                         "--rates", 0.1))
    lanes = [[], []]
    for gap in map(int, args.gaps.split(",")):
        for lane, more in zip(lanes, lanes_of(entries, gap)):
            lane += more
    with open(os.path.join(args.out, "sitting.json"), "w", encoding="utf-8") as f:
        json.dump({"profile": os.path.basename(args.profile), "is_model": one["is_model"], "kv_pages": args.kv_pages,
                   "window_s": args.window, "words": args.word, "entries": entries, "lanes": lanes}, f, indent=1)
    return 0


# --- measuring it -----------------------------------------------------------------------


def narrowed(have, cnt, said):
    """The next number to look at, of cnt, where have says which were kept: on from what was said to be
    the last by 2, 4, 8, then half-way."""
    bad = min((i for i, k in have.items() if not k), default=None)
    good = max((i for i, k in have.items() if k and (bad is None or i < bad)), default=None)
    if bad is None:
        return min(good + 2 ** max(1, sum(i >= said for i in have)), cnt - 1)
    if good is None:
        return max(bad - 2 ** max(1, sum(i <= said for i in have)), 0)
    return (good + bad) // 2  # good itself, and so nothing new, where they are neighbours


class Bench:
    """What OUT holds of the entries."""

    def __init__(self, out, entries):
        self.out, self.entries = out, entries

    def kept(self, name, cell):
        """{number of the rate: kept} of the windows that are measured."""
        rates = [r for r, _ in self.entries[name]["rates"]]
        return {min(range(len(rates)), key=lambda i: abs(rates[i] - c["rate"])): c["kept"]
                for c in measured(self.out, name, cell)}

    def shift(self, name):
        """By how many rates the simulator was wrong about fused/quantile, as far as that is known."""
        have, said = self.kept(name, "fused/quantile"), guess(self.entries[name], "fused/quantile")
        bad = min((i for i, k in have.items() if not k), default=None)
        good = max((i for i, k in have.items() if k and (bad is None or i < bad)), default=None)
        if good is None:
            return min(0, bad - 1 - said) if bad is not None else 0
        return max(0, good - said) if bad is None else min(bad - 1, max(good, said)) - said

    def choose(self, name, cell, where):
        """The number of the rate that a step comes to; None: nothing is left to measure."""
        have, rates = self.kept(name, cell), self.entries[name]["rates"]
        here = max(0, min(len(rates) - 1, guess(self.entries[name], cell) + self.shift(name)))
        if isinstance(where, int):
            at = where
        elif where == "guess":
            at = here
        elif where == "next" or (where == "kept" and not any(have.values())):
            at = narrowed(have, len(rates), guess(self.entries[name], cell)) if have else here
        elif where == "kept":
            return None
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
        self.bench = Bench(args.out, sitting["entries"])
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
        if self.args.door == "h3":
            words += ["--insecure"]
        os.sched_setaffinity(0, self.client)
        p = subprocess.run([os.path.join(self.args.bin, "tandemctl"), *map(str, words)], check=False, capture_output=True,
                           text=True, env={**os.environ, "TANDEM_SOCKET": a.settings["control.socket"]},
                           timeout=self.args.window + 120)
        self.seen.add(cell.split("/")[0])
        self.say(f"{name} {cell}@{rate} warm {warm}: {time.monotonic() - begin:.1f} s, rc {p.returncode}\n  "
                 + p.stderr.strip().replace("\n", "\n  "))
        return p.returncode == 0

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
        steps = [s for s in self.sitting["lanes"][self.args.lane]]
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
            for _ in range(7):
                at = narrowed(have, cnt, said)
                if at in have:
                    break
                have[at] = at < knee
            good, bad = max((i for i in have if have[i]), default=-1), min((i for i in have if not have[i]), default=cnt)
            assert (good, bad) == (knee - 1, knee), (knee, said, have)
    rates, said = [[1.0 + i, 1] for i in range(6)], [True] * 3 + [False] * 3
    for cells, want in (([(3.0, True)], 4), ([(4.0, True)], 5), ([(6.0, True)], 6), ([(3.0, False)], 2), ([(1.0, False)], 0),
                        ([(4.0, True), (5.0, False)], 4), ([(1.0, True), (3.0, False)], 2)):
        told = believed(said, rates, [{"rate": r, "kept": k} for r, k in cells])
        assert told == [i < want for i in range(6)], (cells, told)
    burst = {"capacity": 6.0, "rates": rates, "steps": {"fused/quantile": said}}
    assert rates[rate_at(burst, 1.0)][0] == 3.0, "a rate at which the plan's own windows miss"
    with tempfile.TemporaryDirectory() as out:
        entry = {"rates": [[1.0 + i, 1] for i in range(8)],
                 "steps": {"fused/quantile": [True] * 5 + [False] * 3, "serial/quantile": [True] * 4 + [False] * 4}}
        bench = Bench(out, {"e_60": entry})

        def seen(*cells):
            with open(os.path.join(out, "e_60.json"), "w", encoding="utf-8") as f:
                json.dump({"cells": [{"path": p, "policy": "quantile", "rate": 1.0 + i, "kept": k, **more}
                                     for p, i, k, more in cells]}, f)
        assert bench.choose("e_60", "fused/quantile", "guess") == 4
        seen(("fused", 4, False, {}), ("fused", 2, True, {}), ("fused", 3, True, {"simulated": {}}))
        assert bench.choose("e_60", "fused/quantile", 4) is None and bench.choose("e_60", "fused/quantile", "kept") is None
        assert bench.choose("e_60", "fused/quantile", "next") == 3
        assert bench.choose("e_60", "serial/quantile", "guess") == 2  # fused carries one less than was said
        assert bench.choose("e_60", "serial/quantile", "as fused/quantile") == 2
        assert bench.choose("e_60", "serial/quantile", "as streams/quantile") is None
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
    for name in names:
        files = [f for f in (os.path.join(d, name) for d in args.sitting) if os.path.exists(f)]
        sys.stdout.write(ctl(args.bin, "bench", "merge", "--out", os.path.join(args.out, name[:-5]), *files))
    return 0
