#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From packet to token, measured on whatever executor there is.

usage: served.py BIN_DIR OUT [--parts a,b,...] [--quick] [--seconds T] [--set key=value ...]

HTTP/3 clients (tandemctl replay, h3_load) on the kernel's side of the TAP port; figures are
differences of the appliance's own counters and what the flight recorder holds.  Parts:

start    seconds from the process to the first token
batch    decodes only, batch 1, 32, 128: iteration's end to the wire, cost of a token on each tile,
         the scheduler's decision; then all again while other processes load other cores
hybrid   1,024-token prompts beside 128 decodes: how many iterations fused, and why not
trace    arrivals of a trace: each hop of a request, p50 and p99, from the flight recorder
soak     T seconds at 90 % of what an overload is served, with clients that leave, others that do
         not read and peers that fall silent in mid-stream, over both doors: memory that stays where
         it is and polling tiles that wait for no page, and re-checks of at least 1 % of the
         answers, to the last token where bits are promised (deterministic mode)

Writes OUT/served.json after each part, and the flight recorder, /metrics and /status of the loaded
run into OUT; prints one JSON line a part."""
import argparse
import concurrent.futures
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from appliance import PORT, Appliance, stream_ids  # noqa: E402

ARGS = None


def replay(a, rows, *words, trace=None, timeout=300):
    """Sends (prompt, output) rows, or a named trace, over HTTP/3."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as f:
        f.write("num_prefill_tokens,num_decode_tokens\n" + "".join(f"{p},{d}\n" for p, d in rows))
        f.flush()
        r = a.ctl("replay", "--insecure", "--trace", trace or f.name, "--json", "--vocab", "250",
                  *words, check=False, timeout=timeout)
    assert r.stdout, r.stderr
    return json.loads(r.stdout)


def quantile(before, after, name, share):
    """Of a histogram's growth, interpolated in its bucket; seconds."""
    rows = []
    for key, value in after.items():
        if key.startswith(name + "_bucket{"):
            le = key.split('le="')[1].split('"')[0]
            rows.append((float("inf") if le == "+Inf" else float(le), value - before.get(key, 0)))
    merged = {}
    for le, n in rows:
        merged[le] = merged.get(le, 0) + n
    rows = sorted(merged.items())
    rank, low, below = rows[-1][1] * share, 0.0, 0
    for le, n in rows:
        if n >= rank and n > below:
            return low if le == float("inf") else low + (le - low) * (rank - below) / (n - below)
        low, below = le, n
    return None


def counters(a):
    """Of a moment at which all tiles have published what came before it."""
    time.sleep(0.25)
    return a.metrics()


def grown(before, after, name, label=""):
    return sum(v - before.get(k, 0) for k, v in after.items()
               if (k == name or k.startswith(name + "{")) and label in k)


def us(x):
    return None if x is None else round(x * 1e6, 1)


def growth(before, after):
    """What one load cost, from the counters at both its ends."""
    tokens = grown(before, after, "tandem_tokens_total", 'kind="output"')
    busy = {t: grown(before, after, "tandem_tile_seconds_total", f'tile="{t}",state="busy"')
            for t in ("net", "api", "sched")}
    return {
        "tokens": int(tokens),
        "packets_in": int(grown(before, after, "tandem_net_packets_total", 'direction="rx"')),
        "packets_out": int(grown(before, after, "tandem_net_packets_total", 'direction="tx"')),
        "requests_on_ring": int(grown(before, after, "tandem_admission_total", "accepted")),
        "iterations": {p: int(grown(before, after, "tandem_iterations_total", f'path="{p}"'))
                       for p in ("prefill_only", "decode_only", "fused", "streams", "serial")},
        "fallbacks": {k.split('reason="')[1].split('"')[0]: int(v - before.get(k, 0))
                      for k, v in after.items()
                      if k.startswith("tandem_fallbacks_total{") and v > before.get(k, 0)},
        "vcta": int(grown(before, after, "tandem_vcta_total")),
        "vcta_lost": int(grown(before, after, "tandem_vcta_planned_total") -
                         grown(before, after, "tandem_vcta_total")),
        "iteration_us": {"p50": us(quantile(before, after, "tandem_iteration_seconds", .5)),
                         "p99": us(quantile(before, after, "tandem_iteration_seconds", .99))},
        "device_idle_us": {"p50": us(quantile(before, after, "tandem_device_idle_seconds", .5)),
                           "p99": us(quantile(before, after, "tandem_device_idle_seconds", .99))},
        "wire_us": {"p50": us(quantile(before, after, "tandem_wire_seconds", .5)),
                    "p99": us(quantile(before, after, "tandem_wire_seconds", .99)),
                    "p999": us(quantile(before, after, "tandem_wire_seconds", .999)),
                    "observed": int(grown(before, after, "tandem_wire_seconds_count"))},
        "decision_us": {"p50": us(quantile(before, after, "tandem_sched_decision_seconds", .5)),
                        "p99": us(quantile(before, after, "tandem_sched_decision_seconds", .99)),
                        "p999": us(quantile(before, after, "tandem_sched_decision_seconds", .999))},
        "tile_us_a_token": {t: us(s / tokens) if tokens else None for t, s in busy.items()},
    }


