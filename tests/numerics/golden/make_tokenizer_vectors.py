# SPDX-License-Identifier: Apache-2.0
"""Writes smollm2_tokenizer.json: 10,000 strings and their ids.

    python3 -m venv v && v/bin/pip install torch transformers gguf tokenizers
    v/bin/python tests/numerics/golden/make_tokenizer_vectors.py smollm2.gguf

The ids are those of PyPI tokenizers.  SmolLM2's own tokenizer.json is not at
hand, so the object is built from the file's vocabulary and merges with its
published pre-tokenizer (smollm2_oracle.py).

The file holds `atoms`, and for each of the 10,000 strings that text_of() makes
from them the number of ids and a hash of them; a reader makes the same strings
from the same SplitMix64 draws.  `full` holds texts with all their ids, `special`
texts in which control tokens count.  Characters are those of Unicode 14, so that
both sides' tables know them.
"""
import json
import pathlib
import sys
import unicodedata

import smollm2_oracle as oracle

STRINGS = 10000
SEED = 0x5EED
MASK = (1 << 64) - 1


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class Rng:
    """tdm_rng_t of appliance/base/rng.h"""

    def __init__(self, state):
        self.state = state

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        return ((mix(self.state) >> 32) * n) >> 32


def text_of(atoms, i):
    rng = Rng((SEED + i) & MASK)
    parts = []
    for _ in range(1 + rng.below(16)):
        atom = atoms[rng.below(len(atoms))]
        times = 1
        if rng.below(8) == 0:
            times = 2 + rng.below(30)
        elif rng.below(256) == 0:
            times = 200 + rng.below(800)
        parts.append(atom * times)
    return "".join(parts)


def hash_of(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        h = ((h ^ i) * 0x100000001B3) & MASK
    return (h ^ (h >> 32)) & 0xFFFFFFFF


WORDS = """the of and to in a is that for it as was with be by on not he I this are or his from
at which but have an had they you were their one all we can her has there been if more when
will would who so no Hello World HELLO camelCase snake_case don't I'm you've they'll we'd it's
DON'T IT'S naïve café Straße Ærøskøbing São résumé internationalization antidisestablishmentarianism
capital France Paris octopus fibonacci tokenizer scheduler latency hugepage""".split()

CODE = """def f(x):\n    return x + 1\n|#include <stdio.h>\n|for (int i = 0; i < n; i++) {|}\n\n|
SELECT * FROM t WHERE id >= 42;|{"key": [1, 2.5, null, true]}|<div class="a">|</div>\n|\\t\\n\\x00|
    if __name__ == '__main__':\n|https://example.org/a/b?c=d&e=f#g|user@example.org|0xDEADBEEF|
1e-10|3.14159|$x->{y}[0]|&&||lambda x: x**2|/* comment */|// TODO|#!/bin/sh\n|a=b;c=d|-->|!=|===|...""".split("|")

SPACES = [" ", "  ", "   ", "    ", "\n", "\n\n", "\t", "\t\t", "\r\n", " \n", "\n ", " \t ", "\u00a0",
          "\u2003", "\u3000", "\u0085", "\u2028", "\u180e", "\u200b", "\ufeff", "\x0b", "\x0c"]

CONTROL = ["\x00", "\x01", "\x07", "\x08", "\x1b", "\x1b[0m", "\x7f", "\x80", "\x9f", "\ufffd", "\u202e"]

EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷", "❤️", "1️⃣", "🤖", "✅", "♠", "🫠"]

DIGITS = ["0", "1", "9", "12", "007", "1234567890", "1,000", "٣", "४", "９", "Ⅷ", "½", "²", "𝟘", "一", "〇"]

SCRIPTS = ["Привет", "мир", "Ελλάδα", "שלום", "مرحبا", "नमस्ते", "สวัสดี", "こんにちは", "カタカナ",
           "你好世界", "한국어", "ქართული", "አማርኛ", "Việt", "e\u0301", "ﬁ", "ǅ", "ſ", "İ", "ß", "'ſ", "'S", "’s"]

SPECIAL = ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|im", "_end|>", "<repo_name>", "<", "|>"]


def atoms_of():
    rng = Rng(SEED)
    atoms = WORDS + [" " + w for w in WORDS] + CODE + SPACES * 3 + CONTROL + EMOJI * 2
    atoms += DIGITS * 2 + SCRIPTS * 2 + SPECIAL
    atoms += [chr(c) for c in range(0x20, 0x7F)]
    ranges = [(0xA0, 0x2FF), (0x370, 0x1FFF), (0x2000, 0x2BFF), (0x3000, 0xD7FF), (0xF900, 0xFFFD),
              (0x10000, 0x1FFFF), (0x20000, 0x2A6DF), (0xE0000, 0xE01EF)]
    while len(atoms) < 1200:
        lo, hi = ranges[rng.below(len(ranges))]
        c = chr(lo + rng.below(hi - lo + 1))
        if unicodedata.category(c) not in ("Cn", "Cs"):
            atoms.append(c)
    return [a for a in atoms if a]


def main():
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    path = sys.argv[1]
    plain = oracle.tokenizer(path, is_special_parsed=False)
    special = oracle.tokenizer(path)
    atoms = atoms_of()

    def ids(text, t=plain):
        return t.encode(text, add_special_tokens=False).ids

    rows, tokens, size = [], 0, 0
    for i in range(STRINGS):
        text = text_of(atoms, i)
        got = ids(text)
        tokens += len(got)
        size += len(text.encode())
        rows.append(f"{len(got):x}.{hash_of(got):08x}")
    full = [text_of(atoms, STRINGS + i) for i in range(500)]
    full = [t for t in full if len(t) < 200][:400] + ["", " ", "\n", "a" * 300, " " * 77]
    chats = [
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
        "a<|im_end|><|im_end|> b<|endoftext|>",
        "<|im_end|",
        "<<|im_end|>>",
        "<|im_start|><repo_name>x",
    ]
    golden = {
        "model_sha256": oracle.sha256(path),
        "seed": SEED,
        "atoms": atoms,
        "cnt": STRINGS,
        "rows": " ".join(rows),
        "full": [{"text": t, "ids": ids(t)} for t in full],
        "special": [{"text": t, "ids": ids(t, special)} for t in chats],
    }
    target = pathlib.Path(__file__).with_name("smollm2_tokenizer.json")
    body = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in golden.items())
    target.write_text("{\n" + body + "\n}\n")
    print(f"{STRINGS} strings, {size} bytes, {tokens} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
