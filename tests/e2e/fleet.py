#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three appliances behind HAProxy, as deploy/fleet/haproxy.cfg has it: one is drained, one is
killed, one is restarted, under load.  No request fails but those in flight on the killed one.

usage: fleet.py BIN_DIR     in a network namespace of its own; exit 77 without root or haproxy"""
import csv
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PATIENCE, Appliance, lives  # noqa: E402

BIN = ""
FLEET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/fleet")
FRONT = 18000
SEQUENCES = 8


class Member(Appliance):
    """One of the three, with an agent on its port as tandem-agent.socket would start it."""

    def __init__(self, n):
        super().__init__(BIN, {"port.kind": "none", "exec.huge_plans": 0, "exec.sms": 1,
                               "http.port": 18080 + n, "sched.sequences": SEQUENCES})
        self.name = f"tandem{n}"
        self.agent = socket.create_server(("127.0.0.1", 18180 + n))
        threading.Thread(target=self.answer, daemon=True).start()

    def answer(self):
        while True:
            try:
                c, _ = self.agent.accept()
            except OSError:
                return
            with c:
                c.sendall(self.weight().encode())

    def weight(self):
        return subprocess.run([os.path.join(FLEET, "agent"), "--socket", self.settings["control.socket"]],
                              capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": BIN + ":" + os.environ["PATH"]}).stdout

    def restart(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0, self.log()
        self.start()


class Balancer:
    def __init__(self, members):
        self.dir = tempfile.TemporaryDirectory(prefix="tandem-haproxy-")
        with open(os.path.join(FLEET, "haproxy.cfg"), encoding="utf-8") as f:
            text = f.read()
        self.admin = os.path.join(self.dir.name, "admin.sock")
        text = text.replace("/run/haproxy/admin.sock", self.admin).replace("bind :8000", f"bind 127.0.0.1:{FRONT}")
        for n, m in enumerate(members, 1):
            text, cnt = re.subn(rf"server tandem{n} 192\.0\.2\.1{n}:8080",
                                f"server tandem{n} 127.0.0.1:{m.port} agent-port {m.port + 100}", text)
            assert cnt == 1
        assert "192.0.2" not in text
        self.config = os.path.join(self.dir.name, "haproxy.cfg")
        with open(self.config, "w", encoding="utf-8") as f:
            f.write(text)
        checked = subprocess.run(["haproxy", "-c", "-f", self.config], capture_output=True, text=True, check=False)
        assert checked.returncode == 0 and "WARN" not in checked.stderr.upper(), checked
        with open(os.path.join(self.dir.name, "log"), "wb") as log:
            self.process = subprocess.Popen(["haproxy", "-db", "-f", self.config], stdout=log, stderr=log)
        until(lambda: os.path.exists(self.admin), PATIENCE, "haproxy does not start")

    def ask(self, command):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.admin)
            s.sendall(command.encode() + b"\n")
            out = b""
            while part := s.recv(65536):
                out += part
            return out.decode()

    def servers(self):
        """{name: row} of HAProxy's own statistics."""
        rows = csv.DictReader(self.ask("show stat").lstrip("# ").splitlines())
        return {r["svname"]: r for r in rows if r["pxname"] == "appliances" and r["svname"] != "BACKEND"}

    def log(self):
        with open(os.path.join(self.dir.name, "log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.dir.cleanup()


class Asked:
    """One request and what came of it."""

    def __init__(self, n):
        self.stream = n % 3 != 0
        self.begin = time.monotonic()
        self.end = None
        self.server = None
        self.fault = None


class Load:
    """Clients that ask one after the other; every request is noted."""

    def __init__(self, model, clients=8):
        self.model = model
        self.asked = []
        self.stop = False
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.client) for _ in range(clients)]
        for t in self.threads:
            t.start()

    def client(self):
        while not self.stop:
            with self.lock:
                one = Asked(len(self.asked))
                self.asked.append(one)
            try:
                self.ask(one)
            except (OSError, http.client.HTTPException, ValueError, AssertionError) as e:
                one.fault = repr(e)
            one.end = time.monotonic()

    def ask(self, one):
        c = http.client.HTTPConnection("127.0.0.1", FRONT, timeout=PATIENCE)
        try:
            c.request("POST", "/v1/completions",
                      json.dumps({"model": self.model, "prompt": "the sea " * 8, "max_tokens": 48,
                                  "ignore_eos": True, "stream": one.stream}),
                      {"content-type": "application/json"})
            r = c.getresponse()
            one.server = r.getheader("x-served-by")
            body = r.read()
            assert r.status == 200, (r.status, body[:200])
            if one.stream:
                assert body.rstrip().endswith(b"data: [DONE]") and b'"error"' not in body, body[-200:]
            else:
                assert json.loads(body)["usage"]["completion_tokens"] == 48, body
        finally:
            c.close()

    def since(self, at, server=None):
        with self.lock:
            return [a for a in self.asked if a.begin >= at and (server is None or a.server == server)]

    def open(self):
        with self.lock:
            return [a for a in self.asked if a.end is None]

    def faults(self):
        with self.lock:
            return [a for a in self.asked if a.fault]

    def close(self):
        self.stop = True
        for t in self.threads:
            t.join(PATIENCE)
            assert not t.is_alive()


