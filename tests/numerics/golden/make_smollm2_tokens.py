# SPDX-License-Identifier: Apache-2.0
"""Writes smollm2_tokens.json: greedy tokens of SmolLM2 by transformers.

    python3 -m venv v && v/bin/pip install torch transformers gguf tokenizers
    v/bin/python tests/numerics/golden/make_smollm2_tokens.py smollm2.gguf

Weights are dequantised, rounded to bfloat16 and computed in float32.  Five
prompts, 64 tokens each, end tokens ignored.  `margin` is the distance of the
two highest logits at each step: a first difference of another implementation
is explained where the margin is under 1e-3.
"""
import json
import pathlib
import sys

import torch
import transformers

import smollm2_oracle as oracle

STEPS = 64
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def chat(text):
    return (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
        f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    )


PROMPTS = [
    ("capital", chat("What is the capital of France?")),
    ("story", "Once upon a time, in a village by the sea, there lived a clockmaker who"),
    ("code", "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n"),
    ("list", chat("List three facts about octopuses.")),
    (
        "long",
        "The history of the printing press begins long before Gutenberg. " * 12
        + "In summary, the most important consequence was",
    ),
]


def main():
    path = sys.argv[1]
    torch.manual_seed(0)
    tok, model = oracle.tokenizer(path), oracle.model(path)
    out = []
    for name, text in PROMPTS:
        ids = tok.encode(text, add_special_tokens=False).ids
        tokens, margins, past, feed = [], [], None, torch.tensor([ids])
        with torch.no_grad():
            for _ in range(STEPS):
                r = model(input_ids=feed, past_key_values=past, use_cache=True)
                top = torch.topk(r.logits[0, -1].double(), 2)
                tokens.append(int(top.indices[0]))
                margins.append(round(float(top.values[0] - top.values[1]), 6))
                past, feed = r.past_key_values, top.indices[None, :1]
        print(f"{name}: {len(ids)} prompt tokens, least margin {min(margins)}", file=sys.stderr)
        print(repr(tok.decode(tokens)), file=sys.stderr)
        out.append({"name": name, "text": text, "prompt": ids, "tokens": tokens, "margin": margins})
    golden = {
        "model_sha256": oracle.sha256(path),
        "made_with": f"torch {torch.__version__}, transformers {transformers.__version__}, float32",
        "prompts": out,
    }
    target = pathlib.Path(__file__).with_name("smollm2_tokens.json")
    rows = ",\n".join("  " + json.dumps(p) for p in golden.pop("prompts"))
    head = ",\n".join(f' "{k}": {json.dumps(v)}' for k, v in golden.items())
    target.write_text("{\n" + head + ',\n "prompts": [\n' + rows + "\n ]\n}\n")


if __name__ == "__main__":
    main()
