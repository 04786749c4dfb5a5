#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The web console in a headless Chromium, under load.  usage: console.py BIN_DIR [FOLDER]

Driven over the browser's own debugging pipe.  Held to: twelve panels in their order at 1280 and
390 pixels, no error in the console, no request to another host, live update, reconnect, a hostile
model name that stays text, use by keyboard and by screen reader, read-only without a key, drain and a
configuration with a reason.
With FOLDER pictures of the page and of each panel are kept there; where BIN_DIR holds programs that
play a recorded run (gpu/recorded.py prepare), they show that.  Exit 77 where Chromium is not installed."""
import base64
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PATIENCE, Appliance  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
URL = "http://127.0.0.1:8080"
HOSTILE = "<img src=x onerror=alert(1)>\"'&amp;"
KEY = "the admin key of this test"


class Browser:
    """Chromium over --remote-debugging-pipe: JSON messages that end with a NUL."""

    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="tandem-browser-")
        to_r, self.to = os.pipe()
        self.back, back_w = os.pipe()

        def fds():
            os.dup2(to_r, 13)
            os.dup2(back_w, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)
        self.process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--no-proxy-server",
             "--disable-dev-shm-usage", "--remote-debugging-pipe", "--user-data-dir=" + self.dir.name],
            preexec_fn=fds, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_r)
        os.close(back_w)
        self.buffer, self.id, self.session = b"", 0, None
        self.errors, self.urls, self.plays = [], [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(domain + ".enable")
        return self

    def __exit__(self, *_):
        self.session = None
        try:
            self.call("Browser.close")
            self.process.wait(PATIENCE)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.dir.cleanup()

    def event(self, m):
        p = m.get("params", {})
        if m["method"] == "Runtime.exceptionThrown":
            self.errors.append(p["exceptionDetails"].get("exception", {}).get("description", str(p)))
        elif m["method"] == "Runtime.consoleAPICalled" and p["type"] in ("error", "assert"):
            self.errors.append(str(p["args"]))
        elif m["method"] == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.errors.append(p["entry"]["text"] + " " + p["entry"].get("url", ""))
        elif m["method"] == "Network.requestWillBeSent":
            self.urls.append(p["request"]["url"])

    def message(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            assert left > 0, "the browser does not answer"
            if select.select([self.back], [], [], left)[0]:
                data = os.read(self.back, 1 << 20)
                assert data, "the browser is gone"
                self.buffer += data
        raw, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(raw)

    def call(self, method, **params):
        self.id += 1
        m = {"id": self.id, "method": method, "params": params}
        if self.session:
            m["sessionId"] = self.session
        os.write(self.to, json.dumps(m).encode() + b"\0")
        while True:
            reply = self.message(PATIENCE)
            if reply.get("id") == self.id:
                assert "error" not in reply, (method, reply)
                return reply["result"]
            if "method" in reply:
                self.event(reply)

    def js(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in r, (expression, r)
        return r["result"].get("value")

    def until(self, expression, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while not self.js(expression):
            assert time.monotonic() < end, (expression, self.js("document.body.innerText")[:3000])
            time.sleep(0.2)

    def size(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 500)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, folder, name, box=None):
        """Of the whole page, or of a box [x, y, width, height] of it."""
        if not folder:
            return
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        x, y, width, height = box or (0, 0, size["width"], size["height"])
        data = self.call("Page.captureScreenshot", format="webp", quality=70, captureBeyondViewport=True,
                         clip={"x": x, "y": y, "width": width, "height": height, "scale": 1})
        with open(os.path.join(folder, name + ".webp"), "wb") as f:
            f.write(base64.b64decode(data["data"]))

    def panels(self, folder, suffix):
        """A picture of each panel, and none of them empty."""
        boxes = self.js("[...document.querySelectorAll('main section')].map(s => { const r = "
                        "s.getBoundingClientRect(); return [r.x + scrollX, r.y + scrollY, r.width, r.height]; })")
        assert len(boxes) == 12 and all(w > 200 and h > 100 for _, _, w, h in boxes), boxes
        for i, box in enumerate(boxes):
            self.picture(folder, f"panel-{i + 1:02}-{suffix}", box)


def load(a, model, over):
    def run(i):
        k = 0
        while not over.is_set():
            body = {"model": model, "prompt": f"{i} {k} " + "load " * (20 + 11 * i), "max_tokens": 20 + 9 * i,
                    "stream": True, "ignore_eos": True, "priority": i % 3}
            try:
                c = a.connect()
                c.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
                c.getresponse().read()
                c.close()
            except OSError:
                pass
            time.sleep(0.02)
            k += 1
    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(6)]
    for t in threads:
        t.start()
    return threads


def queries_name_our_metrics():
    """Every metric that a panel's PromQL names is born in metrics.def."""
    with open(os.path.join(ROOT, "telemetry/block/metrics.def"), encoding="utf-8") as f:
        born = set(re.findall(r"^TDM_(?:COUNTER|GAUGE|HISTOGRAM|INFO)\((\w+)", f.read(), re.M))
    with open(os.path.join(ROOT, "appliance/web/console.js"), encoding="utf-8") as f:
        named = set(re.findall(r"\btandem_(\w+)", f.read()))
    assert len(named) > 15, named
    for name in named:
        assert name in born or re.sub(r"_(bucket|sum|count)$", "", name) in born, name


