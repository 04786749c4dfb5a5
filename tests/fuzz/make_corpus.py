#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzz targets: tests/fuzz/corpus/<target>/<name>.

usage: make_corpus.py         (the formats stand at the head of each target)
"""
import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
OUR_MAC, PEER_MAC = b"\2tdm\0\2", b"\2tdm\0\1"
OUR4, PEER4 = bytes([10, 88, 0, 2]), bytes([10, 88, 0, 1])
OUR6 = bytes.fromhex("fd88" + "00" * 13 + "02")
PEER6 = bytes.fromhex("fd88" + "00" * 13 + "01")
GROUP6 = bytes.fromhex("ff0200000000000000000001ff000002")


def save(target, name, data):
    folder = os.path.join(HERE, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


# --- frames ------------------------------------------------------------------

def eth(kind, body, dst=OUR_MAC, tag=b""):
    return dst + PEER_MAC + tag + struct.pack(">H", kind) + body


def udp(payload, dport=8443):
    return struct.pack(">HHHH", 50000, dport, 8 + len(payload), 0) + payload


def ipv4(proto, body, frag=0, ihl=5, ttl=64):
    options = b"\x01" * (4 * (ihl - 5))
    return struct.pack(">BBHHHBBH4s4s", 0x40 | ihl, 0, 4 * ihl + len(body), 1, frag, ttl, proto, 0,
                       PEER4, OUR4) + options + body


def ipv6(proto, body, dst=OUR6, hops=255):
    return struct.pack(">IHBB16s16s", 6 << 28, len(body), proto, hops, PEER6, dst) + body


def arp(op):
    return struct.pack(">HHBBH", 1, 0x800, 6, 4, op) + PEER_MAC + PEER4 + bytes(6) + OUR4


FRAMES = {
    "udp4": eth(0x800, ipv4(17, udp(b"x" * 30))),
    "udp6": eth(0x86dd, ipv6(17, udp(b"y" * 30))),
    "echo4": eth(0x800, ipv4(1, struct.pack(">BBHHH", 8, 0, 0, 7, 1) + b"ping")),
    "echo6": eth(0x86dd, ipv6(58, struct.pack(">BBHHH", 128, 0, 0, 7, 1) + b"ping")),
    "arp_ask": eth(0x806, arp(1), dst=b"\xff" * 6),
    "arp_tell": eth(0x806, arp(2)),
    "solicit": eth(0x86dd, ipv6(58, struct.pack(">BBHI", 135, 0, 0, 0) + OUR6 + b"\1\1" + PEER_MAC,
                                dst=GROUP6), dst=bytes.fromhex("3333ff000002")),
    "advert": eth(0x86dd, ipv6(58, struct.pack(">BBHI", 136, 0, 0, 0x60000000) + PEER6 + b"\2\1"
                               + PEER_MAC)),
    "fragment": eth(0x800, ipv4(17, udp(b"z" * 8), frag=0x2001)),
    "options": eth(0x800, ipv4(17, udp(b"z" * 8), ihl=7)),
    "tagged": eth(0x800, ipv4(17, udp(b"t" * 20)), tag=bytes([0x81, 0, 0, 7])),
    "short": eth(0x800, b"\x45"),
}


def record(flags, data):
    return struct.pack("<BH", flags, len(data)) + data


def frames():
    for name, frame in FRAMES.items():
        save("link", name, record(1 | 4 | (16 if name == "tagged" else 0), frame))
        save("tile", name, record(1 | 8, frame))
    story = b"".join(record(1 | 2 | 4, f) for f in FRAMES.values())
    save("link", "story", story)
    save("tile", "story", b"".join(record(1 | 8, f) for f in FRAMES.values()))
    initial = bytes.fromhex("c000000001" + "08" + "11" * 8 + "04" + "22" * 4 + "00" + "44b0") + bytes(1170)
    save("tile", "initial", record(9, eth(0x800, ipv4(17, udp(initial)))))
    save("quic", "initial", record(0, initial))
    save("quic", "version", record(0, b"\xc0" + b"\x0a" * 4 + b"\x08" + bytes(8) + b"\x08" + bytes(1180)))
    save("quic", "short", record(0, b"\x40" + bytes(40)))
    save("quic", "client", record(1, b"") * 6)
    save("quic", "patched", record(1, b"\x05\x00\x01") + record(1, b"") * 3 + record(5, b"\x20\x00\x80"))
    save("quic", "back", record(17, b"") * 5 + record(13, b"") * 2 + record(5, b"") * 2)
    save("quic", "volley", record(33, b"\x00\x00\x01") + record(1, b"") * 3 + record(37, b"\x0b\x00\x80") * 3)
    save("quic", "volley_initial", record(32, initial) + record(32, b"\x40" + bytes(40)))
    save("quic", "moved", record(1, b"") * 4 + record(13, b"") + record(5, b""))


# --- HTTP ----------------------------------------------------------------------

def op(stream, what, data=b""):
    return bytes([what << 5 | stream // 2, len(data)]) + data


def h3():
    get = bytes([1, 8, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1]) + b"h"
    post = (bytes([1, 13, 0, 0, 0xd4, 0xd7, 0x51, 4]) + b"/a?b" + bytes([0x50, 1]) + b"h"
            + bytes([0, 3]) + b"xyz" + bytes([0, 1]) + b"!")
    fields = b"content-type:application/json\ncontent-length:2\nauthorization:Bearer x\naccept:*/*"
    save("h3", "get", b"\0" + op(0, 1, get) + op(0, 4))
    save("h3", "post", b"\0" + op(4, 1, post) + op(0, 4))
    save("h3", "pieces", b"\0" + op(4, 6, post) + op(4, 7) + op(0, 4))
    save("h3", "fields", b"\0" + op(0, 5, fields) + op(0, 4))
    save("h3", "twice", b"\0" + op(0, 5, b"host:a\nhost:b") + op(4, 5, b"cookie:a\ncookie:b"))
    save("h3", "settings", b"\1" + op(2, 0, bytes([0, 4, 4, 6, 0x41, 0, 8])) + op(6, 0, b"\2\x3f\xe1\x1f"))
    save("h3", "leave", b"\0" + op(0, 0, get) + op(0, 2) + op(0, 3))
    save("h3", "poor", b"\xd0" + op(0, 1, get) + op(4, 1, post))


def http1():
    asks = {
        "get": b"GET /info?a=b HTTP/1.1\r\nHost: x\r\n\r\n",
        "post": b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
        "chunked": b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                   b"5;a=b\r\nhello\r\n0\r\nT: v\r\n\r\n",
        "expect": b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
        "names": b"GET /info HTTP/1.1\r\nHost: [::1]:80\r\nOrigin: https://a.localhost.:1\r\n\r\n"
                 b"GET /info HTTP/1.1\r\nHost: [\r\nOrigin: null\r\n\r\n",
        "pipeline": b"GET /info HTTP/1.1\r\nHost: x\r\n\r\n" * 3,
        "both": b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked"
                b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "old": b"GET /info HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "folded": b"GET /info HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
        "cookies": b"GET /info HTTP/1.1\r\nHost: x\r\nCookie: a=b; c=\"d\"; =;\r\nAccept: */*;q=0\r\n\r\n",
        "stream": b"GET /stream?3,0 HTTP/1.1\r\nHost: x\r\n\r\n",
        "upgrade": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        "huge": b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551616\r\n\r\n",
        "escape": b"GET /%2e%2e/%00?%zz HTTP/1.1\r\nHost: x\r\nx-request-id: \x7f\xff\r\n\r\n",
        "multipart": b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=\"\r\n"
                     b"Content-Length: 4\r\n\r\n--\r\n",
    }
    for name, ask in asks.items():
        save("http1", name, b"\2" + ask)
    save("http1", "head_of_a_stream", b"\2HEAD /stream?99999999999,9999999 HTTP/1.1\r\nHost: x\r\n\r\n"
         b"HEAD /big?99999999999 HTTP/1.1\r\nHost: x\r\n\r\n")
    save("http1", "half", b"\0" + asks["post"][:40])
    save("http1", "reset", b"\5" + asks["chunked"])
    save("accept", "prometheus", "application/openmetrics-text;version=1.0.0;q=0.5,"
         "text/plain;version=0.0.4;q=0.3,*/*;q=0.1")
    save("accept", "gzip", "gzip;q=0.5, *;q=0, identity")
    save("sse", "tokens", "\3data: {\"a\":1}\n\ndata: [DONE]\n\n")
    save("sse", "other", "\1: comment\r\nevent: x\r\ndata:a\rdata\nid: 1\n\n")


def body():
    chat = {"model": "tiny", "messages": [{"role": "system", "content": "be \u00e9"},
                                          {"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "max_completion_tokens": 5, "stream": True, "stop": ["x"]}
    plain = {"prompt": [1, 2, 3], "max_tokens": 3, "min_tokens": 1, "stop_token_ids": [7], "seed": 9,
             "ignore_eos": True, "return_token_ids": True, "top_k": 4, "top_p": 0.9}
    text = {"model": "tiny", "prompt": "hello", "max_tokens": 8, "stream": True, "temperature": 0.5,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    for name, path, value in (("chat", 1, chat), ("plain", 0, plain), ("text", 24, text),
                              ("tokenize", 2, {"prompt": "a b", "add_special_tokens": True}),
                              ("detokenize", 3, {"tokens": [104, 105, 256, 300]})):
        save("body", name, bytes([path]) + json.dumps(value).encode())
    save("body", "deep", b"\1" + b"[" * 200)
    save("body", "number", b'\0{"prompt":"a","max_tokens":1e999,"temperature":-0.0}')
    save("body", "surrogate", b'\0{"prompt":"\\ud83d\\ude00\\u0000"}')
    save("body", "route", b"\x81/v1/models/tiny\n")


def config():
    save("config", "file", 'f{"net": {"port": "tap"}, "sched": {"iteration_ms": 50}}')
    save("config", "empty", "f{}")
    save("config", "set", "sapi.request_max=64")
    save("config", "set_text", "smodel.path=dummy:tiny")
    save("config", "keys", "k# name key\nalice sk-1\nbob sk-2\n")


# --- model files -----------------------------------------------------------------

LAYERS, HIDDEN, NQ, NKV, HD, FFN, VOCAB = 1, 8, 2, 1, 4, 4, 6


def tensors(is_hf):
    q, k = NQ * HD, NKV * HD
    names = [("embed_tokens", "token_embd", (VOCAB, HIDDEN))]
    for hf, ours, shape in (("input_layernorm", "attn_norm", (HIDDEN,)),
                            ("self_attn.q_proj", "attn_q", (q, HIDDEN)),
                            ("self_attn.k_proj", "attn_k", (k, HIDDEN)),
                            ("self_attn.v_proj", "attn_v", (k, HIDDEN)),
                            ("self_attn.o_proj", "attn_output", (HIDDEN, q)),
                            ("post_attention_layernorm", "ffn_norm", (HIDDEN,)),
                            ("mlp.gate_proj", "ffn_gate", (FFN, HIDDEN)),
                            ("mlp.up_proj", "ffn_up", (FFN, HIDDEN)),
                            ("mlp.down_proj", "ffn_down", (HIDDEN, FFN))):
        names.append((f"layers.0.{hf}", f"blk.0.{ours}", shape))
    names.append(("norm", "output_norm", (HIDDEN,)))
    return [("model." + hf + ".weight" if is_hf else ours + ".weight", shape) for hf, ours, shape in names]


def count(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def gguf(keys, names, kind=1, width=2):
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    def value(v):
        if isinstance(v, bool):
            return struct.pack("<I?", 7, v)
        if isinstance(v, int):
            return struct.pack("<II", 4, v)
        if isinstance(v, float):
            return struct.pack("<If", 6, v)
        if isinstance(v, str):
            return struct.pack("<I", 8) + text(v)
        inner = 8 if isinstance(v[0], str) else 5
        out = struct.pack("<IIQ", 9, inner, len(v))
        return out + b"".join(text(x) if inner == 8 else struct.pack("<i", x) for x in v)

    out = b"GGUF" + struct.pack("<IQQ", 3, len(names), len(keys))
    for key, v in keys.items():
        out += text(key) + value(v)
    data = b""
    for name, shape in names:
        data += bytes(-len(data) % 32)
        out += text(name) + struct.pack("<I", len(shape))
        out += b"".join(struct.pack("<Q", d) for d in reversed(shape))
        out += struct.pack("<IQ", kind, len(data))
        data += bytes([0, 0x3c]) * (count(shape) * width // 2)
    return out + bytes(-len(out) % 32) + data


def model():
    keys = {"general.architecture": "llama", "llama.block_count": LAYERS, "llama.embedding_length": HIDDEN,
            "llama.feed_forward_length": FFN, "llama.context_length": 64, "llama.attention.head_count": NQ,
            "llama.attention.head_count_kv": NKV, "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.freq_base": 10000.0}
    words = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
             "tokenizer.ggml.tokens": ["a", "b", "ab", "<s>", "\u0120", "c"],
             "tokenizer.ggml.token_type": [1, 1, 1, 3, 1, 1], "tokenizer.ggml.merges": ["a b"],
             "tokenizer.ggml.bos_token_id": 3, "tokenizer.ggml.eos_token_id": 3}
    save("gguf", "model", gguf(keys, tensors(False)))
    save("gguf", "words", gguf({**keys, **words}, tensors(False)))
    save("gguf", "metadata", gguf(words, []))
    save("gguf", "quantised", gguf({}, [("a", (2, 32)), ("b", (256,))], kind=8, width=1))
    save("gguf", "empty", gguf({}, []))


def safetensors():
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in tensors(True):
        sz = 2 * count(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [len(data), len(data) + sz]}
        data += bytes([0x80, 0x3f]) * count(shape)
    text = json.dumps(header).encode()
    save("safetensors", "model", b"s" + struct.pack("<Q", len(text)) + text + data)
    small = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F16","shape":[],' \
            b'"data_offsets":[8,10]}}   '
    save("safetensors", "small", b"s" + struct.pack("<Q", len(small)) + small + bytes(10))
    config = {"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN,
              "num_hidden_layers": LAYERS, "num_attention_heads": NQ, "num_key_value_heads": NKV,
              "vocab_size": VOCAB, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
              "rope_theta": 1e4, "hidden_act": "silu", "eos_token_id": [3, 4], "tie_word_embeddings": True}
    save("safetensors", "config", b"c" + json.dumps(config).encode())
    config["rope_scaling"] = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                              "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    save("safetensors", "scaled", b"c" + json.dumps(config).encode())


def tokenizer():
    letters = {c: i for i, c in enumerate("ab\u0120cde")}
    base = {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": 7, "content": "<s>", "single_word": False, "lstrip": False,
                              "rstrip": False, "normalized": False, "special": True}],
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                              "use_regex": True},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                        "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": False, "vocab": {**letters, "ab": 6}, "merges": ["a b"]}}
    save("tokenizer", "bytes", json.dumps(base))
    pairs = json.loads(json.dumps(base))
    pairs["model"]["merges"] = [["a", "b"]]
    pairs["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": False},
        base["pre_tokenizer"]]}
    save("tokenizer", "sequence", json.dumps(pairs))
    pairs["model"] = {"type": "Unigram", "vocab": [["a", -1.5]], "unk_id": 0}
    save("tokenizer", "unigram", json.dumps(pairs))
    for i, text in enumerate(("Hello, world 12345", "\u00e9\u4e2d\u6587 \U0001f600\u200d", "<|im_start|>a\n\n  b",
                              "don't I'LL\t\t \r\n x")):
        save("encode", f"text{i}", bytes([i]) + text.encode())
        save("encode", f"special{i}", bytes([129 + i]) + text.encode())
    save("encode", "broken", b"\0a\xff\xc3")


if __name__ == "__main__":
    frames()
    h3()
    http1()
    body()
    config()
    model()
    safetensors()
    tokenizer()
