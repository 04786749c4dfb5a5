#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a scrape costs an idle appliance.  usage: unshare --net -- scrape.py BIN_DIR [COUNT]

CPU time of tandemd for COUNT scrapes of each set over HTTP/1.1, less what it uses when nobody asks,
by its own process_cpu_seconds_total; and the bytes of one."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../e2e"))
from appliance import Appliance  # noqa: E402

COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 400


def main():
    with Appliance(sys.argv[1], {"port.kind": "none"}) as a:
        def cpu():
            return a.total("process_cpu_seconds_total")
        time.sleep(1)
        before = cpu()
        time.sleep(2)
        idle = (cpu() - before) / 2
        for name in ("native", "all"):
            c = a.connect(10)
            before, start, size = cpu(), time.monotonic(), 0
            for _ in range(COUNT):
                c.request("GET", "/metrics?set=" + name)
                size = len(c.getresponse().read())
            used = cpu() - before - idle * (time.monotonic() - start)
            print(f"{name}: {used / COUNT * 1e3:.3f} ms CPU, {size} bytes")


if __name__ == "__main__":
    main()
