#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What operators do to a running appliance, and who may.  usage: operators.py BIN_DIR FACT

Each function below is one fact and one CTest entry, in the network namespace that the caller made."""
import calendar
import hashlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PATIENCE, PORT, Appliance, run_fact, stream_ids  # noqa: E402

BIN = ""
NO_PORT = {"port.kind": "none"}
MARKER = "xyzzymarkerplugh"
NOBODY = 65534


def audit(a):
    return json.loads(a.ctl("show", "audit", "-o", "json").stdout)["entries"]


def who_waited_sees_it_ready():
    """tandemctl wait && tandemctl show status: what /ready says stands in the status, too."""
    for _ in range(3):
        with Appliance(BIN, NO_PORT, ready=False) as a:
            a.ctl("wait")
            told = a.ctl("show", "status").stdout
            assert "not serving" not in told and re.search(r"(?m)^state +ready$", told), told


def gap_ms(a):
    return json.loads(a.get("/config")[1])["sched"]["gap_ms"]


def a_bad_config_rolls_itself_back():
    """apply --confirm: a promise that nobody can keep goes away by itself; a confirmed one stays."""
    with Appliance(BIN, NO_PORT) as a:
        before = gap_ms(a)
        c, r = a.stream("go on", 3000)  # a stream that the change must not hurt
        r.readline()
        begin = time.monotonic()
        done = a.ctl("config", "apply", "sched.gap_ms=1", "sched.ttft_ms=1", "--confirm", "8s",
                     "--why", "a bad idea")
        assert "back to 0 in 8 s unless confirmed" in done.stdout, done.stdout
        assert gap_ms(a) == 1
        health = a.ctl("show", "health", check=False)
        assert "revision 1 awaits its confirmation" in health.stdout, health
        refused = a.ctl("config", "apply", "sched.gap_ms=9", check=False)
        assert refused.returncode == 1 and "awaits its confirmation" in refused.stderr, refused
        a.until(lambda: gap_ms(a) == before)
        assert time.monotonic() - begin >= 8
        changes = json.loads(a.ctl("show", "changes", "-o", "json").stdout)
        assert changes["pending"] is None and changes["revision"] == 2, changes
        assert [r["what"] for r in changes["revisions"]] == ["expire", "apply", "start"], changes
        assert a.total("tandem_slo_target_seconds",
                       'slo_class="interactive",objective="tpot"') == before / 1000
        # a confirmed one stays, and can be taken back later
        a.ctl("config", "apply", "sched.gap_ms=321", "--confirm", "5s")
        a.ctl("config", "confirm")
        time.sleep(6)
        assert gap_ms(a) == 321
        a.ctl("config", "rollback")
        assert gap_ms(a) == before
        assert len(stream_ids(r)) > 2900
        c.close()
        got = [(e["who"], e["what"], e["result"]) for e in audit(a)]
        assert got == [("uid 0", "rollback", "ok"), ("uid 0", "confirm", "ok"), ("uid 0", "apply", "ok"),
                       ("the appliance", "expire", "ok"), ("uid 0", "apply", "refused"),
                       ("uid 0", "apply", "ok")], got
        with open(os.path.join(a.dir.name, "audit.jsonl"), encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        assert [(e["who"], e["what"], e["result"]) for e in reversed(lines)] == got
        assert lines[0]["why"] == "a bad idea"
        for bad, word in ((["sched.sequences=9"], "needs a restart"), (["sched.nothing=1"], "no such key"),
                          (["sched.gap_ms=x"], "sched.gap_ms")):
            refused = a.ctl("config", "apply", *bad, check=False)
            assert refused.returncode == 1 and word in refused.stderr, refused
        assert a.ctl("config", "apply", "nonsense", "words", check=False).returncode == 2
        for words in ("20261201", "007", "+7", "1.10"):  # a version is text, also where it is all digits
            a.ctl("config", "apply", f"update.older={words}")
            assert json.loads(a.get("/config")[1])["update"]["older"] == words
        for words in ("+7", "-7", " 7", "7 ", "", "0x7", "18446744073709551616"):
            refused = a.ctl("config", "apply", f"sched.gap_ms={words}", check=False)
            assert refused.returncode == 1 and "sched.gap_ms" in refused.stderr, (words, refused)
        a.ctl("config", "apply", "update.older=")
        diff = a.ctl("config", "diff", "sched.gap_ms=7", "sched.route=serial").stdout
        assert "fused -> serial" in diff and f"{before} -> 7" in diff, diff


def a_bundle_holds_no_prompt():
    """A support bundle after traffic with a marker: it is in no file, in no spelling."""
    with Appliance(BIN, NO_PORT) as a:
        for i in range(3):
            a.complete(f"{MARKER} " * (1 + 20 * i), 30, user=MARKER)
        status, _, _ = a.post("/v1/completions", {"model": MARKER, "prompt": MARKER, MARKER: 1})
        assert status == 404
        a.post("/v1/completions", {"model": a.model(), "prompt": MARKER * 20000})
        path = os.path.join(a.dir.name, "bundle.tar.gz")
        assert a.ctl("support", "bundle", "--out", path).stdout.strip() == path
        names = set()
        with tarfile.open(path, "r:gz") as tar:
            for member in tar:
                raw = tar.extractfile(member).read()
                names.add(os.path.basename(member.name))
                assert raw, member.name
                if member.name.endswith(".json"):
                    json.load(io.BytesIO(raw))
                for form in (MARKER, MARKER.upper(), MARKER.encode().hex(), MARKER[:8]):
                    assert form.encode() not in raw, (member.name, form)
        assert names == {"MANIFEST.json", "status.json", "config.json", "changes.json", "audit.json",
                         "requests.json", "iterations.json", "metrics.txt", "journey.txt",
                         "doctor.json"}, names
        # the same words in nothing else that is shown or kept
        for page in ("/status", "/metrics", "/journey", "/config", "/api/v1/requests",
                     "/api/v1/iterations", "/api/v1/changes", "/api/v1/audit"):
            assert MARKER.encode() not in a.get(page)[1], page
        with open(os.path.join(a.dir.name, "flight"), "rb") as f:
            assert MARKER.encode() not in f.read()
        assert MARKER not in a.log()
    gone = a.ctl("support", "bundle", "--out", "/dev/null", check=False)
    assert gone.returncode == 4, gone


def ask_as(a, gid, *args):
    """tandemctl as nobody in group gid."""
    def become():
        os.setgroups([])
        os.setgid(gid)
        os.setuid(NOBODY)
    return subprocess.run([os.path.join(a.bin, "tandemctl"), *args], capture_output=True, text=True,
                          check=False, preexec_fn=become, timeout=PATIENCE,
                          env={**os.environ, "TANDEM_SOCKET": a.settings["control.socket"]})


def roles_are_those_of_the_peer():
    """viewer, operator, admin and nobody, by the groups that the kernel reports."""
    groups = {"control.viewer_group": "mail", "control.operator_group": "news",
              "control.admin_group": "uucp"}
    import grp
    gid = {role: grp.getgrnam(groups[f"control.{role}_group"]).gr_gid
           for role in ("viewer", "operator", "admin")}
    gid["nobody"] = NOBODY
    may = {"show": {"viewer", "operator", "admin"}, "drain": {"operator", "admin"},
           "undrain": {"operator", "admin"}, "apply": {"admin"}, "rollback": {"admin"},
           "bundle": {"viewer", "operator", "admin"}}
    words = {"show": ["show", "status"], "drain": ["drain"], "undrain": ["undrain"],
             "apply": ["config", "apply", "sched.gap_ms=400"], "rollback": ["config", "rollback"],
             "bundle": ["support", "bundle", "--out", "/dev/null"]}
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with Appliance(BIN, {**NO_PORT, **groups, "control.socket": folder + "/run/ctl.sock"}) as a:
            for what, who in may.items():
                for role in ("nobody", "viewer", "operator", "admin"):
                    done = ask_as(a, gid[role], *words[what])
                    allowed = role in who
                    assert (done.returncode == 0) == allowed, (what, role, done)
                    if not allowed and what != "bundle":
                        assert "this needs the role" in done.stderr, done
            denied = [e for e in audit(a) if e["result"] == "denied"]
            assert denied and all(e["who"] == f"uid {NOBODY}" for e in denied), denied
            assert a.total("tandem_refusals_total", 'reason="auth"') == len(denied)


def a_drain_refuses_and_comes_back():
    """drain: what runs ends whole, what is new hears 503; undrain: as before."""
    with Appliance(BIN, NO_PORT) as a:
        c, r = a.stream("go on", 2000)
        r.readline()
        a.ctl("drain", "--why", "kernel update")
        assert a.get("/ready")[0] == 503
        status, reply, headers = a.post("/v1/completions", {"model": a.model(), "prompt": "hi"})
        assert status == 503 and reply["error"]["code"] == "draining", (status, reply)
        assert "retry-after" in {k.lower() for k in headers}
        a.until(lambda: a.total("tandem_state", 'state="draining"') == 1)
        assert "draining" in a.ctl("show", "health", check=False).stdout
        drained = json.loads(a.ctl("show", "changes", "-o", "json").stdout)["drained"]
        assert drained == {"by": "uid 0", "why": "kernel update"}, drained
        assert len(stream_ids(r)) > 1900
        c.close()
        a.ctl("undrain")
        a.until(lambda: a.get("/ready")[0] == 200)
        assert len(a.complete("hi", 5)) == 5
        done = a.ctl("show", "nothing", check=False)
        assert done.returncode == 2 and "status" in done.stderr


def the_web_api_wants_key_origin_and_token():
    """POST over TCP: each of the three proofs is needed; a feed tells what happened."""
    key = "an admin key"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")
        with open(path, "w", encoding="ascii") as f:
            f.write(f"ann {hashlib.sha256(key.encode()).hexdigest()}\n")
        with Appliance(BIN, {**NO_PORT, "control.admin_keys_file": path}) as a:
            session = json.loads(a.get("/api/v1/session")[1])
            assert session["role"] == "viewer" and session["can_change"], session
            all_of = {"authorization": "Bearer " + key, "x-csrf-token": session["csrf"],
                      "origin": f"http://127.0.0.1:{PORT}", "content-type": "application/json"}

            def post(path, headers, body="{}"):
                c = a.connect()
                c.request("POST", path, body, headers)
                r = c.getresponse()
                text = r.read()
                c.close()
                assert "access-control-allow-origin" not in {k.lower() for k in r.headers}
                return r.status, text
            for name, value in (("authorization", "Bearer no"), ("x-csrf-token", "no"),
                                ("origin", "http://evil.example")):
                status, text = post("/api/v1/drain", {**all_of, name: value})
                assert status == 403, (name, status, text)
            assert a.get("/ready")[0] == 200
            c = a.connect()
            c.request("GET", "/api/v1/stream")
            feed = c.getresponse()
            assert feed.headers["content-type"].startswith("text/event-stream")
            status, text = post("/api/v1/drain", all_of, '{"why": "from the page"}')
            assert status == 202, text
            seen = b""
            end = time.monotonic() + PATIENCE
            while b'"by":"key ann","why":"from the page"' not in seen:
                assert time.monotonic() < end, seen[-2000:]
                seen += feed.readline()
            c.close()
            assert a.get("/ready")[0] == 503
            status, text = post("/api/v1/undrain", all_of)
            assert status == 202, text
            # the same with tandemctl over TCP
            a.until(lambda: a.get("/ready")[0] == 200)
            tcp = ["--http", f"http://127.0.0.1:{PORT}"]
            # --http is said here and now, the socket in the environment: root's would be an admin
            env = {**os.environ, "TANDEM_SOCKET": a.settings["control.socket"]}

            def ctl(*args):
                return subprocess.run([os.path.join(BIN, "tandemctl"), *args, *tcp], env=env, timeout=PATIENCE,
                                      capture_output=True, text=True, check=False)
            assert ctl("config", "apply", "sched.gap_ms=345", "--key", key).returncode == 0
            assert gap_ms(a) == 345
            done = ctl("config", "rollback")
            assert done.returncode == 1 and "role admin" in done.stderr, done


def a_page_of_another_in_a_browser_here_is_a_stranger():
    """A name that leads to 127.0.0.1 (DNS rebinding) or a page of another origin opens nothing; who
    asks by a name of ours, or without one in HTTP/1.0 as a balancer does, is as trusted as before."""
    with Appliance(BIN, {**NO_PORT, "http.hosts": "tandem.rack,proxy.example"}) as a:
        body = json.dumps({"model": a.model(), "prompt": "hi", "max_tokens": 3})
        asks = [("GET", p, None) for p in ("/status", "/metrics", "/config", "/journey", "/v1/models",
                                           "/api/v1/session", "/api/v1/audit", "/api/v1/requests",
                                           "/api/v1/stream")]
        asks += [("POST", "/v1/completions", body), ("POST", "/reload", "{}"),
                 ("POST", "/api/v1/config/diff", '{"config": {}}')]

        def ask(method, path, text, **fields):
            c = a.connect()
            if "Host" not in fields:
                c._http_vsn, c._http_vsn_str = 10, "HTTP/1.0"  # pylint: disable=protected-access
            c.putrequest(method, path, skip_host=True)
            for k, v in fields.items():
                c.putheader(k, v)
            if text:
                c.putheader("content-type", "application/json")
                c.putheader("content-length", str(len(text)))
            c.endheaders(text.encode() if text else None)
            r = c.getresponse()
            said = b"" if r.headers["content-type"].startswith("text/event-stream") else r.read()
            c.close()
            return r.status, said
        evil = f"evil.example:{PORT}"
        before = a.total("tandem_http_misnamed_requests_total")
        for method, path, text in asks:
            for fields in ({"Host": evil}, {"Host": evil, "Origin": f"http://{evil}"},
                           {"Host": f"127.0.0.1:{PORT}", "Origin": "http://evil.example"},
                           {"Host": f"localhost:{PORT}", "Origin": "null"}):
                status, said = ask(method, path, text, **fields)
                assert status in (401, 403), (path, fields, status, said)
                assert status == 403 or b"http.hosts" in said, (path, said)
        assert a.total("tandem_http_misnamed_requests_total") == before + 4 * len(asks)
        for path in ("/health", "/ready"):  # a balancer may call it what it likes
            assert ask("GET", path, None, Host=evil)[0] == 200
        ours = [{"Host": f"{h}:{PORT}"} for h in ("127.0.0.1", "localhost", "tandem.rack", "proxy.example",
                                                  socket.gethostname())]
        ours += [{}, {"Host": "localhost", "Origin": "http://localhost:3000"}]  # a page of ours may look and ask
        for method, path, text in asks:
            for fields in ours:
                if "Origin" in fields and method == "POST" and path[:3] != "/v1":
                    continue  # but change nothing from another port
                status, said = ask(method, path, text, **fields)
                assert status in (200, 202, 409), (path, fields, status, said)
        assert a.total("tandem_http_misnamed_requests_total") == before + 4 * len(asks) + 2
    refused = subprocess.run([os.path.join(BIN, "tandemd"), "--set", "http.hosts=http://a", "--set", "port.kind=none"],
                             capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert refused.returncode and "hosts" in refused.stderr + refused.stdout, refused
    key = "a tenant's key"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")
        with open(path, "w", encoding="ascii") as f:
            f.write(f"ann {hashlib.sha256(key.encode()).hexdigest()}\n")
        with Appliance(BIN, {**NO_PORT, "api.keys_file": path}) as a:
            c = a.connect()  # with a key any name will do: a proxy passes its own on
            c.putrequest("GET", "/v1/models", skip_host=True)
            c.putheader("Host", "public.example")
            c.putheader("authorization", "Bearer " + key)
            c.endheaders()
            assert c.getresponse().status == 200
            c.close()


def concurrent_changes_have_one_winner():
    """Eight apply at once from the same revision: one is in force, seven hear why not; and whoever
    asks beside others reads what came of his own ask."""
    with Appliance(BIN, NO_PORT) as a:
        def all_at_once(words):
            done = [None] * len(words)
            start = threading.Barrier(len(words))

            def one(i):
                start.wait()
                done[i] = a.ctl(*words[i], check=False)
            threads = [threading.Thread(target=one, args=(i,)) for i in range(len(words))]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            return done
        why_not = ("made from revision", "another change is under way", "awaits its confirmation")
        for begin in range(0, 3):
            done = all_at_once([["config", "apply", f"sched.gap_ms={200 + 10 * begin + i}",
                                 "--revision", str(begin)] for i in range(8)])
            won = [i for i, d in enumerate(done) if d.returncode == 0]
            assert len(won) == 1, [(d.returncode, d.stderr) for d in done]
            assert gap_ms(a) == 200 + 10 * begin + won[0]
            assert all(any(w in d.stderr for w in why_not) for d in done if d.returncode), done
        assert json.loads(a.ctl("show", "changes", "-o", "json").stdout)["revision"] == 3
        late = a.ctl("config", "apply", "sched.gap_ms=9", "--revision", "1", check=False)
        assert late.returncode == 1 and "made from revision 1, but 3 is in force" in late.stderr, late
        # good and bad ones at the same time: each hears its own
        for _ in range(5):
            done = all_at_once([["config", "confirm"], ["undrain"]] * 4)
            for i, d in enumerate(done):
                if "another change is under way" in d.stderr:
                    continue
                assert (d.returncode == 0) == (i % 2 == 1), d
                assert ("nothing awaits confirmation" in d.stderr) == (i % 2 == 0), d


def shows_speak_every_form():
    """show -o json, yaml and prom say the same; a form that a page has not is refused."""
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import yaml
        from prometheus_client.parser import text_string_to_metric_families as families
    except ImportError:
        sys.exit(77)
    name = 'yes: [no] - "1" #\u00e9'
    with Appliance(BIN, {**NO_PORT, "model.name": name}) as a:
        a.complete("hello " * 40, 30)
        a.until(lambda: a.status()["tokens"]["output"] == 30)  # counts lag a little

        def shape(v):
            if isinstance(v, dict):
                return {k: shape(x) for k, x in v.items()}
            return [shape(x) for x in v] if isinstance(v, list) else type(v) in (int, float) or type(v)
        for word in ("status", "health", "slo", "scheduler", "attention", "fallbacks", "drops", "rings", "journey",
                     "tiles", "kv", "requests", "flight", "gpu", "power", "slowest", "changes", "audit",
                     "config", "models", "version"):
            for again in range(20):  # asked one after the other: a finding may have come or gone
                said = json.loads(a.ctl("show", word, "-o", "json").stdout)
                text = a.ctl("show", word, "-o", "yaml").stdout
                if shape(yaml.safe_load(text)) == shape(said):
                    break
                assert again < 19, (word, text)
                time.sleep(0.2)
            if word in ("config", "models", "version"):
                assert yaml.safe_load(text) == said, (word, text)
        assert json.loads(a.ctl("show", "models", "-o", "json").stdout)["data"][0]["id"] == name
        seen = set()
        for word in ("status", "slo", "scheduler", "attention", "fallbacks", "drops", "rings", "tiles", "kv",
                     "requests", "flight", "gpu", "power", "changes", "health"):
            text = a.ctl("show", word, "-o", "prom").stdout
            samples = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families(text)
                       for s in f.samples}
            assert samples, word
            seen |= {n for n, _ in samples}
        assert "tandem_ttft_seconds_bucket" in seen and "tandem_tile_iterations_total" in seen
        m = a.metrics()
        text = a.ctl("show", "attention", "-o", "prom").stdout
        prefill = 'tandem_vcta_total{op="prefill"}'
        assert f"{prefill} {m[prefill]:.0f}\n" in text, text
        for words in (["journey", "-o", "prom"], ["audit", "-o", "prom"], ["config", "--since", "5m"],
                      ["slo", "-o", "prom", "--since", "5m"], ["metrics", "-o", "json"], ["metrics", "-o", "yaml"], ["slo", "-o", "xml"], ["slo", "--since", "2h"]):
            assert a.ctl("show", *words, check=False).returncode == 2, words
        assert a.ctl("drain", "-o", "yaml", check=False).returncode == 2


def words_are_taken_or_told_why_not():
    """tandemctl says of a word that it does not take what it takes; its own two ways to say one thing are one."""
    with Appliance(BIN, NO_PORT) as a:
        for words, told in ((["nonsense"], 'no command "nonsense"'), ([], "usage: tandemctl"),
                            (["chat", "x", "--max-tokens", "0"], "takes a whole number from 1 to 2147483647"),
                            (["show", "slo", "--since", "2h"], "takes a duration as 10s, 5m or 1h, at most 1h"),
                            (["chat", "x", "--temperature", "-1"], "takes a number from 0 on"),
                            (["config", "diff", "/nonexistent"], "/nonexistent: No such file"),
                            (["config", "rollback", "x"], '"x" is no revision')):
            wrong = a.ctl(*words, check=False)
            assert wrong.returncode == 2 and told in wrong.stderr and "-1" not in wrong.stderr.replace(
                '"-1"', ""), (words, wrong)
        assert a.ctl("--version").stdout == a.ctl("version").stdout
        assert a.ctl("-h").stdout == a.ctl("help").stdout
        as_copied = subprocess.run([os.path.join(BIN, "tandemctl"), "show", "version", "--http",
                                    f"http://127.0.0.1:{PORT}/"], capture_output=True, check=False, timeout=PATIENCE,
                                   env={k: v for k, v in os.environ.items() if k != "TANDEM_SOCKET"})
        assert as_copied.returncode == 0, as_copied


def a_time_that_is_shown_can_be_asked_for():
    """What a table says of a time is a time, and explain --at takes it."""
    with Appliance(BIN, NO_PORT) as a:
        a.complete("hello " * 40, 30)
        a.until(lambda: a.status()["tokens"]["output"] == 30)  # counts lag a little
        table = a.ctl("show", "requests", "--slowest", "1").stdout.splitlines()
        at = dict(zip(table[1].split(), table[2].split()))["at_s"]
        assert abs(calendar.timegm(time.strptime(at[:19], "%Y-%m-%dT%H:%M:%S")) - time.time()) < 300, table
        told = a.ctl("explain", "--flight", a.settings["flight.path"], "--at", at, check=False)
        assert told.returncode == 0 or "no such iteration" in told.stderr, told
        changes = a.ctl("show", "changes").stdout
        assert time.strftime("%Y-%m-%dT", time.gmtime()) in changes, changes


def since_counts_the_last_seconds_alone():
    """show --since T: what was counted over the last T, not since the start."""
    with Appliance(BIN, NO_PORT) as a:
        begin = time.monotonic()
        a.complete("hello " * 40, 30)
        a.until(lambda: a.status()["tokens"]["output"] == 30)  # counts lag a little
        # the second snapshot of the appliance's memory is half a minute after the first
        time.sleep(max(0.0, begin + 32 - time.monotonic()))
        a.complete("hello", 5)

        def output(*since):
            return json.loads(a.ctl("show", "requests", "-o", "json", *since).stdout)["tokens"]["output"]
        assert output() == 35 and output("--since", "1h") == 35
        assert output("--since", "1s") == 5
        text = a.ctl("show", "requests", "--since", "1s").stdout
        assert "counted over the last" in text.splitlines()[0], text


def dpdk_telemetry_hears_of_the_appliance():
    """Debian's dpdk-telemetry.py: /tandem/... says what /metrics says, beside DPDK's own."""
    import shutil
    tool = shutil.which("dpdk-telemetry.py")
    if not tool:
        sys.exit(77)
    with Appliance(BIN) as a:
        a.complete("hello " * 40, 30)
        a.until(lambda: a.status()["tokens"]["output"] == 30)  # counts lag a little
        asks = ["/tandem/summary", "/tandem/sched", "/tandem/rings", "/tandem/vcta", "/tandem/fallbacks",
                "/tandem/drops", "/ethdev/list", "/help,/tandem/vcta"]
        r = subprocess.run([sys.executable, tool, "-f", "tandem"], input="\n".join(asks) + "\nquit\n",
                           capture_output=True, text=True, timeout=PATIENCE, check=False)
        text = r.stdout[r.stdout.index("{"):]
        decode, replies = json.JSONDecoder(), {}
        while "{" in text:
            reply, end = decode.raw_decode(text[text.index("{"):])
            text = text[text.index("{") + end:]
            replies.update(reply)
        m = a.metrics()
        assert replies["/tandem/vcta"]["executed_prefill"] == m['tandem_vcta_total{op="prefill"}'] > 0
        assert replies["/tandem/vcta"]["planned_decode"] == m['tandem_vcta_planned_total{op="decode"}'] > 0
        assert replies["/tandem/summary"]["state_ready"] == 1
        assert replies["/tandem/summary"]["tokens_output"] == 30
        assert replies["/tandem/rings"]["capacity_request"] == 4096
        assert replies["/tandem/sched"]["iterations_decode_only"] > 0
        assert len(replies["/tandem/fallbacks"]) > 20 and sum(replies["/tandem/fallbacks"].values()) == 0
        assert "ip_ttl" in replies["/tandem/drops"]
        assert replies["/ethdev/list"] == [0], replies
        assert "Virtual CTAs" in replies["/help"]["/tandem/vcta"], replies["/help"]
    r = subprocess.run([sys.executable, tool, "-f", "tandem"], input="quit\n", capture_output=True,
                       text=True, timeout=PATIENCE, check=False)
    assert "Virtual" not in r.stdout


def the_flight_recorder_lives_on_hugepages():
    """flight.path on hugetlbfs: on hugepages, there after a kill, and told by explain and trace."""
    with open("/proc/meminfo", encoding="ascii") as f:
        pages = {line.split(":")[0]: int(line.split()[1]) for line in f}
    if pages.get("HugePages_Free", 0) < 16:
        sys.exit(77)
    folder = tempfile.mkdtemp(prefix="tandem-huge-")
    subprocess.run(["mount", "-t", "hugetlbfs", "none", folder], check=True)
    try:
        path = os.path.join(folder, "flight")
        with Appliance(BIN, {**NO_PORT, "flight.path": path}) as a:
            a.complete("hello", 40)
            page = 1024 * pages["Hugepagesize"]
            assert a.total("tandem_arena_page_bytes", 'arena="flight"') == page
            assert os.stat(path).st_size % page == 0
            with open(f"/proc/{a.process.pid}/smaps", encoding="ascii") as f:
                smaps = f.read()
            mine = smaps[smaps.index(path):][:1200]
            assert f"KernelPageSize:     {pages['Hugepagesize']} kB" in mine, mine
            wrote = a.total("tandem_flight_records_total", 'kind="iteration"')
            assert wrote >= 40
            a.process.kill()
            a.process.wait()
            told = a.ctl("explain", "--flight", path)
            assert "decode_only" in told.stdout, told
            events = json.loads(a.ctl("trace", "--flight", path).stdout)["traceEvents"]
            assert sum(e["ph"] == "X" for e in events) >= wrote - 1
    finally:
        subprocess.run(["umount", folder], check=True)
        os.rmdir(folder)


if __name__ == "__main__":
    sys.exit(run_fact(globals(), needs_tun=False))
