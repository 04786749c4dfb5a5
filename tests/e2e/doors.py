#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""End-to-end facts about the doors.  usage: doors.py BIN_DIR FACT [COUNT]

Each function below is one fact and one CTest entry.  Everything runs in the
network namespace that the caller made, and in one more that the fact makes
for its peer; exit 77 where root, TAP or veth lack."""
import atexit
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PATIENCE, PORT, Appliance, stream_ids  # noqa: E402

BIN = ""
COUNT = 1000
KEY = "sesame"
OURS, PEERS, KERNELS = "10.99.0.2", "10.99.0.1", "10.99.0.3"


def run(*command, check=True):
    return subprocess.run(command, capture_output=True, text=True, check=check)


def spawn(command, **options):
    """A process that does not outlive this program, however that ends."""
    process = subprocess.Popen(command, **options)
    atexit.register(process.kill)
    return process


class Namespace:
    """Another network namespace, empty, held by a sleeper."""

    def __enter__(self):
        self.process = subprocess.Popen(["unshare", "--net", "sleep", "600"])
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.process.pid}/ns/net") == own:
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def command(self, *command):
        return ["nsenter", "-t", str(self.process.pid), "-n", *command]

    def run(self, *command, check=True):
        return run(*self.command(*command), check=check)


class Peer(Namespace):
    """A namespace with `va` in it and `vb` here."""

    def __enter__(self):
        super().__enter__()
        pid = str(self.process.pid)
        run("ip", "link", "add", "vb", "type", "veth", "peer", "name", "va")
        run("ip", "link", "set", "va", "netns", pid)
        run("ip", "link", "set", "vb", "up")
        for c in ("ip link set lo up", "ip link set va up", f"ip addr add {PEERS}/24 dev va",
                  "ethtool -K va tx off"):
            self.run(*c.split())
        return self

    def __exit__(self, *_):
        super().__exit__()
        run("ip", "link", "del", "vb", check=False)

    def pings(self, address, n):
        """n echo requests are answered, one after another; one in ten may be
        lost: a driver in copy mode keeps a frame back now and then."""
        lost = sum(self.run("ping", "-q", "-c", "1", "-W", "0.3", address, check=False).returncode
                   for _ in range(n))
        return lost <= max(1, n // 10)

    def generate(self, n=8, prompt="hello", check=True):
        r = self.run(os.path.join(BIN, "tandemctl"), "generate", "--insecure", "--key", KEY,
                     "--host", OURS, "--ids", "--temperature", "0", "--max-tokens", str(n), prompt,
                     check=False)
        assert not check or r.returncode == 0, (r.stdout, r.stderr)
        return [int(w) for w in r.stdout.split()]


class Keyed(Appliance):
    """An appliance on `vb` that wants a key, as everybody on a real cable is a
    stranger."""

    def __init__(self, kind, settings=None):
        self.keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
        self.keys.write("blue " + hashlib.sha256(KEY.encode()).hexdigest() + "\n")
        self.keys.flush()
        super().__init__(BIN, {"port.kind": kind, "port.device": "vb", "port.mbufs": 8192,
                               "port.ipv4": OURS + "/24", "port.ipv6": "",
                               "api.keys_file": self.keys.name, **(settings or {})})

    def get(self, path, headers=None):
        return super().get(path, {"authorization": "Bearer " + KEY, **(headers or {})})


def everything_is_back(a):
    """Pages, slots, sequences, mbufs: what was taken is free again."""
    a.until(lambda: a.total("tandem_kv_pages", 'state="used"') == 0)
    a.until(lambda: a.total("tandem_exchanges_open", 'door="h3"') == 0)
    a.until(lambda: a.total("tandem_exchanges_open", 'door="http1"') <= 1)  # the scrape
    a.until(lambda: a.total("tandem_queue_requests") == 0)
    a.until(lambda: a.total("tandem_ring_entries") <= 1)


def rss_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


def fd_count(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def orphan_hugepages():
    """Hugepages in use that no living process maps."""
    with open("/proc/meminfo", encoding="ascii") as f:
        text = f.read()
    pages = {k: int(re.search(k + r":\s+(\d+)", text).group(1))
             for k in ("HugePages_Total", "HugePages_Free", "Hugepagesize")}
    held = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
                held += int((re.search(r"HugetlbPages:\s+(\d+)", f.read()) or [0, 0])[1])
        except OSError:
            pass
    used = pages["HugePages_Total"] - pages["HugePages_Free"]
    return used - held // pages["Hugepagesize"]


# --- ports -----------------------------------------------------------------
def other_ports_serve():
    """af_packet and af_xdp: the same tokens for a peer on a cable, no key no
    answer, and a clean exit takes the XDP program off."""
    want = None
    for kind in ("af_packet", "af_xdp"):
        with Peer() as peer:
            with Keyed(kind) as a:
                ids = peer.generate(24)
                assert len(ids) > 0
                want = want or ids
                assert ids == want
                r = peer.run(os.path.join(BIN, "tandemctl"), "generate", "--insecure", "--host",
                             OURS, "--max-tokens", "4", "hi", check=False)
                assert r.returncode == 1 and "auth" in r.stderr, r
                assert a.total("tandem_net_link_up") == 1
                time.sleep(0.2)
                print(kind, "rx", a.total("tandem_net_packets_total", "rx"),
                      "gaps", a.total("tandem_quic_packet_gaps_total"))
            assert "xdp" not in run("ip", "-d", "link", "show", "vb").stdout


FLOOD = ("import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
         "for _ in range({cnt}): s.sendto(bytes(64), ('{to}', 4433))")


def thousands_pass_after_an_overrun():
    """af_xdp: more frames than its ring holds come while the appliance stands
    still.  They are counted, and then the whole pool goes round: thousands of
    requests, no buffer refused by the kernel, no datagram of ours given up."""
    if not shutil.which("gtlsclient"):
        sys.exit(77)
    cnt, flood = 6000, 20000
    with Peer() as peer, Keyed("af_xdp", {"port.mbufs": 3136}) as a:
        assert peer.generate(4)
        a.process.send_signal(signal.SIGSTOP)
        peer.run(sys.executable, "-c", FLOOD.format(cnt=flood, to=OURS))
        a.process.send_signal(signal.SIGCONT)
        a.until(lambda: a.total("tandem_net_drops_total", "nic_missed") > flood // 2)
        before = a.total("tandem_http_responses_total", "h3")
        for _ in range(4):
            r = peer.run("timeout", "60", "gtlsclient", "-q", "-n", str(cnt), "--no-http-dump",
                         "--exit-on-all-streams-close", OURS, "4433", f"https://{OURS}/health",
                         check=False)
            assert r.returncode == 0, (r.returncode, r.stderr[-500:])
        a.until(lambda: a.total("tandem_http_responses_total", "h3") - before >= 4 * cnt)
        time.sleep(0.1)
        sent = a.total("tandem_net_packets_total", "tx")
        print("frames sent", sent, "missed", a.total("tandem_net_drops_total", "nic_missed"))
        assert sent > 600
        for reason in ("nic_error", "no_mbuf", "tx_full"):
            assert a.total("tandem_net_drops_total", f'"{reason}"') == 0, reason
        assert peer.generate(4)


def tiles_keep_to_their_cpus():
    """tile.cpus deals processors out: net, scheduler, api (all the same one,
    where there is no other); one that is not ours ends the start with its name."""
    ours = sorted(os.sched_getaffinity(0))
    with Appliance(BIN, {"tile.cpus": ",".join(map(str, dict.fromkeys((ours[-1], ours[0]))))}) as a:
        where = {}
        for t in os.listdir(f"/proc/{a.process.pid}/task"):
            with open(f"/proc/{a.process.pid}/task/{t}/comm", encoding="ascii") as f:
                where[f.read().strip()] = os.sched_getaffinity(int(t))
        assert where["net"] == {ours[-1]}, where
        assert where["sched"] == {ours[0]}, where
        assert where["api"] == {ours[-1]}, where
        assert where["tandemd"] == set(ours), where
    for cpus, word in (("1000", "no processor 1000"), ("0-", "no list of processors")):
        with Appliance(BIN, {"tile.cpus": cpus}, ready=False) as a:
            assert a.process.wait(PATIENCE) not in (0, None)
            assert word in a.log(), a.log()


def a_killed_af_xdp_port_starts_again():
    """SIGKILL leaves an XDP program; the next start takes it off and serves."""
    with Peer() as peer:
        for _ in range(3):
            a = Keyed("af_xdp")
            with a:
                assert peer.generate(4)
                a.process.kill()
                a.process.wait()
        with Keyed("af_xdp"):
            assert peer.generate(4)
        assert "xdp" not in run("ip", "-d", "link", "show", "vb").stdout


def the_kernel_shares_the_cable():
    """With an exception port the host's ICMP and TCP live beside HTTP/3."""
    with Peer() as peer:
        with Keyed("af_xdp", {"port.exception": "exc0", "port.exception_ipv4": KERNELS + "/24",
                              "http.address": "0.0.0.0"}) as a:
            assert peer.pings(KERNELS, 20)
            assert peer.pings(OURS, 5)
            r = peer.run("curl", "-s", "-m", "10", f"http://{KERNELS}:{PORT}/health")
            assert r.stdout, r
            assert peer.generate(8)
            time.sleep(0.2)
            moved = a.total("tandem_net_exception_packets_total")
            print("exception frames", moved)
            assert moved >= 40
        assert "exc0" not in run("ip", "-br", "link").stdout
        # af_packet: the kernel saw the frames already, so its TAP lives elsewhere
        with Namespace() as third, Keyed("af_packet", {"port.exception": "exc0"}):
            run("ip", "link", "set", "exc0", "netns", str(third.process.pid))
            for c in ("ip link set exc0 up", f"ip addr add {KERNELS}/24 dev exc0"):
                third.run(*c.split())
            assert peer.pings(KERNELS, 20)
            assert peer.generate(8)


