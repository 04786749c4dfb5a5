#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many requests through both doors at once, one in ten cancelled at a random
moment; afterwards pages, exchange slots, packet buffers, descriptors and
memory are what they were.

usage: unshare --net storm.py BIN_DIR H3_STORM [REQUESTS [SEED]]     (root)
       six times REQUESTS / 4 over each door
"""
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from appliance import PORT, Appliance  # noqa: E402

THREADS = 8


def one(rng, connection):
    """One completion over HTTP/1.1; gives the connection back, None where it was cut."""
    if connection is None:
        connection = socket.create_connection(("127.0.0.1", PORT), timeout=60)
    body = json.dumps({"prompt": f"storm {rng.randrange(1000)}", "max_tokens": rng.randint(1, 8),
                       "stream": True, "temperature": 0, "ignore_eos": True}).encode()
    request = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
               b"Content-Length: %d\r\n\r\n" % len(body)) + body
    if rng.random() < 0.1:
        connection.sendall(request[:rng.choice((rng.randrange(1, len(request)), len(request)))])
        connection.settimeout(rng.random() * 0.02 + 0.0001)
        try:
            connection.recv(rng.randrange(1, 4096))
        except TimeoutError:
            pass
        connection.close()
        return None
    connection.sendall(request)
    answer = b""
    while b"\r\n0\r\n\r\n" not in answer:
        piece = connection.recv(65536)
        assert piece, answer[-300:]
        answer += piece
    assert answer.startswith(b"HTTP/1.1 200") and b"[DONE]" in answer, answer[:300]
    return connection


def over_http1(seed, cnt, failed):
    rng, connection = random.Random(seed), None
    try:
        for _ in range(cnt):
            connection = one(rng, connection)
        if connection:
            connection.close()
    except (AssertionError, OSError) as e:
        failed.append(repr(e))


def state(a):
    """What must be as it was, once all is quiet."""
    m = a.metrics()
    pick = lambda name, label="": sum(  # noqa: E731
        v for k, v in m.items() if k.split("{")[0] == name and label in k)
    pid = a.process.pid
    return {"pages used": pick("tandem_kv_pages", '"used"'), "exchanges": pick("tandem_exchanges_open"),
            "queued": pick("tandem_queue_requests"), "QUIC connections": pick("tandem_connections", '"h3"'),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


def resident_mib(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * 4096 / 2**20


def storm(a, program, cnt, seed):
    """cnt requests over each door at once; says what became of them."""
    failed = []
    threads = [threading.Thread(target=over_http1, args=(seed * 100 + i, cnt // THREADS, failed))
               for i in range(THREADS)]
    for t in threads:
        t.start()
    r = subprocess.run([program, "10.88.0.2", "4433", str(cnt), "10", str(seed), "none"],
                       capture_output=True, text=True, check=False)
    for t in threads:
        t.join()
    assert r.returncode == 0, (seed, r.stdout, r.stderr[-500:])
    assert not failed, (seed, failed[:3])
    return r.stdout.strip()


def settled(a, want):
    """The state once it is want, or after half a minute."""
    for _ in range(60):
        now = state(a)
        if now == want:
            break
        time.sleep(0.5)
    return now


def main():
    bin_dir, program = sys.argv[1:3]
    cnt = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    with Appliance(bin_dir) as a:
        storm(a, program, 64, seed)  # what is allocated once is there now
        time.sleep(1)
        before, mib = state(a), []
        for part in range(6):
            start = time.monotonic()
            ended = storm(a, program, cnt // 4, seed * 10 + part)
            seconds = time.monotonic() - start
            after = settled(a, before)
            mib.append(resident_mib(a.process.pid))
            print(f"seed {seed * 10 + part}: {cnt // 4} requests over each door in {seconds:.1f} s; "
                  f"HTTP/3 {ended}; resident {mib[-1]:.0f} MiB; {after}")
            assert after == before, (seed, before, after)
        # Slabs of 64 MiB for prompts go round and are touched once, by about
        # 16,000 requests; behind that nothing may grow.
        if cnt >= 10000:
            assert mib[5] - mib[4] < 4, mib
    return 0


if __name__ == "__main__":
    sys.exit(main())
