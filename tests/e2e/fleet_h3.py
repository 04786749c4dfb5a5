#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three appliances' HTTP/3 ports behind nginx by layer 4, as deploy/fleet/nginx-http3.conf has it:
clients keep to their appliance, one is killed and comes back, a client's port changes, its address
changes (the appliances have one key: whoever gets a datagram of a lost connection can end it); and
the client-side list without any balancer.

usage: fleet_h3.py BIN_DIR     in a network namespace of its own; exit 77 without root or nginx"""
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PATIENCE, Appliance  # noqa: E402

BIN = ""
FLEET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/fleet")
FRONT = 14433
CLIENTS = 12
NGINX = "/usr/sbin/nginx"


class Member(Appliance):
    """One of the three, behind a TAP of its own; with the certificate and key of another."""

    def __init__(self, n, other=None):
        shared = {f"quic.{what}": f"{other.dir.name}/{what}.pem" for what in ("certificate", "key")} if other else {}
        super().__init__(BIN, {"exec.sms": 1, "exec.huge_plans": 0, "port.tap_name": f"fleet{n}", "port.telemetry": 0,
                               "port.tap_ipv4": f"10.88.{n}.1/24", "port.ipv4": f"10.88.{n}.2", "port.tap_ipv6": "",
                               "port.ipv6": "", "http.port": 18080 + n, "quic.source_handshakes_per_s": 1000,
                               "sched.ttft_ms": 60000, **shared})
        self.address = f"10.88.{n}.2"

    def served(self):
        return self.total("tandem_requests_total") if self.process.poll() is None else 0


class Balancer:
    def __init__(self, members):
        self.dir = tempfile.TemporaryDirectory(prefix="tandem-nginx-")
        with open(os.path.join(FLEET, "nginx-http3.conf"), encoding="utf-8") as f:
            text = f.read()
        for n, m in enumerate(members, 1):
            text, cnt = re.subn(rf"server 192\.0\.2\.1{n}:4433", f"server {m.address}:4433", text)
            assert cnt == 1
        text = text.replace("/run/nginx-http3.pid", self.dir.name + "/pid").replace(
            "listen 4433", f"listen 127.0.0.1:{FRONT}").replace("load_module modules/",
                                                                "load_module /usr/lib/nginx/modules/")
        text = text.replace("proxy_timeout 75s", "proxy_timeout 4s").replace("worker_rlimit_nofile 65536;\n", "")
        assert "192.0.2" not in text and "proxy_timeout 4s" in text
        path = os.path.join(self.dir.name, "nginx.conf")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        with open(os.path.join(self.dir.name, "log"), "wb") as log:
            self.process = subprocess.Popen([NGINX, "-e", "stderr", "-p", self.dir.name, "-c", path, "-g", "daemon off;"],
                                            stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE
        while f":{FRONT:04X} " not in open("/proc/net/udp", encoding="ascii").read():
            assert self.process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.05)

    def log(self):
        with open(os.path.join(self.dir.name, "log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.dir.cleanup()


class Relay:
    """The way from one client to the balancer, which can change the client's port or address, as a NAT
    or another network does."""

    def __init__(self, source):
        self.front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.front.bind(("127.0.0.1", 0))
        self.port = self.front.getsockname()[1]
        self.back = self.outside(source)
        self.client = None
        self.stop = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    @staticmethod
    def outside(source):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((source, 0))
        s.connect(("127.0.0.1", FRONT))
        return s

    def move(self, source):
        self.back = self.outside(source)

    def run(self):
        while not self.stop:
            back = self.back
            ready, _, _ = select.select([self.front, back], [], [], 0.05)
            for s in ready:
                try:
                    if s is self.front:
                        data, self.client = s.recvfrom(2048)
                        self.back.send(data)
                    else:
                        self.front.sendto(s.recv(2048), self.client)
                except OSError:
                    pass

    def close(self):
        self.stop = True
        self.thread.join()
        self.front.close()
        self.back.close()


def ask(port, tokens, host="127.0.0.1"):
    return subprocess.Popen([os.path.join(BIN, "tandemctl"), "generate", "--host", host, "--port", str(port), "--insecure",
                             "--ids", "--temperature", "0", "--max-tokens", str(tokens), "--seconds", "40", "the sea"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def whole(client, tokens, seconds=PATIENCE):
    out, err = client.communicate(timeout=seconds)
    return client.returncode == 0 and len(out.split()) <= tokens and len(out.split()) > 0, err


def source(n):
    return f"127.0.1.{n + 1}"  # loopback: any address of it is ours


def crowd(count, tokens=8, at_once=4):
    """One client from each of count addresses, few at a time: each has 5 s for its handshake; the faults."""
    faults = []
    for begin in range(0, count, at_once):
        relays = [Relay(source(n)) for n in range(begin, min(begin + at_once, count))]
        try:
            clients = [ask(r.port, tokens) for r in relays]
            faults += [err for ok, err in (whole(c, tokens) for c in clients) if not ok]
        finally:
            for r in relays:
                r.close()
    return faults


def shares(members, what):
    before = [m.served() for m in members]
    faults = what()
    return [int(m.served() - b) for m, b in zip(members, before)], faults


def story(members, balancer):
    first, faults = shares(members, lambda: crowd(CLIENTS))
    assert not faults and sum(first) == CLIENTS and all(first), (first, faults, balancer.log())
    again, faults = shares(members, lambda: crowd(CLIENTS))
    assert not faults and again == first, (first, again, faults)
    print(f"{CLIENTS} clients, by appliance {first}, and the same once more", flush=True)

    victim = members[1]
    mine = [n for n in range(CLIENTS) if whole_share(members, victim, n)]
    relay = Relay(source(mine[0]))
    running = ask(relay.port, 4000)
    assert running.stdout.read(1)  # it streams, and will for a second or more
    victim.process.kill()
    victim.process.wait()
    killed = time.monotonic()
    ok, err = whole(running, 4000)
    relay.close()
    assert not ok, "a stream outlived its appliance"
    print(f"killed: its stream ended typed after {time.monotonic() - killed:.1f} s: {err.strip()}", flush=True)
    assert "stateless reset" in err, err  # by the one that got its next datagram: they have one key
    # Whoever asks first after the death may lose that one; then nginx has noticed.
    faults = crowd(CLIENTS)
    lost = len(faults)
    assert lost <= first[1], faults
    share, faults = shares([members[0], members[2]], lambda: crowd(CLIENTS))
    assert not faults and sum(share) == CLIENTS, (share, faults, balancer.log())
    print(f"its {first[1]} clients: {lost} lost one request, then all {CLIENTS} are served by the other two: {share}", flush=True)
    victim.start()
    began = time.monotonic()
    back = None
    while back != first:  # one client each fail_timeout is sent to it, until such a session has ended
        assert time.monotonic() - began < 2 * PATIENCE, (first, back)
        back, faults = shares(members, lambda: crowd(CLIENTS))
        assert not faults, faults
        time.sleep(1)
    print(f"back: {back} after {time.monotonic() - began:.0f} s (sessions of 4 s here, 75 s in the file)", flush=True)

    relay = Relay(source(0))
    client = ask(relay.port, 1500)
    assert client.stdout.read(1)
    relay.move(source(0))
    ok, err = whole(client, 1500)
    relay.close()
    assert ok, err + balancer.log()
    print("a client's port changed within a stream: the stream went on", flush=True)

    home = next(n for n in range(CLIENTS) if n not in mine)
    relay = Relay(source(home))
    client = ask(relay.port, 4000)
    assert client.stdout.read(1)
    begin = time.monotonic()
    relay.move(source(mine[0]))
    ok, err = whole(client, 4000)
    relay.close()
    assert not ok, "an address on another appliance kept the stream"
    assert "stateless reset" in err, err
    print(f"a client's address changed to one of another appliance: lost after {time.monotonic() - begin:.1f} s: {err.strip()}",
          flush=True)

    # Without a balancer: the list is the client's, who takes the next where one does not answer.
    members[0].process.kill()
    members[0].process.wait()
    served = None
    for m in members:
        client = ask(4433, 8, m.address)
        if whole(client, 8)[0]:
            served = m
            break
    assert served is members[1]
    print("a client with a list: the first does not answer, the second serves", flush=True)
    members[0].start()


def whole_share(members, member, n):
    before = member.served()
    relay = Relay(source(n))
    ok, err = whole(ask(relay.port, 1), 1)
    relay.close()
    assert ok, err
    return member.served() > before


def main():
    global BIN
    BIN = sys.argv[1]
    if os.geteuid() != 0 or not os.path.exists(NGINX) or not os.path.exists("/usr/lib/nginx/modules/ngx_stream_module.so"):
        print("needs root and nginx with its stream module")
        return 77
    with Member(1) as one, Member(2, one) as two, Member(3, one) as three:
        balancer = Balancer([one, two, three])
        try:
            story([one, two, three], balancer)
        except BaseException:
            sys.stderr.write(balancer.log())
            raise
        finally:
            balancer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