def proven(g, requests):
    """Packets came in, each request went over the ring, iterations ran all that was planned, tokens
    went out: no figure of a load that was not served."""
    assert g["packets_in"] >= requests and g["requests_on_ring"] == requests, g
    assert sum(g["iterations"].values()) > 0 and g["vcta"] > 0 and g["vcta_lost"] == 0, g
    assert g["wire_us"]["observed"] > 0 and g["packets_out"] > 0, g
    return g


class Loaded:
    """Other processes, one kept to each core from the seventh on: the tiles (tile.cpus of
    evidence.py) and the executor have the first six.  Where there are fewer than eight, on each but
    one, kept nowhere."""

    def __enter__(self):
        cores = sorted(os.sched_getaffinity(0))
        sets = [{c} for c in cores[6:]] if len(cores) >= 8 else [set(cores)] * (len(cores) - 1)
        self.p = [subprocess.Popen([sys.executable, "-c", "import os, sys\n"
                                    f"os.sched_setaffinity(0, {s})\nwhile True: pass"])
                  for s in sets or [set(cores)]]
        time.sleep(0.5)
        return self

    def __exit__(self, *_):
        for p in self.p:
            p.kill()
            p.wait()


def part_start(a, out):
    out["seconds_to_first_token"] = a.first_token_s
    out["log"] = [line[-200:] for line in a.log().splitlines() if "exec" in line][:12]
    found = re.search(r"(\d+) products chosen in (\d+) ms .*?(\d+) graphs in (\d+) ms, (\d+) MiB",
                      a.log())
    if found:  # of a GPU
        out.update(zip(("products", "products_ms", "graphs", "graphs_ms", "graphs_mib"),
                       map(int, found.groups())))


def decodes(a, batch):
    tokens = 60 if ARGS.quick else 300
    before = counters(a)
    s = replay(a, [(64, tokens)] * batch, "--rate", "5000", "--requests", str(batch))
    after = counters(a)
    assert s["done"] == batch, s
    return {"batch": batch, "done": s["done"], **proven(growth(before, after), batch)}


def part_batch(a, out):
    sizes = (1, 4) if ARGS.quick else (1, 32, 128)
    decodes(a, sizes[-1])  # warm
    out["quiet"] = [decodes(a, b) for b in sizes]
    with Loaded():
        out["loaded"] = [decodes(a, b) for b in sizes]


