# SPDX-License-Identifier: Apache-2.0
"""usage: clients.py BIN_DIR MODEL   (in a network namespace; see tests/e2e/clients)"""
import asyncio
import json
import os
import ssl
import subprocess
import sys
import tempfile

import openai
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PORT, Appliance  # noqa: E402

HOST, UDP = "10.88.0.2", 4433
PROMPTS = ["The capital of France is", "def fibonacci(n):", "Once upon a time, in a small village,"]
TOKENS = 32


def body(model, prompt, stream):
    return {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0,
            "ignore_eos": True, "return_token_ids": True, "stream": stream}


def by_gtlsclient(model, prompt):
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "request"), "w", encoding="utf-8") as f:
            json.dump(body(model, prompt, False), f)
        out = os.path.join(d, "out")
        os.mkdir(out)
        subprocess.run(["gtlsclient", "-q", "--exit-on-all-streams-close", "-m", "POST",
                        "-d", os.path.join(d, "request"), "--download", out, HOST, str(UDP),
                        f"https://{HOST}:{UDP}/v1/completions"], check=True, timeout=120,
                       stdout=subprocess.DEVNULL)
        with open(os.path.join(out, "completions"), encoding="utf-8") as f:
            return json.load(f)["choices"][0]["token_ids"]


class Http3(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.status, self.data, self.done = None, b"", None

    def quic_event_received(self, event):
        for e in self.http.handle_event(event):
            if isinstance(e, HeadersReceived):
                self.status = dict(e.headers)[b":status"]
            elif isinstance(e, DataReceived):
                self.data += e.data
            if getattr(e, "stream_ended", False) and not self.done.done():
                self.done.set_result(None)

    async def post(self, path, payload):
        self.done = asyncio.get_running_loop().create_future()
        stream = self._quic.get_next_available_stream_id()
        self.http.send_headers(stream, [
            (b":method", b"POST"), (b":scheme", b"https"), (b":authority", HOST.encode()),
            (b":path", path.encode()), (b"content-type", b"application/json")])
        self.http.send_data(stream, json.dumps(payload).encode(), end_stream=True)
        self.transmit()
        await asyncio.wait_for(self.done, 120)
        return self.status, self.data


def sse_ids(text):
    ids = []
    for line in text.split("\n"):
        if line.startswith("data: ") and line != "data: [DONE]":
            for choice in json.loads(line[6:])["choices"]:
                ids += choice.get("token_ids") or []
    assert text.rstrip().endswith("data: [DONE]"), text[-80:]
    return ids


def by_aioquic(model, prompt, certificate):
    async def run():
        config = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name=HOST)
        config.load_verify_locations(certificate)
        config.verify_mode = ssl.CERT_REQUIRED
        async with connect(HOST, UDP, configuration=config, create_protocol=Http3) as c:
            status, data = await c.post("/v1/completions", body(model, prompt, True))
            assert status == b"200", (status, data)
            return sse_ids(data.decode())
    return asyncio.run(run())


def by_openai(client, model, prompt):
    extra = {"ignore_eos": True, "return_token_ids": True}
    whole = client.completions.create(model=model, prompt=prompt, max_tokens=TOKENS, temperature=0,
                                      extra_body=extra)
    assert whole.usage.completion_tokens == TOKENS
    streamed = []
    for chunk in client.completions.create(model=model, prompt=prompt, max_tokens=TOKENS,
                                           temperature=0, stream=True, extra_body=extra):
        for choice in chunk.choices:
            streamed += (choice.model_extra or {}).get("token_ids") or []
    ids = whole.choices[0].model_extra["token_ids"]
    assert streamed == ids, (streamed, ids)
    return ids


def main():
    bin_dir, path = sys.argv[1:]
    with Appliance(bin_dir, {"model.path": path}) as a:
        model = a.model()
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key="none")
        for prompt in PROMPTS:
            ids = {"openai": by_openai(client, model, prompt),
                   "gtlsclient": by_gtlsclient(model, prompt),
                   "aioquic": by_aioquic(model, prompt,
                                         os.path.join(a.dir.name, "certificate.pem"))}
            print(model, repr(prompt), ids["openai"][:12], "...")
            assert len(ids["openai"]) == TOKENS
            assert ids["gtlsclient"] == ids["openai"] == ids["aioquic"], ids
        chat = client.chat.completions.create(
            model=model, temperature=0, max_tokens=24,
            messages=[{"role": "user", "content": "What is the capital of France?"}])
        print("chat:", chat.choices[0].message.content, chat.choices[0].finish_reason)
        try:
            client.completions.create(model=model, prompt="x", n=2)
        except openai.BadRequestError as e:
            assert e.code == "unsupported_parameter" and e.param == "n", e
        else:
            raise AssertionError("n=2 was not refused")
    print("three clients, the same tokens")


if __name__ == "__main__":
    main()
