#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""End-to-end facts about tandemctl replay and profile.  usage: replay.py BIN_DIR FACT

Each function below is one fact and one CTest entry, in the network namespace
that the caller made; exit 77 where root or TAP lack.  Counts and ratios only."""
import http.server
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PATIENCE, Appliance, run_fact  # noqa: E402

BIN = ""
NO_PORT = {"port.kind": "none"}


def replay(a, trace, *words, records=None, timeout=2 * PATIENCE):
    """The summary of a replay, and its records where asked for.  Its exit
    status and what it says last tell whether somebody had no answer."""
    args = ["replay", "--insecure", "--trace", trace, "--json", *words]
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as f:
        r = a.ctl(*args, "--records", f.name, timeout=timeout, check=False)
        rows = [json.loads(line) for line in f.read().splitlines()]
    assert r.returncode in (0, 3), r
    summary = json.loads(r.stdout)
    none = summary["lost"] + summary["timeout"] + summary["failed"]
    assert (r.returncode == 3) == (none > 0), (r.returncode, summary)
    assert (f"{none} of {len(rows)} requests had no whole answer" in r.stderr) == (none > 0), r.stderr
    assert len(rows) == summary["requests"] and len({x["row"] for x in rows}) == len(rows)
    if records is not None:
        records += rows
    return summary


def counts(lengths):
    """A file of prefill/decode counts, without arrivals."""
    f = tempfile.NamedTemporaryFile("w", suffix=".csv")
    f.write("num_prefill_tokens,num_decode_tokens\n" +
            "".join(f"{p},{d}\n" for p, d in lengths))
    f.flush()
    return f


def both_doors_replay_a_trace():
    """Every request of a trace is sent, answered and recorded once, over
    HTTP/3 through DPDK and over HTTP/1.1; tokens are those asked for."""
    lengths = [(1 + 37 * i % 400, 1 + 11 * i % 40) for i in range(60)]
    with Appliance(BIN) as a, counts(lengths) as f:
        for door in ("h3", "http1"):
            rows = []
            s = replay(a, f.name, "--door", door, "--rate", "40", "--requests", "100", records=rows)
            assert s["requests"] == s["done"] == 60, s
            assert s["tokens"] == sum(d for _, d in lengths), s
            for x in rows:
                assert (x["prompt"], x["output_max"]) == lengths[x["row"]]
                assert x["tokens"] == x["output_max"] and x["status"] == 200, x
                assert 0 <= x["late_ms"] <= x["ttft_ms"] <= x["last_ms"] <= x["end_ms"], x
                assert x["gaps"] == x["tokens"] - 1, x
            assert s["tbt_ms"]["count"] == s["tokens"] - 60
            assert abs(s["offered_per_s"] / 40 - 1) < 0.5, s
        answered = a.total("tandem_requests_total")
        assert answered == 120, answered
        jsonl = os.path.join(a.dir.name, "trace.jsonl")
        with open(jsonl, "w", encoding="ascii") as g:
            for i in range(20):
                g.write(json.dumps({"timestamp": 500 * i, "input_length": 1024, "output_length": 8,
                                    "hash_ids": [1, 2 + i]}) + "\n")
        s = replay(a, jsonl, "--scale", "0.25", "--rate", "20")
        assert s["done"] == 20 and s["tokens"] == 40 and abs(s["arrival_factor"] - 0.1) < 0.01, s
        assert s["prompt_tokens"] == 20 * 256, s


def repeated_blocks_are_reused():
    """Equal block hashes of a trace are equal tokens: with the prefix cache
    on they are found again, with it off nothing is."""
    for on in (1, 0):
        with Appliance(BIN, {"sched.prefix_cache": on}) as a:
            jsonl = os.path.join(a.dir.name, "trace.jsonl")
            with open(jsonl, "w", encoding="ascii") as g:
                for i in range(30):
                    g.write(json.dumps({"timestamp": 100 * i, "input_length": 1024,
                                        "output_length": 8, "hash_ids": [1, 2 + i]}) + "\n")
            rows = []
            s = replay(a, jsonl, "--scale", "0.25", records=rows)
            assert s["done"] == 30 and s["prompt_tokens"] == 30 * 256, s
            # the first block of all but the first, should none overlap: 128 tokens each
            assert all(x["cached"] in (0, 128) for x in rows), rows
            assert s["cached_tokens"] == sum(x["cached"] for x in rows), s
            assert (s["cached_tokens"] > 10 * 128) == (on == 1), s
            assert rows[0]["cached"] == 0


def refusals_are_counted_by_reason():
    """What the client counts as refused is what the appliance counts, by
    the same names; open loop: the client never waits."""
    settings = {**NO_PORT, "sched.sequences": 2, "sched.waiting": 2}
    with Appliance(BIN, settings) as a, counts([(200, 60)] * 80) as f:
        rows = []
        s = replay(a, f.name, "--door", "http1", "--rate", "1000", records=rows)
        assert s["done"] >= 2 and s["refused"] > 0 and s["done"] + s["refused"] == 80, s
        assert s["reasons"] == {"waiting_full": s["refused"]}, s
        assert a.total("tandem_refusals_total", 'reason="waiting_full"') == s["refused"]
        for x in rows:
            assert (x["outcome"] == "refused") == (x["status"] == 429 and x["retry_ms"] > 0), x
        # too little room at the client is the client's, and named
        s = replay(a, f.name, "--door", "http1", "--rate", "1000", "--open-max", "1")
        assert s["unsent"] > 0 and s["reasons"].get("unsent") == s["unsent"], s
        assert s["done"] + s["refused"] + s["unsent"] == 80, s


def a_server_that_dies_ends_the_replay():
    """Requests that were open are lost, later ones too; the replay ends and
    every row has its record."""
    for door in ("h3", "http1"):
        with Appliance(BIN) as a, counts([(20, 3000)] * 12) as f:
            threading.Timer(1.5, lambda: a.process.send_signal(signal.SIGKILL)).start()
            s = replay(a, f.name, "--door", door, "--rate", "4", "--seconds", "5",
                       "--connections", "2")
            assert s["requests"] == 12 and s["lost"] + s["timeout"] >= 1, s
            assert s["done"] + s["lost"] + s["timeout"] == 12, s
            a.process.wait(PATIENCE)


def a_warm_start_computes_no_prompt():
    """With --warm the decodes of a long day run when the first request
    arrives, over either door; their prompts are not computed.  An appliance
    that was not told to believe such prompts refuses them by name, and one
    with keys does not start."""
    lengths = [(1000, 200)] * 4
    for door in ("h3", "http1"):
        with Appliance(BIN, {"api.warm_start": 1}) as a, counts(lengths) as f:
            s = replay(a, f.name, "--door", door, "--rate", "100", "--warm", "12")
            assert s["requests"] == s["done"] == 4 and s["tokens"] == 800, s
            held = a.total("tandem_kv_held_tokens_total")
            assert 12 * 936 <= held <= 12 * 1200, held
            # all that ran: four prompts, what no whole page holds of twelve, and every output
            ran = a.total("tandem_iteration_tokens_sum")
            assert 4 * 1199 <= ran <= 4 * 1200 + 12 * (64 + 200), ran
    with Appliance(BIN, NO_PORT) as a, counts(lengths) as f:
        r = a.ctl("replay", "--trace", f.name, "--door", "http1", "--rate", "1", "--warm", "2", check=False)
        assert r.returncode == 1 and "unsupported_parameter" in r.stderr, r
        assert a.total("tandem_kv_held_tokens_total") == 0


def a_window_ends_the_replay():
    """With --cut nobody waits for what is open at the window's end: it is
    told apart, its gaps count, and an overdue first token is a miss."""
    settings = {**NO_PORT, "api.warm_start": 1, "sched.sequences": 4}
    with Appliance(BIN, settings) as a, counts([(200, 3800)] * 40) as f:  # more than anybody does in 2 s
        rows = []
        s = replay(a, f.name, "--door", "http1", "--rate", "20", "--duration", "2", "--cut", "--warm", "2",
                   "--ttft-ms", "100", records=rows)
        assert s["seconds"] == 2 and s["warm"] == 2, s
        assert s["cut"] >= 8 and s["done"] + s["cut"] == s["requests"], s
        waits = [x for x in rows if x["outcome"] == "cut" and x["tokens"] == 0]
        assert waits and all(x["ttft_ms"] == -1 or x["ttft_ms"] > 100 for x in waits), waits
        assert s["ttft_over"] >= sum(x["ttft_ms"] > 100 for x in waits) > 0, s
        assert s["waiting_last"] > s["waiting_first"], s
        assert s["tbt_ms"]["count"] > sum(x["gaps"] for x in rows), s  # those of the two as well
        a.until(lambda: not any(a.status()["requests"][k] for k in ("waiting", "running")))


def a_bench_weighs_ways_to_serve_and_leaves_no_trace():
    """Each cell serves as it says, over the same arrivals and without what
    another left in the prefix cache; then the appliance is as before, and
    the report stands alone."""
    with Appliance(BIN, {**NO_PORT, "api.warm_start": 1}) as a, counts([(300, 150)] * 80) as f:
        words = ["bench", "serve", "--trace", f.name, "--door", "http1", "--window", "2", "--warm", "4"]
        out = os.path.join(a.dir.name, "bench")
        before = a.get("/config")[1]
        ways = [("fused", "quantile"), ("serial", "quantile"), ("fused", "static:64"), ("serial", "fifo:64")]
        r = a.ctl(*words, "--out", out, "--rates", "15,30", "--cells", ",".join("/".join(w) for w in ways),
                  timeout=2 * PATIENCE)
        with open(out + ".json", encoding="utf-8") as g:
            b = json.load(g)
        cells = b["cells"]
        assert b["appliance"]["device"] == "CPU", b["appliance"]
        assert [(c["path"], c["policy"], c["rate"]) for c in cells] == [
            (p, q, r) for p, q in ways for r in (15, 30)], cells
        for c in cells:
            assert c["replay"]["requests"] > 15 and c["replay"]["cached_tokens"] == 0, c
            assert c["hybrid"]["fused" if c["path"] == "serial" else "fallback"] == 0, c
            assert (c["fallbacks"].get("operator", 0) > 0) == (c["path"] == "serial"), c
            assert c["vcta"]["planned"] == c["vcta"]["executed"] and 0 < c["attention_share"] < 1, c
            assert c["power"] is None, c
        arrivals = {(c["rate"], c["replay"]["requests"]) for c in cells}
        assert len(arrivals) == 2, arrivals
        planned = json.loads(a.ctl("plan", "--profile", "example", "--trace", f.name, "--window", "2", "--rates", "15@4,30@4",
                                   "--json").stdout)["curves"][0]["points"]
        assert {(p["rate"], p["requests"]) for p in planned} == arrivals, planned  # the same list
        assert sum(" carries " in line for line in r.stdout.splitlines()) == len(ways), r.stdout
        after = a.get("/config")[1]
        assert after == before, [(x, y) for x, y in zip(before.splitlines(), after.splitlines()) if x != y]
        with open(out + ".html", encoding="utf-8") as g:
            page = g.read()
        assert page.count('role="img"') == 3 * 4, page  # four charts for each policy
        assert "<script" not in page and "://" not in page and "src=" not in page  # it needs nothing else
        for bad in (["--rates", "8,8"], ["--rates", "1", "--cells", "fused/best"], []):
            assert a.ctl(*words, "--out", out, *bad, check=False).returncode == 2, bad


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(x) for x in f.read().split()]


def runs(pid):
    """A process that is there, and no remains of one that its new parent has not collected."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def a_bench_that_is_ended_leaves_no_trace():
    """Whatever ends a bench, in a window or before it: a signal waits until the
    appliance is as before, and where none can wait the appliance goes back by
    itself, unless somebody was there before."""
    with Appliance(BIN, NO_PORT) as a, counts([(300, 150)] * 800) as f:
        before = a.get("/config")[1]

        def begun(run, is_in_window):
            words = ["bench", "serve", "--out", os.path.join(a.dir.name, "ended"), "--trace", f.name, "--door", "http1",
                     "--window", "30", "--first", "0", "--rates", "20", "--requests", "800", "--cells", "serial/fifo:64"]
            p = subprocess.Popen([os.path.join(BIN, "tandemctl"), *words], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, start_new_session=True,
                                 env={**os.environ, "TANDEM_SOCKET": a.settings["control.socket"]})
            a.until(lambda: a.get("/config")[1] != before)
            if is_in_window:
                a.until(lambda: a.status()["requests"]["running"] > 0)
            os.kill(p.pid, run)
            return p
        for number, is_in_window in ((signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, True)):
            assert begun(number, is_in_window).wait(timeout=PATIENCE) == -number
            assert a.get("/config")[1] == before, number
            a.until(lambda: not a.status()["requests"]["running"])
        for is_in_window in (True, False):  # its replay ends with it, at once and not at the window's end
            p = begun(0, is_in_window)
            replays = children(p.pid)
            assert len(replays) == 1 or not is_in_window, replays
            p.kill()
            killed = time.monotonic()
            assert p.wait(timeout=PATIENCE) == -signal.SIGKILL
            a.until(lambda: not any(map(runs, replays)) and not a.status()["requests"]["running"], 15)
            assert time.monotonic() - killed < 15
            if is_in_window:
                a.ctl("config", "rollback")
        waits = json.loads(a.get("/api/v1/changes")[1])["pending"]
        assert waits and 30 < waits["left_s"] <= 30 + 300, waits
        a.until(lambda: not a.status()["requests"]["running"], PATIENCE)
        words = ["bench", "serve", "--out", os.path.join(a.dir.name, "next"), "--trace", f.name, "--door", "http1",
                 "--window", "1", "--rates", "20", "--cells", "fused/margin"]
        a.ctl(*words, timeout=60)  # takes back what that one left
        assert a.get("/config")[1] == before
        a.ctl("config", "apply", "sched.gap_ms=77", "--confirm", "60s")
        r = a.ctl(*words, "--rates", "10", check=False)
        assert r.returncode == 1 and "awaits its confirmation" in r.stderr, r
        a.ctl("config", "rollback")
        p = begun(0, True)
        r = a.ctl(*words, "--rates", "10", check=False)
        assert r.returncode == 1 and f"another bench runs, process {p.pid}" in r.stderr, r
        p.terminate()
        assert p.wait(timeout=PATIENCE) == -signal.SIGTERM and a.get("/config")[1] == before


