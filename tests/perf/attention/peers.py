#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other people's attention on our points, by the protocol of burst.h: at most
10 ms of work after 40 ms of idling, launches behind a spinning kernel, ways
in a random order each round, medians; random data, page tables over sets of
pages that launches take in turn.

usage: peers.py POINTS.jsonl [--rounds N] [--points A:B] > peers.jsonl

POINTS.jsonl is what perf_attention wrote: its "point" rows name the points.
What is not installed is left out and named in the "peer_machine" row.
  FlashInfer   flashinfer-python: paged prefill FA2 and FA3, unpaged FA2,
               decode on tensor and CUDA cores, POD (unpaged prefill, paged
               decode); pages of 16 tokens
  PyTorch      scaled_dot_product_attention, flash backend, unpaged
  FA4          flash-attn-4: prefill, unpaged
"""
import argparse
import itertools
import json
import random
import statistics
import sys
import time

import torch

PAGE, DIM = 16, 128
POOL_GB = 20  # of K, and of V
DEV, BF16 = "cuda", torch.bfloat16


def optional(name):
    try:
        return __import__(name, fromlist=["x"]), None
    except Exception as e:  # whatever an import of a foreign package throws
        return None, f"{type(e).__name__}: {e}"[:120]


flashinfer, NO_FLASHINFER = optional("flashinfer")
fa4, NO_FA4 = optional("flash_attn.cute")


def ints(*x):
    return torch.tensor(x, device=DEV, dtype=torch.int32)


def fill_random(n):
    """n bf16 numbers, normal, a gigabyte at a time."""
    out = torch.empty(n, device=DEV, dtype=BF16)
    for part in out.split(1 << 29):
        part.normal_()
    return out


class Burst:
    def __init__(self):
        self.mark = [torch.cuda.Event(enable_timing=True) for _ in range(6)]

    def run(self, fn, cnt, idle=0.04):
        time.sleep(idle)
        torch.cuda._sleep(3000000)  # longer than it takes to queue five calls
        self.mark[0].record()
        for i in range(cnt):
            fn()
            self.mark[i + 1].record()
        torch.cuda.synchronize()
        return [self.mark[i].elapsed_time(self.mark[i + 1]) * 1e3 for i in range(cnt)]

    def measure(self, ways, rounds, seed):
        rng = random.Random(seed)
        got = {k: [] for k in ways}
        cnt = {k: max(1, min(5, int(1e4 / self.run(fn, 2, 0)[1]))) for k, fn in ways.items()}
        for _ in range(rounds):
            for k in rng.sample(sorted(ways), len(ways)):
                got[k] += self.run(ways[k], cnt[k])
        return {k: {"us": round(statistics.median(v), 1), "lo": round(min(v), 1),
                    "hi": round(max(v), 1), "n": len(v)} for k, v in got.items()}


class Data:
    """The pools, as FlashInfer's HND pages, and one workspace for all."""

    def __init__(self):
        n = (POOL_GB << 30) // 2
        self.k, self.v = fill_random(n), fill_random(n)
        self.q = fill_random(20000 * 32 * DIM).view(-1, 32, DIM)
        self.space = torch.empty(512 << 20, dtype=torch.uint8, device=DEV)

    def pages(self, nkv):
        shape = (-1, nkv, PAGE, DIM)
        return self.k.view(shape), self.v.view(shape)

    def flat(self, nkv, batch, ctx, off):
        """[batch, nkv, ctx, DIM] from sequence number off of the pool on."""
        sz = nkv * ctx * DIM
        cut = slice(off * sz, (off + batch) * sz)
        return (x[cut].view(batch, nkv, ctx, DIM) for x in (self.k, self.v))


def in_turn(fns):
    turn = itertools.cycle(fns)
    return lambda: next(turn)()


def flashinfer_ways(data, p, sets, missing):
    nq, nkv, chunk, batch = p["nq"], p["nkv"], p["chunk"], p["batch"]
    kv = data.pages(nkv)
    pages, dpages = p["ctx"] // PAGE, p["decode_ctx"] // PAGE
    deck = torch.randperm(kv[0].shape[0], device=DEV)[:sets * (pages + batch * dpages)].int()
    qp, qd = data.q[:chunk, :nq], data.q[chunk:chunk + batch, :nq].contiguous()
    indptr = torch.arange(batch + 1, device=DEV, dtype=torch.int32) * dpages
    last = torch.full((batch,), PAGE, device=DEV, dtype=torch.int32)
    types = {"q_data_type": BF16, "kv_data_type": BF16}
    ways = {}

    def add(name, make):
        if name in missing:
            return
        try:
            ways.setdefault(name, []).append(make())
        except Exception as e:
            missing[name] = f"{type(e).__name__}: {e}"[:200]
            ways.pop(name, None)

    def prefill(backend, mine):
        w = flashinfer.BatchPrefillWithPagedKVCacheWrapper(data.space, "HND", backend=backend)
        w.plan(ints(0, chunk), ints(0, pages), mine, ints(PAGE), nq, nkv, DIM, PAGE, causal=True,
               **types)
        return lambda: w.run(qp, kv)

    def unpaged(kp, vp):
        return lambda: flashinfer.single_prefill_with_kv_cache(qp, kp, vp, causal=True,
                                                               backend="fa2")

    def decode(is_tensor, theirs):
        w = flashinfer.BatchDecodeWithPagedKVCacheWrapper(data.space, "HND",
                                                          use_tensor_cores=is_tensor)
        w.plan(indptr, theirs, last, nq, nkv, DIM, PAGE, **types)
        return lambda: w.run(qd, kv)

    def pod(kp, vp, theirs):
        w = flashinfer.PODWithPagedKVCacheWrapper(data.space, "HND")
        w.plan(indptr, theirs, last, nq, nkv, DIM, PAGE, **types)
        return lambda: w.run(qp, kp, vp, qd, kv, causal_p=True, kv_layout_d="HND")

    for s in range(sets):
        at = s * (pages + batch * dpages)
        mine, theirs = deck[at:at + pages].clone(), deck[at + pages:at + pages + batch * dpages].clone()
        # One contiguous context of the pool, another each set.
        kp, vp = (x[0].transpose(0, 1).contiguous() for x in data.flat(nkv, 1, p["ctx"], s))
        for backend in ("fa2", "fa3"):
            add("fi_prefill_" + backend, lambda: prefill(backend, mine))
        add("fi_prefill_unpaged", lambda: unpaged(kp, vp))
        add("fi_decode_tc", lambda: decode(True, theirs))
        add("fi_decode_cc", lambda: decode(False, theirs))
        add("fi_pod", lambda: pod(kp, vp, theirs))
    return ways


