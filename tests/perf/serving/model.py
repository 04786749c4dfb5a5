#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/perf/serving/model.py MODEL[,fp8-kv] OUT.json

A profile of an H200 that nobody measured as a profile: made from what was
measured apart, so that the simulator has something better than a guess until
`tandemctl profile` has run there.  The file says is_model; everything that is
simulated on it is marked so.

  attention   results/attention_hopper.jsonl: burst times of one layer, by
              least squares (relative errors) over the points of the model:
                prefill alone   us = a + b * FLOPs
                decode alone    us = a + b * bytes of keys and values
              and what fused and streams saved of the smaller half, a median,
              times what the three layers between products saved of it
              relative to burst (rows "layer")
  the rest    results/engine_cuda.md: iterations of Llama-3-8B less the
              attention above; straight lines between
  other models: the rest by their weights, at Llama-3-8B's rates
  fp8-kv      half of the bytes, and no way but one after the other: the
              fallback as it is today

Nothing here is of another GPU: no figure of an A100 or H100 was measured or
found with its conditions.
"""
import json
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
POINTS = os.path.join(HERE, "..", "results", "attention_hopper.jsonl")

# layers, hidden, query heads, KV heads, head, feed-forward, vocabulary (appliance/model/dummy.c)
SHAPE = {"llama-3-8b": (32, 4096, 32, 8, 128, 14336, 128256),
         "llama-2-7b": (32, 4096, 32, 32, 128, 11008, 32000),
         "yi-6b": (32, 4096, 32, 4, 128, 11008, 64000)}
NAME = {"llama-3-8b": "llama3-8b", "llama-2-7b": "llama2-7b", "yi-6b": "yi-6b"}  # in POINTS

# engine_cuda.md: (prefill tokens, decodes, context of these, us)
ITERATIONS = [(0, 1, 1024, 4191), (0, 32, 1024, 5329), (0, 128, 1024, 10596), (1024, 128, 1024, 32381),
              (2048, 0, 0, 49569)]

# axes of appliance/profile/table.c, as far as a point is worth one
CHUNK = (16, 64, 128, 256, 512, 1024, 2048)
DEPTH = (0, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
BATCH = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256)
KV = (2048, 8192, 32768, 131072, 524288, 1048576, 2097152, 4194304)


def line(rows):
    """a, b of y = a + b * x with the smallest relative errors."""
    w = [1 / y ** 2 for _, y in rows]
    s = sum(w)
    mx = sum(k * x for k, (x, _) in zip(w, rows)) / s
    my = sum(k * y for k, (_, y) in zip(w, rows)) / s
    b = (sum(k * (x - mx) * (y - my) for k, (x, y) in zip(w, rows)) /
         sum(k * (x - mx) ** 2 for k, (x, _) in zip(w, rows)))
    return my - b * mx, b


def errors(rows, law):
    e = sorted(abs(law(*x) / y - 1) for x, y in rows)
    return {"points": len(e), "p50": round(e[len(e) // 2], 4), "p95": round(e[int(0.95 * (len(e) - 1))], 4)}


class Attention:
    """Of one layer, in us."""

    def __init__(self, name, kv_share=1.0, is_serial=False):
        self.shape = SHAPE[name]
        self.kv_share = kv_share
        with open(POINTS, encoding="utf-8") as f:
            rows = [json.loads(x) for x in f]
        points = [r for r in rows if "ways" in r and r["model"] == NAME[name]]
        whole = [r for r in points if "decode" in r["ways"]]
        self.prefill = line([(r["flops"][0], r["ways"]["prefill"]["us"]) for r in whole])
        self.decode = line([(r["bytes"][1], r["ways"]["decode"]["us"]) for r in whole])
        place = in_place(rows)
        self.saved = {"serial": 0.0}
        for way in ("fused", "streams"):
            key = "fused" if way == "fused" else "streams_dp"
            burst = statistics.median(saved(r["ways"], key) for r in whole if key in r["ways"])
            self.saved[way] = 0.0 if is_serial else burst * place[way]
        burst = statistics.median(saved(r["ways"], "fused") for r in whole)
        others = [r for r in points if "decode" not in r["ways"]]
        self.error = {
            "prefill": errors([((r,), r["ways"]["prefill"]["us"]) for r in whole], lambda r: self.p_us(r["flops"][0])),
            "decode": errors([((r,), r["ways"]["decode"]["us"]) for r in whole], lambda r: self.d_us(r["bytes"][1])),
            "held out, serial": errors([((r,), r["ways"]["serial"]["us"]) for r in others],
                                       lambda r: self.p_us(r["flops"][0]) + self.d_us(r["bytes"][1])),
            "held out, fused burst": errors([((r,), r["ways"]["fused"]["us"]) for r in others],
                                            lambda r: both(self.p_us(r["flops"][0]), self.d_us(r["bytes"][1]), burst))}

    def p_us(self, flops):
        return self.prefill[0] + self.prefill[1] * flops if flops else 0.0

    def d_us(self, size):
        return self.decode[0] + self.decode[1] * size if size else 0.0

    def prefill_us(self, chunk, depth):
        _, _, heads, _, head, _, _ = self.shape
        return self.p_us(4 * heads * head * (chunk * depth + chunk * (chunk + 1) / 2))

    def decode_us(self, kv):
        _, _, _, heads, head, _, _ = self.shape
        return self.d_us(4 * heads * head * kv * self.kv_share)


def both(prefill, decode, share):
    return prefill + decode - share * min(prefill, decode)


def saved(ways, key):
    p, d = ways["prefill"]["us"], ways["decode"]["us"]
    return (p + d - ways[key]["us"]) / min(p, d)


def in_place(rows):
    """What fused and streams save between products, over what they save in burst."""
    us = {(r["way"], r["ctx"], r["chunk"], r["batch"]): r["us"] for r in rows
          if r["row"] == "layer" and not r["dependent"]}
    burst = {(r["ctx"], r["chunk"], r["batch"]): r["ways"] for r in rows
             if r["row"] == "point" and r["model"] == "llama3-8b" and "decode" in r["ways"]}
    out = {}
    for way, key in (("fused", "fused"), ("streams", "streams_dp")):
        ratio = []
        for w, *at in us:
            if w != key:
                continue
            ways = burst[tuple(at)]
            there = us[("serial", *at)] - us[(key, *at)]
            ratio.append(there / min(ways["prefill"]["us"], ways["decode"]["us"]) / saved(ways, key))
        out[way] = statistics.mean(ratio)
    return out


def weights(name):
    layers, hidden, q, kv, head, ffn, vocab = SHAPE[name]
    return layers * (hidden * head * (2 * q + 2 * kv) + 3 * hidden * ffn) + hidden * vocab


def rest_us(name):
    """[(tokens, us)] of an iteration without its attention."""
    a = Attention("llama-3-8b")
    scale = weights(name) / weights("llama-3-8b")
    out = []
    for chunk, batch, ctx, us in ITERATIONS:
        p, d = a.prefill_us(chunk, 0) if chunk else 0.0, a.decode_us(batch * ctx)
        out.append((chunk + batch, (us - 32 * both(p, d, a.saved["fused"])) * scale))
    return sorted(out)


def between(rows, n):
    for (x0, y0), (x1, y1) in zip(rows, rows[1:]):
        if n <= x1 or (x1, y1) == rows[-1]:
            return y0 + (y1 - y0) * (n - x0) / (x1 - x0)
    raise ValueError(n)


def profile(name, is_fp8=False):
    a = Attention(name, 0.5 if is_fp8 else 1.0, is_fp8)
    layers = a.shape[0]
    rest = rest_us(name)
    out = {"tandem_profile": 3, "device": "NVIDIA H200, a model", "model": f"dummy:{name}" + (" fp8 KV" if is_fp8 else ""),
           "build": "tests/perf/serving/model.py", "power_w": 0, "clock_khz": 0, "fixed_ns": 0, "split_max": 1, "stair_from": 0,
           "is_model": 1, "check": [0, 0, 0, 0],
           "made_of": {"attention_us": {"prefill": a.prefill, "decode": a.decode, "saved": a.saved, "errors": a.error},
                       "rest_us": [[n, round(us)] for n, us in rest]}}
    ns = 1000 * layers
    tokens = [1, 2, 4, 8, 16, 32, 64] + list(range(128, 2049, 64)) + [2560, 3072, 4096, 8448]
    out["lin"] = [[n, round(1000 * between(rest, n)), 1, 1] for n in tokens]
    for way in ("fused", "streams", "serial"):
        rows = [[c, h, 0, 0, a.prefill_us(c, h) * ns, 1, 1] for c in CHUNK for h in DEPTH]
        rows += [[0, 0, b, s, a.decode_us(s) * ns, 1, 1] for b in BATCH for s in KV if s >= b]
        rows += [[c, 8192, 32, s, both(a.prefill_us(c, 8192), a.decode_us(s), a.saved[way]) * ns, 1, 1]
                 for c in (512, 1024, 2048) for s in (131072, 524288)]
        out[way] = [[*r[:4], round(r[4]), *r[5:]] for r in rows]
    return out


def main():
    name, _, extra = sys.argv[1].partition(",")
    p = profile(name, extra == "fp8-kv")
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        json.dump(p, f)
        f.write("\n")
    print(json.dumps(p["made_of"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