def a_bench_of_several_sittings():
    """A sitting that ends early or is killed loses no window that was over; the
    next goes on, two are put together, and neither another build nor another
    promise gets into the file."""
    with Appliance(BIN, {**NO_PORT, "api.warm_start": 1}) as a, counts([(100, 60)] * 90) as f:
        words = ["bench", "serve", "--trace", f.name, "--door", "http1", "--window", "2", "--rates", "30,15"]
        one, two, both = (os.path.join(a.dir.name, x) for x in ("one", "two", "both"))

        def windows(base):
            with open(base + ".json", encoding="utf-8") as g:
                return [(c["path"], c["policy"], c["rate"]) for c in json.load(g)["cells"]]
        r = a.ctl(*words, "--out", one, "--seconds", "11", timeout=60)
        first = windows(one)
        assert 1 <= len(first) < 4 and "left for another sitting" in r.stdout, (first, r.stdout)
        assert all(rate == 30 for _, _, rate in first), first  # what matters most comes first
        p = subprocess.Popen([os.path.join(BIN, "tandemctl"), *words, "--out", one],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env={**os.environ, "TANDEM_SOCKET": a.settings["control.socket"]})
        while len(windows(one)) == len(first):
            time.sleep(0.05)
        p.kill()
        p.wait()
        assert len(windows(one)) == len(first) + 1
        a.ctl(*words, "--out", two, "--only", "serial/quantile@15", timeout=60)
        assert windows(two) == [("serial", "quantile", 15)]
        r = a.ctl("bench", "merge", "--out", both, one + ".json", two + ".json")
        assert sorted(windows(both)) == sorted(set(windows(one)) | set(windows(two)))
        a.ctl(*words, "--out", both, timeout=60)
        assert windows(both) == [(p, "quantile", r) for p in ("fused", "serial") for r in (15, 30)]
        r = a.ctl(*words, "--out", both, "--gap-ms", "30", check=False)
        assert r.returncode == 1 and "another words" in r.stderr, r
        with open(two + ".json", encoding="utf-8") as g:
            other = json.load(g)
        other["appliance"]["build"] = "0123456789abcdef"
        for c in other["cells"]:
            del c["under"]  # as of a file from before windows said so
        with open(two + ".json", "w", encoding="utf-8") as g:
            json.dump(other, g)
        r = a.ctl("bench", "merge", "--out", both, one + ".json", two + ".json", check=False)
        assert r.returncode == 1 and "another build" in r.stderr, r
        kept = os.path.join(a.dir.name, "kept")
        a.ctl(*words, "--out", kept, "--only", "fused/quantile@30", "--note", "card=7", timeout=60)
        a.ctl("bench", "merge", "--out", kept, "--keep", "serial/quantile", kept + ".json", two + ".json")
        with open(kept + ".json", encoding="utf-8") as g:
            under = {c["path"]: c["under"] for c in json.load(g)["cells"]}
        assert under["fused"]["card"] == "7" and under["serial"] == {"build": "0123456789abcdef"}, under
        assert under["fused"]["build"] not in ("", "0123456789abcdef"), under
        r = a.ctl(*words, "--out", two, check=False)
        assert r.returncode == 1 and "another build" in r.stderr, r