def layout(b, width, height, dark):
    b.size(width, height, dark)
    time.sleep(1.2)
    assert b.js("document.scrollingElement.scrollWidth") <= width, b.js(
        "[...document.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
        ".map(e => e.tagName + '.' + e.className).join()")
    # nothing lies outside its panel
    assert b.js("[...document.querySelectorAll('main section')].every(s => "
                "s.getBoundingClientRect().right <= innerWidth + 1)")


def keyboard_and_reader(b):
    """Without a mouse: Tab reaches every control in order, the first skips to the panels; and a screen
    reader hears a name for each control, picture and panel."""
    def key(name, code):
        for kind in ("rawKeyDown", "keyUp"):
            b.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)
    b.js("document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')")
    seen = []
    for _ in range(60):
        key("Tab", 9)
        here = b.js("(e => e === document.body ? '' : e.tagName + ' ' + (e.id || e.textContent.trim().slice(0, 20)))"
                    "(document.activeElement)")
        if here in seen[:1] or (not here and seen):
            break
        seen.append(here)
        outline = b.js("(s => s.outlineStyle !== 'none' && s.outlineWidth !== '0px')"
                       "(getComputedStyle(document.activeElement))")
        assert outline, ("nothing shows where the focus is", here)
    assert seen[0] == "A to the panels", seen
    assert sum(s.startswith("SUMMARY") for s in seen) == 12, seen
    for control in ("BUTTON drain", "BUTTON undrain", "BUTTON confirm", "BUTTON roll back", "BUTTON apply",
                    "TEXTAREA candidate", "INPUT confirm-s", "INPUT key"):
        assert control in seen, (control, seen)
    b.call("Accessibility.enable")
    nodes = b.call("Accessibility.getFullAXTree")["nodes"]
    for n in nodes:
        role = n.get("role", {}).get("value")
        if role in ("button", "textbox", "spinbutton", "img", "image", "region", "link", "dialog") and not n.get("ignored"):
            assert n.get("name", {}).get("value"), n
    roles = [n.get("role", {}).get("value") for n in nodes]
    assert roles.count("region") >= 13 and "main" in roles and "status" in roles, sorted(set(roles))
    b.call("Accessibility.disable")


def drained(b, a):
    """The button is dead without a key, and asks for a reason with one."""
    assert b.js("[...document.querySelectorAll('button.change')].every(x => x.disabled)")
    assert "viewer" in b.js("document.getElementById('who').textContent")
    b.js(f"document.getElementById('key').value = {json.dumps(KEY)};"
         "document.getElementById('key-form').requestSubmit()")
    b.until("document.getElementById('who').textContent.includes('key ann, admin')")
    press = ("[...document.querySelectorAll('button.change')].find(x => x.textContent === {!r}).click()")
    b.js(press.format("drain"))
    b.until("document.getElementById('ask').open")
    assert "in flight" in b.js("document.getElementById('ask-effect').textContent")
    b.js("document.getElementById('ask-yes').click()")  # no reason: the form does not go
    assert b.js("document.getElementById('ask').open") and a.get("/ready")[0] == 200
    b.js("document.getElementById('ask-why').value = '<b>kernel</b>';"
         "document.getElementById('ask-yes').click()")
    a.until(lambda: a.get("/ready")[0] == 503)
    b.until("document.body.innerText.includes('drained by key ann: <b>kernel</b>')")
    assert not b.js("document.querySelector('main b')")
    b.js(press.format("undrain"))
    b.until("document.getElementById('ask').open")
    b.js("document.getElementById('ask-why').value = 'done'; document.getElementById('ask-yes').click()")
    a.until(lambda: a.get("/ready")[0] == 200)
    # a configuration that goes back by itself
    b.js("document.getElementById('candidate').value = '{\"sched\": {\"gap_ms\": 250}}';"
         "document.getElementById('confirm-s').value = 10;" + press.format("apply"))
    b.until("document.getElementById('ask').open")
    assert "sched.gap_ms: 500 -> 250" in b.js("document.getElementById('ask-diff').textContent")
    b.js("document.getElementById('ask-why').value = 'try'; document.getElementById('ask-yes').click()")
    b.until("document.body.innerText.includes('goes back to 0')")
    b.until("document.body.innerText.includes('not confirmed in time')")
    assert json.loads(a.get("/config")[1])["sched"]["gap_ms"] == 500


