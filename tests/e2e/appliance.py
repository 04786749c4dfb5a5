# SPDX-License-Identifier: Apache-2.0
"""One tandemd in the caller's network namespace, and ways to talk to it."""
import ctypes
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

PORT = 8080
PATIENCE = 120  # seconds: what must come comes at once, but the machine may have much other work
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what outlives its tandemd becomes a child of the test


def process(pid):
    """(name, state, parent) of a process; None: there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
    except OSError:
        return None
    return name, rest.split()[0], int(rest.split()[1])


def lives(pid):
    """Also what has ended stays listed until its parent asks how."""
    return (process(pid) or ("", "Z"))[1] != "Z"


def orphans(program):
    """The pids of a program that outlived what had started it."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
            if lives(pid) and (process(pid) or ())[::2] == (program, os.getpid())]


class Appliance:
    """with Appliance(bin_dir, {"sched.depth": 1}) as a: ..."""

    def __init__(self, bin_dir, settings=None, ready=True, config=None):
        self.bin = bin_dir
        self.dir = tempfile.TemporaryDirectory(prefix="tandem-e2e-")
        self.log_path = os.path.join(self.dir.name, "log")
        self.settings = {"model.path": "dummy:tiny", "state.dir": self.dir.name,
                         "exec.sms": 2, "port.mbufs": 2048,
                         "flight.path": os.path.join(self.dir.name, "flight"),
                         "control.socket": os.path.join(self.dir.name, "ctl.sock"),
                         **(settings or {})}
        self.port = self.settings.get("http.port", PORT)
        self.ready = ready
        self.config = config  # a file, read before the settings
        self.process = None
        self.headers = {}  # of every GET

    def command(self):
        args = [os.path.join(self.bin, "tandemd")]
        if self.config:
            args += ["--config", self.config]
        for key, value in self.settings.items():
            args += ["--set", f"{key}={value}"]
        return args

    def __enter__(self):
        if shutil.which("ip"):  # a new namespace; a GPU host's own has a loopback
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self.start()
        return self

    def start(self):
        """Also for another life, after the process ended."""
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        if self.ready:
            self.wait_ready()

    def __exit__(self, kind, value, trace):
        if kind is not None:
            sys.stderr.write(self.log())
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        self.dir.cleanup()
        end = time.monotonic() + 10
        while left := orphans("tandem-exec"):
            if time.monotonic() > end:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"tandemd has ended and left executors: {left}")
            time.sleep(0.02)

    def children(self):
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(path, encoding="ascii") as f:
            return [int(pid) for pid in f.read().split()]

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def wait_ready(self, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError("tandemd ended: " + self.log())
            try:
                if self.get("/ready")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError("not ready: " + self.log())

    # --- HTTP/1.1 -------------------------------------------------------
    def connect(self, timeout=PATIENCE):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def get(self, path, headers=None):
        c = self.connect()
        try:
            c.request("GET", path, headers={**self.headers, **(headers or {})})
            r = c.getresponse()
            return r.status, r.read(), r.headers
        finally:
            c.close()

    def post(self, path, body, timeout=PATIENCE):
        c = self.connect(timeout)
        try:
            c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            r = c.getresponse()
            return r.status, json.loads(r.read() or b"null"), r.headers
        finally:
            c.close()

    def model(self):
        return json.loads(self.get("/v1/models")[1])["data"][0]["id"]

    def complete(self, prompt, n, **fields):
        """Output ids of a greedy completion over HTTP/1.1."""
        body = {"model": self.model(), "prompt": prompt, "max_tokens": n, "temperature": 0,
                "ignore_eos": True, "return_token_ids": True, **fields}
        status, reply, _ = self.post("/v1/completions", body)
        assert status == 200, (status, reply)
        return reply["choices"][0]["token_ids"]

    def stream(self, prompt, n, **fields):
        """An open streaming completion: (connection, response)."""
        body = {"model": self.model(), "prompt": prompt, "max_tokens": n, "temperature": 0,
                "ignore_eos": True, "stream": True, "return_token_ids": True, **fields}
        c = self.connect()
        c.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        return c, c.getresponse()

    # --- HTTP/3 through the DPDK port -----------------------------------
    def ctl(self, *args, check=True, timeout=PATIENCE):
        r = subprocess.run([os.path.join(self.bin, "tandemctl"), *args], capture_output=True,
                           text=True, timeout=timeout, check=False,
                           env={**os.environ, "TANDEM_SOCKET": self.settings["control.socket"]})
        assert not check or r.returncode == 0, (args, r.returncode, r.stdout, r.stderr)
        return r

    def generate_h3(self, prompt, n):
        r = self.ctl("generate", "--certificate", os.path.join(self.dir.name, "certificate.pem"),
                     "--ids", "--temperature", "0", "--max-tokens", str(n), prompt)
        return [int(w) for w in r.stdout.split()]

    # --- numbers --------------------------------------------------------
    def status(self):
        return json.loads(self.get("/status")[1])

    def metrics(self):
        """{'name{labels}': value} of the Prometheus text."""
        out = {}
        for line in self.get("/metrics")[1].decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def total(self, name, label=""):
        """Sum of a metric's series whose labels contain `label`."""
        return sum(v for k, v in self.metrics().items()
                   if (k == name or k.startswith(name + "{")) and label in k)

    def until(self, what, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, "did not come true in time"
            time.sleep(0.02)

    def executor_pid(self):
        return self.children()[0]

    def page_faults(self):
        """Minor and major faults of each thread of tandemd so far, by its name."""
        cnt, path = {}, f"/proc/{self.process.pid}/task"
        for task in os.listdir(path):
            with open(f"{path}/{task}/stat", encoding="ascii") as f:
                head, tail = f.read().rsplit(")", 1)
            name, fields = head.split("(", 1)[1], tail.split()
            cnt[name] = cnt.get(name, 0) + int(fields[7]) + int(fields[9])  # of proc(5)
        return cnt


class Crowd:
    """with Crowd(a, 8, ask): ask(a, i, k) streams client i's k-th request; all ask until the end of it."""

    def __init__(self, a, cnt, ask):
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(a, i, ask)) for i in range(cnt)]

    def run(self, a, i, ask):
        k = 0
        while not self.over.is_set():
            c, r = ask(a, i, k)
            r.read()
            c.close()
            k += 1

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join()


def run_fact(facts, needs_tun=True):
    """usage: FILE.py BIN_DIR FACT; facts: the file's globals(), BIN among them.  The exit status."""
    if os.geteuid() != 0 or needs_tun and not os.path.exists("/dev/net/tun"):
        print("needs root" + " and /dev/net/tun" * needs_tun)
        return 77
    facts["BIN"], fact = sys.argv[1], sys.argv[2]
    facts[fact]()
    return 0


def stream_ids(response):
    """Token ids of an SSE stream, to its [DONE]."""
    ids = []
    for raw in response:
        line = raw.decode().rstrip("\n")
        if line == "data: [DONE]":
            return ids
        if line.startswith("data: "):
            event = json.loads(line[6:])
            assert "error" not in event, event
            for choice in event["choices"]:
                ids += choice.get("token_ids") or []
    raise AssertionError(f"the stream ended without [DONE] after {len(ids)} ids")
