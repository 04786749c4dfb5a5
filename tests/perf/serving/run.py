#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The serving figures: what is simulated, and what a sitting measures.

  run.py simulate BIN OUT TRACES [--models M,..] [--only TRACE,..]
                                 [--profile FILE [--kv-pages N]]
      every cell by the production scheduler in simulated time, on the profile
      that model.py makes or on a measured one: OUT/MODEL_TRACE_GAP.{json,html}
      and OUT/table.md
  run.py pack BUNDLE FOLDER TRACES --profile FILE [--results RESULTS]
      what a sitting on a GPU host needs: FOLDER and FOLDER.tar.gz, with a plan of
      what is worth measuring there (sitting.py); a minute and a half, or, at the
      rates of an earlier sitting, which RESULTS has, seconds
  FOLDER/run OUT [--seconds N] [--whole S]
      there, with python3 and as root: a lane for each GPU, in N seconds at most;
      OUT/laneK.tar.gz.  May be cut at any moment; called again it goes on.  Where
      lanes are to live for the S seconds of several such commands, so that none
      loses a start of the appliance and the rest that no window fits into, the
      next call joins them
  run.py finish FOLDER RESULTS [OUT/laneK.tar.gz ..] [--was FILE ..] [--ledger]
      all of it into RESULTS and the page RESULTS.md, beside what was planned,
      with its error (report.py); FOLDER has the next plan then.  Windows that
      ran under another profile, in FILE, are planned by that

  run.py self
      shows how rates are chosen, and what is no figure

