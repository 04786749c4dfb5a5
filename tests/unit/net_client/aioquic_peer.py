#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client of another make against the loopback server: one connection,
several requests at once, and a stream given up half-way.

usage: aioquic_peer.py PORT    prints "ok" or what differed; exit 0 or 1
       aioquic_peer.py --has   exit 0 where aioquic is installed
"""
import asyncio
import ssl
import sys

try:
    from aioquic.asyncio.client import connect
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3_ALPN, H3Connection
    from aioquic.h3.events import DataReceived, HeadersReceived
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.events import StreamReset
except ImportError:
    sys.exit(1)

REQUEST_CANCELLED = 0x10C


class Reply:
    def __init__(self):
        self.headers, self.body, self.done = {}, b"", asyncio.get_event_loop().create_future()
        self.begun = asyncio.get_event_loop().create_future()


class Peer(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.h3, self.reply = H3Connection(self._quic), {}

    def ask(self, method, path, body=b""):
        sid = self._quic.get_next_available_stream_id()
        self.reply[sid] = Reply()
        self.h3.send_headers(sid, [(b":method", method), (b":scheme", b"https"),
                                   (b":authority", b"localhost"), (b":path", path)],
                             end_stream=not body)
        if body:
            self.h3.send_data(sid, body, end_stream=True)
        self.transmit()
        return sid, self.reply[sid]

    def give_up(self, sid):
        self._quic.stop_stream(sid, REQUEST_CANCELLED)
        self.transmit()

    def quic_event_received(self, event):
        if isinstance(event, StreamReset) and event.stream_id in self.reply:
            self.finish(self.reply[event.stream_id])
        for e in self.h3.handle_event(event):
            r = self.reply.get(getattr(e, "stream_id", None))
            if r is None:
                continue
            if isinstance(e, HeadersReceived):
                r.headers = dict(e.headers)
            elif isinstance(e, DataReceived):
                r.body += e.data
                if not r.begun.done():
                    r.begun.set_result(None)
            if e.stream_ended:
                self.finish(r)

    @staticmethod
    def finish(r):
        if not r.done.done():
            r.done.set_result(None)


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & (2**64 - 1)
    return "%016x" % h


def expect(what, is_true):
    if not is_true:
        print("differs:", what)
        sys.exit(1)


async def talk(port):
    config = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN,
                               verify_mode=ssl.CERT_NONE)
    async with connect("127.0.0.1", port, configuration=config, create_protocol=Peer) as p:
        body = bytes(i * 7 % 251 for i in range(100000))
        _, health = p.ask(b"GET", b"/health")
        _, post = p.ask(b"POST", b"/echo", body)
        _, stream = p.ask(b"GET", b"/stream?3000")
        await asyncio.wait_for(asyncio.gather(health.done, post.done, stream.done), 20)
        expect("health", health.body == b'{"status":"ok"}' and health.headers[b":status"] == b"200")
        expect("post", fnv(body).encode() in post.body)
        expect("stream", stream.body.count(b"token") == 3000
               and stream.body.endswith(b"data: [DONE]\n\n"))
        sid, endless = p.ask(b"GET", b"/stream?100000000")
        await asyncio.wait_for(endless.begun, 5)
        p.give_up(sid)
        await asyncio.wait_for(endless.done, 5)
        _, after = p.ask(b"GET", b"/health")
        await asyncio.wait_for(after.done, 5)
        expect("after", after.headers[b":status"] == b"200")
    print("ok")


if __name__ == "__main__":
    if sys.argv[1] == "--has":
        sys.exit(0)
    asyncio.run(talk(int(sys.argv[1])))
