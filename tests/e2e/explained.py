#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every kind of iteration is explained and traced.  usage: explained.py BIN_DIR [FOLDER]

A fused iteration, one that the p99 limit cut, and one fallback of each reason that a whole
appliance on the CPU backend comes to: operator, not_profitable (a profile in which the serial route
is faster) and bin_unverified (a profile of small shapes only).  workspace needs 64 MiB
of partials, contexts of some 100,000 tokens: test_worklist makes it.  Traces are held to the Trace Event format.
With FOLDER the texts and the trace are kept there."""
import json
import os
import re
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import Appliance  # noqa: E402

NO_PORT = {"port.kind": "none", "sched.prefix_cache": 0, "sched.prefill_tokens": 64}


def trace_event_format(trace):
    """What the format's document asks of the phases that we use; names of what is wrong."""
    wrong, open_spans, last = [], {}, {}
    for i, e in enumerate(trace["traceEvents"]):
        def want(ok, what):
            if not ok:
                wrong.append(f"event {i}: {what}: {e}")
        want(isinstance(e.get("name"), str) and e["name"], "name")
        want(isinstance(e.get("pid"), int), "pid")
        if e["ph"] == "M":
            want(e["name"] in ("process_name", "thread_name") and isinstance(e["args"]["name"], str), "metadata")
            continue
        want(isinstance(e.get("ts"), (int, float)) and e["ts"] >= 0, "ts in microseconds")
        if e["ph"] == "X":
            want(isinstance(e.get("dur"), (int, float)) and e["dur"] > 0 and "tid" in e, "dur and tid")
            want(e["ts"] >= last.get(e.get("tid"), 0) - 0.002, "iterations of one executor do not overlap")
            last[e.get("tid")] = e["ts"] + e.get("dur", 0)
        elif e["ph"] == "i":
            want(e.get("s") in ("g", "p", "t"), "scope")
        elif e["ph"] == "C":
            want(e["args"] and all(isinstance(v, (int, float)) for v in e["args"].values()), "numbers")
        elif e["ph"] in "be":
            key = (e["cat"], e.get("id"), e["name"])
            want(isinstance(e.get("id"), str) and "cat" in e, "id and cat")
            if e["ph"] == "b":
                want(key not in open_spans, "begun twice")
                open_spans[key] = e["ts"]
            else:
                want(open_spans.pop(key, e["ts"] + 1) <= e["ts"], "ends after its begin")
        else:
            want(False, "a phase that we do not write")
    return wrong + [f"never ended: {k}" for k in open_spans]


