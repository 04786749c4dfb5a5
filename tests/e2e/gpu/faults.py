#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executors that are killed, devices that fail and iterations that hang, under load.

usage: faults.py BIN_DIR FACT [--kills N] [--traps N] [--hangs N] [--streams N] [--tokens N]
                 [--prompt N] [--ties SHARE] [--seed N] [--apart S] [--set key=value ...] [--fake-nvml FILE]

BIN_DIR holds tandemd, tandemctl and faulty_exec, which takes the place of tandem-exec.  With
--set exec.backend=cuda the faults are a GPU's.  faults_lose_no_token prints one line of JSON last,
with the times of each step of the longest recovery."""
import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from appliance import Appliance, lives  # noqa: E402

ARGS = None
WATCHDOG_MS = 1000  # half of what faulty_exec hangs for


def faulty_bin(folder):
    """A folder of programs in which the executor is the faulty one."""
    for name, source in (("tandemd", "tandemd"), ("tandemctl", "tandemctl"),
                         ("tandem-exec", "faulty_exec")):
        shutil.copy2(os.path.join(ARGS.bin, source), os.path.join(folder, name))
    return folder


def settings(**more):
    own = {"port.kind": "none", "exec.restarts": 1000, "sched.watchdog_ms": WATCHDOG_MS,
           "sched.drain_ms": 1000, **more}
    own.update(dict(pair.split("=", 1) for pair in ARGS.set))
    return own


class Stream:
    """One request and its tokens, each with the time it came at."""

    def __init__(self, prompt):
        self.prompt, self.ids, self.times, self.error, self.finish = prompt, [], [], None, None
        self.deaths = 0
        self.is_refused = False

    def run(self, a, tokens):
        c, r = a.stream(self.prompt, tokens)
        try:
            self.is_refused = r.status == 503  # it came while no executor was there
            for raw in r:
                line = raw.decode().strip()
                if line == "data: [DONE]":
                    return
                if not line.startswith("data: "):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    self.error = event["error"]
                    continue
                now = time.monotonic()
                for choice in event["choices"]:
                    ids = choice.get("token_ids") or []
                    self.ids += ids
                    self.times += [now] * len(ids)
                    self.finish = choice.get("finish_reason") or self.finish
        finally:
            c.close()

    def cut_at(self, moment):
        """How many tokens had come by then; None where it was not running."""
        if not self.times or not self.times[0] < moment < self.times[-1]:
            return None
        return sum(t <= moment for t in self.times)


class Crowd:
    """Clients that ask again as soon as they are answered."""

    def __init__(self, a, cnt):
        self.a, self.done, self.running, self.stop = a, [], [None] * cnt, threading.Event()
        self.threads = [threading.Thread(target=self.client, args=(i,)) for i in range(cnt)]
        for t in self.threads:
            t.start()

    def client(self, i):
        rng = random.Random(ARGS.seed * 1000 + i)
        while not self.stop.is_set():
            s = Stream([rng.randrange(16, 250) for _ in range(rng.randrange(8, ARGS.prompt))])
            self.running[i] = s
            try:
                s.run(self.a, ARGS.tokens)
            except OSError as e:
                s.error = repr(e)
            if s.is_refused:
                self.stop.wait(0.05)
                continue
            self.done.append(s)

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join()

    def death(self):
        for s in list(self.running):
            if s is not None:
                s.deaths += 1

    def deaths_max(self):
        """Of any stream that is not done: the third death is an ending of its own."""
        return max((s.deaths for s in list(self.running) if s is not None and s not in self.done),
                   default=0)

    def tokens_since(self, moment):
        return sum(s is not None and bool(s.times) and s.times[-1] > moment
                   for s in list(self.running))


class Recovery(threading.Thread):
    """Follows one recovery: seconds from the fault to each step, and the log's lines.

    dead     the old process is a zombie or gone: what it held of the device is given back
    noticed  the supervisor says why it ended
    started  there is a process for the next life
    spoke    it says something: of a GPU, that its device is open
    ready    the next life serves
    token    a stream goes on"""

    NOTICED = re.compile(r"tandem exec: (warning: )?the executor (got signal|exited with|was killed)")
    READY = re.compile(r"tandem exec: life \d+ serves")
    STEPS = ("dead", "noticed", "started", "spoke", "ready", "token")

    def __init__(self, a, pid):
        super().__init__()
        self.a, self.pid, self.over = a, pid, threading.Event()
        self.begin, self.at, self.lines = time.monotonic(), {}, []
        self.log = open(a.log_path, encoding="utf-8", errors="replace")  # closed by run
        self.log.seek(0, os.SEEK_END)
        self.start()

    def step(self, name):
        self.at.setdefault(name, round(time.monotonic() - self.begin, 3))

    def look(self):
        if "dead" not in self.at and not lives(self.pid):
            self.step("dead")
        if set(self.a.children()) - {self.pid}:
            self.step("started")
        for line in self.log:
            self.lines.append((round(time.monotonic() - self.begin, 3), line.strip()[-160:]))
            if self.NOTICED.match(line):
                self.step("noticed")
            elif self.READY.match(line):
                self.step("ready")
            elif "started" in self.at and "noticed" in self.at:
                self.step("spoke")

    def run(self):
        while not self.over.wait(0.002):
            self.look()
        self.look()
        self.log.close()

    def end(self):
        self.over.set()
        self.join()
        self.step("token")
        return {"seconds": {name: self.at.get(name) for name in self.STEPS}, "log": self.lines[:40]}


def serve_again(a, epoch, crowd, moment):
    """Waits for the next life and a token of it: seconds since the fault, was /ready seen false."""
    end, was_down = time.monotonic() + 60, False
    while a.get("/ready")[0] != 200 or a.total("tandem_executor_epoch") <= epoch:
        was_down = was_down or a.get("/ready")[0] == 503
        assert time.monotonic() < end, "no new life: " + a.log()[-2000:]
        time.sleep(0.005)
    ready = time.monotonic()
    while crowd.tokens_since(ready) == 0:
        assert time.monotonic() < end, "a new life without tokens"
        time.sleep(0.005)
    return time.monotonic() - moment, was_down


def one_fault(a, crowd, number, rng):
    """Lets streams run, then sends the signal; (moment, seconds to the next token, was down, what
    Recovery saw)."""
    epoch = a.total("tandem_executor_epoch")
    begin = time.monotonic()
    while crowd.tokens_since(begin) < min(2, ARGS.streams) or crowd.deaths_max() > 1:
        time.sleep(0.01)
    time.sleep(ARGS.apart + rng.uniform(0.1, 0.5))
    pid = a.executor_pid()
    recovery = Recovery(a, pid)
    moment = time.monotonic()
    os.kill(pid, number)
    crowd.death()
    try:
        span, was_down = serve_again(a, epoch, crowd, moment)
    finally:
        steps = recovery.end()
    return moment, span, was_down, steps


def check_life(a, crowd, checked):
    """In the new life, beside the crowd: an answer that a death had cut, asked for again as a whole;
    (asked, equal)."""
    for s in list(crowd.done):
        if s.deaths and s not in checked and len(s.ids) == ARGS.tokens:
            checked.append(s)
            return 1, a.complete(s.prompt, ARGS.tokens) == s.ids
    return 0, 0


def check_cuts(a, streams, moments):
    """After each cut the next tokens are those of a fresh request whose prompt is prompt and
    tokens sent; (asked, equal)."""
    asked = equal = 0
    for s in streams:
        for moment in moments:
            k = s.cut_at(moment)
            if k is None:
                continue
            for j in range(max(k - 1, 0), min(k + 3, len(s.ids))):
                asked += 1
                equal += a.complete(s.prompt + s.ids[:j], 1)[0] == s.ids[j]
    return asked, equal


def faults_lose_no_token():
    """Each stream ends with all of its tokens, whatever killed its executors, and goes on after a
    death as it would have."""
    rng = random.Random(ARGS.seed)
    plan = [signal.SIGKILL] * ARGS.kills + [signal.SIGUSR1] * ARGS.traps + \
        [signal.SIGUSR2] * ARGS.hangs
    rng.shuffle(plan)
    with tempfile.TemporaryDirectory() as folder, Appliance(faulty_bin(folder), settings()) as a:
        pid = a.process.pid
        crowd = Crowd(a, ARGS.streams)
        moments, spans, downs, checked, whole, whole_equal = [], {}, 0, [], 0, 0
        longest = {"span": 0}
        for number in plan:
            moment, span, was_down, steps = one_fault(a, crowd, number, rng)
            unseen = [name for name, s in steps["seconds"].items() if s is None and name != "spoke"]
            assert not unseen, (number, unseen, steps)  # the CPU's executor says nothing by itself
            if span > longest["span"]:
                longest = {"span": round(span, 3), "fault": signal.Signals(number).name, **steps}
            downs += was_down
            moments.append(moment)
            spans.setdefault(signal.Signals(number).name, []).append(span)
            one, is_equal = check_life(a, crowd, checked)
            whole, whole_equal = whole + one, whole_equal + is_equal
        crowd.end()
        assert a.process.pid == pid and a.process.poll() is None
        wrong = [(len(s.ids), s.error, s.finish) for s in crowd.done
                 if s.error or len(s.ids) != ARGS.tokens or s.finish != "length"]
        assert not wrong, (len(wrong), wrong[:5])
        cut = [s for s in crowd.done if any(s.cut_at(m) is not None for m in moments)]
        assert len(cut) >= len(plan), "the faults met nobody"
        assert downs * 2 >= len(plan), f"/ready was seen false in {downs} of {len(plan)} deaths"
        asked, equal = check_cuts(a, rng.sample(cut, min(len(cut), ARGS.checked)), moments)
        assert asked and equal >= asked * (1 - ARGS.ties), (equal, asked)
        assert ARGS.ties or whole == whole_equal, (whole, whole_equal)
        assert whole >= len(plan) // 2, f"{whole} answers asked for again in {len(plan)} lives"
        a.until(lambda: a.total("tandem_kv_pages", 'state="used"') == 0)
        faults = {r: int(a.total("tandem_faults_total", f'reason="{r}"'))
                  for r in ("executor_exit", "executor_hang", "executor_protocol")}
        # A GPU that trapped may need longer to say so than the watchdog waits.
        assert sum(faults.values()) == len(plan) and not faults["executor_protocol"], faults
        assert ARGS.hangs <= faults["executor_hang"] <= ARGS.hangs + ARGS.traps, faults
        gaps = [b - c for s in crowd.done for b, c in zip(s.times[1:], s.times)]
        print(json.dumps({
            "streams": len(crowd.done), "cut": len(cut), "tokens": sum(len(s.ids) for s in crowd.done),
            "faults": {k: len(v) for k, v in spans.items()},
            "recovery_max_s": {k: round(max(v), 3) for k, v in spans.items()},
            "recovery_mean_s": {k: round(sum(v) / len(v), 3) for k, v in spans.items()},
            "longest_recovery": longest, "longest_gap_s": round(max(gaps), 3),
            "continuations": {"asked": asked, "equal": equal},
            "whole_again_in_the_next_life": {"asked": whole, "equal": int(whole_equal)},
            "pages_used_after": 0, "faults_counted": faults, "lives": int(a.total("tandem_executor_epoch"))}))


def a_request_that_kills_executors_ends_typed():
    """Under a stream whose executor dies again and again: an error with a code, and the next
    request is served."""
    with tempfile.TemporaryDirectory() as folder, Appliance(faulty_bin(folder), settings()) as a:
        s = Stream([17] * 20)
        t = threading.Thread(target=s.run, args=(a, 3000))
        t.start()
        for _ in range(3):
            epoch = a.total("tandem_executor_epoch")
            before = len(s.ids)
            a.until(lambda: len(s.ids) > before)
            os.kill(a.executor_pid(), signal.SIGUSR1)
            a.until(lambda: a.total("tandem_executor_epoch") > epoch)
        t.join(30)
        assert not t.is_alive()
        assert s.error and s.error["code"] == "executor_failed", s.error
        a.wait_ready()
        assert len(a.complete([17] * 20, 5)) == 5
        assert a.total("tandem_refusals_total", 'reason="executor_failed"') == 1


def the_board_is_told_and_forgotten():
    """What a (fake) driver tells is in /metrics and the console; without one, nothing is claimed."""
    with tempfile.TemporaryDirectory() as folder:
        for has_driver in (False, True):
            if has_driver:
                shutil.copy2(ARGS.fake_nvml, os.path.join(folder, "libfake_nvml.so"))
            with Appliance(faulty_bin(folder), settings()) as a:
                a.complete([17] * 8, 4)
                power_max = 'tandem_gpu_power_watts{mode="instant_max"}'
                if has_driver:
                    a.until(lambda: power_max in a.metrics())
                else:
                    time.sleep(1)
                told = {k: v for k, v in a.metrics().items() if k.startswith("tandem_gpu_")}
                power = json.loads(a.ctl("show", "power", "--json").stdout)["power"]
                if not has_driver:
                    assert not told, told
                    assert all(v is None for v in power.values()), power
                    continue
                assert told[power_max] == 650, told
                assert told["tandem_gpu_tensor_active_ratio"] == 0.33, told
                assert told["tandem_gpu_lost"] == 0 and "tandem_gpu_xid_last" not in told, told
                assert power["limit_w"] == 700 and power["held_by_power_s"] == 0, power
                board = a.ctl("show", "gpu").stdout
                assert "0.4225" in board, board
                os.kill(a.executor_pid(), signal.SIGSTOP)  # nobody looks any more
                a.until(lambda: not a.total("tandem_gpu_power_limit_watts"))
                os.kill(a.executor_pid(), signal.SIGCONT)
                a.until(lambda: a.total("tandem_gpu_power_limit_watts") == 700)


def main():
    global ARGS
    p = argparse.ArgumentParser()
    p.add_argument("bin")
    p.add_argument("fact")
    for name, default in (("kills", 3), ("traps", 2), ("hangs", 1), ("streams", 4), ("tokens", 400),
                          ("prompt", 80), ("checked", 20), ("seed", 1)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--ties", type=float, default=0.0)
    p.add_argument("--apart", type=float, default=0.0)
    p.add_argument("--set", action="append", default=[])
    p.add_argument("--fake-nvml", default="")
    ARGS = p.parse_args()
    if os.geteuid() != 0:
        print("no root here")
        sys.exit(77)
    globals()[ARGS.fact]()


if __name__ == "__main__":
    main()