def bad_words_are_named():
    """A replay that cannot run says why in one line, before anything is sent."""
    with Appliance(BIN, NO_PORT) as a, counts([(5, 5)] * 3) as f:
        for words, code in ((["--trace", f.name], 1), (["--trace", "/nonexistent"], 1),
                            (["--rate", "3"], 2), (["--trace", f.name, "--rate", "x"], 2),
                            (["--trace", f.name, "--load", "0.5"], 2),
                            (["--trace", f.name, "--rate", "1", "--door", "h2"], 2),
                            (["--trace", f.name, "--rate", "1", "--scale", "500000"], 2),
                            (["--trace", f.name, "--rate", "1", "--scale", "900", "--requests", "1", "--cut"], 2),
                            (["--trace", f.name, "--rate", "1", "--duration", "60", "--cut"], 1),
                            (["--trace", "azure_conv", "--rate", "1", "--scale", "900"], 1),
                            (["--trace", f.name, "--rate", "1", "--door", "http1", "--http",
                              "http://127.0.0.1:1"], 4)):
            r = a.ctl("replay", *words, check=False)
            assert r.returncode == code and len(r.stderr.splitlines()) == 1, (words, r)
        assert a.total("tandem_requests_total") == 0


class Stranger(http.server.BaseHTTPRequestHandler):
    """Another server: text without ids, an error without a code, a stream
    that breaks off."""
    protocol_version = "HTTP/1.1"
    asked = []

    def log_message(self, *_):
        pass

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, "application/json", b'{"data": [{"id": "strange"}]}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append(body)
        n = len(self.asked)
        if n % 4 == 0:
            return self.answer(503, "application/json", b'{"error": {"type": "overloaded_error"}}')
        piece = b'data: {"choices": [{"text": "x"}]}\n\n'
        whole = piece * body["max_tokens"] + b"data: [DONE]\n\n"
        if n % 4 != 1:
            return self.answer(200, "text/event-stream", whole)
        self.send_response(200)
        self.send_header("content-length", str(len(whole)))
        self.end_headers()
        self.wfile.write(piece)
        self.close_connection = True
        return None


