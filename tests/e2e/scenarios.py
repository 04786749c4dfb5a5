#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""End-to-end facts about the appliance.  usage: scenarios.py BIN_DIR FACT

Each function below is one fact and one CTest entry.  Everything runs in the
network namespace that the caller made; exit 77 where root or TAP lack."""
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PATIENCE, PORT, Appliance, lives, run_fact, stream_ids  # noqa: E402

BIN = ""
NO_PORT = {"port.kind": "none"}


def doors_agree():
    """HTTP/3 over DPDK, HTTP/1.1, streamed or not: the same greedy tokens."""
    with Appliance(BIN) as a:
        began = time.monotonic()
        for prompt in ("hello", "a", "the quick brown fox " * 20):
            whole = a.complete(prompt, 24)
            assert len(whole) == 24
            c, r = a.stream(prompt, 24)
            assert stream_ids(r) == whole
            c.close()
            over_h3 = a.generate_h3(prompt, 24)
            # the model may end by itself over HTTP/3, where eos is not ignored
            assert over_h3 == whole[:len(over_h3)] and over_h3, (over_h3, whole)
        sent = a.total("tandem_wire_seconds_count")
        took = time.monotonic() - began
        c, r = a.stream("not through the port", 5)
        assert len(stream_ids(r)) == 5
        c.close()
        assert a.total("tandem_wire_seconds_count") == sent  # measured at the port alone
        assert 3 <= sent <= a.total("tandem_tokens_total", 'kind="output"'), sent
        assert a.total("tandem_wire_seconds_sum") < took  # one stream at a time
        chat = a.ctl("chat", "--temperature", "0", "--max-tokens", "8", "hi")
        assert chat.returncode == 0
        assert a.total("tandem_net_packets_total", 'direction="rx"') > 10
        for k in ("prefill", "decode"):
            assert a.total("tandem_vcta_total", f'op="{k}"') > 0


def an_interrupted_tandemctl_cancels():
    """Ctrl-C, an end from outside, a closed terminal or pipe: the appliance hears of it at once."""
    with Appliance(BIN, {"quic.idle_ms": 600000, "sched.watchdog_ms": 600000}) as a:
        def cancelled():
            return a.total("tandem_requests_total", 'outcome="cancelled"')

        def leave(prompt, how):
            with subprocess.Popen([os.path.join(a.bin, "tandemctl"), "generate", "--temperature", "0", prompt],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p:
                before = cancelled()
                assert p.stdout.read(1)
                how(p)
                a.until(lambda: cancelled() == before + 1)
                return p.wait(PATIENCE)
        words = (f"{w} " * n for w in ("tell", "me", "all", "of", "it") for n in (1, 2, 3, 9, 20))
        prompt = next(p for p in words if len(a.generate_h3(p, 2000)) == 2000)  # does not end soon
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            assert leave(prompt, lambda p, n=number: p.send_signal(n)) == -number
        assert leave(prompt, lambda p: p.stdout.close()) == -signal.SIGPIPE


def streams_do_not_mix():
    """32 streams at once give exactly what each gives alone."""
    with Appliance(BIN, {**NO_PORT, "sched.sequences": 16}) as a:
        jobs = [("word " * (1 + 7 * i % 60), 5 + 3 * i % 40) for i in range(32)]
        alone = [a.complete(p, n) for p, n in jobs]
        got = [None] * len(jobs)

        def run(i):
            c, r = a.stream(*jobs[i])
            got[i] = stream_ids(r)
            c.close()
        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert got == alone
        assert a.total("tandem_iterations_total", 'path="fused"') > 0


def a_prompt_again_is_computed_once():
    """Cache on or off, hit or miss, before and after an executor died: the same
    tokens, over fp8 pages too; a key's pages are its own."""
    prompt, other = "tell me once more " * 24, "something else " * 9
    keys = {"ann": "key of ann", "bob": "key of bob"}
    admin = {"authorization": "Bearer " + keys["ann"]}

    def ask(a, who, text):
        body = {"model": model, "prompt": text, "max_tokens": 40, "temperature": 0,
                "ignore_eos": True, "return_token_ids": True, "repetition_penalty": 1.3}
        c = a.connect()
        c.request("POST", "/v1/completions", json.dumps(body),
                  {"content-type": "application/json", "authorization": "Bearer " + keys[who]})
        reply = json.loads(c.getresponse().read())
        c.close()
        usage = reply["usage"]
        assert usage["prompt_tokens"] > 3 * 64, usage
        return reply["choices"][0]["token_ids"], usage["prompt_tokens_details"]["cached_tokens"]

    model = "dummy:tiny"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")
        with open(path, "w", encoding="ascii") as f:
            for who, key in keys.items():
                f.write(f"{who} {hashlib.sha256(key.encode()).hexdigest()}\n")
        for pages in ("auto", "fp8"):
            with_keys = {**NO_PORT, "api.keys_file": path, "model.name": model, "exec.kv_dtype": pages}
            with Appliance(BIN, {**with_keys, "sched.prefix_cache": 0}) as a:
                a.headers = admin
                want, cached = ask(a, "ann", prompt)
                assert cached == 0 and ask(a, "ann", prompt) == (want, 0)
                assert a.total("tandem_prefix_lookups_total") == 0
            with Appliance(BIN, with_keys) as a:
                a.headers = admin
                assert ask(a, "ann", prompt) == (want, 0)
                again, cached = ask(a, "ann", prompt)
                assert again == want and cached >= 3 * 64 and cached % 64 == 0, cached
                assert ask(a, "bob", prompt) == (want, 0)  # never another key's pages
                assert ask(a, "bob", prompt) == (want, cached)
                assert ask(a, "ann", prompt + other)[1] == cached // 64 * 64
                a.until(lambda: a.total("tandem_prefix_lookups_total", 'result="hit"') == 3)
                assert a.total("tandem_prefix_saved_tokens_total") == 3 * cached
                assert a.total("tandem_tokens_total", 'kind="cached"') == 3 * cached
                os.kill(a.executor_pid(), signal.SIGKILL)  # with it go the contents
                a.until(lambda: a.total("tandem_executor_epoch") >= 2 and a.get("/ready")[0] == 200)
                assert ask(a, "ann", prompt) == (want, 0)
                a.until(lambda: a.total("tandem_prefix_lost_pages_total", 'cause="flushed"') > 0)