def torch_ways(data, p, sets, _):
    nq, nkv, chunk, batch = p["nq"], p["nkv"], p["chunk"], p["batch"]
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa
    flash = torch.ops.aten._flash_attention_forward

    def prefill(q, k, v):  # causal at the end of the context, which sdpa's own flag is not
        return flash(q, k, v, None, None, q.shape[1], k.shape[1], 0.0, True, False)

    def decode(q, k, v):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return sdpa(q, k, v, enable_gqa=True)

    ways = {}
    for s in range(sets):
        k, v = (x.transpose(1, 2).contiguous() for x in data.flat(nkv, 1, p["ctx"], s))
        q = data.q[:chunk, :nq].unsqueeze(0)
        ways.setdefault("torch_prefill", []).append(lambda q=q, k=k, v=v: prefill(q, k, v))
        k, v = data.flat(nkv, batch, p["decode_ctx"], s * batch)
        q = data.q[chunk:chunk + batch, :nq].unsqueeze(2).contiguous()
        ways.setdefault("torch_decode", []).append(lambda q=q, k=k, v=v: decode(q, k, v))
    return ways


def fa4_ways(data, p, sets, _):
    ways = []
    for s in range(sets):
        k, v = (x.transpose(1, 2).contiguous() for x in data.flat(p["nkv"], 1, p["ctx"], s))
        q = data.q[:p["chunk"], :p["nq"]].unsqueeze(0)
        ways.append(lambda q=q, k=k, v=v: fa4.flash_attn_func(q, k, v, causal=True))
    return {"fa4_prefill": ways}


def works(name, fns, missing):
    """Runs each once; a way that the package refuses is named, not fatal."""
    try:
        for f in fns:
            f()
        torch.cuda.synchronize()
        return True
    except Exception as e:
        missing[name] = f"{type(e).__name__}: {e}"[:200]
        return False


HEADS = {"llama3-8b": (32, 8), "yi-6b": (32, 4), "llama2-7b": (32, 32)}


def gemm_tflops(burst):
    a, b = (torch.randn(8192, 8192, device=DEV, dtype=BF16) for _ in range(2))
    us = statistics.median(sum((burst.run(lambda: a @ b, 5) for _ in range(6)), [])[5:])
    return round(2 * 8192 ** 3 / us * 1e-6)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("points")
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--range", default="0:1000")
    args = ap.parse_args()
    first, last = (int(x) for x in args.range.split(":"))
    rows = [json.loads(x) for x in open(args.points, encoding="utf-8")]
    points = [r for r in rows if r["row"] == "point"][first:last]
    burst, data, missing = Burst(), Data(), {}
    if NO_FLASHINFER:
        missing["flashinfer"] = NO_FLASHINFER
    if NO_FA4:
        missing["fa4"] = NO_FA4
    makers = [torch_ways] + [flashinfer_ways] * bool(flashinfer) + [fa4_ways] * bool(fa4)
    print(json.dumps({"row": "peer_machine", "device": torch.cuda.get_device_name(),
                      "torch": torch.__version__,
                      "flashinfer": getattr(flashinfer, "__version__", None),
                      "fa4": getattr(fa4, "__version__", None), "page": PAGE,
                      "gemm_tflops": gemm_tflops(burst)}), flush=True)
    for i, r in enumerate(points):
        nq, nkv = HEADS[r["model"]]
        p = {"nq": nq, "nkv": nkv, **{k: r[k] for k in ("ctx", "chunk", "batch", "decode_ctx")}}
        need = nkv * DIM * 2 * (p["ctx"] + p["batch"] * p["decode_ctx"])
        sets = max(1, min(2, (POOL_GB << 30) // need))
        ways = {}
        for make in makers:
            try:
                for name, fns in make(data, p, sets, missing).items():
                    if name not in missing and works(name, fns, missing):
                        ways[name] = in_turn(fns)
            except Exception as e:
                missing.setdefault(make.__name__, f"{type(e).__name__}: {e}"[:200])
        got = burst.measure(ways, args.rounds, i)
        print(json.dumps({"row": "peer", **{k: r[k] for k in ("model", "ctx", "chunk", "batch")},
                          "sets": sets, "ways": got}), flush=True)
    print(json.dumps({"row": "peer_missing", "missing": missing}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