def until(what, seconds, why):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, why
        time.sleep(0.05)


def told(asked):
    """The first few, for a message."""
    return [vars(a) for a in asked][:5]


def served_by_all(load, names, seconds=PATIENCE):
    at = time.monotonic()
    until(lambda: {a.server for a in load.since(at)} >= set(names), seconds, f"not all of {names} serve")


def served_without(load, member):
    """Others answer, for a second and a half at least, and this one gets nothing."""
    at = time.monotonic()
    until(lambda: time.monotonic() > at + 1.5 and len(load.since(at)) > 5, PATIENCE, "nobody answers")
    assert not load.since(at, member.name)


def story(members, balancer):
    one, two, three = members
    names = [m.name for m in members]
    until(lambda: all(s["status"] == "UP" for s in balancer.servers().values()), PATIENCE, balancer.log())
    load = Load(one.model())
    try:
        served_by_all(load, names)

        one.ctl("drain", "--why", "test", "--socket", one.settings["control.socket"])
        until(lambda: balancer.servers()[one.name]["status"] != "UP", PATIENCE, "HAProxy sees no drain")
        time.sleep(0.3)
        served_without(load, one)
        assert not load.faults(), told(load.faults())
        one.ctl("undrain", "--socket", one.settings["control.socket"])
        served_by_all(load, names)
        print(f"drained and back: {len(load.asked)} requests, none failed", flush=True)

        until(lambda: any(a.server == two.name or a.server is None for a in load.open()), PATIENCE, "no load")
        children = two.children()
        two.process.kill()
        killed = time.monotonic()
        in_flight = [a for a in load.open() if a.server in (two.name, None)]
        two.process.wait()
        until(lambda: balancer.servers()[two.name]["status"].startswith("DOWN"), PATIENCE, "HAProxy sees no death")
        served_without(load, two)
        lost = load.faults()
        assert all(a in in_flight for a in lost), told(a for a in lost if a not in in_flight)
        assert all(a.begin < killed and a.server in (two.name, None) for a in lost), told(lost)
        for pid in children:
            until(lambda pid=pid: not lives(pid), PATIENCE, "an executor outlived its tandemd")
        two.start()
        served_by_all(load, names)
        print(f"killed and back: {len(in_flight)} may have been in flight on it, {len(lost)} of them failed",
              flush=True)

        three.restart()
        served_by_all(load, names)
        assert load.faults() == lost, told(a for a in load.faults() if a not in lost)
        print(f"restarted: {len(load.asked)} requests, no other failed", flush=True)

        # Load of its own lowers the weight of one, and with it its share.
        until(lambda: balancer.servers()[one.name]["weight"] != "", PATIENCE, "no weight")
        busy = [one.stream("long", 4000) for _ in range(SEQUENCES - 1)]
        until(lambda: int(balancer.servers()[one.name]["weight"]) < 25, PATIENCE, one.weight())
        weights = {n: int(s["weight"]) for n, s in balancer.servers().items()}
        at = time.monotonic()
        until(lambda: len(load.since(at)) > 60, PATIENCE, "no load")
        share = {n: len(load.since(at, n)) for n in names}
        print(f"weights {weights}, requests {share}", flush=True)
        assert share[one.name] < min(share[two.name], share[three.name])
        for c, _ in busy:
            c.close()
        until(lambda: int(balancer.servers()[one.name]["weight"]) > 50, PATIENCE, "the weight does not come back")
    finally:
        load.close()
    assert load.faults() == lost


def main():
    global BIN
    BIN = sys.argv[1]
    if os.geteuid() != 0 or not shutil.which("haproxy"):
        print("needs root and haproxy")
        return 77
    with Member(1) as one, Member(2) as two, Member(3) as three:
        balancer = Balancer([one, two, three])
        try:
            story([one, two, three], balancer)
        except BaseException:
            sys.stderr.write("".join(line for line in balancer.log().splitlines(True) if "POST" not in line))
            raise
        finally:
            balancer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
