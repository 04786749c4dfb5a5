#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the running appliance keeps of its promise, measured from outside.

usage: unshare --net tests/perf/replay/run.py BIN_DIR MODEL policy|overload|planner [options]

policy    the same storms of prompts under sched.policy quantile, static with
          512 and static with 2,048 prefill tokens, in interleaved rounds
overload  ten times the capacity for a minute: goodput, gaps, memory, recovery
planner   tandemctl plan on a measured profile beside a replay of the same
          arrivals at three loads

Prints tables in Markdown; --ledger writes their figures into
tests/perf/results/ledger.jsonl, --out FILE the tables into a file."""
import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
sys.path.insert(0, os.path.dirname(HERE))
import ledger  # noqa: E402
from appliance import Appliance  # noqa: E402

DOOR = ["--door", "http1"]  # or h3: --door


def load():
    return os.getloadavg()[0]


def jsonl(rows):
    """A Mooncake trace of (seconds, prompt, output); the caller keeps it."""
    f = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
    for at, prompt, output in sorted(rows):
        f.write(json.dumps({"timestamp": round(at * 1000), "input_length": prompt,
                            "output_length": output}) + "\n")
    f.flush()
    return f


def replay(a, trace, *words, records=None, timeout=900):
    args = ["replay", "--insecure", "--trace", trace, "--json", "--requests", "100000",
            "--vocab", "250", *words]
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as f:
        r = a.ctl(*args, "--records", f.name, timeout=timeout, check=False)
        assert r.returncode in (0, 3), r  # 3: some had no answer, which the summary counts
        if records is not None:
            records += [json.loads(line) for line in f.read().splitlines()]
    return json.loads(r.stdout)


class Run:
    def __init__(self, args):
        self.args = args
        self.text = []
        self.lines = []

    def say(self, line=""):
        print(line, flush=True)
        self.text.append(line)

    def figure(self, name, value, unit, aim, regime, note):
        self.lines.append(ledger.line(
            name, value, unit, aim, regime,
            f"unshare --net tests/perf/replay/run.py BIN MODEL {self.args.what}", note))

    def appliance(self, settings):
        return Appliance(self.args.bin, {"model.path": self.args.model, "port.kind": "tap" if DOOR[1] == "h3" else "none",
                                         "sched.sequences": 16, "exec.kv_pages": 1200,
                                         "sched.prefix_cache": 0,  # no round may help the next
                                         "api.context": 4096, **settings})

    def finish(self):
        if self.args.out:
            with open(self.args.out, "w", encoding="utf-8") as f:
                f.write("\n".join(self.text) + "\n")
        if self.args.ledger:
            ledger.put(self.lines)


def prefill_rate(a):
    """Prompt tokens a second of a prompt alone, the better of two."""
    best = 0.0
    for _ in range(2):
        with jsonl([(0, 1000, 1)]) as f:
            best = max(best, 1000 / replay(a, f.name, *DOOR)["ttft_ms"]["p50"] * 1000)
    return best


# --- policy ---------------------------------------------------------------

def storms(seconds, rate, seed):
    """Short chats that stream all the time, and every 10 s two long prompts
    that keep the machine busy for a third of it."""
    rng, rows, at = random.Random(seed), [], 0.0
    while at < seconds:
        rows.append((at, rng.randint(16, 48), rng.randint(40, 80)))
        at += rng.expovariate(0.8)
    long = min(2000, max(400, int(rate * 10 * 0.3 / 2)))
    for at in range(4, int(seconds), 10):
        rows += [(at, long, 8), (at + 0.1, long, 8)]
    return rows, long


def policy(run):
    gap, seconds = run.args.gap_ms, run.args.seconds or 48
    kinds = [("quantile (Tandem)", {"sched.policy": "quantile", "sched.prefill_tokens": 512}),
             ("static 512", {"sched.policy": "static", "sched.prefill_tokens": 512}),
             ("static 2048", {"sched.policy": "static", "sched.prefill_tokens": 2048})]
    common = {"sched.gap_ms": gap, "sched.ttft_ms": 30000}
    if run.args.profile:
        common["sched.profile"] = run.args.profile
    got = {name: [] for name, _ in kinds}
    loads = [load()]
    with run.appliance({"sched.prefill_tokens": 512, **common}) as a:
        rate = prefill_rate(a)
    for round_ in range(run.args.rounds):
        rows, long = storms(seconds, rate, 100 + round_)
        warm, _ = storms(14, rate, 7)
        for name, settings in kinds:
            with run.appliance({**common, **settings}) as a, jsonl(warm) as w, jsonl(rows) as f:
                replay(a, w.name, *DOOR)
                got[name].append(replay(a, f.name, *DOOR, "--gap-ms", str(gap), "--ttft-ms", "30000"))
            loads.append(load())
            print(f"  round {round_ + 1}, {name}: p99 {got[name][-1]['tbt_ms']['p99']:.0f} ms", flush=True)
    run.say(f"Promised p99 gap {gap} ms, over {DOOR[1]}; {run.args.rounds} interleaved rounds of {seconds} s each, two prompts of "
            f"{long} tokens every 10 s over streaming chats; a prompt alone runs at {rate:.0f} tokens/s.")
    run.say(f"Load average {min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} cores, {ledger.device()}.")
    run.say()
    run.say("| policy | gap p50 | gap p99 (each round) | p99.9 | worst gap | gaps over | over twice | TTFT p50 | TTFT p99 |"
            " tokens/s |")
    run.say("|---|---|---|---|---|---|---|---|---|---|")
    share = {}
    for name, _ in kinds:
        g = got[name]
        gaps = sum(s["tbt_ms"]["count"] for s in g)
        share[name] = sum(s["share_over"] * s["tbt_ms"]["count"] for s in g) / gaps
        twice = sum(s["share_over_twice"] * s["tbt_ms"]["count"] for s in g) / gaps
        med = lambda f: statistics.median(f(s) for s in g)  # noqa: E731
        run.say(f"| {name} | {med(lambda s: s['tbt_ms']['p50']):.0f} ms "
                f"| {med(lambda s: s['tbt_ms']['p99']):.0f} ms "
                f"({', '.join('%.0f' % s['tbt_ms']['p99'] for s in g)}) "
                f"| {med(lambda s: s['tbt_ms']['p999']):.0f} ms | {max(s['tbt_ms']['max'] for s in g):.0f} ms "
                f"| {100 * share[name]:.2f} % | {100 * twice:.2f} % "
                f"| {med(lambda s: s['ttft_ms']['p50']):.0f} ms | {med(lambda s: s['ttft_ms']['p99']):.0f} ms "
                f"| {med(lambda s: s['tokens_per_s']):.1f} |")
    med99 = {name: statistics.median(s["tbt_ms"]["p99"] for s in got[name]) for name, _ in kinds}
    run.figure("cpu.replay.p99_gap_ms", round(med99["quantile (Tandem)"], 1), "ms", f"<= {gap}",
               f"{os.path.basename(run.args.model)}, {run.args.rounds} rounds of {seconds} s, prefill storms",
               f"static 512 {med99['static 512']:.0f} ms, static 2048 {med99['static 2048']:.0f} ms in the same rounds; "
               f"share over {100 * share['quantile (Tandem)']:.2f} %, {100 * share['static 512']:.2f} %, "
               f"{100 * share['static 2048']:.2f} %; load average {min(loads):.1f} to {max(loads):.1f}")


# --- overload --------------------------------------------------------------

def resident_mib(pids):
    kib = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", encoding="ascii") as f:
                kib += sum(int(x.split()[1]) for x in f if x.startswith(("RssAnon", "RssShmem")))
        except FileNotFoundError:
            pass
    return kib / 1024


def overload(run):
    prompt, output, seconds, gap, ttft = 32, 24, run.args.seconds or 60, 750, 4000
    if run.args.model.startswith("dummy:"):  # a small model: longer answers, shorter gaps
        prompt, output, gap = 64, 64, 250
    settings = {"sched.sequences": 8, "sched.waiting": 6, "sched.ttft_guard": 1,
                "sched.ttft_ms": ttft, "sched.gap_ms": gap}
    targets = ["--gap-ms", str(gap), "--ttft-ms", str(ttft), *DOOR]
    fast = run.args.model.startswith("dummy:")
    loads = [load()]
    with run.appliance(settings) as a:
        def capacity():
            # more and more until a quarter is refused: then it is the machine that is measured
            step = 0.08 if fast else 0.25
            for _ in range(5):
                with jsonl([(step * i, prompt, output) for i in range(int(12 / step))]) as f:
                    s = replay(a, f.name, *targets)
                if s["refused"] >= 0.25 * s["requests"]:
                    break
                step /= 1.6
            assert s["done"] >= 16, s
            return s["tokens_per_s"]
        capacity()
        before = [capacity() for _ in range(2)]
        pids = [a.process.pid, a.executor_pid()]
        rate = 10 * statistics.mean(before) / output
        memory, over = [], threading.Event()

        def watch():
            while not over.wait(0.5):
                memory.append(resident_mib(pids))
        t = threading.Thread(target=watch)
        t.start()
        rng, rows, at = random.Random(5), [], 0.0
        while at < seconds:
            rows.append((at, prompt, output))
            at += rng.expovariate(rate)
        # a quiet tail: who comes in it tells how soon the appliance is itself again
        probes = [(seconds + 0.25 * (k + 1), 16, 2) for k in range(40)]
        records = []
        with jsonl(rows + probes) as f:
            s = replay(a, f.name, *targets, "--open-max", "512", records=records)
        over.set()
        t.join()
        loads.append(load())
        after = [capacity() for _ in range(2)]
    storm = [x for x in records if x["at_ms"] <= seconds * 1000]
    tail = sorted((x for x in records if x["at_ms"] > seconds * 1000), key=lambda x: x["at_ms"])
    good = sum(x["tokens"] for x in storm if x["outcome"] == "done" and x["ttft_ms"] <= ttft and
               x["over"] <= 0.01 * x["gaps"])
    goodput = good / (max(x["at_ms"] + x["end_ms"] for x in storm if x["outcome"] == "done") / 1000)
    cap = statistics.mean(before + after)
    ok = [x["outcome"] == "done" and x["ttft_ms"] <= ttft for x in tail]
    bad = [i for i, x in enumerate(ok) if not x]
    recovery = (tail[bad[-1] + 1]["at_ms"] / 1000 - seconds) if bad else tail[0]["at_ms"] / 1000 - seconds
    refused = sorted(x["end_ms"] for x in storm if x["outcome"] == "refused")
    quarter = len(memory) // 4  # connections and their buffers are made by then
    flat = max(memory[quarter:]) - memory[quarter]
    run.say(f"{len(storm)} requests in {seconds} s, {rate:.1f}/s, ten times {cap / output:.2f}/s; {prompt} prompt and {output} output "
            f"tokens; {os.path.basename(run.args.model)}, {ledger.device()}, load average {min(loads):.1f} to {max(loads):.1f}.")
    run.say()
    run.say("| what | value | aim |")
    run.say("|---|---|---|")
    run.say(f"| capacity: what is served where at least a quarter is refused, before / after | {before[0]:.1f}, {before[1]:.1f} / "
            f"{after[0]:.1f}, {after[1]:.1f} tokens/s | |")
    run.say(f"| goodput under overload | {goodput:.1f} tokens/s, {100 * goodput / cap:.0f} % of capacity | >= 90 % |")
    run.say(f"| admitted p99 gap | {s['tbt_ms']['p99']:.0f} ms (worst {s['tbt_ms']['max']:.0f}) | <= {gap} ms |")
    run.say(f"| admitted p99 first token | {s['ttft_ms']['p99']:.0f} ms | <= {ttft} ms |")
    run.say(f"| refused | {len(refused)}: {json.dumps(s['reasons'])} | by name |")
    run.say(f"| refused after, p50 / p99 | {refused[len(refused) // 2]:.1f} / {refused[int(len(refused) * .99)]:.1f} ms | at once |")
    run.say(f"| memory of tandemd and tandem-exec | {memory[0]:.1f} MiB, {memory[quarter]:.1f} after a quarter "
            f"of the time, from there {flat:+.1f} MiB at most | flat |")
    run.say(f"| recovery: from the last arrival on every request is served in time after | {recovery:.2f} s | <= 2 s |")
    run.figure("cpu.overload.goodput.percent", round(100 * goodput / cap, 1), "%", ">= 90",
               f"10x the capacity for {seconds} s, {os.path.basename(run.args.model)}, {DOOR[1]}",
               f"p99 gap {s['tbt_ms']['p99']:.0f} ms of {gap}, {len(refused)} refused, memory {flat:+.1f} MiB, recovery "
               f"{recovery:.2f} s; load average {min(loads):.1f} to {max(loads):.1f}")


# --- planner ----------------------------------------------------------------

def planner(run):
    # a deadline that a queue which only grows would soon break: loads beyond
    # what the machine can do in the long run are no loads to plan for
    seconds, gap, ttft = run.args.seconds or 100, run.args.gap_ms, 5000
    trace, scale, seed = run.args.trace, run.args.scale, 11
    sizes = {"sched.sequences": 16, "sched.prefill_tokens": 512, "sched.gap_ms": gap,
             "sched.ttft_ms": ttft, "sched.profile": run.args.profile, "exec.sms": run.args.sms}
    own = ["--profile", run.args.profile, "--trace", trace, "--scale", str(scale), "--seed", str(seed),
           "--sequences", "16", "--context", "4096", "--prefill-tokens", "512", "--grid", "1", "--floor",
           "32", "--starve-ms", "2000", "--kv-pages", "1200", "--gap-ms", str(gap), "--ttft-ms", str(ttft),
           "--ttft-share", "0.9", "--json"]

    def plan(a, rates, requests):
        words = ["--rates", ",".join(f"{r:.6f}" for r in rates)] if rates else []
        r = a.ctl("plan", *own, "--requests", str(requests), *words, timeout=300)
        return next(c for c in json.loads(r.stdout)["curves"] if c["route"] == "fused")
    loads, rows, worst = [load()], [], 0.0
    with run.appliance(sizes) as a:
        best = plan(a, None, 1000)["best"]
        replay(a, trace, *DOOR, "--scale", str(scale), "--rate", str(0.5 * best), "--requests", "20")
        for share in (0.5, 0.7, 0.85):
            rate = share * best
            n = max(20, int(seconds * rate))
            real = replay(a, trace, *DOOR, "--scale", str(scale), "--rate", f"{rate:.6f}", "--seed", str(seed),
                          "--requests", str(n), "--gap-ms", str(gap), "--ttft-ms", str(ttft))
            point = plan(a, [rate], n)["points"][0]
            loads.append(load())
            rows.append((share, rate, n, point, real))
    run.say(f"Trace {trace}, lengths x {scale}; planned capacity {best:.3f} requests/s at p99 gap {gap} ms; each load "
            f"about {seconds} s of the same arrivals; {os.path.basename(run.args.model)}, {ledger.device()}, load average "
            f"{min(loads):.1f} to {max(loads):.1f}.")
    run.say()
    run.say("| load | requests | gap p50 plan / real | gap p99 | TTFT p50 | TTFT p90 | gaps | worst error |")
    run.say("|---|---|---|---|---|---|---|---|")
    for share, _, n, p, r in rows:
        pairs = [(p["gap_ms"]["p50"], r["tbt_ms"]["p50"]), (p["gap_ms"]["p99"], r["tbt_ms"]["p99"]),
                 (p["ttft_ms"]["p50"], r["ttft_ms"]["p50"]), (p["ttft_ms"]["p90"], r["ttft_ms"]["p90"])]
        errors = [x / y - 1 for x, y in pairs]
        worst = max(worst, *map(abs, errors))
        cells = " | ".join(f"{x:.0f} / {y:.0f} ms ({100 * e:+.0f} %)" for (x, y), e in zip(pairs, errors))
        run.say(f"| {100 * share:.0f} % | {n} | {cells} | {r['tbt_ms']['count']} | {100 * max(map(abs, errors)):.0f} % |")
    run.figure("cpu.planner_error.percent", round(100 * worst, 1), "%", "<= 15",
               f"{os.path.basename(run.args.model)}; gaps p50 and p99, first tokens p50 and p90 at 50, 70 and 85 % of the planned "
               f"capacity, about {seconds} s each", f"worst of twelve; load average {min(loads):.1f} to {max(loads):.1f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bin")
    p.add_argument("model")
    p.add_argument("what", choices=["policy", "overload", "planner"])
    p.add_argument("--seconds", type=int, default=0)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--gap-ms", type=int, default=250)
    p.add_argument("--profile", default="")
    p.add_argument("--trace", default="azure_conv", help="of planner")
    p.add_argument("--scale", type=float, default=0.15, help="of its lengths")
    p.add_argument("--sms", type=int, default=2, help="SM threads of planner's appliance, and of its profile")
    p.add_argument("--ledger", action="store_true")
    p.add_argument("--out", default="")
    p.add_argument("--door", choices=["http1", "h3"], default="http1")
    args = p.parse_args()
    DOOR[1] = args.door
    run = Run(args)
    {"policy": policy, "overload": overload, "planner": planner}[run.args.what](run)
    run.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