TRACES is the folder of the public traces; a name that is no file there is a
generator's.  Everything simulated says so in its file.  A rehearsal without a
GPU: tests/e2e/serving.py."""
import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e", "gpu"))
sys.path.append(os.path.dirname(HERE))  # in a sitting's folder
sys.path.insert(0, HERE)
sys.path.append(os.path.join(ROOT, "tests", "perf"))
import folder  # noqa: E402
import iterations  # noqa: E402
import lane  # noqa: E402
import model  # noqa: E402
import report  # noqa: E402
import sitting  # noqa: E402

# pages of 64 tokens in what 141 GB leave beside weights and activations
MODELS = {"llama-3-8b": 14000, "llama-2-7b": 3500, "yi-6b": 28000, "llama-3-8b,fp8-kv": 28000}
POLICIES = ["quantile", "mean", "static:512", "static:1024", "static:1536", "static:2048"]
GAPS = "60,30"  # ms
SHARES = (0.5, 0.7, 0.85, 0.95, 1.0, 1.05, 1.2)  # of fused/quantile's capacity


def at_knee(curve):
    return next(p for p in curve["points"] if abs(p["rate"] - curve["best"]) < 1e-3 * p["rate"])


def rows_of(found, label):
    """One line for each way to serve: capacity, gain over serial under the same policy, bound, why."""
    fixed = [c for c in found["curves"] if c["route"] == "serial" and c["policy"].startswith("static")]
    fixed = 0 if any(c["is_open"] for c in fixed) else max((c["best"] for c in fixed), default=0)
    for c in found["curves"]:
        if c["best"] <= 0:
            yield f"| {label} | {c['route']} | {c['policy']} | 0 | - | - | - | - | - | - |"
            continue
        p = at_knee(c)
        lost = ", ".join(f"{k} {100 * v['lost_share']:.2f} %" for k, v in p["fallbacks"].items()
                         if v["lost_share"] > 0) if c["route"] == "fused" else "-"
        over = f"{c['gain']:.3f}" if c["gain"] > 0 else "-"  # serial itself; or one of both is open
        over_fixed = f"{c['best'] / fixed:.3f}" if fixed and not c["is_open"] else "-"
        yield (f"| {label} | {c['route']} | {c['policy']} | {'at least ' if c['is_open'] else ''}{c['best']:.3f} | {over} | "
               f"{p['bound']:.3f} | {over_fixed} | {100 * p['serial_share']:.1f} % | {p['ttft_ms']['p50']:.0f} | "
               f"{lost or 'none'} |")


def self_test():
    """What is open is no capacity to divide by."""
    curve = {"policy": "quantile", "best": 2.0, "gain": 0.0, "is_open": True,
             "points": [{"rate": 2.0, "bound": 1.05, "serial_share": 0.4, "fallbacks": {}, "ttft_ms": {"p50": 300.0}}]}
    found = {"curves": [{**curve, "route": "fused", "gain": 1.25, "is_open": False},
                        {**curve, "route": "serial", "best": 1.6, "points": [{**curve["points"][0], "rate": 1.6}]},
                        {**curve, "route": "serial", "policy": "static:512"}]}
    rows = list(rows_of(found, "m"))
    assert rows[0].startswith("| m | fused | quantile | 2.000 | 1.250 | 1.050 | - |"), rows[0]
    assert rows[1].startswith("| m | serial | quantile | at least 1.600 | - |"), rows[1]
    return 0


def profile_of(args, name):
    """The measured profile that was given, or a model's, made here."""
    if args.profile:
        return args.profile
    path = os.path.join(args.out, f"h200_model_{name.replace(',', '_')}.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(model.profile(name.split(",")[0], ",fp8" in name), f)
    return path


def simulate(args):
    os.makedirs(args.out, exist_ok=True)
    assert not args.profile or "," not in args.models, "a measured profile is of one model: name it by --models"
    table = ["| model, trace, gap | path | policy | requests/s | over serial | its bound | over serial's best static | "
             "attention of serial | TTFT p50 ms | lost to fallbacks |", "|---|---|---|--:|--:|--:|--:|--:|--:|---|"]
    for name in args.models.split(","):
        name = name.replace("+", ",")
        profile = profile_of(args, name)
        pages = args.kv_pages or MODELS[name]
        for trace in args.only.split(","):
            for gap in map(int, args.gaps.split(",")):
                words = ["--requests", args.requests, "--policies", args.policies]
                found = sitting.plan(args.bin, args.traces, profile, pages, trace, gap, *words)
                base = os.path.join(args.out, f"{name.replace(',', '_')}_{trace}_{gap}")
                table += rows_of(found, f"{name}, {trace}, {gap} ms")
                knee = next(c["best"] for c in found["curves"] if (c["route"], c["policy"]) == ("fused", "quantile"))
                if knee > 0:
                    rates = ",".join(f"{x * knee:.4f}" for x in SHARES)
                    drawn = sitting.plan(args.bin, args.traces, profile, pages, trace, gap, *words, "--rates", rates)
                    with open(base + ".plan", "w", encoding="utf-8") as f:
                        json.dump(drawn, f)
                    sitting.ctl(args.bin, "bench", "merge", "--out", base, "--plan", base + ".plan")
                with open(os.path.join(args.out, "table.md"), "w", encoding="utf-8") as f:
                    f.write("\n".join(table) + "\n")
                print(table[-len(found["curves"])], flush=True)
    return 0


def main():
    p = argparse.ArgumentParser()
    sub = p.add_subparsers(dest="what", required=True)
    s = sub.add_parser("simulate")
    for word in ("bin", "out", "traces"):
        s.add_argument(word)
    s.add_argument("--models", default=",".join(m.replace(",", "+") for m in MODELS))
    s.add_argument("--only", default=",".join(sitting.TRACES))
    s.add_argument("--gaps", default=GAPS)
    s.add_argument("--requests", type=int, default=1000)
    s.add_argument("--policies", default=",".join(POLICIES))
    s.add_argument("--profile")
    s.add_argument("--kv-pages", type=int)
    s = sub.add_parser("pack")
    for word in ("bundle", "folder", "traces"):
        s.add_argument(word)
    s.add_argument("--profile", required=True)
    s.add_argument("--results", help="of earlier sittings")
    s.add_argument("--kv-pages", type=int, default=13000)
    s.add_argument("--window", type=float, default=75)
    s.add_argument("--only", default="arxiv_sample_60,azure_code_60,arxiv_long_60,mooncake_60,arxiv_sample_30")
    s.add_argument("--word", action="append", default=[], help="one more word for tandemctl plan, and for replay")
    s.add_argument("--door", choices=["http1", "h3"], default="h3")
    s.add_argument("--set", action="append", default=[], help="a key of the appliance's, instead of what a GPU gets")
    s = sub.add_parser("run")
    s.add_argument("folder")
    s.add_argument("out")
    s.add_argument("--seconds", type=float, default=590)
    s.add_argument("--whole", type=float, default=0)
    s = sub.add_parser("lanes")  # what run starts
    s.add_argument("folder")
    s.add_argument("--seconds", type=float, required=True)
    s = sub.add_parser("sit")  # a lane
    s.add_argument("folder")
    s.add_argument("out")
    s.add_argument("--seconds", type=float, required=True)
    s.add_argument("--lanes", type=int, choices=[1, 2, 4], required=True)
    s.add_argument("--lane", type=int, required=True)
    s.add_argument("--also", action="append", default=[], help="another OUT, which is not repeated")
    s.add_argument("--note", action="append", default=[], help="what every window says it ran under")
    s = sub.add_parser("finish")
    s.add_argument("folder")
    s.add_argument("results")
    s.add_argument("archive", nargs="*")
    s.add_argument("--ledger", action="store_true")
    s.add_argument("--was", action="append", default=[], help="a profile of earlier windows")
    sub.add_parser("self")
    args = p.parse_args()
    if args.what == "self":
        return self_test() or sitting.self_test() or lane.self_test() or iterations.self_test() or report.self_test()
    return {"simulate": simulate, "pack": folder.pack, "run": folder.run, "lanes": folder.lanes, "sit": lane.sit,
            "finish": folder.finish}[args.what](args)


if __name__ == "__main__":
    sys.exit(main())
