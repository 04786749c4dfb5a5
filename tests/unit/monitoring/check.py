#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The monitoring bundle agrees with the appliance and with itself.
usage: check.py ROOT          every expression's metric exists, with its labels; every alert has a
                              page, a test and its name; dashboards are what their source makes
       check.py --promtool ROOT   promtool accepts rules and scrape configuration, and its tests
       check.py --self ROOT       proves that the first can fail
Exit 77: promtool is not installed."""
import json
import os
import re
import shutil
import subprocess
import sys

WORDS = {"sum", "by", "rate", "increase", "on", "and", "or", "unless", "histogram_quantile", "le",
         "offset", "ignoring", "group_left", "without", "max", "min", "avg", "bool", "count",
         "topk", "clamp_min", "time", "inf", "humanizePercentage", "vector", "scalar"}


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def families(root):
    """{sample name: labels} of deploy/docs/metrics.md, which a test holds to metrics.def."""
    out = {}
    for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|",
                                         read(root, "deploy/docs/metrics.md"), re.M):
        if kind not in ("counter", "gauge", "histogram", "info"):
            continue
        keys = set() if labels.strip() in ("-", "facts of boot") else \
            {w.strip() for w in labels.split(",")}
        if kind == "histogram":
            out[name + "_sum"] = out[name + "_count"] = keys
            out[name + "_bucket"] = keys | {"le"}
        else:
            out[name] = keys
    return out


def values(root):
    """{label key: values} of the same page."""
    out = {}
    part = read(root, "deploy/docs/metrics.md").split("## Label values")[1].split("## Bucket")[0]
    for key, listed in re.findall(r"^\| `(\w+)` \| .* \| ([^|]*) \|$", part, re.M):
        out.setdefault(key, set()).update(v.strip() for v in listed.split(","))
    return out


def check_expr(expr, where, known, label_values, out):
    bare = re.sub(r"\$\w+|\$\{\w+\}", "x", expr)
    for name, body in re.findall(r"([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?", re.sub(r'"[^"]*"', lambda m: m[0].replace("{", "").replace("}", ""), bare)):
        if not name.startswith(("tandem_", "tandem:", "process_")):
            continue
        if name not in known:
            out.append(f"{where}: no such metric: {name}")
            continue
        for key, op, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', body or ""):
            if key in ("job", "instance") or known[name] is None:
                continue
            if key not in known[name]:
                out.append(f"{where}: {name} has no label {key}")
            elif key in label_values and key != "le" and value != "x":
                for one in (value.split("|") if "~" in op else [value]):
                    if one not in label_values[key]:
                        out.append(f"{where}: {key} is never {one}")


def rules(root, name):
    """[(kind, name, expr)] of a rules file."""
    text = read(root, "deploy/monitoring/prometheus", name)
    found = []
    for part in re.split(r"(?m)^      - (?=record:|alert:)", text)[1:]:
        kind, title = re.match(r"(record|alert): (\S+)", part).groups()
        expr = re.search(r"(?ms)^        expr: (.*?)(?=^        \w+:|^  - name|\Z)", part).group(1)
        found.append((kind, title, expr.strip().lstrip("|").strip().strip("'")))
    return found


def check_incidents(page, rules_text, names):
    """The page for operators has each alert once, with the severity that the rules give it."""
    rows = re.findall(r"(?m)^\| \[(\w+)\]\(\.\./monitoring/runbooks/(\w+)\.md\) \| (\w+) \|", page)
    severity = dict(re.findall(r"alert: (\w+)\n(?:.*\n)*?\s+severity: (\w+)", rules_text))
    out = [f"incidents.md: {n}" for n in sorted(names ^ {r[0] for r in rows})]
    out += [f"incidents.md: {a} has another page or severity" for a, b, s in rows if a != b or severity.get(a) != s]
    return out + (["incidents.md: an alert twice"] if len(rows) != len({r[0] for r in rows}) else [])


def check_refusals(root):
    """What counts as refused for want of something here: every 429 and 503, but a tenant over its own rate
    and a drain that somebody wants; each on its alert's page."""
    ours = set(re.findall(r"(?m)^TDM_REFUSE\((\w+), (?:429|503),", read(root, "appliance/abi/reasons.def"))) - \
        {"tenant_rate", "draining"}
    counted = re.search(r'record: tandem:refused:increase5m\n.*\n.*reason=~"([^"]*)"',
                        read(root, "deploy/monitoring/prometheus/recording.rules.yml"))
    out = [f"tandem:refused:increase5m: {r}" for r in sorted(ours ^ set(counted[1].split("|")))]
    page = read(root, "deploy/monitoring/runbooks/TandemRefusing.md")
    return out + [f"TandemRefusing.md: {r} is not there" for r in sorted(ours) if not re.search(rf"\b{r}\b", page)]