def other_servers_are_understood():
    """A server that knows only what OpenAI's does: counted by its text."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 8099), Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with counts([(10, 7)] * 16) as f:
        r = subprocess.run([os.path.join(BIN, "tandemctl"), "replay", "--door", "http1", "--http",
                            "http://127.0.0.1:8099", "--plain", "--json", "--trace", f.name,
                            "--rate", "100"], capture_output=True, text=True, timeout=PATIENCE, check=False)
        # where no terminal is, a line each 10 s says how far it is, and --quiet none
        slow = {quiet: subprocess.Popen(
            [os.path.join(BIN, "tandemctl"), "replay", "--door", "http1", "--http", "http://127.0.0.1:8099", "--plain",
             "--trace", f.name, "--requests", "7", "--cv", "0.05", "--rate", "0.25", *quiet],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for quiet in ((), ("--quiet",))}
        for quiet, p in slow.items():
            told = [x for x in p.communicate(timeout=PATIENCE)[1].splitlines() if "no whole answer" not in x]
            assert len(told) == (0 if quiet else 2), told
            for k, line in enumerate(told):
                assert 10 * (k + 1) <= int(line.split()[0]) <= 12 * (k + 1) and " of 7, " in line, told
    server.shutdown()
    assert r.returncode == 3, r.stderr
    s = json.loads(r.stdout)
    assert (s["done"], s["refused"], s["lost"]) == (8, 4, 4), s
    assert s["tokens"] == 8 * 7 + 4 and s["reasons"] == {"overloaded_error": 4, "lost": 4}, s
    for body in Stranger.asked:
        assert set(body) == {"model", "prompt", "max_tokens", "temperature", "stream"}, body
        assert body["model"] == "strange" and len(body["prompt"]) == 10


class Peer(Stranger):
    """A server that does what it is asked, of models with contexts, told or not."""
    asked = []
    models = {}

    def do_GET(self):
        if self.path != "/v1/models":
            return self.answer(404, "text/plain", b"")
        data = [{"id": k, **({"max_model_len": n} if n else {})} for k, n in self.models.items()]
        return self.answer(200, "application/json", json.dumps({"data": data}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((len(body["prompt"]), body["max_tokens"]))
        self.answer(200, "text/event-stream", b'data: {"choices": [{"text": "x"}]}\n\n' * body["max_tokens"] +
                    b"data: [DONE]\n\n")


def servers_are_asked_for_the_same_or_it_is_told():
    """A list is cut to a context that somebody told and to no other; how much of
    it was not asked for is in the summary, and in each record."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 8099), Peer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    lengths = [(5000, 30), (20, 7), (60, 40), (7, 64)]

    def asked(models, *words):
        Peer.models, Peer.asked = models, Peer.asked[:0]
        with counts(lengths) as f, tempfile.NamedTemporaryFile("r") as g:
            r = subprocess.run([os.path.join(BIN, "tandemctl"), "replay", "--door", "http1", "--http", "http://127.0.0.1:8099",
                                "--plain", "--json", "--trace", f.name, "--rate", "100", "--records", g.name, *words],
                               capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert r.returncode == 0, r
            s, rows = json.loads(r.stdout), sorted(map(json.loads, g), key=lambda x: x["row"])
        assert sorted(Peer.asked) == sorted((x["prompt"], x["output_max"]) for x in rows), (Peer.asked, rows)
        assert [(x["prompt"] + x["prompt_cut"], x["output_max"] + x["output_cut"]) for x in rows] == lengths, rows
        assert s["listed"] == s["done"] == len(lengths) and s["short"] == 0, s
        assert s["requests_cut"] == sum(x["prompt_cut"] + x["output_cut"] > 0 for x in rows), s
        assert (s["prompt_tokens_cut"], s["output_tokens_cut"]) == tuple(
            sum(x[k] for x in rows) for k in ("prompt_cut", "output_cut")), s
        return s["context"], s["context_from"], s["requests_cut"], sorted(Peer.asked)
    whole = sorted(lengths)
    cut = sorted([(34, 30), (20, 7), (32, 32), (7, 32)])
    assert asked({"a": None}) == (None, None, 0, whole)
    assert asked({"a": None}, "--http", "http://127.0.0.1:8099/v1/") == (None, None, 0, whole)  # as clients have it
    assert asked({"a": 1 << 20}) == (1 << 20, "server", 0, whole)
    assert asked({"a": 64}) == (64, "server", 3, cut)
    assert asked({"a": None}, "--context", "64") == (64, "option", 3, cut)
    assert asked({"a": 1 << 20}, "--context", "64") == (64, "option", 3, cut)
    assert asked({"a": 64, "b": 6000}, "--model", "b") == (6000, "server", 0, whole)
    assert asked({"a": 64}, "--model", "c") == (None, None, 0, whole)
    server.shutdown()


def a_profile_is_measured_and_loaded():
    """tandemctl profile writes both forms; tandemd takes them, for the same
    model only, and says what it took."""
    with tempfile.TemporaryDirectory() as d:
        base = os.path.join(d, "tiny")
        keys = ["--set", "model.path=dummy:tiny", "--set", "exec.sms=2"]
        r = subprocess.run([os.path.join(BIN, "tandemctl"), "profile", "--out", base, "--budget", "4",
                            "--json", *keys], capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
        assert r.returncode == 0, r.stderr
        told = json.loads(r.stdout)
        assert told["points"] >= 50 and told["samples"] >= told["points"], told
        assert told["chunk_max"] == 512 and told["check_shapes"] >= 2, told
        with open(base + ".json", encoding="utf-8") as f:
            p = json.load(f)
        assert p["tandem_profile"] == 3 and p["model"] == "dummy:tiny" and p["is_model"] == 0
        assert sum(len(p[k]) for k in ("lin", "fused", "streams", "serial")) == told["points"]
        assert p["check"][0] == told["check_shapes"] and 0 <= p["check"][1] <= p["check"][2] <= p["check"][3]
        hybrids = [x for k in ("fused", "streams", "serial") for x in p[k]]
        assert all(x[4] > 0 for x in hybrids), [x for x in hybrids if x[4] <= 0]
        for form in (".json", ".bin"):
            with Appliance(BIN, {**NO_PORT, "sched.profile": base + form}) as a:
                assert f"profile of {p['device']}" in a.log(), a.log()
                assert len(a.complete("measured", 8)) == 8
        a = Appliance(BIN, {**NO_PORT, "sched.profile": base + ".bin", "model.name": "other"},
                      ready=False)
        with a:
            assert a.process.wait(PATIENCE) == 1 and "dummy:tiny" in a.log(), a.log()
        r = subprocess.run([os.path.join(BIN, "tandemctl"), "profile", "--out", base, "--set",
                            "model.path=/nonexistent"], capture_output=True, text=True, check=False)
        assert r.returncode == 1 and "nonexistent" in r.stderr, r


def a_modelled_card_is_marked():
    """What is simulated on a profile that nobody measured says so in each cell,
    and tandemd does not take such a profile for its own machine's."""
    serving = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "perf", "serving", "run.py")
    with tempfile.TemporaryDirectory() as d:
        r = subprocess.run([sys.executable, serving, "simulate", BIN, d, d, "--models", "llama-3-8b", "--only",
                            "arxiv_sample", "--requests", "60", "--policies", "quantile,static:512"],
                           capture_output=True, text=True, timeout=200, check=False)
        assert r.returncode == 0, r.stderr
        with open(os.path.join(d, "llama-3-8b_arxiv_sample_60.json"), encoding="utf-8") as f:
            cells = json.load(f)["cells"]
        assert len(cells) == 6 * 7 and all(c["simulated"]["is_model"] for c in cells), cells
        with open(os.path.join(d, "llama-3-8b_arxiv_sample_60.html"), encoding="utf-8") as f:
            assert "0 measured, 42 simulated on the profile" in f.read()
        profile = os.path.join(d, "h200_model_llama-3-8b.json")
        a = Appliance(BIN, {**NO_PORT, "sched.profile": profile}, ready=False)
        with a:
            assert a.process.wait(30) == 1 and "a model" in a.log(), a.log()


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(("RssAnon", "RssShmem")))


