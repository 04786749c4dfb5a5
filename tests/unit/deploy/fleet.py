#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fleet's files hold together and with the appliance.  usage: fleet.py ROOT TANDEMD

Manifests are YAML whose selectors, ports, volumes and paths meet, with a configuration that
tandemd takes; haproxy takes its own.  Exit 77 without python3-yaml."""
import copy
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    sys.exit(77)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def documents(root):
    out = {}
    for path in sorted(glob.glob(os.path.join(root, "deploy/fleet/kubernetes/*.yaml"))):
        for d in yaml.safe_load_all(read(path)):
            out[d["kind"]] = d
    return out


def check_manifests(docs, routes, out):
    app = docs["StatefulSet"]["spec"]
    labels = app["template"]["metadata"]["labels"]
    pod = app["template"]["spec"]
    (container,) = pod["containers"]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}

    def selects(who, wanted):
        if not wanted.items() <= labels.items():
            out.append(f"{who}: selects {wanted}, pods have {labels}")

    selects("StatefulSet", app["selector"]["matchLabels"])
    selects("Service", docs["Service"]["spec"]["selector"])
    selects("PodMonitor", docs["PodMonitor"]["spec"]["selector"]["matchLabels"])
    selects("InferencePool", docs["InferencePool"]["spec"]["selector"]["matchLabels"])
    for p in docs["Service"]["spec"]["ports"]:
        if p["targetPort"] not in ports:
            out.append(f"Service: no port {p['targetPort']}")
    for e in docs["PodMonitor"]["spec"]["podMetricsEndpoints"]:
        if e["port"] not in ports:
            out.append(f"PodMonitor: no port {e['port']}")
    for p in docs["InferencePool"]["spec"]["targetPorts"]:
        if p["number"] not in ports.values():
            out.append(f"InferencePool: no port {p['number']}")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = container[probe]["httpGet"]
        if get["port"] not in ports or f'"{get["path"]}"' not in routes:
            out.append(f"{probe}: {get} is nothing that tandemd answers")
    volumes = {v["name"] for v in pod["volumes"]}
    if volumes != {m["name"] for m in container["volumeMounts"]}:
        out.append("StatefulSet: volumes and mounts differ")
    backend = docs["HTTPRoute"]["spec"]["rules"][0]["backendRefs"][0]
    if (backend["kind"], backend["name"]) != ("InferencePool", docs["InferencePool"]["metadata"]["name"]):
        out.append("HTTPRoute: leads to no pool")


def check_config(docs, tandemd, out):
    """The appliance takes the configuration, and its drain fits the pod's grace."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write(docs["ConfigMap"]["data"]["tandem.json"])
        f.flush()
        r = subprocess.run([tandemd, "--config", f.name, "--print-config"], capture_output=True, text=True,
                           check=False)
    if r.returncode:
        out.append(f"ConfigMap: {r.stderr.strip()}")
        return
    config = json.loads(r.stdout)
    pod = docs["StatefulSet"]["spec"]["template"]["spec"]
    if config["http"]["port"] != pod["containers"][0]["ports"][0]["containerPort"]:
        out.append("ConfigMap: http.port is not the container's")
    if config["sched"]["drain_ms"] + 10_000 > 1000 * pod["terminationGracePeriodSeconds"]:
        out.append("StatefulSet: a drain takes longer than the pod's grace")


def check_haproxy(root, out):
    if not shutil.which("haproxy"):
        print("haproxy is not here: its configuration was not checked")
        return
    text = read(root, "deploy/fleet/haproxy.cfg")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "haproxy.cfg")
        with open(path, "w", encoding="utf-8") as f:
            f.write(re.sub(r"stats socket \S+", f"stats socket {folder}/s", text))
        r = subprocess.run(["haproxy", "-c", "-f", path], capture_output=True, text=True, check=False)
    if r.returncode or "[WARNING]" in r.stderr:
        out.append(r.stderr.strip())


def doctored(docs, routes, tandemd, out):
    """The checks find what they are for."""
    bad = copy.deepcopy(docs)
    bad["Service"]["spec"]["selector"] = {"app": "other"}
    bad["InferencePool"]["spec"]["targetPorts"][0]["number"] = 1
    bad["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["path"] = "/alive"
    bad["StatefulSet"]["spec"]["template"]["spec"]["volumes"].pop()
    bad["ConfigMap"]["data"]["tandem.json"] = '{"http": {"prot": 1}}'
    found = []
    check_manifests(bad, routes, found)
    check_config(bad, tandemd, found)
    for word in ("Service: selects", "InferencePool: no port 1", "/alive", "volumes and mounts", "http.prot"):
        if not any(word in line for line in found):
            out.append(f"self-test: nothing found for '{word}'")


def main():
    root, tandemd = sys.argv[1], sys.argv[2]
    out = []
    docs = documents(root)
    routes = read(root, "appliance/api/route.c")
    check_manifests(docs, routes, out)
    check_config(docs, tandemd, out)
    check_haproxy(root, out)
    doctored(docs, routes, tandemd, out)
    print("\n".join(out) or "the fleet's files are sound")
    sys.exit(1 if out else 0)


if __name__ == "__main__":
    main()
