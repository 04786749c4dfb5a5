#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tandemctl top in a terminal of ours, under load.  usage: top.py BIN_DIR [FOLDER]

It runs in a pseudo terminal that pyte reads as a screen would: at 80x24 and 160x48, resized under
way, without colours, with every key.  With FOLDER the screens are kept there as SVG (BIN_DIR as in console.py).  Exit 77
where pyte (python3-pyte) is not installed."""
import fcntl
import html
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.append("/usr/lib/python3/dist-packages")
from appliance import PATIENCE, Appliance  # noqa: E402

try:
    import pyte
except ImportError:
    sys.exit(77)

COLOUR = {"default": "#d8dee9", "green": "#7fd17f", "red": "#ff7b7b", "brown": "#e8c46a",
          "blue": "#7aa9ff", "cyan": "#5fd3d3"}


class Terminal:
    def __init__(self, a, cols, rows, env=None):
        self.screen = pyte.Screen(cols, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.master, slave = pty.openpty()
        self.size(cols, rows)
        self.process = subprocess.Popen(
            [os.path.join(a.bin, "tandemctl"), "top"], stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            # of xterm's sequences pyte lacks two that curses uses: repeat a letter, scroll by lines
            env={**os.environ, "TERM": "linux", "TANDEM_SOCKET": a.settings["control.socket"],
                 **(env or {})})
        os.close(slave)

    def size(self, cols, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def resize(self, cols, rows):
        self.screen.resize(rows, cols)
        self.screen.erase_in_display(2)
        self.size(cols, rows)

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.master], [], [], left)[0]:
                try:
                    self.stream.feed(os.read(self.master, 65536))
                except OSError:
                    return

    def text(self):
        return "\n".join(self.screen.display)

    def until(self, word, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while word not in self.text():
            assert time.monotonic() < end, f"no {word!r} in\n{self.text()}"
            self.read(0.2)

    def press(self, key):
        os.write(self.master, key.encode())

    def end(self):
        self.press("q")
        self.read(1)
        assert self.process.wait(PATIENCE) == 0
        os.close(self.master)

    def svg(self):
        w, h = self.screen.columns, self.screen.lines
        out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{w * 8 + 16}" height="{h * 16 + 16}" '
               f'viewBox="0 0 {w * 8 + 16} {h * 16 + 16}">',
               "<!-- SPDX-License-Identifier: Apache-2.0 -->",
               f'<title>tandemctl top at {w}x{h}</title>',
               '<rect width="100%" height="100%" fill="#15191e"/>',
               '<g font-family="monospace" font-size="13">']
        for y in range(h):
            x = 0
            while x < w:
                cell = self.screen.buffer[y][x]
                run = x
                while run < w and (c := self.screen.buffer[y][run]) and \
                        (c.fg, c.bold) == (cell.fg, cell.bold):
                    run += 1
                text = "".join(self.screen.buffer[y][i].data for i in range(x, run))
                while text.endswith("  "):
                    text = text[:-1]
                if text.strip():
                    bold = ' font-weight="bold"' if cell.bold else ""
                    out.append(f'<text x="{8 + x * 8}" y="{y * 16 + 20}" textLength="{len(text) * 8}" '
                               f'fill="{COLOUR.get(cell.fg, COLOUR["default"])}"{bold}>'
                               f'{html.escape(text).replace(" ", chr(160))}</text>')
                x = run
        return "\n".join(out + ["</g></svg>", ""])


def keep(folder, name, terminal):
    if folder:
        with open(os.path.join(folder, name + ".svg"), "w", encoding="utf-8") as f:
            f.write(terminal.svg())


def load(a, over):
    def run(i):
        k = 0
        while not over.is_set():
            c, r = a.stream(f"{i} {k} " + "load " * (20 + 11 * i), 30 + 9 * i, priority=i % 3)
            r.read()
            c.close()
            k += 1
    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(8)]
    for t in threads:
        t.start()
    return threads


def looks_whole(t, folder):
    """Everything has its place at 80x24."""
    t.until("interactive")
    t.read(3)
    for word in ("tandem", "ready", "first<", "gap<", "F fused", "virtual CTA", "tiles", "rings",
                 "device", "1 all", "kv ["):
        t.until(word)
    lane = [line[8:] for line in t.screen.display if line[:8].strip() in ("", "0 ms")]
    assert any("F" in line or "d" in line for line in lane), t.text()
    colours = {t.screen.buffer[y][x].fg for y in range(24) for x in range(80)}
    assert "green" in colours, colours
    keep(folder, "top-80x24", t)


def pages_turn(t):
    """The keys of the last line do what it says."""
    t.press("4")
    t.until("times full")
    t.press("5")
    t.until("slowest")
    t.until("length")
    t.press("6")
    t.until("no event yet")
    t.press("?")
    t.until("stops the picture")
    t.press("1")
    t.press("p")
    t.until("PAUSED")
    t.press("p")


def drains_and_comes_back(a, t, over, threads):
    """d asks first, drains, and takes it back; what ran ends whole."""
    t.press("d")
    t.until("drain: refuse what is new;")
    t.press("n")
    assert a.get("/ready")[0] == 200
    t.press("d")
    t.until("drain: refuse what is new;")
    t.press("y")
    a.until(lambda: a.get("/ready")[0] == 503)
    t.until("drained by uid 0: tandemctl top")
    t.until("draining")
    over.set()  # what is new hears 503 now
    for thread in threads:
        thread.join()
    t.press("d")
    t.until("take requests again?")
    t.press("y")
    a.until(lambda: a.get("/ready")[0] == 200)


def follows_its_size(t, folder):
    """Resized under way: nothing outside, everything there again."""
    for cols, rows in ((160, 48), (40, 10), (20, 5), (80, 24), (160, 48)):
        t.resize(cols, rows)
        t.read(1.5)
        assert t.process.poll() is None, (cols, rows)
        t.until("tandem")
    t.until("1 all")
    t.read(3)
    keep(folder, "top-160x48", t)


def speaks_without_colours(a):
    """NO_COLOR: the same is said.  Gives the terminal, which runs on."""
    t = Terminal(a, 80, 24, {"NO_COLOR": "1"})
    t.until("virtual CTA")
    t.read(1.5)
    assert {t.screen.buffer[y][x].fg for y in range(24) for x in range(80)} == {"default"}
    t.until("F fused")
    return t


def hangs(a, t):
    """One that hangs is told from one that answers, and keys are heard meanwhile."""
    a.process.send_signal(signal.SIGSTOP)
    t.until("no answer for ")
    begin = time.monotonic()
    t.press("2")
    t.until("other ")
    assert time.monotonic() - begin < 6, time.monotonic() - begin
    a.process.send_signal(signal.SIGCONT)
    t.until("nothing is wrong")
    t.press("1")


def gone(a, t):
    a.process.send_signal(signal.SIGTERM)
    a.process.wait(PATIENCE)
    t.until("no answer for ")
    t.until("what stands below is what it said last")
    assert "nothing is wrong" not in t.text() and "tok/s" not in t.text(), t.text()


def another_life(a, t):
    """Nothing of the one before stands in it."""
    a.start()
    t.until("ready")
    t.until("first<")
    t.read(2)
    assert "virtual CTA prefill [................] decode  0 : 0" in t.text(), t.text()
    lane = [line[8:] for line in t.screen.display if line[:8].strip() == "0 ms"]
    assert lane and not set(lane[0]) - {" "}, t.text()


def says_who_is_gone(a, t):
    """The appliance goes: it says so and waits; without a terminal it says that."""
    hangs(a, t)
    gone(a, t)
    another_life(a, t)
    gone(a, t)
    t.end()
    r = subprocess.run([os.path.join(a.bin, "tandemctl"), "top"], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, check=False)
    assert r.returncode == 1 and "needs a terminal" in r.stderr, r


def main():
    folder = sys.argv[2] if len(sys.argv) > 2 else None
    over = threading.Event()
    with Appliance(sys.argv[1], {"port.kind": "none", "exec.sms": 2}) as a:
        threads = load(a, over)
        time.sleep(3)
        t = Terminal(a, 80, 24)
        looks_whole(t, folder)
        pages_turn(t)
        drains_and_comes_back(a, t, over, threads)
        over.clear()
        threads = load(a, over)
        follows_its_size(t, folder)
        t.end()
        t = speaks_without_colours(a)
        over.set()
        for thread in threads:
            thread.join()
        says_who_is_gone(a, t)
    return 0


if __name__ == "__main__":
    sys.exit(main())