def played(b):
    """The page anew, with tell(event, ...data) in place of the appliance's stream, and a page that nobody looks
    at, which gets no frames, in that of one that somebody does while `hidden`."""
    if not b.plays:
        b.plays = b.call("Page.addScriptToEvaluateOnNewDocument", source=r"""(real => { window.fetch = (path, how) =>
        String(path).endsWith("/stream") ? Promise.resolve(new Response(new ReadableStream({ start(c) {
          window.tell = (event, ...data) => data.forEach(d => c.enqueue(new TextEncoder().encode(
            "event: " + event + "\ndata: " + JSON.stringify(d) + "\n\n"))); } }))) : real(path, how); })(window.fetch);
        (real => { window.hidden = false; window.asked = 0; window.requestAnimationFrame = f => { window.asked++;
          return window.hidden ? 0 : real.call(window, f); }; })(window.requestAnimationFrame)""")
    b.call("Page.navigate", url=URL + "/ui/")
    b.until("typeof tell === 'function'")


def tell(b, status, uptime):
    status["uptime_s"] = uptime
    b.js(f"tell('status', {json.dumps(status)})")
    b.until(f"document.getElementById('facts').textContent.includes(', up {uptime} s')")


def another_life(b, status):
    """A process that began anew counts from 0: what it kept is told by its own counts alone."""
    played(b)
    for uptime, met, missed, kept in ((100, 50, 50, "-"), (101, 60, 50, "100.00"), (2, 200, 0, "-"), (3, 201, 1, "50.00")):
        for row in status["slo"]:
            row["met"], row["missed"] = met, missed
        tell(b, status, uptime)
        told = b.js("document.querySelector('main table').rows[1].cells[1].textContent")
        assert told == kept, (uptime, told, kept)


# What each plot shows: how many pixels of a curve or a bar where it draws them (axes and words are grey), or
# else the words that can be read in its place.
PLOTS = """[...document.querySelectorAll('.plot')].map(p => {
  const c = p.querySelector('canvas'), chart = typeof Chart === 'function' && Chart.getChart(c);
  let ink = 0;
  if (c.getClientRects().length) {
    const a = chart ? chart.chartArea : { left: 0, top: 0, right: c.width, bottom: c.height };
    const d = c.getContext('2d').getImageData(a.left, a.top, a.right - a.left, a.bottom - a.top + 2).data;
    for (let i = 0; i < d.length; i += 4)
      if (d[i + 3] > 40 && Math.max(d[i], d[i + 1], d[i + 2]) - Math.min(d[i], d[i + 1], d[i + 2]) > 60) ink++;
  }
  return [c.getAttribute('aria-label'), ink, p.innerText.trim()];
})"""


