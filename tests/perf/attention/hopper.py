#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables and ledger lines of the Hopper kernels from what run.py's step
`hopper` wrote: the 31 points that every peer was measured on.

usage: hopper.py attention_hopper.jsonl [LATER.jsonl ...] [--ledger FILE] > attention_hopper.md
       hopper.py --self             proves the arithmetic on made-up rows

The bound is max(FLOPs / 790 TFLOP/s, bytes / 4.3 TB/s).  Peers are the
references of points.h: of another call, on another card of the kind.
"""
import sys

from report import (bounds, choice_table, command, geomean, head, key_of, name_of, ncu_table,
                    resources, us)
from report import made_up

BALANCED = 0.4  # the shorter bound at least so much of the longer
GB = 1e9  # decode of at least so many bytes counts as alone_1gb
STEADY = {("llama3-8b", 16384, 1024, 32): "steady_16k_1024_b32",
          ("llama3-8b", 8192, 2048, 64): "steady_8k_2048_b64",
          ("llama3-8b", 4096, 1024, 32): "steady_4k_1024_b32",
          ("llama3-8b", 16384, 2048, 64): "steady_16k_2048_b64"}
STEADY_AIM = {"steady_16k_1024_b32": ("< 730", "< 0.50"), "steady_8k_2048_b64": ("< 690", "< 0.48"),
              "steady_4k_1024_b32": ("< 188", "< 0.13"), "steady_16k_2048_b64": ("< 1450", "")}


def slower(p):
    """The planner's choice over the halves one after the other, and whether the
    two 95 % intervals meet."""
    c, s = p["ways"][p["choice"]["way"]], p["ways"]["serial"]
    return c["us"] / s["us"], c["lo"] <= s["hi"]


def is_balanced(p):
    most, total = bounds(p)
    return total - most >= BALANCED * most


def peer(p):
    """The best of any peer, compositions included."""
    return min(p["ref"][k] for k in ("fa3_serial", "split", "vattn_pod"))


def tflops(p):
    return p["flops"][0] / us(p, "prefill") * 1e-6


def tbps(p):
    return p["bytes"][1] / us(p, "decode") * 1e-6


def best_cut(p, sweeps):
    """[SMs, pieces, us] of the sweep's best; the planner's own time counts too."""
    cuts = sweeps.get(key_of(p), []) + [[p["ways"]["fused"]["share"][1], 0, us(p, "fused")]]
    return min(cuts, key=lambda c: c[2])


def figures(rows):
    points = [r for r in rows if r["row"] == "point" and r["set"] == "peers"]
    balanced = [p for p in points if is_balanced(p)]
    sweeps = {key_of(r): r["cuts"] for r in rows if r["row"] == "sweep"}
    over = lambda p: us(p, "fused") / bounds(p)[0]
    a, got = "attention.hopper.", []

    def put(name, value, unit, aim, note):
        if value == value:
            got.append((a + name, round(value, 4), unit, aim, note))

    lost = [name_of(p) for p in points if us(p, "fused") > peer(p)]
    put("fused_over_bound.geomean", geomean(map(over, points)), "ratio", "<= 1.15; to resolve <= 1.22",
        f"{len(points)} points, the planner's cut; {len(lost)} slower than the best peer"
        + (": " + ", ".join(lost) if lost else ""))
    put("fused_over_bound_balanced.geomean", geomean(map(over, balanced)), "ratio",
        "<= 1.20; to resolve <= 1.28", f"{len(balanced)} points")
    put("speedup_vs_best_peer_serial.geomean", geomean(p["ref"]["fa3_serial"] / us(p, "fused")
                                                       for p in points), "ratio", ">= 1.37",
        "FlashAttention-3 then the best decode, reference")
    put("speedup_vs_best_composition.geomean", geomean(p["ref"]["split"] / us(p, "fused")
                                                       for p in points), "ratio", ">= 1.17",
        "FlashAttention-3 on fewer SMs beside a decode stream, reference")
    put("speedup_vs_own_serial.geomean", geomean(us(p, "serial") / us(p, "fused") for p in points),
        "ratio", "", "the same kernel's halves one after the other")
    swept = [p for p in points if key_of(p) in sweeps]
    regret = [us(p, "fused") / best_cut(p, sweeps)[2] for p in swept]
    put("regret.geomean", geomean(regret), "ratio", "", f"the planner's cut over the best of a sweep "
        f"of shares and pieces, {len(swept)} points; most {max(regret, default=0):.3f}")
    put("prefill_alone.tflops", geomean(map(tflops, points)), "TFLOP/s", ">= 680",
        f"{len(points)} points, paged; most {max(map(tflops, points), default=0):.0f}")
    large = [p for p in points if p["bytes"][1] >= GB]
    put("decode_alone_1gb.tbps", geomean(map(tbps, large)), "TB/s", ">= 4.45",
        f"{len(large)} points that read >= 1 GB; all {len(points)}: {geomean(map(tbps, points)):.3f}")
    wide = [p for p in rows if p["row"] == "point" and p["set"] in ("peers", "grid", "small")
            and "choice" in p]
    if wide:
        worst = max(wide, key=lambda p: slower(p)[0])
        ways = [p["choice"]["way"] for p in wide]
        over = [name_of(p) for p in wide if slower(p)[0] > 1.01 and not slower(p)[1]]
        put("worst_choice_vs_own_serial.ratio", slower(worst)[0], "ratio", "<= 1.01",
            f"{len(wide)} points, fused {ways.count('fused')}, serial {ways.count('serial')}; at "
            f"{name_of(worst)}; beyond 1 % and both 95 % intervals: {', '.join(over) or 'none'}")
        put("choice_vs_own_serial.geomean", geomean(us(p, "serial") / us(p, p["choice"]["way"])
                                                    for p in wide), "ratio", "", f"{len(wide)} points")
    for r in rows:
        if r["row"] == "layer" and r["way"] == "fused" and not r["dependent"]:
            two = {x["way"]: x["us"] for x in rows if x["row"] == "layer" and key_of(x) == key_of(r)
                   and not x["dependent"]}
            name = f"{r['ctx'] // 1024}k_{r['chunk']}_b{r['batch']}"
            put(f"layer_{name}.us", r["us"], "us", "", f"between a Llama-3-8B layer's products, steady; "
                f"serial {two['serial']:.0f}, products alone {two['products']:.0f}; {r['watt_mean']:.0f} W, "
                f"{r['joule']:.3f} J")
    for r in rows:
        if r["row"] == "steady" and r["way"] == "fused" and not r.get("dependent") \
                and key_of(r) in STEADY:
            name = STEADY[key_of(r)]
            note = f"{r['seconds']:.1f} s, {r['watt_mean']:.0f} W, {r['ghz']:.2f} GHz"
            put(name + ".us", r["us"], "us", STEADY_AIM[name][0], note)
            put(name + ".joule", r["joule"], "J", STEADY_AIM[name][1], note)
    return got


def table(points, sweeps, out):
    out("| point | bound | prefill: us, TFLOP/s, GHz | decode: us, TB/s | serial | streams | fused, 95 % "
        "| / bound | GHz | overlap, tail | decode SMs, items | best of the sweep: SMs, pieces, us "
        "| peers: serial, split, best / fused |")
    out("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for p in points:
        w, f = p["ways"]["fused"], us(p, "fused")
        sm, piece, best = best_cut(p, sweeps)
        most = bounds(p)[0]
        row = [name_of(p) + (" *" if is_balanced(p) else ""), f"{most:.0f}",
               f"{us(p, 'prefill'):.0f}, {tflops(p):.0f}, {p['ways']['prefill']['ghz']:.2f}",
               f"{us(p, 'decode'):.0f}, {tbps(p):.2f}", f"{us(p, 'serial'):.0f}",
               f"{us(p, 'streams_dp'):.0f}", f"**{f:.0f}** {w['lo']:.0f}-{w['hi']:.0f}",
               f"{f / most:.3f}", f"{w['ghz']:.2f}", f"{w['overlap']:.2f}, {w['tail']:.3f}",
               f"{w['share'][1]}, {w['items'][0]} + {w['items'][1]}",
               f"{sm}, {piece or 'own'}, {best:.0f}",
               f"{p['ref']['fa3_serial']:.0f}, {p['ref']['split']:.0f}, {peer(p) / f:.2f}"]
        out("| " + " | ".join(row) + " |")
    out("")


def steady_table(rows, out):
    steady = [r for r in rows if r["row"] == "steady"]
    if not steady:
        return
    out("## Steady\n")
    out("| point | way | us | J | mean W, highest W | GHz | s |")
    out("|---|---|--:|--:|--:|--:|--:|")
    for r in steady:
        out(f"| {name_of(r)} | {r['way']}{' dependent' * r.get('dependent', 0)} | {r['us']:.0f} | "
            f"{r['joule']:.3f} | {r['watt_mean']:.0f}, {r['watt_most']:.0f} | {r['ghz']:.2f} | "
            f"{r['seconds']:.1f} |")
    out("")


def layer_table(rows, out):
    rows = [r for r in rows if r["row"] == "layer"]
    if not rows:
        return
    out("## Between the products of a Llama-3-8B layer, steady\n")
    out("| point | way | us a layer | J | W |")
    out("|---|---|--:|--:|--:|")
    for r in rows:
        out(f"| {name_of(r)} | {r['way']}{' dependent' * r['dependent']} | {r['us']:.0f} | "
            f"{r['joule']:.3f} | {r['watt_mean']:.0f} |")
    out("")


def wide_table(rows, out):
    """The same points by the portable kernels and by these."""
    rows = [r for r in rows if r["row"] == "point" and r["set"] in ("wide2", "wide3")]
    if not rows:
        return
    out("## Many query heads of a KV head\n")
    out("| point | kernels | prefill | decode | serial | fused |")
    out("|---|---|--:|--:|--:|--:|")
    for r in rows:
        out(f"| {name_of(r)} | {'Hopper' if r['set'] == 'wide3' else 'portable'} | " +
            " | ".join(f"{us(r, w):.0f}" for w in ("prefill", "decode", "serial", "fused")) + " |")
    out("")


def report(rows, out):
    points = [r for r in rows if r["row"] == "point" and r["set"] == "peers"]
    sweeps = {key_of(r): r["cuts"] for r in rows if r["row"] == "sweep"}
    head(rows, out)
    out("| what | value | aim |")
    out("|---|--:|--:|")
    for name, value, unit, aim, note in figures(rows):
        out(f"| {name}: {note} | **{value}** {unit if unit != 'ratio' else ''} | {aim} |")
    out("")
    resources(rows, out)
    out("## The 31 points (burst), microseconds; * balanced\n")
    table(points, sweeps, out)
    steady_table(rows, out)
    layer_table(rows, out)
    wide_table(rows, out)
    if any(r["row"] == "ncu" for r in rows):
        out("## ncu (--clock-control none)\n")
        ncu_table(rows, out)
    wide = [r for r in rows if r["row"] == "point" and r["set"] in ("grid", "small")]
    if wide:
        out("## A wider grid, and little work: fused forced and the planner's choice\n")
        choice_table(wide, out)
    right = sum(p["counters_equal_plan"] for p in points)
    out(f"Counters equal the plan at {right} of {len(points)} points.")


def self_test():
    """A peer that wins, a better cut and an unbalanced point must show."""
    p = made_up(16384, (100, 100, 200, 160, 150, 125), "fused", "peers")
    q = made_up(8192, (100, 100, 200, 160, 150, 250), "fused", "peers")
    for x in (p, q):
        x["ref"].update(split=150, vattn_pod=130)
        x["ways"]["fused"]["share"] = [88, 44]
    q["flops"], q["bytes"] = [7.9e10, 0], [0, 4.3e7]  # 100 us and 10 us
    rows = [{"row": "run", "date": "d", "commit": "c", "image": "i", "gpu": ["g", "1"]}, p, q,
            {"row": "sweep", **{k: p[k] for k in ("model", "ctx", "chunk", "batch")},
             "cuts": [[40, 1, 120.0], [44, 2, 100.0]]},
            {"row": "steady", "way": "fused", "model": "llama3-8b", "ctx": 16384, "chunk": 1024,
             "batch": 32, "us": 700.0, "joule": 0.4, "watt_mean": 650, "watt_most": 700, "seconds": 2.0, "ghz": 1.3}]
    got = {name.split("hopper.")[1]: (value, note) for name, value, _, _, note in figures(rows)}
    assert not is_balanced(q) and is_balanced(p)
    assert got["fused_over_bound_balanced.geomean"][0] == 1.25
    assert got["fused_over_bound.geomean"][0] == round((1.25 * 2.5) ** 0.5, 4)
    assert "2 slower" in got["fused_over_bound.geomean"][1]  # 90 us of fa3_serial
    assert got["regret.geomean"][0] == 1.25
    assert got["steady_16k_1024_b32.us"][0] == 700 and got["steady_16k_1024_b32.joule"][0] == 0.4
    again = made_up(4096, (100, 100, 200, 160, 150, 210), "fused", "grid")
    again["ways"]["fused"].update(lo=205, hi=215)
    again["ways"]["serial"].update(lo=198, hi=202)
    layer = {"row": "layer", "model": "m", "ctx": 4096, "chunk": 512, "batch": 4, "dependent": 0,
             "joule": 1, "watt_mean": 650}
    rows += [again] + [{**layer, "way": w, "us": t} for w, t in (("fused", 300.0), ("serial", 350.0),
                                                                ("products", 200.0))]
    got = {name.split("hopper.")[1]: (value, note) for name, value, _, _, note in figures(rows)}
    assert got["worst_choice_vs_own_serial.ratio"][0] == 1.25
    assert got["worst_choice_vs_own_serial.ratio"][1].endswith("intervals: m 8K/512/4, m 4K/512/4")
    assert got["layer_4k_512_b4.us"][0] == 300 and "serial 350" in got["layer_4k_512_b4.us"][1]
    lines = []
    report(rows, lines.append)
    assert any("44, 2, 100" in x for x in lines), lines
    print("hopper.py: what the figures must show, they show")


if __name__ == "__main__":
    sys.exit(command(report, figures, self_test))
