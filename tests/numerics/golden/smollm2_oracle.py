# SPDX-License-Identifier: Apache-2.0
"""SmolLM2 from its GGUF file as libraries that nobody here wrote see it.

    tokenizer(path)  PyPI tokenizers, built from the vocabulary and merges of
                     the file with the published pre-tokenizer: Digits
                     (individual) then ByteLevel
    model(path)      PyPI transformers' LlamaForCausalLM in float32 on the
                     weights dequantised by PyPI gguf and rounded to bfloat16
"""
import hashlib

import gguf
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

CONTROL = 3  # tokenizer.ggml.token_type


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def field(reader, key):
    return reader.fields[key].contents()


def tokenizer(path, is_special_parsed=True):
    reader = gguf.GGUFReader(path)
    tokens = field(reader, "tokenizer.ggml.tokens")
    types = field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(m.split(" ")) for m in field(reader, "tokenizer.ggml.merges")]
    t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    t.decoder = decoders.ByteLevel()
    if is_special_parsed:
        control = [s for s, k in zip(tokens, types) if k == CONTROL]
        t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in control])
    return t


def half_split(w, nhead):
    """The file keeps the two rows of a rotary pair side by side."""
    rows, cols = w.shape
    return w.reshape(nhead, rows // nhead // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def model(path):
    reader = gguf.GGUFReader(path)
    nhead_q = field(reader, "llama.attention.head_count")
    nhead_kv = field(reader, "llama.attention.head_count_kv")
    config = LlamaConfig(
        vocab_size=field(reader, "llama.vocab_size"),
        hidden_size=field(reader, "llama.embedding_length"),
        intermediate_size=field(reader, "llama.feed_forward_length"),
        num_hidden_layers=field(reader, "llama.block_count"),
        num_attention_heads=nhead_q,
        num_key_value_heads=nhead_kv,
        max_position_embeddings=field(reader, "llama.context_length"),
        rms_norm_eps=field(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": field(reader, "llama.rope.freq_base")},
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    part = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    state = {}
    for t in reader.tensors:
        w = torch.from_numpy(gguf.dequantize(t.data, t.tensor_type).copy())
        w = w.to(torch.bfloat16).to(torch.float32)
        name = t.name.split(".")
        if name[0] == "blk":
            if name[2] == "attn_q":
                w = half_split(w, nhead_q)
            if name[2] == "attn_k":
                w = half_split(w, nhead_kv)
            state[f"model.layers.{name[1]}.{part[name[2]]}.weight"] = w
        elif name[0] == "token_embd":
            state["model.embed_tokens.weight"] = w
        elif name[0] == "output_norm":
            state["model.norm.weight"] = w
    m = LlamaForCausalLM(config)
    missing, unexpected = m.load_state_dict(state, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    m.tie_weights()
    return m.float().eval()