def nothing_is_silently_empty(b, status):
    """A panel shows something or says why not: before any request, with one stream now and then, with a board
    that tells nothing, wide and narrow, light and dark, without Chart.js.  `status` is of an appliance that was
    asked nothing yet."""
    def plots(blank):
        found = b.js(PLOTS)
        assert len(found) == 14, found
        assert all((ink > 0) != bool(words) for _, ink, words in found), found
        assert {label for label, ink, _ in found if not ink} >= blank, found
        assert b.js("[...document.querySelectorAll('table')].every(t => t.tBodies[0].rows.length)")
        return {label: (ink, words) for label, ink, words in found}

    def silent_plots():
        return {label for label, ink, _ in b.js(PLOTS) if not ink}
    board = {"power of the board, watts", "SM clock, MHz", "the board: SM active, occupancy, tensor cores, DRAM bandwidth"}
    pictures = {"the newest iterations: height is time, letter is the path", "decode share of virtual CTAs over time"}
    counted = {"share of streams that kept all promises, by class", "share of hybrid iterations that were fused",
               "share of iteration time"}
    for width, dark in ((1280, True), (390, True), (1280, False)):
        b.size(width, 900, dark)
        played(b)
        b.js("tell('requests', []); tell('changes', {revision: 0, revisions: [{revision: 0, what: 'start', by: '', "
             "why: '', changes: []}]})")
        for uptime in (1, 2, 3):
            tell(b, status, uptime)
        idle = plots(board | pictures | counted)
        assert not [w for _, w in idle.values() if "waiting" in w], idle
    # one stream now and then: a point without a neighbour is seen, and no time is shown where none was measured
    some = json.loads(json.dumps(status))
    for step, uptime in enumerate((4, 5, 6)):
        if step == 1:
            some["time"]["iterations_s"], some["time"]["attention_s"] = 0.5, 0.2
            some["hybrid"]["fused"] = 1
        tell(b, some, uptime)
    plots(board | pictures)
    assert not silent_plots() & {"share of hybrid iterations that were fused", "share of iteration time"}, b.js(PLOTS)
    assert b.js("Chart.getChart(document.querySelector('[aria-label^=\"time to first token\"]')).data.datasets"
                ".filter(d => d.label !== 'promise').every(d => d.data.every(v => v === null))")


def what_is_drawn_follows_the_page(b, status):
    """Its size and its colours, also where nothing new is heard; and frames are asked for one at a time, as a
    page that nobody looks at gets none for hours."""
    row = {"ms": 5.0, "limit_ms": 8.0, "path": "fused", "late": 0, "lost": 0, "vcta": [6, 4]}
    b.size(1280, 900, False)
    played(b)
    for uptime in (1, 2):
        tell(b, status, uptime)
    b.js(f"tell('lane', {json.dumps([row] * 200)})")
    lane = "[aria-label^=\"the newest iterations\"]"
    colour = f"""(c => {{ const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, n = {{}};
      for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255) {{
        const k = '#' + [0, 1, 2].map(j => d[i + j].toString(16).padStart(2, '0')).join(''); n[k] = (n[k] || 0) + 1; }}
      return Object.keys(n).sort((x, y) => n[y] - n[x])[0]; }})(document.querySelector('{lane}'))"""
    wanted = "getComputedStyle(document.documentElement).getPropertyValue('--{}').trim()"
    for width, dark in ((1280, False), (1280, True), (390, True), (1280, False)):
        b.size(width, 900, dark)
        b.until(f"{colour} === {wanted.format('c')}", 5)
        b.until(f"(c => Math.abs(c.width - c.parentElement.clientWidth) <= 1)(document.querySelector('{lane}'))", 5)
        b.until("[...document.querySelectorAll('canvas')].map(c => Chart.getChart(c)).filter(c => c).every(c => "
                f"c.data.datasets[0].borderColor === {wanted.format('a')} && "
                f"c.options.scales.x.ticks.color === {wanted.format('dim')})", 5)
    b.js("hidden = true; asked = 0")
    for _ in range(50):
        b.js(f"tell('lane', {json.dumps([row])})")
    tell(b, status, 3)
    assert b.js("asked") <= 1, b.js("asked")


def curves_that_cannot_be_are_told(b, status):
    b.call("Network.setBlockedURLs", urls=["*chart.js"])
    played(b)
    tell(b, status, 1)
    tell(b, status, 2)
    found = b.js(PLOTS)
    assert sum("Chart.js is not there" in words for _, _, words in found) >= 5, found
    assert all(ink or words for _, ink, words in found), found
    b.call("Network.setBlockedURLs", urls=[])


def stale(b):
    """What was said before the silence is told as such: no finding of then is red, or green, as if it were of
    now, no rate stands there, and the panels are marked."""
    b.until("document.getElementById('state').textContent === 'no answer'")
    told = b.js("document.getElementById('verdict').innerText")
    assert re.match(r"no answer since \d\d:\d\d:\d\d: what stands below was said before", told), told
    assert "nothing is wrong" not in told.replace("then: nothing is wrong", ""), told
    assert b.js("[...document.querySelectorAll('#verdict .good, #verdict .warning, #verdict .critical')].length") == 1
    facts = b.js("document.getElementById('facts').textContent")
    assert facts.startswith("then: ") and "tokens a second" not in facts, facts
    assert b.js("getComputedStyle(document.getElementById('panels')).filter") != "none"


