# SPDX-License-Identifier: Apache-2.0
"""Writes smollm2_weights.json: a sum over the bits of each loaded tensor.

    python3 -m venv v && v/bin/pip install torch transformers gguf tokenizers
    v/bin/python tests/numerics/golden/make_smollm2_weights.py smollm2.gguf

Tensors are dequantised by PyPI gguf, rounded to bfloat16, and Q and K put into
half-split order, as smollm2_oracle.py feeds them to transformers.  The sum is
over i of (bits[i] + 1) * (2 i + 1) modulo 2^64, which a moved or changed weight
changes.
"""
import json
import pathlib
import sys

import numpy as np
import torch

import smollm2_oracle as oracle


def sum_of(w):
    bits = w.to(torch.bfloat16).contiguous().view(torch.int16).numpy().astype(np.uint16)
    bits = bits.reshape(-1).astype(np.uint64)
    i = np.arange(bits.size, dtype=np.uint64)
    return int(((bits + np.uint64(1)) * (np.uint64(2) * i + np.uint64(1))).sum(dtype=np.uint64))


def main():
    path = sys.argv[1]
    state = oracle.model(path).state_dict()
    golden = {"model_sha256": oracle.sha256(path)}
    rows = {k: f"{sum_of(w):016x}" for k, w in state.items() if k != "lm_head.weight"}
    body = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items())
    head = f' "model_sha256": {json.dumps(golden["model_sha256"])}'
    text = "{\n" + head + ',\n "sums": {\n' + body + "\n }\n}\n"
    pathlib.Path(__file__).with_name("smollm2_weights.json").write_text(text)


if __name__ == "__main__":
    main()
