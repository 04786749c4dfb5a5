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


class Storm:
    """What goes on at once, each of it again and again until the time is over or something is wrong."""

    def __init__(self, a):
        self.a, self.over, self.wrong, self.lock = a, threading.Event(), [], threading.Lock()
        self.done = {"pages": 0, "events": 0, "changes": 0, "streams": 0}

    def unix(self):
        return Unix(self.a.settings["control.socket"])

    def count(self, what, n=1):
        with self.lock:
            self.done[what] += n

    def guarded(self, run, *args):
        def thread():
            try:
                while not self.over.is_set():
                    run(*args)
            except Exception as e:  # noqa: BLE001 - told below
                if not self.over.is_set():
                    self.wrong.append(f"{run.__name__}: {e!r}")
                    self.over.set()
        return threading.Thread(target=thread)

    def look(self, make):
        c = make()
        for _ in range(20):
            if self.over.is_set():
                break
            page = random.choice(PAGES)
            c.request("GET", page, headers={"accept-encoding": random.choice(("gzip", "identity"))})
            r = c.getresponse()
            r.read()
            assert r.status in (200, 503), (page, r.status)
            self.count("pages")
        c.close()

    def feed(self, make):
        c = make()
        c.request("GET", "/api/v1/stream")
        r = c.getresponse()
        end = time.monotonic() + random.uniform(0.3, 2)
        while time.monotonic() < end and not self.over.is_set():
            line = r.readline()
            if line.startswith(b"data: "):
                json.loads(line[6:])
                self.count("events")
        c.close()

    def change(self, i):
        c = self.unix()
        what = random.choice(("/api/v1/drain", "/api/v1/undrain", "/api/v1/config/apply",
                              "/api/v1/config/confirm", "/api/v1/config/rollback", "/api/v1/reload"))
        body = {"why": f"asker {i}"}
        if what.endswith("apply"):
            body.update(config={"sched": {"gap_ms": random.randint(100, 900)}}, confirm_s=1)
        c.request("POST", what, json.dumps(body), {"content-type": "application/json"})
        r = c.getresponse()
        reply = json.loads(r.read())
        assert r.status in (202, 409, 400), (what, r.status, reply)
        while r.status == 202 and not self.over.is_set():
            c.request("GET", f"/api/v1/changes?asked={reply['asked']}")
            state = json.loads(c.getresponse().read())
            if state["done"] >= reply["asked"]:
                assert state["result"] in ("ok", "refused"), state
                break
        self.count("changes")
        c.close()

    def stream(self):
        c, r = self.a.stream("race " * random.randint(1, 60), random.randint(5, 60))
        r.read()
        c.close()
        self.count("streams")

    def rage(self, seconds):
        tcp, unix = self.a.connect, self.unix
        threads = [self.guarded(*what) for what in
                   ((self.look, tcp), (self.look, unix), (self.look, unix), (self.feed, tcp), (self.feed, unix),
                    (self.feed, unix), (self.change, 1), (self.change, 2), (self.stream,), (self.stream,))]
        for t in threads:
            t.start()
        self.over.wait(seconds)
        self.over.set()
        for t in threads:
            t.join(PATIENCE)


def main():
    os.environ["TSAN_OPTIONS"] = "halt_on_error=1 exitcode=66 second_deadlock_stack=1"
    with Appliance(sys.argv[1], {"port.kind": "none", "exec.sms": 2}) as a:
        storm = Storm(a)
        storm.rage(SECONDS)
        assert "ThreadSanitizer" not in a.log() and not storm.wrong and a.process.poll() is None, (storm.wrong, a.log())
        assert all(storm.done.values()), storm.done
    assert a.process.returncode == 0, a.process.returncode  # 66: a report on the way out
    print("no race:", storm.done)
    return 0


if __name__ == "__main__":
    sys.exit(main() if os.geteuid() == 0 else 77)
