#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""End-to-end facts about tandemd as a service.  usage: service.py BIN_DIR FACT

A datagram socket plays the service manager; exit 77 where root lacks."""
import os
import signal
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import Appliance  # noqa: E402

BIN = ""


class Manager:
    """What systemd hears of a service: hear() gives {name: value} of the next message."""

    def __init__(self, watchdog_us):
        self.dir = tempfile.TemporaryDirectory(prefix="tandem-manager-")
        path = os.path.join(self.dir.name, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        os.environ["NOTIFY_SOCKET"] = path
        os.environ["WATCHDOG_USEC"] = str(watchdog_us)
        self.beats = []

    def hear(self, key, seconds=30):
        """The next message that has the key; heartbeats on the way are noted."""
        end = time.monotonic() + seconds
        while True:
            self.socket.settimeout(max(0.001, end - time.monotonic()))
            message = dict(line.split("=", 1) for line in
                           self.socket.recv(4096).decode().splitlines())
            if message.get("WATCHDOG") == "1":
                self.beats.append(time.monotonic())
            if key in message:
                return message


def a_service_manager_is_told():
    """READY after /ready, a heartbeat, RELOADING and READY at SIGHUP, STOPPING; the executor's
    death is a status and no end, and its child has no way to speak in our name."""
    manager = Manager(800_000)
    try:
        with Appliance(BIN, {"port.kind": "none", "exec.huge_plans": 0}, ready=False) as a:
            manager.hear("READY")
            assert a.get("/ready")[0] == 200
            with open(f"/proc/{a.executor_pid()}/environ", "rb") as f:
                assert b"NOTIFY_SOCKET" not in f.read()
            manager.hear("WATCHDOG")
            manager.beats.clear()
            for _ in range(5):
                manager.hear("WATCHDOG", 5)
            gaps = [b - a for a, b in zip(manager.beats, manager.beats[1:])]
            assert all(gap < 0.8 for gap in gaps), gaps  # else the manager would have killed it
            assert a.total("tandem_watchdog_withheld_total") == 0
            a.process.send_signal(signal.SIGHUP)
            told = manager.hear("RELOADING")
            now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            assert 0 <= now_us - int(told["MONOTONIC_USEC"]) < 10_000_000, told
            assert manager.hear("READY")["STATUS"] == "reloaded"
            os.kill(a.executor_pid(), signal.SIGKILL)
            assert "executor is down" in manager.hear("STATUS")["STATUS"]
            assert "life 2" in manager.hear("READY")["STATUS"]
            a.process.send_signal(signal.SIGTERM)
            told = manager.hear("STOPPING")
            assert int(told["EXTEND_TIMEOUT_USEC"]) > 10_000_000, told  # sched.drain_ms at least
            assert a.process.wait(20) == 0
    finally:
        manager.socket.close()
        manager.dir.cleanup()


def main():
    global BIN
    if os.geteuid() != 0:
        print("needs root")
        return 77
    BIN, fact = sys.argv[1], sys.argv[2]
    globals()[fact]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
