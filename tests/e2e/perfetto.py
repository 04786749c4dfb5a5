#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tandemctl trace` opened in the Perfetto UI.  usage: perfetto.py BIN_DIR UI [FOLDER]

UI is the folder of the UI's files, which tests/e2e/perfetto installs; they are served from here, and
the browser is Chromium.  Perfetto's own trace processor must take every event without an error and
count what the file says; a fused iteration is then selected.  With FOLDER a picture is kept there."""
import base64
import collections
import functools
import glob
import http.server
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import Appliance  # noqa: E402
from console import Browser  # noqa: E402
from explained import NO_PORT, storm, traced  # noqa: E402

PORT = 9001
ROWS = """(async () => { const r = await app.trace.engine.query(%s), rows = [];
  for (const it = r.iter({}); it.valid(); it.next()) rows.push(r.columns().map((c) => String(it.get(c))));
  return rows; })()"""


class Files(http.server.SimpleHTTPRequestHandler):
    """The UI's files, and the trace."""
    trace = b""

    def do_GET(self):
        if self.path != "/trace.json":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(self.trace)))
        self.end_headers()
        self.wfile.write(self.trace)

    def log_message(self, *_):
        pass


def main():
    bin_dir, ui = sys.argv[1:3]
    folder = sys.argv[3] if len(sys.argv) > 3 else ""
    with Appliance(bin_dir, NO_PORT) as a:
        storm(a)
        text, _ = traced(a)
    Files.trace = text.encode()
    slices = collections.Counter(e["name"] for e in json.loads(text)["traceEvents"] if e["ph"] in "Xb")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), functools.partial(Files, directory=ui))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with Browser() as b:
        b.size(1600, 1200)
        b.call("Page.navigate", url=f"http://127.0.0.1:{PORT}/#!/?url=http://127.0.0.1:{PORT}/trace.json")
        b.until("window.app && app.trace && app.trace.engine && document.body.innerText.includes('tandemd')", 60)

        def rows(sql):
            return b.js(ROWS % json.dumps(sql))
        wrong = rows("select name, value from stats where severity = 'error' and value > 0")
        assert wrong == [], wrong
        seen = {name: int(n) for name, n in rows("select name, count(*) from slice group by name")}
        assert seen == slices, (seen, slices)
        threads = {r[0] for r in rows("select name from thread where name is not null")}
        assert "iterations" in threads, threads
        assert int(rows("select count(*) from counter")[0][0]) == 4 * sum(
            e["ph"] == "X" for e in json.loads(text)["traceEvents"])
        one = rows("select id from slice where name = 'fused' order by ts limit 1 offset 5")[0][0]
        b.js("app.commands.runCommand('dev.perfetto.ExpandAllGroups');"
             f"app.trace.selection.selectSqlEvent('slice', {one}, {{scrollToSelection: true}})")
        time.sleep(2)
        b.js("app.commands.runCommand('dev.perfetto.ZoomOnSelection')")
        b.until("document.body.innerText.includes('prefill_ended_by')")
        time.sleep(2)
        if folder:
            data = b.call("Page.captureScreenshot", format="webp", quality=80)["data"]
            with open(os.path.join(folder, "perfetto.webp"), "wb") as f:
                f.write(base64.b64decode(data))
    server.shutdown()
    print("Perfetto", os.path.basename(glob.glob(ui + "/v*")[0]), "took", dict(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main() if os.geteuid() == 0 else 77)