def part_hybrid(a, out):
    cnt, prompts = (4, 4) if ARGS.quick else (128, 20)
    done = {}
    background = threading.Thread(target=lambda: done.update(
        replay(a, [(1024 // (8 if ARGS.quick else 1), 900)] * cnt, "--rate", "5000", "--requests",
               str(cnt))))
    background.start()
    a.until(lambda: a.total("tandem_queue_requests", 'state="running"') >= cnt, 60)
    time.sleep(0.5 if ARGS.quick else 2)
    before = counters(a)
    s = replay(a, [(128 if ARGS.quick else 1024, 4)] * prompts, "--rate", "4", "--requests",
               str(prompts))
    out["beside"] = {"decodes": cnt, "prompts": prompts, "done": s["done"],
                     "ttft_ms": s["ttft_ms"], **growth(before, counters(a))}
    background.join()
    out["decodes_done"] = done.get("done")


def hops(a, seconds):
    """p50 and p99 of each phase of requests, milliseconds, from the flight recorder."""
    r = a.ctl("trace", "--seconds", str(seconds), "--flight", a.settings["flight.path"],
              timeout=120)
    found = {}
    for e in json.loads(r.stdout)["traceEvents"]:
        if e.get("cat") == "request" and e.get("ph") in ("X", "b", "e"):
            key = (e.get("id"), e["name"])
            if e["ph"] == "X":
                found.setdefault(e["name"], []).append(e["dur"])
            elif e["ph"] == "b":
                found.setdefault("begin", {})[key] = e["ts"]
            elif key in found.get("begin", {}):
                found.setdefault(e["name"], []).append(e["ts"] - found["begin"].pop(key))
    found.pop("begin", None)
    return {name: {"count": len(v), "p50": round(sorted(v)[len(v) // 2] / 1e3, 3),
                   "p99": round(sorted(v)[min(len(v) - 1, int(len(v) * .99))] / 1e3, 3)}
            for name, v in found.items() if v}


def part_trace(a, out):
    seen, stop = [], threading.Event()

    def watch():
        while not stop.is_set():
            seen.append(a.get("/metrics?set=native")[1])
            stop.wait(1)
    watcher = threading.Thread(target=watch)
    watcher.start()
    before, begin = counters(a), time.monotonic()
    first_status = a.get("/status")[1]
    n = 30 if ARGS.quick else 300
    s = replay(a, [], "--rate", "10" if ARGS.quick else "24", "--requests", str(n), "--context",
               "512" if ARGS.quick else "4000", trace="azure_conv")
    after = counters(a)
    stop.set()
    watcher.join()
    out.update({"done": s["done"], "requests": s["requests"], "ttft_ms": s["ttft_ms"],
                "gap_ms": s["tbt_ms"], **proven(growth(before, after), s["done"]),
                "hops_ms": hops(a, int(time.monotonic() - begin) + 1)})
    for name, data in (("status-1.json", first_status), ("status-2.json", a.get("/status")[1]),
                       ("metrics.txt", b"\n# next second\n".join(seen[:20]))):
        with open(os.path.join(ARGS.out, name), "wb") as f:
            f.write(data)
    shutil.copy2(a.settings["flight.path"], os.path.join(ARGS.out, "flight"))


# --- soak -------------------------------------------------------------------

def memory(a):
    """Resident bytes of tandemd and the executor, and what the board says is used."""
    sizes = {}
    for name, pid in (("tandemd", a.process.pid), ("executor", a.executor_pid())):
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            sizes[name] = int([x for x in f if x.startswith("VmRSS")][0].split()[1]) << 10
    sizes["board"] = int(a.total("tandem_gpu_memory_bytes", 'state="used"'))
    return sizes


def faults(a):
    """Page faults of each polling tile so far."""
    cnt = a.page_faults()
    return {name: cnt[name] for name in ("net", "api", "sched")}


WARM_S = 35          # a silent peer's connection, with its TLS state, is kept for 30 s
GROWN_MAX = 1 << 20  # bytes after that: of 5,000 requests, 200 bytes each
FAULTS_MAX = 16      # of a polling tile after that


def is_long():
    return ARGS.seconds >= 2 * WARM_S


def flat(sizes):
    """(seconds, memory, faults) once all kinds of peers are there: what grew, by whom."""
    late = [s for s in sizes if s[0] >= min(WARM_S, 0.5 * ARGS.seconds)]
    grown = {who: max(m[who] for _, m, _ in late) - late[0][1][who] for who in late[0][1]}
    waited = {tile: late[-1][2][tile] - n for tile, n in late[0][2].items()}
    return grown, waited


class Rude:
    """Clients that leave in mid-stream over both doors, others that ask and do not read, and HTTP/3
    peers that fall silent: neither an acknowledgement nor a word that they are gone."""

    def __init__(self, a):
        self.a, self.stop, self.rng = a, threading.Event(), random.Random(7)
        self.left = self.mute = self.silent = 0
        self.h3 = self.h3_load(1000000, 50, 60)
        self.threads = [threading.Thread(target=f) for f in (self.leave, self.ignore, self.vanish)]
        for t in self.threads:
            t.start()

    def h3_load(self, requests, percent, tokens):
        return subprocess.Popen([os.path.join(ARGS.bin, "h3_load"), "10.88.0.2", "4433", "1",
                                 str(requests), str(percent), str(tokens), "5", "-",
                                 self.a.model()], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True)

    def vanish(self):
        while not self.stop.is_set():
            peer = self.h3_load(1000000, 0, 120)  # asks on, so that it is in the midst of answers
            self.stop.wait(self.rng.uniform(0.1, 0.8))
            peer.send_signal(signal.SIGSTOP)
            self.stop.wait(2)
            self.silent += peer.poll() is None
            peer.kill()
            peer.communicate()

    def leave(self):
        while not self.stop.is_set():
            c, r = self.a.stream("leaving soon", 200)
            r.read(self.rng.randrange(1, 2000))
            c.close()
            self.left += 1
            self.stop.wait(0.3)

    def ignore(self):
        while not self.stop.is_set():
            body = json.dumps({"model": self.a.model(), "prompt": "not reading", "max_tokens": 400,
                               "stream": True, "ignore_eos": True}).encode()
            s = socket.create_connection(("127.0.0.1", PORT))
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json"
                      b"\r\ncontent-length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
            self.stop.wait(2)
            s.close()
            self.mute += 1

    def end(self):
        """What they did, by kind."""
        self.stop.set()
        self.h3.terminate()  # it begins nothing more, and says what it had
        said = dict(zip(*[iter(self.h3.communicate(timeout=60)[0].split())] * 2))
        for t in self.threads:
            t.join()
        assert self.left and self.mute and self.silent and int(said["cancelled"]) > 0, (
            self.left, self.mute, self.silent, said)
        assert said["lost"] == "0", said
        return {"left": self.left, "mute": self.mute, "h3_silent": self.silent,
                "h3_cancelled": int(said["cancelled"]), "h3_done": int(said["done"])}


def has_cpu():
    return "exec.backend=cuda" not in ARGS.set


def is_exact():
    """Are a request's bits promised to be the same beside any others?"""
    return has_cpu() or "exec.deterministic=1" in ARGS.set


def recheck(a, rng):
    """A stream beside the load: (prompt, ids)."""
    prompt = [rng.randrange(16, 250) for _ in range(rng.randrange(10, 300))]
    c, r = a.stream(prompt, 48)
    ids = stream_ids(r)
    c.close()
    return prompt, ids


RECHECKS = 8  # at a time


def rechecked(a, prompt, ids, places):
    """(the answer comes whole again, how many of its tokens come again at the given places)."""
    whole = a.complete(prompt, 48) == ids
    return whole, sum(a.complete(prompt + ids[:j], 1)[0] == ids[j] for j in places)


def soak_rows(rng, cnt):
    return [(rng.randrange(16, 96 if ARGS.quick else 1500), rng.randrange(16, 160))
            for _ in range(cnt)]


def part_soak(a, out):
    rng = random.Random(3)
    seconds = 10 if ARGS.quick else min(20, ARGS.seconds)
    over = replay(a, soak_rows(rng, 4000), "--rate", "20" if ARGS.quick else "200", "--duration",
                  str(seconds), "--requests", "4000", "--open-max", "512")
    capacity = over["done"] / over["seconds"]
    # More than arrive in that time: the clock ends the load, not the last row.
    rows = soak_rows(rng, 100 + int(1.5 * capacity * ARGS.seconds))
    rude, samples, sizes = Rude(a), [], []
    done = {}
    background = threading.Thread(target=lambda: done.update(
        replay(a, rows, "--rate", f"{0.9 * capacity:.3f}", "--duration", str(ARGS.seconds),
               "--requests", str(len(rows)), timeout=ARGS.seconds + 120)))
    begin = time.monotonic()
    background.start()
    while background.is_alive():
        samples.append(recheck(a, rng))
        sizes.append((round(time.monotonic() - begin, 1), memory(a), faults(a)))
        time.sleep(min(1, 50 / capacity))  # twice 1 % of the answers
    lasted_s = time.monotonic() - begin
    rude_did = rude.end()
    a.until(lambda: a.total("tandem_kv_pages", 'state="used"') == 0, 60)
    tries = [(prompt, ids, rng.sample(range(len(ids)), 4)) for prompt, ids in samples]
    with concurrent.futures.ThreadPoolExecutor(RECHECKS) as pool:  # a batch as any other
        found = list(pool.map(lambda sample: rechecked(a, *sample), tries))
    whole, equal, asked = sum(w for w, _ in found), sum(e for _, e in found), 4 * len(found)
    a.until(lambda: a.total("tandem_kv_pages", 'state="used"') == 0, 10)
    shown = [sizes[(len(sizes) - 1) * k // 5] for k in range(1, 6)]
    grown, waited = flat(sizes)
    assert done.get("done", 0) > 0 and equal >= (1 if is_exact() else 0.9) * asked > 0, \
        (done, equal, asked)
    assert not is_exact() or whole == len(samples), (whole, len(samples))
    assert len(samples) >= 0.01 * done["done"], (len(samples), done)
    out.update({"capacity_per_s": round(capacity, 2), "asked_s": ARGS.seconds,
                "lasted_s": round(lasted_s, 1),
                "offered_per_s": done.get("offered_per_s"), "requests": done.get("requests"),
                "done": done.get("done"), "ttft_ms": done.get("ttft_ms"),
                "gap_ms": done.get("tbt_ms"), "rude": rude_did, "is_exact": is_exact(),
                "memory": [{"at_s": at, **size} for at, size, _ in shown],
                "grown_late": grown, "tile_page_faults_late": waited,
                "rechecked": len(samples), "whole_equal": whole,
                "teacher_forced": {"asked": asked, "equal": equal},
                "used_pages": int(a.total("tandem_kv_pages", 'state="used"'))})
    assert done["requests"] < len(rows) and lasted_s >= 0.95 * ARGS.seconds, (lasted_s, done)
    assert grown["tandemd"] <= GROWN_MAX, (grown, shown)
    assert has_cpu() or grown["executor"] <= GROWN_MAX, (grown, shown)  # its KV pages are the host's
    assert not is_long() or max(waited.values()) <= FAULTS_MAX, waited


# --- main --------------------------------------------------------------------

def start(folder):
    """A started appliance, with the time to its first token over HTTP/3."""
    own = {"exec.restarts": 1000, "flight.path": os.path.join(folder, "flight")}
    own.update(dict(pair.split("=", 1) for pair in ARGS.set))
    a = Appliance(ARGS.bin, own, ready=False)
    begin = time.monotonic()
    a.__enter__()
    a.wait_ready(120)
    ready = time.monotonic()
    a.ctl("generate", "--insecure", "--ids", "--temperature", "0", "--max-tokens", "1", "first")
    a.ready_s, a.first_token_s = round(ready - begin, 3), round(time.monotonic() - begin, 3)
    return a


def main():
    global ARGS
    p = argparse.ArgumentParser()
    p.add_argument("bin")
    p.add_argument("out")
    p.add_argument("--parts", default="start,batch,hybrid,trace,soak")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--seconds", type=int, default=360)
    p.add_argument("--set", action="append", default=[])
    ARGS = p.parse_args()
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        print("no root or no TAP here")
        sys.exit(77)
    os.makedirs(ARGS.out, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    result = {}
    # The flight recorder where its default is: on a disk each page that was written back costs the
    # tiles a fault at the next store.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        a = start(folder)
        try:
            for part in ARGS.parts.split(","):
                begin, out = time.monotonic(), {}
                try:
                    globals()["part_" + part](a, out)
                except Exception as e:  # a part that fails leaves the others their figures
                    out["failed"] = repr(e)[:500]
                out["took_s"] = round(time.monotonic() - begin, 1)
                result[part] = out
                print(json.dumps({part: out}), flush=True)
                with open(os.path.join(ARGS.out, "served.json"), "w", encoding="ascii") as f:
                    json.dump(result, f, indent=1)
        finally:
            with open(os.path.join(ARGS.out, "log"), "w", encoding="utf-8") as f:
                f.write(a.log())
            a.__exit__(None, None, None)
    sys.exit(any("failed" in out for out in result.values()))


if __name__ == "__main__":
    main()
