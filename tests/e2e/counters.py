#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the counters of /metrics say together, at rest and in a storm.  usage: counters.py BIN_DIR FACT

Each function below is one fact and one CTest entry, in the network namespace that the caller made."""
import os
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import Appliance, run_fact, stream_ids  # noqa: E402

BIN = ""


def identities_hold():
    """Counters agree with each other at every scrape, and promtool agrees."""
    with Appliance(BIN) as a:
        for i in range(12):
            a.complete("x" * (1 + 40 * i), 3 + i)
        a.generate_h3("packets", 6)
        status, reply, _ = a.post("/v1/completions", {"model": a.model(), "prompt": ""})
        assert status == 400 and reply["error"]["code"] == "prompt_empty", reply
        a.until(lambda: a.total("tandem_exchanges_open") <= 1)
        time.sleep(0.3)
        m = a.metrics()
        pick = lambda name, label="": sum(  # noqa: E731
            v for k, v in m.items() if k.split("{")[0] == name and label in k)
        for op in ("prefill", "decode"):
            assert pick("tandem_vcta_total", op) == pick("tandem_vcta_planned_total", op) > 0
        assert pick("tandem_requests_total") == 14
        assert pick("tandem_hybrid_iterations_total", "fallback") == pick("tandem_fallbacks_total")
        for h in ("ttft", "itl", "e2e"):
            inf = sum(v for k, v in m.items() if k.startswith(f"tandem_{h}_seconds_bucket")
                      and 'le="+Inf"' in k)
            assert inf == pick(f"tandem_{h}_seconds_count"), h
        for ring in ("request", "egress", "plan", "result"):
            label = f'ring="{ring}"'
            assert 0 < pick("tandem_ring_high_watermark_entries", label) <= \
                pick("tandem_ring_capacity_entries", label), ring
        # a reply that does not stream has no first token of its own, only an end
        assert pick("tandem_ttft_seconds_count") == 1, pick("tandem_ttft_seconds_count")
        assert pick("tandem_e2e_seconds_count") == 13, pick("tandem_e2e_seconds_count")
        promtool = shutil.which("promtool")
        if promtool:
            text = a.get("/metrics?set=native")[1]
            r = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True,
                               check=False)
            assert r.returncode == 0, r.stdout + r.stderr
        body, headers = a.get("/metrics", {"accept": "application/openmetrics-text;version=1.0.0"})[1:]
        assert body.endswith(b"# EOF\n") and "openmetrics" in headers["content-type"]
        assert a.ctl("show", "journey").stdout and a.ctl("show", "status").stdout


def check_identities(m):
    """What must hold in every scrape, also in the middle of a storm: words of one block."""
    pick = lambda name, label="": sum(  # noqa: E731
        v for k, v in m.items() if k.split("{")[0] == name and label in k)
    for op in ("prefill", "decode"):
        assert pick("tandem_vcta_total", op) == pick("tandem_vcta_planned_total", op), op
    assert pick("tandem_hybrid_iterations_total", "fallback") == pick("tandem_fallbacks_total")
    assert pick("tandem_iterations_total") == pick("tandem_iteration_seconds_count")
    assert pick("tandem_requests_received_total") == \
        pick("tandem_requests_total") + pick("tandem_requests_open")
    assert pick("tandem_admission_total", "accepted") == \
        pick("tandem_queue_requests") + pick("tandem_sequences_ended_total")
    assert pick("tandem_net_packets_total", "rx") == pick("tandem_net_received_total")
    assert pick("tandem_state") == 1
    for objective, h in (("ttft", "ttft"), ("tpot", None), ("all", None)):
        judged = pick("tandem_slo_requests_total", f'objective="{objective}"')
        other = pick("tandem_ttft_seconds_count") if h else \
            pick("tandem_slo_requests_total", 'objective="all"')
        assert judged == other, objective
    assert pick("tandem_slo_gaps_total") == pick("tandem_itl_seconds_count")
    return pick


def identities_hold_in_a_storm():
    """Scrapes race with requests over both doors, clients that leave, and a route that falls back;
    the counts at the end are the clients' own."""
    with Appliance(BIN, {"sched.route": "serial", "sched.ttft_ms": 777, "sched.gap_ms": 333}) as a:
        stop, failures, counts = threading.Event(), [], {"whole": 0, "left": 0}

        def ask(i):
            c, r = a.stream("storm " * (1 + 7 * i), 60 if i % 4 else 400)
            if i % 4 == 0:
                r.readline()
                c.sock.close()
                r.close()
                counts["left"] += 1
            else:
                assert len(stream_ids(r)) == 60
                r.read()  # to the end of the body: who leaves before it is no whole stream
                counts["whole"] += 1
            c.close()

        def guard(f, *args):
            try:
                f(*args)
            except Exception as e:  # noqa: BLE001 - told below
                failures.append(repr(e))

        def scrape():
            n = 0
            while not stop.is_set():
                check_identities(a.metrics())
                n += 1
            assert n > 5, n

        scraper = threading.Thread(target=guard, args=(scrape,))
        scraper.start()
        clients = [threading.Thread(target=guard, args=(ask, i)) for i in range(12)]
        for t in clients:
            t.start()
        a.generate_h3("packets", 6)
        for t in clients:
            t.join()
        a.until(lambda: a.total("tandem_requests_open") == 0)
        time.sleep(0.3)
        stop.set()
        scraper.join()
        assert not failures, failures
        m = a.metrics()
        pick = check_identities(m)
        assert counts == {"whole": 9, "left": 3}, counts
        assert pick("tandem_requests_total", "length") + pick("tandem_requests_total", "stop") == 10
        assert pick("tandem_requests_total", "cancelled") == 3
        assert pick("tandem_requests_received_total") == 13
        assert pick("tandem_slo_requests_total", 'objective="all"') == 10
        assert pick("tandem_fallbacks_total", "operator") == pick("tandem_fallbacks_total") > 0
        # a promise is a bucket bound, and the bucket says what was counted
        ttft = {k: v for k, v in m.items() if k.startswith("tandem_ttft_seconds_bucket")}
        assert sum(v for k, v in ttft.items() if 'le="0.777"' in k) == \
            sum(v for k, v in m.items() if "tandem_slo_requests_total" in k and '"ttft"' in k
                and '"met"' in k)
        itl = sum(v for k, v in m.items() if "tandem_itl_seconds_bucket" in k and 'le="0.333"' in k)
        assert itl == sum(v for k, v in m.items()
                          if "tandem_slo_gaps_total" in k and '"met"' in k)
        assert pick("tandem_slo_target_seconds", 'objective="ttft"') == 4 * 0.777
        for tile in ("net", "api", "sched", "mgmt"):
            assert pick("tandem_tile_seconds_total", f'tile="{tile}",state="busy"') > 0, tile
            assert pick("tandem_tile_seconds_total", f'tile="{tile}",state="idle"') > 0, tile


