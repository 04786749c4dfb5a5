#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables and ledger lines from what run.py wrote.

usage: report.py attention.jsonl [LATER.jsonl ...] [--ledger FILE] > attention.md
       report.py --self             proves the arithmetic on made-up rows

Of a point that several files hold the last one counts: what a change touches
is measured again and given behind the rest.

Rates are derived: FLOPs and bytes of the plan over the measured time.  A peer
that was not run beside us is taken from points.h and marked "ref".
"""
import argparse
import json
import math
import statistics
import sys

PEAK_TFLOPS, PEAK_GBS = 790.0, 4300.0  # the bounds that the tables divide by
BALANCED = 0.2  # each half at least so much of serial


def geomean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def us(p, way):
    return p["ways"][way]["us"]


def streams(p):
    return min(us(p, "streams_pd"), us(p, "streams_dp"))


def choice(p):
    return us(p, p["choice"]["way"])


def bounds(p):
    """max and sum of compute and memory time, in us."""
    flop_us = p["flops"][0] / PEAK_TFLOPS * 1e-6
    byte_us = p["bytes"][1] / PEAK_GBS * 1e-3
    return max(flop_us, byte_us), flop_us + byte_us


def is_balanced(p):
    return min(us(p, "prefill"), us(p, "decode")) >= BALANCED * us(p, "serial")


def name_of(p):
    ctx = p["ctx"] // 1024 if p["ctx"] >= 1024 else p["ctx"] / 1024
    return f"{p['model']} {ctx:g}K/{p['chunk']}/{p['batch']}"


def key_of(p):
    return p["model"], p["ctx"], p["chunk"], p["batch"]


def latest(rows):
    """The rows, without points and peers that are measured again later."""
    last = {}
    for i, r in enumerate(rows):
        last[(r["row"], r.get("set")) + key_of(r) if r["row"] in ("point", "peer") else i] = i
    keep = set(last.values())
    # A later run's points stand where the first run had them.
    first = {}
    for i, r in enumerate(rows):
        if r["row"] in ("point", "peer"):
            first.setdefault((r["row"], r.get("set")) + key_of(r), i)
    place = lambda i: first.get((rows[i]["row"], rows[i].get("set")) + key_of(rows[i]), i) \
        if rows[i]["row"] in ("point", "peer") else i
    return [rows[i] for i in sorted(keep, key=place)]


class Peers:
    def __init__(self, rows):
        self.rows = {key_of(r): r["ways"] for r in rows if r["row"] == "peer"}

    def best(self, p, *ways):
        """The least time of the ways, or None."""
        got = self.rows.get(key_of(p), {})
        return min((got[w]["us"] for w in ways if w in got), default=None)

    def serial(self, p):
        """FlashInfer's paged FA2 prefill and its better decode: us, mark."""
        a, b = self.best(p, "fi_prefill_fa2"), self.best(p, "fi_decode_tc", "fi_decode_cc")
        return (a + b, "") if a and b else (p["ref"]["fi_serial"] or None, " ref")

    def pod(self, p):
        got = self.best(p, "fi_pod")
        return (got, "") if got else (p["ref"]["fi_pod"] or None, " ref")

    def any_serial(self, p):
        """The best prefill and the best decode of any peer that ran."""
        a = self.best(p, "fi_prefill_fa2", "fi_prefill_fa3", "fi_prefill_unpaged", "torch_prefill",
                      "fa4_prefill")
        b = self.best(p, "fi_decode_tc", "fi_decode_cc", "torch_decode")
        return (a + b, "") if a and b else (p["ref"]["fa3_serial"] or None, " ref")


def head(rows, out):
    run = next(r for r in rows if r["row"] == "run")
    machine = next((r for r in rows if r["row"] == "machine"), {})
    peer = next((r for r in rows if r["row"] == "peer_machine"), None)
    out(f"{run['date']}, commit {run['commit']}, kernel image {run['image']}. {', '.join(run['gpu'])}.")
    out(f"GEMM 8192³ in this run {machine.get('gemm_tflops')} TFLOP/s, read ceiling "
        f"{machine.get('read_gbs')} GB/s.")
    if peer:
        out(f"Peers in the same call: FlashInfer {peer['flashinfer']}, torch {peer['torch']}, "
            f"FA4 {peer['fa4']}; pages of {peer['page']} tokens; GEMM there {peer['gemm_tflops']}.")
    for r in rows:
        if r["row"] == "peer_missing" and r["missing"]:
            out("Left out: " + "; ".join(f"{k} ({v})" for k, v in r["missing"].items()) + ".")
    out("")


