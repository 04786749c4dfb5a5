# SPDX-License-Identifier: Apache-2.0
"""Writes small_tokenizers.json and small_*.json: tokenizers small enough to commit.

    python3 -m venv v && v/bin/pip install torch transformers gguf tokenizers sentencepiece
    v/bin/python tests/numerics/golden/make_small_tokenizers.py

  pieces        a SentencePiece BPE model with byte fallback, trained here on the
                project's licence and the strings below; vocabulary, scores and
                ids by PyPI sentencepiece (the form of Llama-2 and Yi)
  small_*       byte-level tokenizers trained by PyPI tokenizers, saved as they
                save them; ids by the same library.  They are trained without
                cutting words, so that their merges reach across words and a cut
                in a wrong place shows.  llama3 takes a word that is a token as
                it is (ignore_merges); default cuts in four stages
"""
import io
import json
import pathlib

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import make_tokenizer_vectors as vectors

HERE = pathlib.Path(__file__).parent
LICENCE = (HERE / "../../../LICENSE").read_text()
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEFAULT_PATTERNS = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
]
NUMBERS = [f"in {n} of {7 * n} cases, {n * n}% ({n}{n})!= x{n}; " for n in range(1, 2000, 37)]
ATOMS = vectors.atoms_of()


def texts(first, cnt):
    return [vectors.text_of(ATOMS, first + i) for i in range(cnt)]


def short(first, cnt, want):
    return [t for t in texts(first, cnt) if len(t) < 300][:want]


def pieces(prefix):
    train = [line for line in LICENCE.splitlines() if line.strip()] + texts(50000, 300)
    train = [t.replace("\x00", "").replace("\n", " ") for t in train]
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(train),
        model_writer=out,
        model_type="bpe",
        vocab_size=900,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        add_dummy_prefix=prefix,
        allow_whitespace_only_pieces=True,
        max_sentence_length=100000,
        minloglevel=2,
    )
    sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    kinds = []
    for i in range(sp.vocab_size()):
        kinds.append(2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1)
    # sentencepiece ends a text at a zero byte, which the format does not
    sample = [t for t in short(60000, 400, 100) if "\x00" not in t]
    return {
        "prefix": prefix,
        "tokens": [sp.id_to_piece(i) for i in range(sp.vocab_size())],
        "scores": [sp.get_score(i) for i in range(sp.vocab_size())],
        "kinds": kinds,
        "texts": [{"text": t, "ids": sp.encode(t), "decoded": sp.decode(sp.encode(t))} for t in sample],
    }


def byte_level(name, pre, is_direct):
    t = Tokenizer(models.BPE(ignore_merges=is_direct))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=["<|begin_of_text|>", "<|eot_id|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    t.train_from_iterator([LICENCE] + texts(70000, 300) + [f" {n}" for n in range(1, 2000, 7)] * 10, trainer)
    t.pre_tokenizer = pre
    if is_direct:
        t.post_processor = processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B",
            special_tokens=[("<|begin_of_text|>", 0)],
        )
    t.save(str(HERE / f"small_{name}.json"), pretty=False)
    bare = Tokenizer.from_file(str(HERE / f"small_{name}.json"))
    sample = [x for x in short(80000, 400, 100) if "<|begin_of_text|>" not in x and "<|eot_id|>" not in x]
    return {
        "file": f"small_{name}.json",
        "vocab": t.get_vocab_size(),
        "texts": [{"text": x, "ids": bare.encode(x).ids} for x in sample + NUMBERS[:20]],
    }


def main():
    golden = {
        "pieces": pieces(True),
        "pieces_bare": pieces(False),
        "gpt2": byte_level("gpt2", pre_tokenizers.ByteLevel(add_prefix_space=False), False),
        "llama3": byte_level(
            "llama3",
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex(LLAMA3_PATTERN), "isolated"),
                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
                ]
            ),
            True,
        ),
        "smollm": byte_level(
            "smollm",
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False),
                ]
            ),
            False,
        ),
        "default": byte_level(
            "default",
            pre_tokenizers.Sequence(
                [pre_tokenizers.Split(Regex(p), "isolated") for p in DEFAULT_PATTERNS]
                + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
            ),
            False,
        ),
    }
    body = ",\n".join(f" {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in golden.items())
    (HERE / "small_tokenizers.json").write_text("{\n" + body + "\n}\n")


if __name__ == "__main__":
    main()
