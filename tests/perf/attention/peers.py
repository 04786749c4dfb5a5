#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlashInfer on the points of points.h: paged FA2 prefill, its better decode,
and POD, by the protocol of main.cu (10 ms of work after 40 ms of idling,
launches behind a spinning kernel, medians).

usage: peers.py [FIRST:LAST] > peers.csv
needs torch and flashinfer-python; prints one line a point, times in us
"""
import os
import re
import statistics
import sys
import time

import torch
import flashinfer

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE, DIM, ROUNDS = 16, 128, 3


def points():
    text = open(os.path.join(HERE, "points.h"), encoding="utf-8").read()
    macros = {m[0]: m[1] for m in re.findall(r"#define (\w+)\s+(\"[^\n]*)", text)}
    body = re.sub(r"/\*.*?\*/", "", text[text.index("point_list[]"):], flags=re.S)
    for row in re.findall(r"\{(\w+), ([^}]*)\}", body):
        model, nq, nkv = [x.strip().strip('"') for x in macros[row[0]].split(",")]
        nums = [float(x) for x in row[1].split(",")]
        yield model, int(nq), int(nkv), int(nums[0]), int(nums[1]), int(nums[2])


def burst(fn, cnt):
    time.sleep(0.04)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(cnt + 1)]
    torch.cuda._sleep(1000000)
    events[0].record()
    for i in range(cnt):
        fn()
        events[i + 1].record()
    torch.cuda.synchronize()
    return [events[i].elapsed_time(events[i + 1]) * 1e3 for i in range(cnt)]


def measure(ways):
    got = {k: [] for k in ways}
    cnt = {k: max(1, min(5, int(1e4 / burst(fn, 2)[1]))) for k, fn in ways.items()}
    for _ in range(ROUNDS):
        for k, fn in ways.items():
            got[k] += burst(fn, cnt[k])
    return {k: statistics.median(v) for k, v in got.items()}


def one(nq, nkv, ctx, chunk, batch):
    dev, bf16 = "cuda", torch.bfloat16
    pages = ctx // PAGE
    total = (batch + 1) * pages
    k = torch.randn(total, nkv, PAGE, DIM, device=dev, dtype=bf16)
    v = torch.randn(total, nkv, PAGE, DIM, device=dev, dtype=bf16)
    kp = torch.randn(ctx, nkv, DIM, device=dev, dtype=bf16)
    vp = torch.randn(ctx, nkv, DIM, device=dev, dtype=bf16)
    deck = torch.randperm(total, device=dev).int()
    ints = lambda *x: torch.tensor(x, device=dev, dtype=torch.int32)
    last = torch.full((batch,), PAGE, device=dev, dtype=torch.int32)
    indptr = torch.arange(batch + 1, device=dev, dtype=torch.int32) * pages
    qp = torch.randn(chunk, nq, DIM, device=dev, dtype=bf16)
    qd = torch.randn(batch, nq, DIM, device=dev, dtype=bf16)
    space = lambda: torch.empty(384 << 20, dtype=torch.uint8, device=dev)
    ways = {}
    w = flashinfer.BatchPrefillWithPagedKVCacheWrapper(space(), "HND", backend="fa2")
    w.plan(ints(0, chunk), ints(0, pages), deck[:pages].contiguous(), ints(PAGE), nq, nkv, DIM, PAGE,
           causal=True, q_data_type=bf16, kv_data_type=bf16)
    ways["prefill_paged"] = lambda: w.run(qp, (k, v))
    ways["prefill_single"] = lambda: flashinfer.single_prefill_with_kv_cache(
        qp, kp, vp, causal=True, backend="fa2")
    for name, is_tensor in (("decode_tc", True), ("decode_cc", False)):
        d = flashinfer.BatchDecodeWithPagedKVCacheWrapper(space(), "HND", use_tensor_cores=is_tensor)
        d.plan(indptr, deck[pages:].contiguous(), last, nq, nkv, DIM, PAGE, q_data_type=bf16,
               kv_data_type=bf16)
        ways[name] = lambda d=d: d.run(qd, (k, v))
    p = flashinfer.PODWithPagedKVCacheWrapper(space(), "HND")
    p.plan(indptr, deck[pages:].contiguous(), last, nq, nkv, DIM, PAGE, q_data_type=bf16,
           kv_data_type=bf16)
    ways["pod"] = lambda: p.run(qp, kp, vp, qd, (k, v), causal_p=True, kv_layout_d="HND")
    return measure(ways)


def main():
    first, last = 0, 1 << 30
    if len(sys.argv) > 1:
        first, last = (int(x) for x in sys.argv[1].split(":"))
    names = ["prefill_paged", "prefill_single", "decode_tc", "decode_cc", "pod"]
    print("model,ctx,chunk,batch," + ",".join(names), flush=True)
    for i, (model, nq, nkv, ctx, chunk, batch) in enumerate(points()):
        if not first <= i < last:
            continue
        us = one(nq, nkv, ctx, chunk, batch)
        print(f"{model},{ctx},{chunk},{batch}," + ",".join(f"{us[n]:.1f}" for n in names), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