def live_again(b):
    b.until("document.getElementById('link').textContent === 'live'")
    b.until("document.getElementById('state').textContent === 'ready'")
    assert "since" not in b.js("document.getElementById('verdict').innerText")
    assert b.js("getComputedStyle(document.getElementById('panels')).filter") == "none"


def main():
    if not shutil.which("chromium"):
        return 77
    folder = sys.argv[2] if len(sys.argv) > 2 else None
    queries_name_our_metrics()
    over = threading.Event()
    with tempfile.TemporaryDirectory() as state:
        keys = os.path.join(state, "keys")
        with open(keys, "w", encoding="ascii") as f:
            f.write(f"ann {hashlib.sha256(KEY.encode()).hexdigest()}\n")
        settings = {"port.kind": "none", "exec.sms": 2, "model.name": HOSTILE,
                    "control.admin_keys_file": keys}
        with Browser() as b:
            with Appliance(sys.argv[1], settings) as a:
                threads = load(a, HOSTILE, over)
                status, _, headers = a.get("/ui")
                assert status == 308 and headers["location"] == "/ui/"
                status, _, headers = a.get("/ui/")
                assert status == 200 and "default-src 'none'" in headers["content-security-policy"]
                assert a.get("/ui/nothing")[0] == 404
                b.size(1280, 900)
                b.call("Page.navigate", url=URL + "/ui/")
                b.until("document.getElementById('link') && "
                        "document.getElementById('link').textContent === 'live'")
                b.until("document.getElementById('state').textContent === 'ready'")
                titles = b.js("[...document.querySelectorAll('main h2')].map(h => h.textContent)")
                assert len(titles) == 12 and all(t.startswith(f"{i + 1} ") for i, t in enumerate(titles)), titles
                assert b.js("[...document.querySelectorAll('main section')].every(s => "
                            "s.querySelector('details code').textContent.includes('tandem_'))")
                assert b.js("document.getElementById('model').textContent") == HOSTILE
                assert not b.js("document.querySelector('img, main script, iframe')")
                first = b.js("document.getElementById('facts').textContent")
                b.until(f"document.getElementById('facts').textContent !== {json.dumps(first)}")
                b.until("document.querySelectorAll('.fall span').length > 0")
                assert b.js("typeof Chart === 'function'"), "libjs-chart.js is not there"
                # the curves and the lane are no empty canvases
                b.until("[...document.querySelectorAll('canvas')].filter(c => { const d = "
                            "c.getContext('2d').getImageData(0, 0, c.width, c.height).data; "
                            "return d.some(v => v); }).length >= 9")
                layout(b, 1280, 900, False)
                b.picture(folder, "console-1280-light")
                b.panels(folder, "light")
                layout(b, 1280, 900, True)
                b.picture(folder, "console-1280-dark")
                b.panels(folder, "dark")
                layout(b, 390, 844, False)
                b.picture(folder, "console-390")
                b.size(1280, 900)
                drained(b, a)
                keyboard_and_reader(b)
                assert not b.errors, b.errors
                over.set()
                for t in threads:
                    t.join()
                a.process.send_signal(signal.SIGSTOP)  # the stream stays open and says nothing
                stale(b)
                a.process.send_signal(signal.SIGCONT)
                live_again(b)
            stale(b)
            b.errors.clear()  # the browser logs each refused connection
            with Appliance(sys.argv[1], settings) as a:
                live_again(b)
                fresh = json.loads(a.get("/status")[1])
                nothing_is_silently_empty(b, fresh)
                what_is_drawn_follows_the_page(b, fresh)
                curves_that_cannot_be_are_told(b, fresh)
                another_life(b, fresh)
            errors = [e for e in b.errors if "ERR_CONNECTION_REFUSED" not in e and "ERR_INCOMPLETE" not in e
                      and "503" not in e and "BLOCKED_BY_CLIENT" not in e and "chart.js" not in e]
            assert not errors, errors
            away = [u for u in b.urls if not u.startswith((URL + "/", "data:", "about:"))]
            assert not away and len(b.urls) > 6, away
    return 0


if __name__ == "__main__":
    sys.exit(main())
