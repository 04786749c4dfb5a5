#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The serving figures: what is simulated, and what a sitting measures.

  run.py simulate BIN OUT TRACES [--models M,..] [--only TRACE,..]
                                 [--profile FILE [--kv-pages N]]
      every cell by the production scheduler in simulated time, on the profile
      that model.py makes or on a measured one: OUT/MODEL_TRACE_GAP.{json,html}
      and OUT/table.md
  run.py plan BIN OUT TRACES --profile FILE [--seen MERGED --keep CELL,..]
      what is worth measuring on that machine: OUT/sitting.json (sitting.py);
      a minute and a half, or, at the rates of an earlier sitting, seconds: of
      what it measured the named cells stay valid and are not measured again
  run.py sit BIN OUT TRACES PLAN --seconds N [--lanes N --lane K] [--also DIR ..]
             [--door http1|h3] [--set K=V ..] [--note K=V ..]
      measures it, window by window, with one appliance; ends in time, may be
      cut at any moment, goes on with what OUT and every DIR lack
  run.py merge BIN OUT SITTING.. [--keep CELL,..]
      several OUT in one; of another build than the first's, these cells alone
  run.py report BIN OUT TRACES PLAN PROFILE MERGED [--was FILE ..] [--ledger] [--page FILE]
      the plan beside what was measured, with its error, and the other cells
      simulated (report.py); windows that ran under another profile, in FILE,
      are planned by that

  run.py self
      shows how rates are chosen, and what is no figure

TRACES is the folder of the public traces; a name that is no file there is a
generator's.  Everything simulated says so in its file."""
import argparse
import fcntl
import json
import os
import socket
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
sys.path.append(os.path.dirname(HERE))  # in a bundle
sys.path.insert(0, HERE)
sys.path.append(os.path.join(ROOT, "tests", "perf"))
import iterations  # noqa: E402
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
    serial = {c["policy"]: c["best"] for c in found["curves"] if c["route"] == "serial"}
    fixed = max((v for k, v in serial.items() if k.startswith("static")), default=0)
    for c in found["curves"]:
        if c["best"] <= 0:
            yield f"| {label} | {c['route']} | {c['policy']} | 0 | - | - | - | - | - | - |"
            continue
        p = at_knee(c)
        lost = ", ".join(f"{k} {100 * v['lost_share']:.2f} %" for k, v in p["fallbacks"].items()
                         if v["lost_share"] > 0) if c["route"] == "fused" else "-"
        over = c["best"] / serial[c["policy"]] if serial[c["policy"]] > 0 else 0
        yield (f"| {label} | {c['route']} | {c['policy']} | {c['best']:.3f} | {over:.3f} | {p['bound']:.3f} | "
               f"{c['best'] / fixed if fixed else 0:.3f} | {100 * p['serial_share']:.1f} % | {p['ttft_ms']['p50']:.0f} | "
               f"{lost or 'none'} |")


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


def loopback_up():
    """In a network namespace of its own, on a host without ip(8): SIOCSIFFLAGS, IFF_UP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sh22x", b"lo", 1))


def sit(args):
    loopback_up()
    return sitting.sit(args)


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
    s = sub.add_parser("plan")
    for word in ("bin", "out", "traces"):
        s.add_argument(word)
    s.add_argument("--profile", required=True)
    s.add_argument("--kv-pages", type=int, default=13000)
    s.add_argument("--window", type=int, default=75)
    s.add_argument("--only", default="arxiv_sample_60,azure_code_60,mooncake_60,arxiv_long_60,arxiv_sample_30")
    s.add_argument("--seen", help="a folder of bench files of earlier sittings, and the last plan")
    s.add_argument("--keep", help="the cells of it that no change since has touched")
    s.add_argument("--word", action="append", default=[], help="one more word for tandemctl plan, and for replay")
    s = sub.add_parser("sit")
    for word in ("bin", "out", "traces", "plan"):
        s.add_argument(word)
    s.add_argument("--seconds", type=float, required=True)
    s.add_argument("--lanes", type=int, choices=[1, 2, 4], default=1)
    s.add_argument("--lane", type=int, default=0)
    s.add_argument("--skip", type=int, default=0, help="so many steps of the lane")
    s.add_argument("--also", action="append", default=[], help="an OUT of earlier, or of another lane, that is not repeated")
    s.add_argument("--note", action="append", default=[], help="what every window says it ran under")
    s.add_argument("--window", type=int, default=0, help="seconds; 0: as planned")
    s.add_argument("--start", type=float, default=15, help="seconds that an appliance takes to start and end")
    s.add_argument("--door", choices=["http1", "h3"], default="http1")
    s.add_argument("--set", action="append", default=[])
    s.add_argument("--word", action="append", default=[], help="one more word for tandemctl bench serve")
    s.add_argument("--archive", help="OUT as a tar.gz, renewed after each window")
    sub.add_parser("self")
    s = sub.add_parser("merge")
    s.add_argument("bin")
    s.add_argument("out")
    s.add_argument("sitting", nargs="+")
    s.add_argument("--keep")
    s = sub.add_parser("report")
    for word in ("bin", "out", "traces", "plan", "profile", "merged"):
        s.add_argument(word)
    s.add_argument("--ledger", action="store_true")
    s.add_argument("--page", help="a page of Markdown: what follows its line <!-- generated -->")
    s.add_argument("--was", action="append", default=[], help="a profile of earlier windows")
    s.add_argument("--made", help="JSON: device, commit and command, for the ledger")
    args = p.parse_args()
    if args.what == "self":
        return sitting.self_test() or iterations.self_test() or report.self_test()
    return {"simulate": simulate, "plan": sitting.make, "sit": sit, "merge": sitting.merge,
            "report": report.write}[args.what](args)


if __name__ == "__main__":
    sys.exit(main())