def resources(rows, out):
    seen = {}
    for r in rows:
        if r["row"] == "resources":
            seen.setdefault((r["tile"], r["registers"], r["local"], r["smem"], r["cta_sm"]),
                            []).append(r["way"])
    out("Resources (plan and occupancy API): " + "; ".join(
        f"tile {t}: {reg} registers, {local} bytes local, {smem // 1024} KiB shared, {cta} CTAs an SM "
        f"({', '.join(dict.fromkeys(ways))})" for (t, reg, local, smem, cta), ways in seen.items())
        + ".")
    out("")


def cell(value, serial):
    return f"{value:.0f} ({serial / value:.2f})"


def forced_table(points, peers, out):
    out("| point | prefill: us, TFLOP/s | decode: us, TB/s | serial | streams p-d | d-p | fused, 95 % "
        "| / max | / sum | coloc, overlap | waves | GHz | FI serial | FI POD | best peer serial | "
        "FA3 serial |")
    out("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for p in points:
        s, f, w = us(p, "serial"), us(p, "fused"), p["ways"]["fused"]
        most, total = bounds(p)
        row = [name_of(p), f"{us(p, 'prefill'):.0f}, {p['flops'][0] / us(p, 'prefill') * 1e-6:.0f}",
               f"{us(p, 'decode'):.0f}, {p['bytes'][1] / us(p, 'decode') * 1e-6:.2f}", f"{s:.0f}",
               cell(us(p, "streams_pd"), s), cell(us(p, "streams_dp"), s),
               f"**{f:.0f} ({s / f:.2f})** {w['lo']:.0f}-{w['hi']:.0f}", f"{f / most:.2f}",
               f"{f / total:.2f}", f"{w['colocated']:.2f}, {w['overlap']:.2f}",
               f"{w['waves'][0]:.1f}, {w['waves'][1]:.1f}", f"{w['ghz']:.2f}"]
        for (value, mark), mine in ((peers.serial(p), s), (peers.pod(p), f), (peers.any_serial(p), f)):
            row.append(f"{value:.0f} ({value / mine:.2f}){mark}" if value else "–")
        fa3 = p["ref"]["fa3_serial"]  # its package is in no registry that a run could take it from
        row.append(f"{fa3:.0f} ({fa3 / f:.2f}) ref" if fa3 else "–")
        out("| " + " | ".join(row) + " |")
    out("")


def choice_table(points, out):
    """One line a (model, chunk), a cell a context and batch."""
    out("| model, chunk | context: batch fused forced / planner's choice (serial over it; s two "
        "streams, = serial) |")
    out("|---|---|")
    groups = {}
    for p in points:
        groups.setdefault((p["model"], p["chunk"]), {}).setdefault(p["ctx"], {})[p["batch"]] = p
    mark = {"fused": "", "streams_dp": "s", "serial": "="}
    for (model, chunk), by_ctx in groups.items():
        cells = []
        for ctx, by_batch in by_ctx.items():
            cells.append(f"{ctx // 1024 or 0.5:g}K: " + ", ".join(
                f"{b} {us(p, 'serial') / us(p, 'fused'):.2f}/{us(p, 'serial') / choice(p):.2f}"
                f"{mark[p['choice']['way']]}" for b, p in by_batch.items()))
        out(f"| {model} {chunk} | " + "; ".join(cells) + " |")
    out("")


def ablation_table(points, rows, out):
    """Against serial; decode's tiles against decode alone."""
    what = {r["way"]: r.get("what", "") for r in rows if r["row"] == "resources"}
    ways = [w for w in points[0]["ways"]]
    more = [w for w in ways if w not in ("prefill", "decode", "serial", "streams_pd", "streams_dp",
                                         "fused")]
    out("| way | " + " | ".join(name_of(p).replace("llama", "L") for p in points) + " | geomean |")
    out("|---|" + "--:|" * (len(points) + 1))
    for w in ["serial", "fused"] + more:
        base = "decode" if w.startswith("decode_") else "serial"
        got = [us(p, base) / us(p, w) if w in p["ways"] else None for p in points]
        cells = [f"{us(p, w):.0f} ({g:.2f})" if g else "–" for p, g in zip(points, got)]
        out(f"| {w}: {what.get(w, '')} | " + " | ".join(cells) +
            f" | {geomean(g for g in got if g):.3f} |")
    out("")


def steady_table(rows, out):
    pairs = {}
    for r in rows:
        if r["row"] == "steady":
            pairs.setdefault(key_of(r), {})[r["way"]] = r
    if not pairs:
        return
    out("| point | serial: us, joule, mean W, highest W, GHz | fused | time ratio | energy ratio |")
    out("|---|---|---|--:|--:|")
    for ways in pairs.values():
        s, f = ways["serial"], ways["fused"]
        show = lambda r: (f"{r['us']:.0f}, {r['joule']:.3f} J, {r['watt_mean']:.0f} W, "
                          f"{r['watt_most']:.0f} W, {r['ghz']:.2f}")
        out(f"| {name_of(s)} | {show(s)} | {show(f)} | {s['us'] / f['us']:.2f} | "
            f"{s['joule'] / f['joule']:.2f} |")
    out("")


def overhead_ratios(rows):
    """Log over no log, of each point: the ratio of the means over turns."""
    got = {}
    for r in rows:
        if r["row"] == "overhead":
            got.setdefault((key_of(r), r["program"]), []).append(r["fused"])
    mean = lambda k: math.fsum(got[k]) / len(got[k])
    return {k: mean((k, "log")) / mean((k, "nolog")) for k in sorted({k for k, _ in got})
            if (k, "log") in got and (k, "nolog") in got}


def median_interval(ratios):
    """The median, and what bounds it but for 5 %: the k-th least and greatest,
    2 P(X < k) <= 0.05, X binomial of n and a half.  At a point where the
    hardware pairs CTAs now well and now badly a mean would say nothing."""
    got, n = sorted(ratios), len(ratios)
    below = lambda k: sum(math.comb(n, i) for i in range(k)) / 2 ** n
    k = max([k for k in range(1, n // 2 + 1) if 2 * below(k) <= 0.05], default=1)
    return statistics.median(got), got[k - 1], got[n - k]


def ncu_table(rows, out):
    rows = [r for r in rows if r["row"] == "ncu"]
    if not rows:
        return
    names = ["tensor_pipe_pct", "dram_pct", "shared_pct", "warps_active_pct", "l2_hit_pct", "waves"]
    out("| point | launch | replay | " + " | ".join(n.replace("_", " ") for n in names) + " |")
    out("|---|---|---|" + "--:|" * len(names))
    for r in rows:
        out(f"| {name_of(r)} | {r['way']} | {r['mode']} | " +
            " | ".join(f"{r[n]:.1f}" if n in r else "–" for n in names) + " |")
    out("")


def figures(rows):
    """The ledger's numbers: name, value, unit, aim, note."""
    points = [r for r in rows if r["row"] == "point"]
    named = [p for p in points if p["set"] == "named"]
    wide = [p for p in points if p["set"] in ("named", "grid", "small") and "choice" in p]
    peers = Peers(rows)
    balanced = [p for p in named if is_balanced(p)]
    ran = [p for p in named if peers.rows.get(key_of(p), {}).get("fi_pod") and p["ref"]["fi_pod"]]
    grid = [p for p in points if p["set"] == "grid"]
    both = [p for p in grid if is_balanced(p)]
    got = []

    def put(name, value, unit, aim, note):
        if value == value:
            got.append((name, round(value, 3), unit, aim, note))

    a = "attention.portable."
    put(a + "speedup_vs_own_serial.geomean", geomean(us(p, "serial") / us(p, "fused") for p in balanced),
        "ratio", ">= 1.15", f"fused forced, {len(balanced)} named points where each half is >= 20 % of "
        f"serial; all {len(named)}: {geomean(us(p, 'serial') / us(p, 'fused') for p in named):.3f}")
    put(a + "choice_vs_own_serial.geomean", geomean(us(p, "serial") / choice(p) for p in both), "ratio",
        "", f"the planner's choice, {len(both)} of {len(grid)} grid points where each half is >= 20 % of "
        f"serial; all: {geomean(us(p, 'serial') / choice(p) for p in grid):.3f}; fused forced there: "
        f"{geomean(us(p, 'serial') / us(p, 'fused') for p in both):.3f}")
    if wide:
        worst = max(wide, key=lambda p: choice(p) / us(p, "serial"))
        forced = max(wide, key=lambda p: us(p, "fused") / us(p, "serial"))
        ways = [p["choice"]["way"] for p in wide]
        put(a + "worst_choice_vs_own_serial.ratio", choice(worst) / us(worst, "serial"), "ratio",
            "<= 1.02", f"{len(wide)} points, of which fused {ways.count('fused')}, two streams "
            f"{ways.count('streams_dp')}, serial {ways.count('serial')}; at {name_of(worst)}; worst "
            f"fused forced: {us(forced, 'fused') / us(forced, 'serial'):.3f} at {name_of(forced)}")
    put(a + "own_serial_vs_flashinfer_serial.geomean",
        geomean(peers.serial(p)[0] / us(p, "serial") for p in ran), "ratio", ">= 0.95",
        f"paged FA2 prefill (page 16) + its better decode, {len(ran)} points, same call")
    put(a + "speedup_vs_flashinfer_pod.geomean", geomean(peers.pod(p)[0] / us(p, "fused") for p in ran),
        "ratio", ">= 1.0", f"PODWithPagedKVCache (contiguous prefill, paged decode), {len(ran)} points, "
        f"same call; the planner's choice: {geomean(peers.pod(p)[0] / choice(p) for p in ran):.3f}")
    cost = overhead_ratios(rows)
    if cost:
        mid, low, high = median_interval(cost.values())
        above = [f"{m} {c // 1024}K/{k}/{b} {cost[m, c, k, b]:.4f}" for m, c, k, b in cost
                 if cost[m, c, k, b] > 1.005]
        put(a + "log_overhead.ratio", mid, "ratio", "<= 1.005",
            f"fused with the log of spans over fused without, {len(cost)} points in turns, median; 95 % "
            f"interval {low:.4f} to {high:.4f}; above 1.005: " + (", ".join(above) or "none"))
    for r in rows:
        if r["row"] == "planner" and r["route"] == "auto" and r.get("variant", 2) == 2:
            put("attention.planner.p50_us", r["p50_us"], "us", "<= 30",
                f"256 sequences, {r['items']} items, route left to the planner; best of 5 rounds' "
                f"medians, thread CPU time, {r['left_out']} of {r['samples']} samples switched out and "
                "left out")
    return got


def report(rows, out):
    points = [r for r in rows if r["row"] == "point"]
    peers = Peers(rows)
    of = lambda s: [p for p in points if p["set"] == s]
    head(rows, out)
    out("| what | value | aim |")
    out("|---|--:|--:|")
    for name, value, unit, aim, note in figures(rows):
        out(f"| {name}: {note} | **{value}** {unit if unit != 'ratio' else ''} | {aim} |")
    out("")
    resources(rows, out)
    if of("named"):
        out("## Named points, fused forced (burst), microseconds\n")
        forced_table(of("named"), peers, out)
        if all("choice" in p for p in of("named")):
            out("The planner's choice on the same points:\n")
            choice_table(of("named"), out)
    for name, what in (("grid", "## Grid: fused forced and the planner's choice\n"),
                       ("small", "## Little work\n")):
        if of(name):
            out(what)
            choice_table(of(name), out)
    if of("ablate"):
        out("## Ablations\n")
        ablation_table(of("ablate"), rows, out)
    out("## Steady\n")
    steady_table(rows, out)
    out("## ncu\n")
    ncu_table(rows, out)
    wrong = [name_of(p) for p in points if not p["counters_equal_plan"]]
    out(f"Counters equal the plan at {len(points) - len(wrong)} of {len(points)} points.")
    if wrong:
        out("They differ at: " + ", ".join(wrong))


def ledger_lines(rows, got, path):
    """The figures `got`, one JSON object a line."""
    run = next(r for r in rows if r["row"] == "run")
    with open(path, "w", encoding="utf-8") as f:
        for name, value, unit, aim, note in got:
            is_host = name.startswith("attention.planner")
            is_steady = ".steady_" in name
            f.write(json.dumps({
                "name": name, "value": value, "unit": unit, "aim": aim,
                "device": "x86-64 host of the GPU machine" if is_host else
                f"{run['gpu'][0]}, driver {run['gpu'][1]}",
                "regime": "one thread of the GPU host" if is_host else
                "launches back to back for seconds, random data, L2 defeated" if is_steady else
                "burst: <= 10 ms of work after 40 ms idle, interleaved, medians; bf16, head_dim 128, "
                "random data, L2 defeated",
                "command": "perf_planner" if is_host else "tests/perf/attention/run.py",
                "date": run["date"], "commit": run["commit"],
                "note": note + ("" if is_host else f"; image {run['image']}")}) + "\n")


def made_up(ctx, way_us, choice_way, kind="grid"):
    way = lambda t: {"us": t, "lo": t, "hi": t, "n": 4, "items": [1, 1], "merges": 0,
                     "waves": [1, 1], "colocated": 0.5, "overlap": 0.5, "tail": 0, "ghz": 1.9}
    names = ("prefill", "decode", "serial", "streams_pd", "streams_dp", "fused")
    return {"row": "point", "set": kind, "model": "m", "ctx": ctx, "chunk": 512, "batch": 4,
            "decode_ctx": ctx, "flops": [7.9e10, 1e9], "bytes": [1e6, 2.15e8],
            "ref": {"fi_serial": 200, "fi_pod": 120, "fa3_serial": 90},
            "choice": {"way": choice_way}, "ways": dict(zip(names, map(way, way_us))),
            "counters_equal_plan": True}


def self_test():
    """A worse choice, a lopsided point and a peer must show in the figures."""
    rows = [{"row": "run", "date": "d", "commit": "c", "image": "i", "gpu": ["g", "1"]},
            made_up(4096, (100, 100, 200, 160, 150, 125), "fused", "named"),
            made_up(8192, (100, 100, 200, 210, 150, 160), "streams_dp"),
            made_up(16384, (10, 190, 200, 210, 220, 400), "serial"),
            {"row": "peer", "model": "m", "ctx": 4096, "chunk": 512, "batch": 4,
             "ways": {w: {"us": t} for w, t in (("fi_prefill_fa2", 120), ("fi_decode_tc", 110),
                                                ("fi_decode_cc", 100), ("fi_pod", 150))}}]
    got = {name: value for name, value, *_ in figures(rows)}
    p = "attention.portable."
    assert bounds(rows[1]) == (100.0, 150.0), bounds(rows[1])
    assert got[p + "speedup_vs_own_serial.geomean"] == 1.6
    assert got[p + "choice_vs_own_serial.geomean"] == round(200 / 150, 3)  # the lopsided one is out
    assert got[p + "worst_choice_vs_own_serial.ratio"] == 1.0  # serial's own
    assert got[p + "own_serial_vs_flashinfer_serial.geomean"] == 1.1
    assert got[p + "speedup_vs_flashinfer_pod.geomean"] == 1.2
    rows[3]["choice"]["way"] = "fused"
    got = {name: value for name, value, *_ in figures(rows)}
    assert got[p + "worst_choice_vs_own_serial.ratio"] == 2.0
    lines = []
    report(rows, lines.append)
    assert any("**125 (1.60)**" in x for x in lines), lines
    assert any("150 (1.20) |" in x for x in lines), lines
    again = made_up(4096, (100, 100, 200, 160, 150, 100), "fused", "named")
    assert figures(latest(rows + [again]))[0][1] == 2.0
    assert latest(rows + [again])[1] is again
    rows[4]["ways"].pop("fi_pod")
    lines = []
    report(rows, lines.append)
    assert any("120 (0.96) ref" in x for x in lines), lines
    key = {"row": "overhead", "model": "m", "chunk": 512, "batch": 4}
    rows += [{**key, "ctx": c, "program": n, "turn": 0, "fused": t}
             for c, n, t in ((4096, "log", 101), (4096, "nolog", 100), (8192, "log", 99),
                             (8192, "nolog", 100))]
    note = {name: note for name, *_, note in figures(rows)}[p + "log_overhead.ratio"]
    assert "above 1.005: m 4K/512/4 1.0100" in note and "0.9900 to 1.0100" in note, note
    assert median_interval([3, 1, 2] * 3) == (2, 1, 3) and median_interval(range(31))[1:] == (9, 21)
    print("report.py: what the figures must show, they show")


def command(report, figures, self_test):
    """The command line of a table: rows in, the table out, ledger lines if asked."""
    ap = argparse.ArgumentParser()
    ap.add_argument("rows", nargs="*")
    ap.add_argument("--ledger")
    ap.add_argument("--self", action="store_true")
    args = ap.parse_args()
    if args.self:
        self_test()
        return 0
    rows = []
    for path in args.rows:
        with open(path, encoding="utf-8") as f:
            rows += [json.loads(x) for x in f]
    rows = latest(rows)
    report(rows, print)
    if args.ledger:
        ledger_lines(rows, figures(rows), args.ledger)
    return 0


if __name__ == "__main__":
    sys.exit(command(report, figures, self_test))
