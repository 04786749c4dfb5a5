# SPDX-License-Identifier: Apache-2.0
"""Decode speed of the CPU backend beside llama.cpp on the same weights.

    python3 tests/perf/llamacpp_decode.py MODEL.gguf PERF_DECODE_CPU [--threads 2]

Needs PyPI (llama-cpp-python is built from source, gguf writes the file) and is
no part of the test suite.  The first run makes a virtual environment in --venv.

The weights of MODEL are dequantised, rounded to bfloat16 and written as a BF16
GGUF; ours and llama.cpp decode it, and both decode the original file too (ours
always holds bfloat16).  Every round runs each program once, in turn; the figure
is the best of the rounds, as the slowest ones measure the neighbours.  One JSON
object is printed at the end.
"""
import argparse
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

PACKAGES = ("gguf", "llama-cpp-python")


def in_venv(args):
    """Runs this file again with a Python that has PACKAGES."""
    python = pathlib.Path(args.venv) / "bin" / "python"
    if not python.exists():
        print(f"building llama.cpp in {args.venv}; this takes about ten minutes", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", args.venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-binary",
                        "llama-cpp-python", *PACKAGES], check=True)
    os.execv(python, [python, *sys.argv, "--inside"])


def to_bf16(x):
    """float32 to the bits of bfloat16, nearest even."""
    import numpy as np
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_bf16(source, target):
    """Writes source's metadata and tensors, matrices as BF16."""
    import gguf
    reader = gguf.GGUFReader(source)
    arch = bytes(reader.fields["general.architecture"].parts[-1]).decode()
    writer = gguf.GGUFWriter(target, arch)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = field.contents()
        if field.name == "general.file_type":
            value = int(gguf.LlamaFileType.MOSTLY_BF16)
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], sub_type=sub_type)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, values.astype("float32"))
            continue
        writer.add_tensor(tensor.name, to_bf16(values).view("uint8"),
                          raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def measure_llamacpp(path, threads, prefill, tokens):
    """Greedy decode through llama.cpp's C interface; prints one JSON line."""
    import llama_cpp
    import numpy as np
    llm = llama_cpp.Llama(model_path=path, n_ctx=prefill + tokens + 64, n_threads=threads,
                          n_threads_batch=threads, n_batch=max(prefill, 512), verbose=False)
    vocab = llm.n_vocab()
    ctx = llm.ctx

    def run(ids):
        array = (llama_cpp.llama_token * len(ids))(*ids)
        if llama_cpp.llama_decode(ctx, llama_cpp.llama_batch_get_one(array, len(ids))) != 0:
            raise SystemExit("llama_decode failed")
        logits = llama_cpp.llama_get_logits_ith(ctx, -1)
        row = np.ctypeslib.as_array(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (vocab,))
        return int(row.argmax())

    start = time.monotonic()
    token = run([1 + (i * 7919) % (vocab - 1) for i in range(prefill)])
    prefill_s = time.monotonic() - start
    start = time.monotonic()
    for _ in range(tokens):
        token = run([token])
    decode_s = time.monotonic() - start
    print(json.dumps({"decode_tok_s": tokens / decode_s, "prefill_tok_s": prefill / prefill_s}))


def last_json(command):
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def compare(args):
    with tempfile.TemporaryDirectory() as folder:
        bf16 = str(pathlib.Path(folder) / "bf16.gguf")
        write_bf16(args.model, bf16)
        shared = ["--threads", str(args.threads), "--prefill", str(args.prefill),
                  "--tokens", str(args.tokens)]
        theirs = [sys.executable, __file__, args.model, args.perf, *shared, "--inside", "--measure"]
        runs = {
            "tandem": [args.perf, bf16, *shared],
            "llamacpp_bf16": [*theirs, bf16],
            "llamacpp_original": [*theirs, args.model],
        }
        best = {}
        for turn in range(args.rounds):
            for name, command in runs.items():
                got = last_json(command)
                for key in ("decode_tok_s", "prefill_tok_s"):
                    best.setdefault(name, {})
                    best[name][key] = max(best[name].get(key, 0.0), got[key])
                print(f"round {turn + 1} {name}: decode {got['decode_tok_s']:.1f}, "
                      f"prefill {got['prefill_tok_s']:.0f} tokens/s", file=sys.stderr)
    ours = best["tandem"]
    report = {"bench": "decode_vs_llamacpp", "threads": args.threads, "prefill": args.prefill,
              "tokens": args.tokens, "rounds": args.rounds, "best": best}
    for name in ("llamacpp_bf16", "llamacpp_original"):
        for key in ("decode_tok_s", "prefill_tok_s"):
            report[f"{key[:-6]}_ratio_{name}"] = round(ours[key] / best[name][key], 3)
    print(json.dumps(report))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("perf", help="the program perf_decode_cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefill", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--venv", default=str(pathlib.Path(tempfile.gettempdir()) / "venv-llamacpp"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        in_venv(args)
    if args.measure:
        measure_llamacpp(args.measure, args.threads, args.prefill, args.tokens)
    else:
        compare(args)


if __name__ == "__main__":
    main()
