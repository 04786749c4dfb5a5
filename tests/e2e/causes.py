#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What somebody hears who asks at night what is wrong: the cause, in words, within seconds.
usage: causes.py BIN_DIR FACT

Each function below is one fact and one CTest entry, in the network namespace that the caller made."""
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PATIENCE, Appliance, Crowd, run_fact  # noqa: E402

BIN = ""
NO_PORT = {"port.kind": "none"}


def said(a, words, seconds=PATIENCE):
    """How soon `show status` has a line with these words, and the line."""
    begin = time.monotonic()
    while True:
        text = a.ctl("show", "status", check=False).stdout
        for line in text.splitlines():
            if all(w in line for w in words) and "notice" not in line:
                return time.monotonic() - begin, line
        assert time.monotonic() < begin + seconds, text[:2000]
        time.sleep(0.2)


PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000


@contextlib.contextmanager
def held(a, name):
    """A thread of the appliance stands still; the others go on."""
    tasks = f"/proc/{a.process.pid}/task"
    tid = next(int(t) for t in os.listdir(tasks) if open(f"{tasks}/{t}/comm", encoding="ascii").read().strip() == name)
    libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(request):
        done = libc.ptrace(ctypes.c_long(request), ctypes.c_int(tid), None, None)
        assert done == 0, os.strerror(ctypes.get_errno())
    ptrace(PTRACE_SEIZE)
    ptrace(PTRACE_INTERRUPT)
    os.waitpid(tid, WALL)
    try:
        yield
    finally:
        ptrace(PTRACE_DETACH)


def planted_causes_are_named():
    """One slow tile, a ring too small, a fallback storm: show status says so, and how soon."""
    def storm(a, n, words):
        return Crowd(a, n, lambda a, i, k: a.stream(f"{i} {k} " + "storm " * words, 8 + i % 16))

    with Appliance(BIN, {**NO_PORT, "sched.route": "serial"}) as a, storm(a, 8, 60):
        told = said(a, ["warning", "hybrid iterations were not fused", "operator"])
        print("fallback storm: %.2f s: %s" % told)
    with Appliance(BIN, {**NO_PORT, "sched.ring": 16}) as a, contextlib.ExitStack() as crowd:
        with held(a, "sched"):  # its reader comes late to a ring that holds few
            crowd.enter_context(storm(a, 40, 1))
            told = said(a, ["warning", "ring request was full"])
        print("ring too small: %.2f s: %s" % told)
    with Appliance(BIN, {**NO_PORT, "door.body_bytes": 16 << 20, "api.json_mib": 1024}) as a:
        # an api tile that reads a prompt of 8 MiB in one turn
        body = {"model": a.model(), "prompt": "word " * (8 << 18)}
        thread = threading.Thread(target=lambda: a.post("/v1/completions", body))
        thread.start()
        told = said(a, ["warning", "tile api is slow: one turn took"])
        print("slow tile: %.2f s: %s" % told)
        thread.join()


def who_asks_second_hears_the_same():
    """A fault is told for seconds, however often and by however many it is asked for."""
    with Appliance(BIN, NO_PORT) as a:
        c, r = a.stream("go on", 400)
        r.readline()
        os.kill(a.executor_pid(), signal.SIGKILL)
        print("killed executor: %.2f s: %s" % said(a, ["warning", "1 times executor_exit"]))
        for _ in range(8):
            time.sleep(0.25)
            text = a.ctl("show", "status", check=False).stdout
            assert "1 times executor_exit" in text, text[:500]
        assert r.read().endswith(b"data: [DONE]\n\n")
        c.close()


def a_standstill_is_told_before_the_watchdog_acts():
    with Appliance(BIN, NO_PORT) as a:
        c, r = a.stream("go on", 2000)
        r.readline()
        pid = a.executor_pid()
        os.kill(pid, signal.SIGSTOP)
        print("stopped executor: %.2f s: %s" % said(a, ["critical", "nothing has moved for"]))
        os.kill(pid, signal.SIGCONT)
        a.until(lambda: "nothing has moved" not in a.ctl("show", "status", check=False).stdout)
        assert a.total("tandem_stalled_seconds") < 3
        c.close()


def requests_that_wait_for_pages_are_told():
    """What runs has pages promised for all of its output, long before it uses them."""
    with Appliance(BIN, {**NO_PORT, "exec.kv_pages": 64}) as a:
        streams = [a.stream(f"{i} go on", 3000) for i in range(3)]  # 47 pages each
        print("promised pages: %.2f s: %s" % said(a, ["warning", "KV pages are", "requests wait for some"]))
        for c, _ in streams:
            c.close()


def late_tokens_are_told_with_where_the_time_went():
    settings = {**NO_PORT, "sched.ttft_ms": 1, "sched.gap_ms": 1}
    with Appliance(BIN, settings) as a, Crowd(a, 4, lambda a, i, k: a.stream(f"{i} {k} " + "w " * 60, 8)):
        print("late: %.2f s: %s" % said(a, ["critical", "the promised ttft of 1 ms", "ms of queue", "ms of prefill"]))
        print("late: %.2f s: %s" % said(a, ["critical", "the promised tpot of 1 ms", "an iteration takes"]))


def a_pulled_cable_is_told():
    with Appliance(BIN) as a:
        assert "carrier" not in a.ctl("show", "status").stdout
        for state, is_told in (("down", True), ("up", False), ("down", True)):
            subprocess.run(["ip", "link", "set", "tandem0", state], check=True)
            begin = time.monotonic()
            a.until(lambda: ("the data port has no carrier" in a.ctl("show", "status", check=False).stdout) is is_told)
            print(f"link {state}: {time.monotonic() - begin:.2f} s")
        assert a.ctl("show", "health", check=False).returncode == 3


if __name__ == "__main__":
    sys.exit(run_fact(globals(), needs_tun=sys.argv[2] == "a_pulled_cable_is_told"))