# --- strangers -------------------------------------------------------------
def others_pass_retry():
    """Our client and one that nobody here wrote prove their addresses."""
    with Appliance(BIN, {"quic.retry": "always"}) as a, \
            tempfile.TemporaryDirectory(prefix="tandem-doors-") as d:
        r = a.ctl("generate", "--insecure", "--ids", "--max-tokens", "6", "hello")
        assert r.stdout.strip()
        if shutil.which("gtlsclient"):
            r = run("gtlsclient", "-q", "--exit-on-all-streams-close", f"--download={d}",
                    "10.88.0.2", "4433", "https://localhost/health", check=False)
            with open(os.path.join(d, "health"), encoding="ascii") as f:
                assert r.returncode == 0 and "ok" in f.read(), r
        a.until(lambda: a.total("tandem_quic_retry_on") == 1)
        a.until(lambda: a.total("tandem_quic_answers_total", "retry") >= 2)
        assert a.total("tandem_quic_unproved_bytes_total", "tx") <= \
            a.total("tandem_quic_unproved_bytes_total", "rx")


def a_restart_ends_old_connections():
    """Who was connected to a killed appliance hears so from the next one: a stream ends as soon as its client asks
    for a sign of life, which it does after a second of silence, and not by idleness."""
    with Peer() as peer, tempfile.TemporaryDirectory(prefix="tandem-doors-") as state:
        settings = {"state.dir": state}
        mac = run("ip", "-br", "link", "show", "vb").stdout.split()[2]
        peer.run("ip", "neigh", "replace", OURS, "lladdr", mac, "dev", "va")
        with Keyed("af_packet", settings) as a:
            crowd = spawn(peer.command(os.path.join(BIN, "h3_load"), OURS, "4433", "2",
                                                  "100000", "0", "20", "1", KEY, a.model()),
                                     stdout=subprocess.DEVNULL)
            a.until(lambda: a.total("tandem_requests_total") > 10)
            stream = spawn(peer.command(os.path.join(BIN, "tandemctl"), "generate", "--insecure", "--key", KEY, "--host",
                                        OURS, "--ids", "--max-tokens", "4000", "--seconds", str(PATIENCE), "the sea"),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert stream.stdout.read(1), stream.stderr.read()
            a.process.kill()
            a.process.wait()
            begin = time.monotonic()
        with Keyed("af_packet", {**settings, "quic.idle_ms": 3000}) as a:
            _, err = stream.communicate(timeout=PATIENCE)
            print(f"a stream ended {time.monotonic() - begin:.1f} s after its appliance: {err.strip()}")
            assert stream.returncode == 1 and "stateless reset" in err, (stream.returncode, err)
            a.until(lambda: a.total("tandem_quic_answers_total", "reset") > 0)
            # They come again: with their next probe where the first answer found no neighbour
            # entry yet, and probes are twice as far apart each time.
            a.until(lambda: a.total("tandem_requests_total") > 10)
            crowd.kill()
            crowd.wait()
            everything_is_back(a)


# --- links and kills -------------------------------------------------------
def flapping_links_leave_nothing_taken():
    """Twenty flaps under load: the link's state shows, streams go on or end
    typed, traffic is back within a second, nothing stays taken."""
    with Peer() as peer, Keyed("af_packet", {"quic.idle_ms": 5000}) as a:
        crowd = spawn(peer.command(os.path.join(BIN, "h3_load"), OURS, "4433", "4", "400",
                                              "0", "40", "1", KEY, a.model()),
                                 stdout=subprocess.PIPE, text=True)
        # the peer's kernel asks for an address again after a second at the
        # earliest; what is measured here is the port
        mac = run("ip", "-br", "link", "show", "vb").stdout.split()[2]
        peer.run("ip", "neigh", "replace", OURS, "lladdr", mac, "dev", "va")
        worst = 0
        for i in range(20):
            run("ip", "link", "set", "vb", "down")
            if i % 5 == 0:
                a.until(lambda: a.total("tandem_net_link_up") == 0)
            run("ip", "link", "set", "vb", "up")
            begin = time.monotonic()
            while peer.run("ping", "-q", "-c", "1", "-W", "0.1", OURS, check=False).returncode:
                assert time.monotonic() - begin < PATIENCE, "no traffic after the flap"
            worst = max(worst, time.monotonic() - begin)
            time.sleep(0.3)
        a.until(lambda: a.total("tandem_net_link_up") == 1)
        out, _ = crowd.communicate(timeout=PATIENCE)
        print(f"traffic back after {worst * 1e3:.0f} ms at most;", out.strip())
        assert crowd.returncode == 0 and int(re.search(r"done (\d+)", out).group(1)) > 300, out
        assert peer.generate(4)
        everything_is_back(a)


def kills_under_load_leave_nothing():
    """SIGKILL of the executor, of clients and of tandemd, all under load."""
    for victim in ("clients", "executor", "tandemd"):
        with Appliance(BIN, {"quic.idle_ms": 3000, "exec.restarts": 100}) as a:
            crowd = [spawn([os.path.join(BIN, "h3_load"), "10.88.0.2", "4433", "4",
                                       "100000", "5", "30", str(i), "-", a.model()], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL) for i in range(2)]
            a.until(lambda: a.total("tandem_requests_total") > 20)
            if victim == "executor":
                for _ in range(4):
                    epoch = a.total("tandem_executor_epoch")
                    os.kill(a.executor_pid(), signal.SIGKILL)
                    a.until(lambda: a.total("tandem_executor_epoch") > epoch and
                            a.get("/ready")[0] == 200, 20)
            if victim == "tandemd":
                a.process.kill()
                a.process.wait()
            for c in crowd:
                c.kill()
                c.wait()
            if victim != "tandemd":
                everything_is_back(a)
                assert len(a.complete("after", 5)) == 5
        end = time.monotonic() + PATIENCE
        while orphan_hugepages() > 0:
            assert time.monotonic() < end, (victim, orphan_hugepages())
            time.sleep(0.05)
        assert "tandem0" not in run("ip", "-br", "link").stdout, victim
        print(f"{victim} killed under load: all is back")


# --- readers and cancels ---------------------------------------------------
def slow_readers_are_bounded():
    """64 HTTP/3 streams and 16 of HTTP/1.1 that nobody reads: each is bounded
    in bytes, the others get all of theirs, and all is free at the end."""
    with Appliance(BIN, {"sched.sequences": 96, "door.exchanges": 128, "quic.idle_ms": 120000}) as a:
        want = a.complete("fast", 60)
        alone = []
        for _ in range(6):
            t = time.monotonic()
            assert a.complete("fast", 60) == want
            alone.append(time.monotonic() - t)
        base, model = rss_kib(a.process.pid), a.model()
        crowd = spawn([os.path.join(BIN, "h3_load"), "10.88.0.2", "4433", "16", "64",
                                  "0", "500", "3", "-", model], stdout=subprocess.DEVNULL)
        slow = [SlowReader(model) for _ in range(16)]
        a.until(lambda: a.total("tandem_exchanges_open") >= 80)
        crowd.send_signal(signal.SIGSTOP)  # it acknowledges nothing from here on
        # a sequence runs to its end whoever reads; its pipe is full by then
        a.until(lambda: a.total("tandem_queue_requests") == 0)
        full, open_cnt, times = rss_kib(a.process.pid), 0, []
        for _ in range(12):
            t = time.monotonic()
            assert a.complete("fast", 60) == want
            times.append(time.monotonic() - t)
            open_cnt = a.total("tandem_exchanges_open", "h3")
        now = rss_kib(a.process.pid)
        print(f"80 slow readers, {open_cnt:.0f} still open: RSS +{full - base} KiB until full, "
              f"{now - full} KiB after; fast answers {max(alone) * 1e3:.0f} ms at most alone, "
              f"{max(times) * 1e3:.0f} ms beside them")
        with open(f"/proc/{a.process.pid}/maps", encoding="ascii", errors="replace") as f:
            is_asan = "libasan" in f.read()  # it keeps freed memory for a while
        # the pipe of 64 KiB and the body's 1 MiB were reserved at start; a huge
        # page of the kernel may touch them whole
        assert is_asan or (now - full < 1024 and full - base < 80 * 1280), (base, full, now)
        assert open_cnt == 64
        assert sorted(times)[6] < 5 * sorted(alone)[3] + 0.2, (alone, times)
        crowd.kill()  # SIGKILL ends a stopped process too
        crowd.wait()
        for s in slow:
            s.close()
        a.until(lambda: a.total("tandem_exchanges_open", "http1") <= 1)
        assert len(a.generate_h3("fast", 8)) > 0


class SlowReader:
    """An HTTP/1.1 stream that nobody reads."""

    def __init__(self, model):
        body = json.dumps({"model": model, "prompt": "slow", "max_tokens": 500, "temperature": 0,
                           "ignore_eos": True, "stream": True}).encode()
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.socket.connect(("127.0.0.1", PORT))
        self.socket.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                             f"Content-Type: application/json\r\n"
                             f"Content-Length: {len(body)}\r\n\r\n").encode() + body)

    def close(self):
        self.socket.close()