def metrics_come_in_sets():
    """Ours, those in vLLM's words, or both; a client that leaves is an abort in the one as in the other."""
    with Appliance(BIN, {"port.kind": "none"}) as a:
        c, r = a.stream("storm", 400)
        r.readline()
        c.sock.close()
        r.close()
        c.close()
        a.complete("hello", 3)
        a.until(lambda: a.total("tandem_requests_total", 'outcome="cancelled"') == 1)
        compat = a.get("/metrics?set=compat")[1].decode()
        assert "tandem_" not in compat and 'vllm:num_requests_running{' in compat
        assert f'vllm:request_success_total{{model_name="{a.model()}",engine="0",' \
               f'finished_reason="abort"}} 1' in compat, compat
        both = a.get("/metrics?set=all")[1].decode()
        assert "\ntandem_requests_total{" in both and "\nvllm:generation_tokens_total{" in both
        native = a.get("/metrics?set=native")[1].decode()
        assert "vllm:" not in native
        c = a.connect(10)
        c.request("HEAD", "/metrics?set=all")
        r = c.getresponse()
        assert r.status == 200 and r.read() == b"" and int(r.headers["content-length"]) > 10000
        assert "version=0.0.4" in r.headers["content-type"]
        c.close()
        assert a.get("/metrics?set=nonsense")[0] == 400


if __name__ == "__main__":
    sys.exit(run_fact(globals()))
