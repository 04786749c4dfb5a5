#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One layer of Llama-3-8B in a hybrid iteration, steady: four products and
attention of ours, against PyTorch's four products of the same run and, for
the attention, FlashAttention-3 prefill and FlashInfer decode one after the
other, as a layer loop with them took more than its products alone.

usage: layer.py NUMERICS_ENGINE_CUDA > layer.jsonl     on a machine with a GPU and PyTorch

The two peers were not on that machine.  Their microseconds are those of our
survey of 2026-11 on an H200 (layer loop less its products), and were measured
beside PyTorch's products as they are here.  Ours and PyTorch's take turns
three times; medians.
"""
import json
import statistics
import subprocess
import sys
import time

import torch

HIDDEN, FFN, QKV, LAYERS = 4096, 14336, 6144, 6
# context, chunk, decodes: microseconds of the peers' attention
POINTS = {(16384, 1024, 32): 1665 - 755, (8192, 2048, 64): 2359 - 1473, (4096, 1024, 32): 991 - 757}
SECONDS = 1.0


def halves(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def torch_products(weights, x, hidden):
    """Microseconds a layer, steady: the first quarter is not counted."""
    start, mark, cnt = time.monotonic(), None, 0
    while time.monotonic() - start < SECONDS:
        for i in range(50 * LAYERS):
            for k, w in enumerate(weights[i % LAYERS]):
                torch.nn.functional.linear(hidden if k == 3 else x, w)
        torch.cuda.synchronize()
        now = time.monotonic()
        if mark is not None:
            cnt += 50 * LAYERS
            end = now
        elif now - start > SECONDS / 4:
            mark = now
    return (end - mark) / cnt * 1e6


def main(program):
    weights = [[halves(n, k) for n, k in ((QKV, HIDDEN), (HIDDEN, HIDDEN), (2 * FFN, HIDDEN),
                                          (HIDDEN, FFN))] for _ in range(LAYERS)]
    worst = 0.0
    for (context, chunk, batch), attention_us in POINTS.items():
        x, hidden = halves(chunk + batch, HIDDEN), halves(chunk + batch, FFN)
        ours, products, theirs = [], [], []
        for _ in range(3):
            theirs.append(torch_products(weights, x, hidden))
            told = subprocess.run([program, "layer", str(context), str(chunk), str(batch)],
                                  check=True, capture_output=True, text=True).stdout
            row = json.loads(told.splitlines()[-1])
            ours.append(row["layer_us"])
            products.append(row["products_us"])
        row["layer_us"] = statistics.median(ours)
        row["products_us"] = statistics.median(products)
        row["torch_products_us"] = round(statistics.median(theirs), 1)
        row["peer_attention_us"] = attention_us
        row["ratio"] = round(row["layer_us"] / (row["torch_products_us"] + attention_us), 3)
        worst = max(worst, row["ratio"])
        print(json.dumps(row), flush=True)
    print(json.dumps({"name": "engine.layer_vs_torch_fa3_serial.ratio", "value": worst,
                      "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