def storm(a):
    """Long decodes beside prompts: hybrid iterations."""
    c, r = a.stream("decode ", 1500)
    r.readline()
    threads = [threading.Thread(target=a.complete, args=(f"{i} " + "a longer prompt " * 30, 12)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    r.read()
    c.close()


def traced(a):
    text = a.ctl("trace", "--flight", a.settings["flight.path"], timeout=120).stdout
    trace = json.loads(text)
    wrong = trace_event_format(trace)
    assert not wrong, wrong[:5]
    hybrid = [e["args"] | {"ran": e["name"]} for e in trace["traceEvents"] if e["ph"] == "X"
              and e["args"]["prefill_tokens"] and e["args"]["decodes"]]
    for e in hybrid:
        assert all(e["tile"]) and e["vcta_planned"] == e["vcta_executed"], e
    return text, hybrid


def explain(a, *words):
    return a.ctl("explain", "--flight", a.settings["flight.path"], *words).stdout


def explained(a, number, *words):
    told = explain(a, "--iteration", str(number))
    for w in (f"iteration {number} of life 1", "limit       ", "virtual CTA ", "prefill tiles of ", *words):
        assert w in told, (w, told)
    return told


def main():
    told, trace = {}, None
    bin_dir = sys.argv[1]
    with tempfile.TemporaryDirectory() as d:
        with Appliance(bin_dir, NO_PORT) as a:
            storm(a)
            trace, hybrid = traced(a)
            one = [e for e in hybrid if e["ran"] == "fused"][0]
            told["fused"] = explained(a, one["iteration"], "shared one attention launch per layer",
                                      "all executed", "prefill per decode")

        base = os.path.join(d, "tiny")
        subprocess.run([os.path.join(bin_dir, "tandemctl"), "profile", "--out", base, "--budget", "4",
                        "--set", "model.path=dummy:tiny", "--set", "exec.sms=2"], check=True, timeout=100,
                       capture_output=True)
        with open(base + ".json", encoding="utf-8") as f:
            profile = json.load(f)

        def made(reach, hybrid_ns):
            """A model of a machine, for shapes up to `reach` KV tokens, on which fused hybrids take hybrid_ns more.
            It says that it is one: a measured profile is left (bin_unverified) where the machine is not as it was."""
            shapes = [(chunk, depth, batch, kv) for chunk in (0, 64, 128, 512) for depth in {0, reach}
                      for batch in (0, 1, 4, 16) for kv in {0, reach}
                      if (chunk or not depth) and (batch or not kv) and chunk + batch]
            def points(more):
                return [[*s, 5000.0 + 200.0 * s[0] + 2000.0 * s[2] + (more if s[0] and s[2] else 0), 1.1, 9]
                        for s in shapes]
            return {**profile, "is_model": 1,
                    "fused": points(hybrid_ns), "streams": points(hybrid_ns), "serial": points(0)}

        def keep(name, p):
            with open(os.path.join(d, name), "w", encoding="utf-8") as f:
                json.dump(p, f)
            return {"sched.profile": os.path.join(d, name)}

        # A gap that is promised too tightly leaves no room for any prefill beside decodes: the first
        # of these that this machine can keep.
        for gap_ms in (1, 2, 4, 8, 16, 32, 64):
            with Appliance(bin_dir, {**NO_PORT, "sched.gap_ms": gap_ms, "sched.prefill_tokens": 512}) as a:
                storm(a)
                _, hybrid = traced(a)
                cut = [e for e in hybrid if e["prefill_ended_by"] == "time_limit"]
                if cut:
                    told["cut by the limit"] = explained(
                        a, cut[0]["iteration"], "the gap promised to class interactive",
                        "the tracked quantile", "the iteration's time limit (time_limit)")
                    break
                print(f"{gap_ms} ms came to", {e["prefill_ended_by"] for e in hybrid})

        def fallback(reason, settings):
            """Runs with these settings; told has how an iteration of this reason was explained, if there was one."""
            with Appliance(bin_dir, {**NO_PORT, **settings}) as a:
                storm(a)
                _, hybrid = traced(a)
                fell = [e for e in hybrid if e["fallback"] == reason]
                if fell:
                    assert a.total("tandem_fallbacks_total", f'"{reason}"') == len(fell)
                    told[reason] = explained(a, fell[0]["iteration"], " instead of fused: ", f"({reason})")
                    slowest = explain(a, "--fallback", reason)
                    assert re.search(rf"instead of fused: .* \({reason}\)", slowest), slowest
                else:
                    print(settings, "came to", {e["fallback"] for e in hybrid})

        fallback("operator", {"sched.route": "serial"})
        fallback("bin_unverified", keep("small", made(0, 5e7)))
        fallback("not_profitable", keep("slow", made(8192, 5e7)))
    assert len(told) == 5, list(told)
    for name, text in told.items():
        print(f"--- {name}\n{text}")
    if len(sys.argv) > 2:
        with open(os.path.join(sys.argv[2], "trace.json"), "w", encoding="utf-8") as f:
            f.write(trace)
        with open(os.path.join(sys.argv[2], "explained.txt"), "w", encoding="utf-8") as f:
            f.write("\n".join(told[k] for k in told))
    return 0


if __name__ == "__main__":
    sys.exit(main() if os.geteuid() == 0 else 77)
