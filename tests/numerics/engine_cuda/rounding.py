#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bf16 operands cost a Llama-like model's logits, and nothing else: the same random model
in double, once as it is and once with what the GPU's products read rounded to bf16.

usage: rounding.py [LAYERS]      needs numpy; 16 layers of 1,024 columns take a minute

Prints the relative L2 error of a position's logits, mean and worst of 64, for all roundings
together and for each place alone.  The limit that numerics_engine_cuda holds 32 layers of
Llama-3-8B's widths to, 1e-2, lies within it."""
import sys

import numpy as np

HIDDEN, FFN, HEADS, KV_HEADS, DIM, VOCAB, TOKENS = 1024, 3584, 8, 2, 128, 2048, 64
PLACES = {"x": "normed rows", "q": "queries", "k": "keys", "v": "values", "p": "attention's weights",
          "att": "attention's rows", "h": "SwiGLU's rows"}


def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    bits = (bits + ((bits >> 16 & 1) + 0x7fff)) & 0xffff0000
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


class Model:
    def __init__(self, layers):
        rng = np.random.default_rng(1)

        def draw(rows, cols):
            return bf16(rng.uniform(-np.sqrt(3), np.sqrt(3), (rows, cols)) / np.sqrt(cols))
        self.embed, self.head = draw(VOCAB, HIDDEN), draw(VOCAB, HIDDEN)
        self.layer = [(draw((HEADS + 2 * KV_HEADS) * DIM, HIDDEN), draw(HIDDEN, HEADS * DIM),
                       draw(2 * FFN, HIDDEN), draw(HIDDEN, FFN)) for _ in range(layers)]
        self.ids = rng.integers(0, VOCAB, TOKENS)

    def logits(self, rounded):
        """rounded: names of PLACES."""
        def at(place, x):
            return bf16(x) if place in rounded else x

        def norm(x):
            return at("x", x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5))
        res = self.embed[self.ids]
        for qkv_w, out_w, gate_up_w, down_w in self.layer:
            qkv = (norm(res) @ qkv_w.T).reshape(TOKENS, -1, DIM)
            q, k, v = np.split(qkv, [HEADS, HEADS + KV_HEADS], axis=1)
            q, k, v = at("q", turn(q)), at("k", turn(k)), at("v", v)
            rows = np.empty((TOKENS, HEADS, DIM))
            for h in range(HEADS):
                of = h * KV_HEADS // HEADS
                s = q[:, h] @ k[:, of].T / np.sqrt(DIM)
                s[np.triu_indices(TOKENS, 1)] = -np.inf
                p = np.exp(s - s.max(-1, keepdims=True))
                rows[:, h] = at("p", p) @ v[:, of] / p.sum(-1, keepdims=True)
            res = res + at("att", rows.reshape(TOKENS, -1)) @ out_w.T
            gate, up = np.split(norm(res) @ gate_up_w.T, 2, axis=1)
            res = res + at("h", gate / (1 + np.exp(-gate)) * up) @ down_w.T
        return norm(res) @ self.head.T


def turn(x):
    """Rotary positions, [TOKENS][heads][DIM]."""
    half = DIM // 2
    angle = np.arange(TOKENS)[:, None, None] * 5e5 ** (-np.arange(half) / half)
    c, s, a, b = np.cos(angle), np.sin(angle), x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def main():
    model = Model(int(sys.argv[1]) if len(sys.argv) > 1 else 16)
    want = model.logits(())

    def tell(name, rounded):
        error = np.linalg.norm(model.logits(rounded) - want, axis=1) / np.linalg.norm(want, axis=1)
        print(f"{name}: mean {error.mean():.2e}, worst {error.max():.2e}", flush=True)
    tell("all of them", tuple(PLACES))
    for place, words in PLACES.items():
        tell(words, (place,))


if __name__ == "__main__":
    main()
