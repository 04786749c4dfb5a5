#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What watching costs iterations.  usage: unshare --net -- watched.py BIN_DIR [PAIRS] [--ledger]

Four streams decode all the time.  Spans of a quarter of a second alternate: nobody looks; /metrics
is scraped ten times a second; the web console's stream is open and scraped beside it.  Compared are
the medians of the decode-only iterations of each span, as the flight recorder has them, with the
mean of the quiet spans before and after it: contexts grow meanwhile, and the machine has other work.
Prints the median difference and the middle half of them."""
import json
import os
import statistics
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../../e2e")]
import ledger  # noqa: E402
from appliance import Appliance  # noqa: E402

IS_KEPT = "--ledger" in sys.argv
PAIRS = int(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] != "--ledger" else 40
REGIME = ("dummy:tiny, one SM thread, four streams decode, no data port; quiet machine; ", {
    "scraped": "/metrics of both sets 10 times a second",
    "console": "the web console's stream open and scraped beside it"})


def median_ms(a, seen):
    page = json.loads(a.get(f"/api/v1/iterations?from={seen[0]}")[1])
    seen[0] = page["next"]
    took = [r["ms"] for r in page["iterations"] if r["path"] == "decode_only" and r["decode"] == 4]
    return statistics.median(took) if len(took) > 20 else None


def main():
    over = threading.Event()
    with Appliance(sys.argv[1], {"port.kind": "none", "exec.sms": 1, "sched.prefix_cache": 0}) as a:
        def stream(i):
            while not over.is_set():
                c, r = a.stream("a b c " + str(i), 3500)
                r.read()
                c.close()
        threads = [threading.Thread(target=stream, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        time.sleep(1)
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
            for _ in range(PAIRS):
                watched, after = span(how), span("quiet")
                if before and watched and after:
                    quiet.append(after)
                    diff.append(watched - (before + after) / 2)
                before = after
            low, middle, high = statistics.quantiles(diff, n=4)
            if IS_KEPT:
                ledger.put([ledger.line(
                    f"telemetry.{how}.iteration_us", round(1e3 * middle, 1), "us", "none to be seen",
                    REGIME[0] + REGIME[1][how],
                    f"unshare --net -- tests/perf/telemetry/watched.py BIN {PAIRS} --ledger",
                    "difference of medians of decode-only iterations against the quiet spans around; middle half "
                    f"[{1e3 * low:+.1f}, {1e3 * high:+.1f}] of {len(diff)} spans on a median of "
                    f"{1e3 * statistics.median(quiet):.0f} us")])
            print(f"{how}: {1e3 * middle:+.1f} us [{1e3 * low:+.1f}, {1e3 * high:+.1f}] on "
                  f"{1e3 * statistics.median(quiet):.1f} us, {len(diff)} pairs")
        over.set()
        for t in threads:
            t.join()


if __name__ == "__main__":
    main()
