#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What watching costs iterations.

usage: unshare --net -- watched.py BIN_DIR [PAIRS] [--ledger] [--streams N] [--json FILE]
                                   [--lives N] [--set key=value ...]

Streams decode all the time, four unless said.  Spans of a quarter of a second alternate: nobody
looks; /metrics is scraped ten times a second; the web console's stream is open and scraped beside
it.  Compared are the medians of the decode-only iterations of each span, as the flight recorder has
them, with the mean of the quiet spans before and after it: contexts grow meanwhile, and the machine
has other work.  Prints the median difference and the middle half of them; with --json also as parts
of an iteration (on a GPU host: tests/e2e/gpu/evidence).

--lives N, N even: instead appliances are started N times with the flight recorder, scraped once a
second, and N times without either, in the order on off off on; compared are the means of their
decode-only iterations over --seconds each, the medians of both kinds of life."""
import argparse
import json
import os
import statistics
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../../e2e")]
from appliance import Appliance  # noqa: E402

ARGS = None
REGIME = ("dummy:tiny, one SM thread, four streams decode, no data port; quiet machine; ", {
    "scraped": "/metrics of both sets 10 times a second",
    "console": "the web console's stream open and scraped beside it"})


def median_ms(a, seen):
    page = json.loads(a.get(f"/api/v1/iterations?from={seen[0]}")[1])
    seen[0] = page["next"]
    took = [r["ms"] for r in page["iterations"]
            if r["path"] == "decode_only" and r["decode"] == ARGS.streams]
    return statistics.median(took) if len(took) > 20 else None


def keep(how, middle, low, high, cnt, quiet):
    import ledger  # not beside this program on a GPU host
    ledger.put([ledger.line(
        f"telemetry.{how}.iteration_us", round(1e3 * middle, 1), "us", "none to be seen",
        REGIME[0] + REGIME[1][how],
        f"unshare --net -- tests/perf/telemetry/watched.py BIN {ARGS.pairs} --ledger",
        "difference of medians of decode-only iterations against the quiet spans around; middle half "
        f"[{1e3 * low:+.1f}, {1e3 * high:+.1f}] of {cnt} spans on a median of {1e3 * quiet:.0f} us")])


class Crowd:
    """Streams that decode all the time."""

    def __init__(self, a):
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.stream, args=(a, i))
                        for i in range(ARGS.streams)]
        for t in self.threads:
            t.start()
        time.sleep(1)

    def stream(self, a, i):
        while not self.over.is_set():
            c, r = a.stream("a b c " + str(i), 3500)
            while not self.over.is_set() and r.read(4096):
                pass
            c.close()

    def end(self):
        self.over.set()
        for t in self.threads:
            t.join()


def settings(**more):
    own = {"port.kind": "none", "exec.sms": 1, "sched.prefix_cache": 0, **more}
    own.update(dict(pair.split("=", 1) for pair in ARGS.set))
    return own


def life(is_on):
    """Mean microseconds of a decode-only iteration in a life of its own."""
    with Appliance(ARGS.bin, settings(**({} if is_on else {"flight.path": ""}))) as a:
        crowd, label = Crowd(a), 'path="decode_only"'
        def look():
            return [a.total("tandem_iteration_seconds_" + x, label) for x in ("sum", "count")]
        before, end = look(), time.monotonic() + ARGS.seconds
        while time.monotonic() < end:
            time.sleep(min(1, max(0, end - time.monotonic())))
            if is_on:
                a.get("/metrics?set=all")
        after = look()
        crowd.end()
        return 1e6 * (after[0] - before[0]) / (after[1] - before[1])


def lives(result):
    us = {0: [], 1: []}
    for i in range(2 * ARGS.lives):
        is_on = int(i % 4 in (0, 3))
        us[is_on].append(round(life(is_on), 2))
        print(f"life {i + 1} of {2 * ARGS.lives}, {'watched' if is_on else 'quiet'}: "
              f"{us[is_on][-1]} us", flush=True)  # a run that is cut has said what it had
    on, off = statistics.median(us[1]), statistics.median(us[0])
    result["lives"] = {"on_us": us[1], "off_us": us[0], "part": round(on / off - 1, 5)}
    print(f"recorded and scraped: {on - off:+.1f} us on {off:.1f} us, {ARGS.lives} lives each")


def main():
    result = {"streams": ARGS.streams}
    if ARGS.lives:
        lives(result)
    else:
        spans(result)
    if ARGS.json:
        with open(ARGS.json, "w", encoding="ascii") as f:
            json.dump(result, f, indent=1)


def spans(result):
    with Appliance(ARGS.bin, settings()) as a:
        crowd = Crowd(a)
        seen, c = [0], a.connect(10)

        def span(how):
            feed = None
            if how == "console":
                feed = a.connect(10)
                feed.request("GET", "/api/v1/stream")
                feed.getresponse()
            end = time.monotonic() + 0.25
            median_ms(a, seen)
            while time.monotonic() < end:
                if how != "quiet":
                    c.request("GET", "/metrics?set=all")
                    c.getresponse().read()
                time.sleep(0.1)
            ms = median_ms(a, seen)
            if feed:
                feed.close()
            return ms
        for how in ("scraped", "console"):
            diff, before = [], span("quiet")
            quiet = [before]
            for _ in range(ARGS.pairs):
                watched, after = span(how), span("quiet")
                if before and watched and after:
                    quiet.append(after)
                    diff.append(watched - (before + after) / 2)
                before = after
            low, middle, high = statistics.quantiles(diff, n=4)
            middle_quiet = statistics.median(quiet)
            if ARGS.ledger:
                keep(how, middle, low, high, len(diff), middle_quiet)
            result[how] = {"pairs": len(diff), "quiet_us": round(1e3 * middle_quiet, 2),
                           "part": round(middle / middle_quiet, 5),
                           "middle_half": [round(x / middle_quiet, 5) for x in (low, high)]}
            print(f"{how}: {1e3 * middle:+.1f} us [{1e3 * low:+.1f}, {1e3 * high:+.1f}] on "
                  f"{1e3 * middle_quiet:.1f} us, {len(diff)} pairs", flush=True)
        crowd.end()


if __name__ == "__main__":
    P = argparse.ArgumentParser()
    P.add_argument("bin")
    P.add_argument("pairs", nargs="?", type=int, default=40)
    P.add_argument("--ledger", action="store_true")
    P.add_argument("--streams", type=int, default=4)
    P.add_argument("--lives", type=int, default=0)
    P.add_argument("--seconds", type=float, default=4)
    P.add_argument("--json", default="")
    P.add_argument("--set", action="append", default=[])
    ARGS = P.parse_args()
    main()