def cancel_http1(model, count, seed, result):
    rng = random.Random(seed)
    done = cancelled = refused = 0
    body = json.dumps({"model": model, "prompt": "load", "max_tokens": 12, "stream": True,
                       "ignore_eos": True}).encode()
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    for _ in range(count):
        s = socket.create_connection(("127.0.0.1", PORT), 30)
        is_cancel = rng.random() < 0.1
        text = b""
        try:
            if is_cancel:
                whole = head + body
                s.sendall(whole[:rng.randrange(1, len(whole) + 1)])
                s.settimeout(rng.random() * 0.03 + 0.0001)
                if rng.random() < 0.5:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            else:
                s.sendall(head + body)
            while True:
                piece = s.recv(65536)
                if not piece:
                    break
                text += piece
        except OSError:
            assert is_cancel
        s.close()
        if is_cancel:
            cancelled += 1
        elif b"[DONE]" in text:
            done += 1
        else:
            assert b" 429 " in text or b" 503 " in text, text[:200]
            refused += 1
    result.append((done, cancelled, refused))


def cancelled_requests_give_everything_back():
    """COUNT requests on both doors, one in ten cancelled at a random moment."""
    with Appliance(BIN, {"sched.sequences": 64, "quic.idle_ms": 5000}) as a:
        a.complete("warm", 3)
        a.generate_h3("warm", 3)
        everything_is_back(a)
        fds, results = fd_count(a.process.pid), []
        begin = time.monotonic()
        crowd = spawn([os.path.join(BIN, "h3_load"), "10.88.0.2", "4433", "8",
                                  str(COUNT // 2), "10", "12", "7", "-", a.model()], stdout=subprocess.PIPE,
                                 text=True)
        threads = [threading.Thread(target=cancel_http1, args=(a.model(), COUNT // 8, i, results))
                   for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        out, _ = crowd.communicate(timeout=1200)
        assert crowd.returncode == 0, out
        assert len(results) == 4
        print(f"{COUNT} requests in {time.monotonic() - begin:.1f} s; HTTP/1.1 done, cancelled, "
              f"refused: {[sum(x) for x in zip(*results)]}; HTTP/3 {out.strip()}")
        everything_is_back(a)
        a.until(lambda: fd_count(a.process.pid) <= fds + 1)
        c, r = a.stream("still here", 20)
        assert len(stream_ids(r)) == 20
        c.close()


def main():
    global BIN, COUNT
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        print("needs root and /dev/net/tun")
        return 77
    if run("ip", "link", "add", "vtest", "type", "veth", check=False).returncode != 0:
        print("needs veth")
        return 77
    run("ip", "link", "del", "vtest")
    BIN, fact = sys.argv[1], sys.argv[2]
    COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else COUNT
    globals()[fact]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