def a_reload_is_whole_or_refused():
    """SIGHUP and tandemctl reload: targets and caps change under a running stream, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tandem.json")

        def write(text):
            with open(path, "w", encoding="utf-8") as f:
                f.write(text if isinstance(text, str) else json.dumps(text))

        def target(cls, what):
            return a.total("tandem_slo_target_seconds", f'slo_class="{cls}",objective="{what}"')

        write({"sched": {"gap_ms": 400}, "class2": {"gap_ms": 4000}})
        with Appliance(BIN, {**NO_PORT}, config=path) as a:
            assert target("interactive", "tpot") == 0.4 and target("batch", "tpot") == 4
            want = a.complete("go on", 1200)
            c, r = a.stream("go on", 1200)
            r.readline()
            write({"sched": {"gap_ms": 300, "prefill_tokens": 64}, "class2": {"gap_ms": 5000}})
            a.process.send_signal(signal.SIGHUP)
            a.until(lambda: a.total("tandem_config_revision") == 1)
            assert target("interactive", "tpot") == 0.3 and target("batch", "tpot") == 5
            assert json.loads(a.get("/config")[1])["sched"]["prefill_tokens"] == 64
            for bad, word in (({"sched": {"gap_ms": 0}}, "gap_ms"), ("{", "line 1"),
                              ({"sched": {"gap_ms": 200, "sequences": 9}}, "sched.sequences"),
                              ({"sched": {"nothing": 1}}, "sched.nothing")):
                write(bad)
                done = a.ctl("reload", check=False)
                assert done.returncode == 1 and word in done.stderr, (done, word)
            assert a.total("tandem_control_changes_total", 'change="reload",result="refused"') == 4
            assert a.total("tandem_config_revision") == 1 and target("interactive", "tpot") == 0.3
            write({"sched": {"gap_ms": 250}})
            done = a.ctl("reload")
            assert "revision 2" in done.stdout, done
            assert target("interactive", "tpot") == 0.25 and target("batch", "tpot") == 0.25
            rest = stream_ids(r)  # all but what the first line carried
            assert len(rest) > 1000 and want[-len(rest):] == rest
            c.close()
            body = {"model": a.model(), "prompt": "hi", "max_tokens": 2}
            for fields, status, code in (({"priority": 3}, 200, None), ({"priority": 4}, 400, "bad_value"),
                                         ({"slo_tpot_ms": 250}, 200, None),
                                         ({"slo_tpot_ms": 249}, 400, "slo_unsupported")):
                got, reply, _ = a.post("/v1/completions", {**body, **fields})
                assert got == status, (fields, got, reply)
                assert status == 200 or reply["error"]["code"] == code, reply
            assert a.total("tandem_requests_total", 'slo_class="other"') == 1


def a_client_that_leaves_frees_its_pages():
    """FIN, RST: the sequence is gone at once; silence: at the idle time-out."""
    with Appliance(BIN, {"quic.idle_ms": 3000}) as a:
        used = lambda: a.total("tandem_kv_pages", 'state="used"')  # noqa: E731
        for linger in (False, True):
            c, r = a.stream("leave me", 3500)
            r.readline()
            a.until(lambda: used() > 0)
            if linger:
                c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                  b"\x01\x00\x00\x00\x00\x00\x00\x00")
            r.close()
            c.close()
            a.until(lambda: used() == 0)
        p = subprocess.Popen([os.path.join(BIN, "tandemctl"), "generate", "--insecure",
                              "--temperature", "0", "--max-tokens", "3500", "leave me"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        a.until(lambda: used() > 0)
        p.send_signal(signal.SIGKILL)  # silence: only the idle time-out can tell
        p.wait()
        a.until(lambda: used() == 0)
        a.until(lambda: a.total("tandem_exchanges_open") == 0)
        assert len(a.complete("still here", 5)) == 5


def an_executor_that_dies_is_not_noticed_by_streams():
    """SIGKILL of tandem-exec in mid-stream, with one plan and with two at the device: same
    tokens, a new life."""
    for ahead in ("off", "on"):
        one_death({**NO_PORT, "exec.ahead": ahead})


def one_death(settings):
    with Appliance(BIN, settings) as a:
        want = a.complete("survive", 1500)
        c, r = a.stream("survive", 1500)
        ids, killed = [], False
        for raw in r:
            line = raw.decode().strip()
            if line == "data: [DONE]":
                break
            if line.startswith("data: "):
                event = json.loads(line[6:])
                ids += event["choices"][0].get("token_ids") or [] if event["choices"] else []
            if len(ids) > 20 and not killed:
                os.kill(a.executor_pid(), signal.SIGKILL)
                killed = True
        c.close()
        assert ids == want, (len(ids), len(want))
        assert a.total("tandem_executor_epoch") >= 2
        assert a.total("tandem_faults_total", 'reason="executor_exit"') >= 1


def idle_costs_little():
    """An idle appliance with a TAP port uses under 5 % of one core."""
    with Appliance(BIN) as a:
        a.complete("warm", 3)
        time.sleep(1)

        def cpu():
            ticks = 0
            for pid in (a.process.pid, a.executor_pid()):
                with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
            return ticks / os.sysconf("SC_CLK_TCK")
        before = cpu()
        time.sleep(4)
        share = (cpu() - before) / 4
        print(f"idle: {share * 100:.2f} % of one core")
        assert share < 0.05


def connections_fault_no_page():
    """A steady load of new connections, scrapes and bodies of all sizes asks the kernel for no page: what was freed
    is there again.  Each page given back would be an interrupt for every tile, too."""
    with Appliance(BIN, NO_PORT) as a:
        model = a.model()

        def client(k):
            a.complete("hello", 4)
            assert a.post("/v1/completions", {"model": model, "prompt": "a " * (10000 * k), "max_tokens": 1})[0] == 400
            assert a.get("/metrics")[0] == 200

        def rounds(cnt):
            for _ in range(cnt):
                crowd = [threading.Thread(target=client, args=(k + 1,)) for k in range(8)]
                for thread in crowd:
                    thread.start()
                for thread in crowd:
                    thread.join()
        rounds(6)
        before = a.page_faults()
        rounds(20)
        after = a.page_faults()
        came = {name: after[name] - before[name] for name in before if after[name] > before[name]}
        print(f"page faults of {20 * 8 * 4} connections: {came}")
        assert sum(came.values()) < 20 * 8 * 4 / 2, came


def hugepages_free():
    with open("/proc/meminfo", encoding="ascii") as f:
        return int([line for line in f if line.startswith("HugePages_Free")][0].split()[1])


def a_killed_appliance_leaves_nothing():
    """SIGKILL: no hugepage, no TAP, no process stays; the next start works."""
    before = hugepages_free()
    for _ in range(2):
        a = Appliance(BIN)
        with a:
            child = a.executor_pid()
            assert hugepages_free() < before
            a.process.kill()
            a.process.wait()
            a.until(lambda: not lives(child))
            a.until(lambda: hugepages_free() == before)
            links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
            assert "tandem0" not in links.stdout, links.stdout


def overload_is_an_answer():
    """A full waiting queue answers 429 with Retry-After, and recovers."""
    with Appliance(BIN, {**NO_PORT, "sched.sequences": 2, "sched.waiting": 4}) as a:
        counts = {200: 0, 429: 0}
        lock = threading.Lock()

        def run():
            status, reply, headers = a.post("/v1/completions", {
                "model": name, "prompt": "load", "max_tokens": 60, "ignore_eos": True})
            with lock:
                counts[status] = counts.get(status, 0) + 1
                if status != 200:
                    assert reply["error"]["code"] in ("waiting_full", "queue_full"), reply
                    assert float(headers["retry-after"]) > 0
        name = a.model()
        threads = [threading.Thread(target=run) for _ in range(40)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        print(counts)
        # at worst all arrive before the first two get their slots: four wait, the rest is refused
        assert counts[200] >= 4 and counts[429] > 0 and sum(counts.values()) == 40
        assert len(a.complete("after the storm", 4)) == 4


def the_flight_recorder_survives_a_kill():
    """tandemd is killed with SIGKILL: its file explains a fused iteration and traces every request;
    the next life keeps it as FILE.last, falls back as told and is cut by its limit."""
    with Appliance(BIN, {**NO_PORT, "sched.prefill_tokens": 64}) as a:
        c, r = a.stream("decode ", 3500)
        r.readline()
        for i in range(3):
            a.complete("long prompt " * (40 + i), 4)
        hybrids = a.total("tandem_hybrid_iterations_total", "fused")
        records = a.total("tandem_flight_records_total", "iteration")
        assert hybrids > 0 and a.total("tandem_flight_slots", "iteration") == 16384
        for pid in [*a.children(), a.process.pid]:
            os.kill(pid, signal.SIGKILL)
        a.process.wait()
        c.close()
        path = a.settings["flight.path"]
        trace = json.loads(a.ctl("trace", "--flight", path).stdout)["traceEvents"]
        slices = [e for e in trace if e["ph"] == "X"]
        assert len(slices) >= records, (len(slices), records)
        fused = [e for e in slices if e["name"] == "fused"]
        assert len(fused) >= hybrids
        for e in fused:
            assert e["args"]["vcta_planned"] == e["args"]["vcta_executed"] != [0, 0], e
        begun = [e for e in trace if e["ph"] == "b" and e["name"] == "request"]
        assert len(begun) == 4 and sum(e["args"]["ending"] == "length" for e in begun) == 3, begun
        otlp = json.loads(a.ctl("trace", "--flight", path, "--format", "otlp").stdout)
        spans = otlp["resourceSpans"][0]["scopeSpans"][0]["spans"]
        assert sum(s["name"] == "request" for s in spans) == 4
        number = fused[-1]["args"]["iteration"]
        told = a.ctl("explain", "--flight", path, "--iteration", str(number)).stdout
        assert "shared one attention launch" in told and "all executed" in told, told
        assert a.ctl("explain", "--flight", path, "--at", "-3600", check=False).returncode == 1
        assert a.ctl("explain", "--flight", path, "--at", "nonsense", check=False).returncode == 2
        with open(path, "rb") as f:
            assert b"long prompt" not in f.read()
        # more prefill at once than any processor does within the gap
        with Appliance(BIN, {**a.settings, "sched.gap_ms": 1, "sched.prefill_tokens": 512}) as b:
            c, r = b.stream("decode ", 3500)
            r.readline()
            b.complete("long prompt " * 40, 4)
            c.close()
            mine = json.loads(b.ctl("trace", "--flight", path).stdout)["traceEvents"]
            cut = [e["args"]["iteration"] for e in mine if e["ph"] == "X"
                   and e["args"]["prefill_ended_by"] == "time_limit"]
            told = b.ctl("explain", "--flight", path, "--iteration", str(cut[0])).stdout
            assert "the iteration's time limit (time_limit)" in told, told
            assert "the gap promised to class interactive" in told, told
            again = json.loads(b.ctl("trace", "--flight", path + ".last").stdout)["traceEvents"]
            assert len([e for e in again if e["ph"] == "X"]) == len(slices)
        # A promise that can be kept, or decodes sit turns out and nothing is hybrid.
        with Appliance(BIN, {**a.settings, "sched.route": "serial"}) as b:
            c, r = b.stream("decode ", 3500)
            r.readline()
            b.complete("long prompt " * 40, 4)
            c.close()
            told = b.ctl("explain", "--flight", path, "--fallback", "operator").stdout
            assert "serial instead of fused: the operator chose another route" in told, told


def sigterm_lets_streams_finish():
    """SIGTERM to the whole group: the open stream ends whole on the executor
    that began it, new requests hear "draining", exit 0."""
    with Appliance(BIN, {**NO_PORT, "sched.drain_ms": 600000, "sched.watchdog_ms": 600000}) as a:
        c, r = a.stream("finish", 2500)
        r.readline()
        executor = a.executor_pid()
        os.kill(executor, signal.SIGSTOP)  # the stream does not end while we look
        for pid in a.children():
            os.kill(pid, signal.SIGTERM)
        a.process.send_signal(signal.SIGTERM)
        a.until(lambda: a.get("/ready")[0] == 503)
        status, reply, headers = a.post("/v1/completions", {"prompt": "late"})
        assert status == 503 and reply["error"]["code"] == "draining", reply
        assert float(headers["retry-after"]) > 0 and a.get("/health")[0] == 200
        a.until(lambda: a.total("tandem_state", "draining") == 1)
        os.kill(executor, signal.SIGCONT)
        assert len(stream_ids(r)) > 2000
        c.close()
        assert a.process.wait(PATIENCE) == 0, a.log()
        assert "signal 15" not in a.log() and "life 2" not in a.log(), a.log()


def a_drain_that_runs_out_tells_clients():
    """Clients at both doors hear of the end at once, by name, and not at their idle timeout."""
    with Appliance(BIN, {"sched.drain_ms": 200, "quic.idle_ms": 60000}) as a:
        body = json.dumps({"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "temperature": 0})
        whole = a.connect()
        whole.request("POST", "/v1/completions", body, {"content-type": "application/json"})
        stream, events = a.stream("x", 4000)
        assert events.readline()
        p = subprocess.Popen(
            [os.path.join(BIN, "tandemctl"), "generate", "--insecure", "--ids", "--temperature",
             "0", "--max-tokens", "3900", "x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdout.read(1)
        a.process.send_signal(signal.SIGTERM)
        assert a.process.wait(PATIENCE) == 0, a.log()
        began = time.monotonic()
        out, err = p.communicate(timeout=PATIENCE)
        assert time.monotonic() - began < 30 and p.returncode == 1, (p.returncode, out, err)
        assert b"(draining)" in err, err
        reply = whole.getresponse()
        assert reply.status == 503 and reply.headers["retry-after"], reply.headers
        assert json.loads(reply.read())["error"]["code"] == "draining"
        told = [x for x in events.read().decode().split("\n\n") if x]  # whole: no chunk is missing
        assert told[-1] == "data: [DONE]", told[-2:]
        assert json.loads(told[-2][6:])["error"]["code"] == "draining", told[-2:]
        for c in (whole, stream):
            c.close()


def impatient_signals_end_it_in_order():
    """However many SIGTERMs come, also while it takes itself apart: exit 0."""
    with Appliance(BIN, NO_PORT) as a:
        give_up = time.monotonic() + PATIENCE
        while a.process.poll() is None and time.monotonic() < give_up:
            a.process.send_signal(signal.SIGTERM)
            time.sleep(0.0003)
        assert a.process.returncode == 0, (a.process.returncode, a.log())


def starts_are_refused_in_one_line():
    """What cannot run says so in one line and exits 1 or 2."""
    def refused(settings, word, code):
        a = Appliance(BIN, settings, ready=False)
        with a:
            assert a.process.wait(PATIENCE) == code, (settings, a.process.returncode, a.log())
            lines = [x for x in a.log().splitlines() if "error" in x]
            assert len(lines) == 1 and word in lines[0], (settings, a.log())
    refused({"port.udp": 0}, "port.udp", 2)
    refused({"model.path": "/nonexistent.gguf"}, "nonexistent", 1)
    refused({"model.path": "dummy:giant"}, "giant", 1)
    refused({**NO_PORT, "api.context": 100000}, "context", 1)
    refused({**NO_PORT, "exec.kv_pages": 1}, "KV pool", 1)
    refused({**NO_PORT, "exec.kv_pages": 67108864}, "map", 1)  # seen by the executor
    refused({**NO_PORT, "http.connections": 16385}, "http.connections", 2)
    refused({"port.mbufs": 1048576}, "hugepages", 1)
    refused({"port.ipv4": "10.99.0.2"}, "port.ipv4", 1)
    for kind in ("af_packet", "af_xdp", "pci"):
        refused({"port.kind": kind, "port.ipv4": "10.99.0.2/24"}, "port.device is empty", 1)
    refused({"port.ipv4": "10.88.0.1"}, "port.ipv4", 1)
    refused({"port.ipv6": "fd88:7464:6d01::2"}, "port.ipv6", 1)
    refused({"state.dir": "/proc/none"}, "state.dir", 1)
    refused({**NO_PORT, "http.address": "192.0.2.1"}, "192.0.2.1", 1)
    with Appliance(BIN, NO_PORT) as a:
        b = subprocess.run(a.command(), capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert b.returncode == 1 and str(PORT) in b.stderr, b.stderr


def keys_are_asked_for():
    """With a keys file every door wants a valid bearer key, pages included."""
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("# tenant hash\nblue " + hashlib.sha256(b"sesame").hexdigest() + "\n")
        f.flush()
        with Appliance(BIN, {"api.keys_file": f.name}) as a:
            good = {"authorization": "Bearer sesame"}
            for headers, want in ((None, 401), ({"authorization": "Bearer x"}, 401), (good, 200)):
                for path in ("/v1/models", "/metrics", "/status"):
                    status, body, got = a.get(path, headers)
                    assert status == want, (path, headers, status)
                    assert want == 200 or json.loads(body)["error"]["code"] == "auth"
                    assert (got.get("www-authenticate") == "Bearer") == (want == 401), path
            assert b'tandem_refusals_total{reason="auth"} 6' in a.get("/metrics", good)[1]
            assert a.get("/health")[0] == 200
            r = a.ctl("generate", "--insecure", "--temperature", "0", "--max-tokens", "4", "hi", check=False)
            assert r.returncode == 1 and "auth" in r.stderr, r
            r = a.ctl("generate", "--insecure", "--key", "sesame", "--temperature", "0", "--max-tokens", "4", "hi")
            assert r.stdout.strip()
            assert b"sesame" not in a.get("/config", good)[1] and "sesame" not in a.log()


def other_modes_give_the_same_tokens():
    """Ordinary pages, an executor thread, busy polling, bf16 and fp8 pages, fp8 weights, no ISA,
    serial and streams, plans begun ahead: all serve, and what must be equal is."""
    want = {}
    drawn = {"temperature": 0.9, "top_p": 0.9, "seed": 7, "frequency_penalty": 0.5}
    for settings in ({}, {"port.no_huge": 1, "exec.huge_plans": 0}, {"exec.mode": "thread"},
                     {"tile.poll": "busy"}, {"exec.isa": "scalar"}, {"exec.sms": 1},
                     {"sched.route": "serial"}, {"sched.route": "streams"}, {"sched.depth": 1},
                     {"exec.ahead": "on"}, {"exec.ahead": "on", "exec.mode": "thread", "tile.poll": "busy"},
                     {"tile.api": 3}, {"exec.kv_dtype": "bf16"}, {"exec.kv_dtype": "fp8"},
                     {"exec.weight_dtype": "fp8"}, {"exec.weight_dtype": "fp8", "exec.mode": "thread"}):
        with Appliance(BIN, settings) as a:
            for prompt in ("one", "two " * 40):
                ids = a.complete(prompt, 16)
                assert len(ids) == 16
                key = prompt, settings.get("exec.kv_dtype"), settings.get("exec.weight_dtype")
                assert want.setdefault(key, ids) == ids, (settings, prompt)
                ids = a.complete(prompt, 40, **drawn)
                assert want.setdefault(("drawn", *key), ids) == ids, (settings, prompt)


if __name__ == "__main__":
    sys.exit(run_fact(globals()))