def tenfold_overload_keeps_its_word():
    """Ten times what it can do: what is admitted is served as promised, the
    rest is refused at once, memory stays, and the next request is welcome.
    The window and the promise are in units of what one request takes here."""
    slots, tokens = 8, 1024  # few and long: what refusing costs the same cores is small
    settings = {**NO_PORT, "sched.sequences": slots, "sched.waiting": 16, "sched.ttft_guard": 1,
                "sched.prefix_cache": 0, "sched.gap_ms": 2000}
    with Appliance(BIN, settings) as a:
        with counts([(64, tokens)] * 16) as f:
            s = replay(a, f.name, "--rate", "1000", "--door", "http1")
            assert s["done"] == 16, s
            capacity = s["tokens_per_s"]
        whole = slots * tokens / capacity  # seconds from a slot to its end, all slots taken
        ttft_ms = max(4000, int(5000 * whole))
        a.ctl("config", "apply", f"sched.ttft_ms={ttft_ms}")
        rss, seen, over = resident_kib(a.process.pid), [], threading.Event()

        def watch():
            while not over.wait(0.2):
                seen.append(resident_kib(a.process.pid))
        t = threading.Thread(target=watch)
        t.start()
        try:
            with counts([(64, tokens)] * 16384) as f:
                s = replay(a, f.name, "--rate", str(10 * capacity / tokens),
                           "--duration", str(max(8, int(4 * whole))), "--ttft-ms", str(ttft_ms), "--gap-ms", "2000",
                           "--door", "http1", "--requests", "16384", "--open-max", "400")
        finally:
            over.set()
            t.join()
        print(f"capacity {capacity:.0f} tokens/s, goodput {s['good_tokens_per_s']:.0f}, "
              f"refused {s['refused']} of {s['requests']}, p99 gap {s['tbt_ms']['p99']:.0f} ms, "
              f"memory {rss} to {max(seen)} KiB, {max(seen) - seen[len(seen) // 2]} of it in the second half")
        assert s["done"] + s["refused"] + s["unsent"] == s["requests"], s
        assert s["refused"] > 4 * s["done"] and s["done"] > 2 * slots, s
        assert s["good_tokens_per_s"] > 0.5 * capacity, (s, capacity)
        assert s["tbt_ms"]["p99"] < 2000 and s["ttft_ms"]["p99"] < 2 * ttft_ms, s
        # what requests walk through in turn was touched before the first; connections come and go
        assert max(seen) < rss + 24 * 1024, (rss, seen)
        assert max(seen) - seen[len(seen) // 2] < 2 * 1024, seen
        assert len(a.complete("after the storm", 4)) == 4


if __name__ == "__main__":
    sys.exit(run_fact(globals()))
