#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everybody looks and changes at once, with tandemd under ThreadSanitizer.  usage: consoles_race.py BIN_DIR

For a few seconds clients stream, feeds are open, every page is fetched over TCP and over the Unix
socket, and changes are asked for by several.  ThreadSanitizer ends tandemd at its first report, and
the report is what this prints.  Without that build (preset tsan) it is the same storm, and only
checks that all answers stay whole."""
import http.client
import json
import os
import random
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PATIENCE, Appliance  # noqa: E402

SECONDS = 8
PAGES = ("/metrics", "/metrics?set=compat", "/status", "/status?since=5", "/journey", "/config",
         "/api/v1/iterations", "/api/v1/requests?slowest=9", "/api/v1/changes", "/api/v1/audit",
         "/api/v1/session", "/ready", "/ui/", "/ui/console.js")


class Unix(http.client.HTTPConnection):
    """HTTP/1.1 over the control socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)


def main():
    over, wrong, done = threading.Event(), [], {"pages": 0, "events": 0, "changes": 0, "streams": 0}
    lock = threading.Lock()

    def count(what, n=1):
        with lock:
            done[what] += n

    def guarded(run, *args):
        def thread():
            try:
                while not over.is_set():
                    run(*args)
            except Exception as e:  # noqa: BLE001 - told below
                if not over.is_set():
                    wrong.append(f"{run.__name__}: {e!r}")
                    over.set()
        return threading.Thread(target=thread)

    os.environ["TSAN_OPTIONS"] = "halt_on_error=1 exitcode=66 second_deadlock_stack=1"
    with Appliance(sys.argv[1], {"port.kind": "none", "exec.sms": 2}) as a:
        path = a.settings["control.socket"]

        def look(make):
            c = make()
            for _ in range(20):
                if over.is_set():
                    break
                page = random.choice(PAGES)
                c.request("GET", page, headers={"accept-encoding": random.choice(("gzip", "identity"))})
                r = c.getresponse()
                r.read()
                assert r.status in (200, 503), (page, r.status)
                count("pages")
            c.close()

        def feed(make):
            c = make()
            c.request("GET", "/api/v1/stream")
            r = c.getresponse()
            end = time.monotonic() + random.uniform(0.3, 2)
            while time.monotonic() < end and not over.is_set():
                line = r.readline()
                if line.startswith(b"data: "):
                    json.loads(line[6:])
                    count("events")
            c.close()

        def change(i):
            c = Unix(path)
            what = random.choice(("/api/v1/drain", "/api/v1/undrain", "/api/v1/config/apply",
                                  "/api/v1/config/confirm", "/api/v1/config/rollback", "/api/v1/reload"))
            body = {"why": f"asker {i}"}
            if what.endswith("apply"):
                body.update(config={"sched": {"gap_ms": random.randint(100, 900)}}, confirm_s=1)
            c.request("POST", what, json.dumps(body), {"content-type": "application/json"})
            r = c.getresponse()
            reply = json.loads(r.read())
            assert r.status in (202, 409, 400), (what, r.status, reply)
            while r.status == 202 and not over.is_set():
                c.request("GET", f"/api/v1/changes?asked={reply['asked']}")
                state = json.loads(c.getresponse().read())
                if state["done"] >= reply["asked"]:
                    assert state["result"] in ("ok", "refused"), state
                    break
            count("changes")
            c.close()

        def stream():
            c, r = a.stream("race " * random.randint(1, 60), random.randint(5, 60))
            r.read()
            c.close()
            count("streams")

        tcp, unix = (lambda: a.connect()), (lambda: Unix(path))
        threads = [guarded(look, tcp), guarded(look, unix), guarded(look, unix), guarded(feed, tcp),
                   guarded(feed, unix), guarded(feed, unix), guarded(change, 1), guarded(change, 2),
                   guarded(stream), guarded(stream)]
        for t in threads:
            t.start()
        over.wait(SECONDS)
        over.set()
        for t in threads:
            t.join(PATIENCE)
        assert "ThreadSanitizer" not in a.log() and not wrong and a.process.poll() is None, (wrong, a.log())
        assert all(done.values()), done
    assert a.process.returncode == 0, a.process.returncode  # 66: a report on the way out
    print("no race:", done)
    return 0


if __name__ == "__main__":
    sys.exit(main() if os.geteuid() == 0 else 77)