def check(root):
    out = check_refusals(root)
    base = os.path.join(root, "deploy/monitoring")
    known, label_values = families(root), values(root)
    recorded = rules(root, "recording.rules.yml")
    alerts = rules(root, "alerts.rules.yml")
    for _, title, _ in recorded:
        known[title] = None
    for _, title, expr in recorded + alerts:
        check_expr(expr, title, known, label_values, out)
    pages = {p[:-3] for p in os.listdir(os.path.join(base, "runbooks")) if p.endswith(".md")}
    names = {title for _, title, _ in alerts}
    tests = read(base, "prometheus/alerts.test.yml")
    text = read(base, "prometheus/alerts.rules.yml")
    for title in sorted(names ^ pages):
        out.append(f"{title}: an alert without a page, or a page without an alert")
    for title in sorted(names):
        if f"runbook: runbooks/{title}.md" not in text:
            out.append(f"{title}: the annotation runbook is missing")
        blocks = re.findall(rf"alertname: {title}\n(\s*exp_alerts:)?", tests)
        if not any(blocks) or all(blocks):
            out.append(f"{title}: no test in which it fires, or none in which it does not")
        if title in pages and not read(base, "runbooks", title + ".md").split("\n")[1] == f"# {title}":
            out.append(f"{title}: its page has another title")
    out += check_incidents(read(root, "deploy/docs/incidents.md"), text, names)
    for page in sorted(pages):
        for link in re.findall(r"\]\(([^)]+)\)", read(base, "runbooks", page + ".md")):
            if not os.path.exists(os.path.join(base, "runbooks", link)):
                out.append(f"{page}: a link to nothing: {link}")
    boards = sorted(os.listdir(os.path.join(base, "grafana")))
    made = subprocess.run([sys.executable, "-B", os.path.join(base, "dashboards.py"), "--print"],
                          capture_output=True, text=True, check=True).stdout
    made = json.loads(made)
    if sorted(made) != [b for b in boards if b.endswith(".json")]:
        out.append("grafana: other files than dashboards.py makes")
    for name, board in made.items():
        if name in boards and json.loads(read(base, "grafana", name)) != board:
            out.append(f"{name}: run deploy/monitoring/dashboards.py")
        ids = [p["id"] for p in board["panels"]]
        if len(ids) != len(set(ids)) or board["id"] is not None or not board["uid"]:
            out.append(f"{name}: ids")
        for p in board["panels"]:
            for t in p.get("targets", []):
                check_expr(t["expr"], f"{name}: {p['title']}", known, label_values, out)
                if t["datasource"]["uid"] != "${datasource}":
                    out.append(f"{name}: {p['title']}: a fixed data source")
    return out


def promtool(root):
    if not shutil.which("promtool"):
        sys.exit(77)
    folder = os.path.join(root, "deploy/monitoring/prometheus")
    for args in (["check", "rules", "recording.rules.yml", "alerts.rules.yml"],
                 ["check", "config", "scrape.yml"], ["test", "rules", "alerts.test.yml"]):
        r = subprocess.run(["promtool", *args], cwd=folder, capture_output=True, text=True,
                           check=False)
        if r.returncode:
            print(r.stdout + r.stderr)
            sys.exit(1)
    print("promtool accepts rules, configuration and tests")


def self_test(root):
    known, label_values = families(root), values(root)
    known["tandem:x"] = None
    for expr, finds in (("rate(tandem_tokens_total[5m])", 0), ("rate(tandem_token_total[5m])", 1),
                        ('tandem_state{state="ready"}', 0), ('tandem_state{state="red"}', 1),
                        ('tandem_state{stat="ready"}', 1), ('tandem_ttft_seconds{job="x"}', 1),
                        ('tandem_ttft_seconds_bucket{le="0.1",slo_class=~"batch|standard"}', 0),
                        ('tandem_ttft_seconds_bucket{slo_class=~"batch|fast"}', 1),
                        ('tandem:x{anything="1"}', 0), ("tandem:y", 1),
                        ('sum by (reason) (tandem_faults_total{reason="$reason"})', 0)):
        out = []
        check_expr(expr, "self", known, label_values, out)
        assert len(out) == finds, (expr, out)
    rules_text = "- alert: A\n  labels:\n    severity: page\n- alert: B\n  labels:\n    severity: ticket\n"
    row = "| [{0}](../monitoring/runbooks/{0}.md) | {1} | no | x |\n"
    good = row.format("A", "page") + row.format("B", "ticket")
    assert not check_incidents(good, rules_text, {"A", "B"})
    for page in (row.format("A", "page"), good.replace("ticket", "page"), good + row.format("A", "page")):
        assert check_incidents(page, rules_text, {"A", "B"}), page
    print("the checks can fail")


if __name__ == "__main__":
    if sys.argv[1] == "--promtool":
        promtool(sys.argv[2])
    elif sys.argv[1] == "--self":
        self_test(sys.argv[2])
    else:
        findings = check(sys.argv[1])
        print("\n".join(findings) or "the monitoring bundle agrees")
        sys.exit(1 if findings else 0)
