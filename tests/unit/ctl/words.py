#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of tandemctl against every option of any: one that the
command has a use for is taken, any other is refused by its name, with the
command's own lines of help; and no script, page or rare test types such a
one.  usage: words.py TANDEMCTL ROOT

The words are such that a command with good options ends at once: nobody
listens, a word it needs is missing, or the process it waits for is gone."""
import ast
import concurrent.futures
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

SHARED = {"--host": "127.0.0.1", "--port": "1", "--certificate": "x", "--insecure": None, "--socket": "/nonexistent",
          "--http": "http://127.0.0.1:1", "--key": "k", "--model": "m", "--max-tokens": "3", "--temperature": "0",
          "--seed": "1", "--ids": None, "--json": None, "-o json": None, "-o yaml": None, "-o prom": None,
          "--since": "5m", "--watch": "1", "--slowest": "3", "--confirm": "10s", "--revision": "1", "--why": "w",
          "--reason": "w", "--out": "OUT", "--seconds": "1", "--pid": "PID"}
OTHERS = {"--nonsense": "1", "--profile": "/nonexistent", "--trace": "/nonexistent", "--requests": "2", "--ttft-ms": "9",
          "--ttft-share": "0.9", "--gap-ms": "9", "--epsilon": "0.1", "--appliances": "1", "--kv-pages": "9",
          "--noise": "0", "--html": "OUT", "--rates": "1", "--scale": "1", "--cv": "1", "--sequences": "2",
          "--context": "64", "--prefill-tokens": "64", "--grid": "64", "--floor": "64", "--starve-ms": "9",
          "--policies": "quantile", "--link-gbit": "1", "--kv-bytes": "9", "--link-us": "1", "--spread": None,
          "--window": "9", "--clock": "9", "--door": "http1", "--rate": "1", "--load": "1", "--capacity": "1",
          "--duration": "1", "--vocab": "9", "--connections": "1", "--open-max": "1", "--records": "OUT", "--warm": "1",
          "--cut": None, "--text-seed": "1", "--plain": None, "--quiet": None, "--cells": "fused/quantile",
          "--planned": "/nonexistent", "--measured": "/nonexistent", "--only": "fused/quantile", "--first": "1", "--note": "a=b", "--keep": "a/b",
          "--plan": "/nonexistent", "--config": "/nonexistent", "--set": "model.path=/nonexistent", "--budget": "1",
          "--power-w": "1", "--at": "-1", "--iteration": "1", "--fallback": "operator", "--flight": "/nonexistent",
          "--format": "chrome", "--root": "ROOT"}
PAGE = "--socket --http --key"
ASK = "--host --port --certificate --insecure --key --model --max-tokens --temperature --seed --ids --json -o-json --seconds"
FORM = "--json -o-json"
CHANGE = f"{PAGE} --why --reason --seconds"
SHOW = f"{PAGE} {FORM} -o-yaml -o-prom --watch --seconds"
REPLAY = ("--trace --door --rate --load --capacity --requests --duration --cv --scale --context --vocab --connections "
          "--open-max --ttft-ms --gap-ms --epsilon --records --warm --cut --text-seed --spread --plain --quiet "
          f"--host --port --certificate --insecure --http --key --model --seed --seconds {FORM}")
# What a bench tells the replay of each window by itself.
ALONE = "--rate --load --capacity --duration --cut --text-seed --records --quiet --json -o-json".split()
# What is typed, what has a use there.
COMMANDS = {
    "chat": ASK, "generate": ASK, "top": f"{PAGE} --watch --why --reason", "wait": f"{PAGE} --seconds --pid",
    "config show": SHOW, "config diff": f"{PAGE} {FORM}", "config apply": f"{CHANGE} --confirm --revision",
    "config confirm": CHANGE, "config rollback": CHANGE, "reload": CHANGE, "drain": CHANGE, "undrain": CHANGE,
    "support": f"{PAGE} --out", "doctor": f"--model {FORM}", "completion": "", "version": "", "--version": "",
    "appliance help": "", "appliance check /nonexistent": "", "appliance kernel": "--root", "appliance kernel /nonexistent": "",
    "appliance accept /nonexistent": "--root", "appliance render": "--root",
    "plan": "--profile --trace --requests --ttft-ms --ttft-share --gap-ms --epsilon --appliances --kv-pages --noise --seed "
            "--json --html --rates --scale --cv --sequences --context --prefill-tokens --grid --floor --starve-ms "
            "--policies --link-gbit --kv-bytes --link-us --spread --window --clock --measured",
    "replay": REPLAY,
    "bench serve": " ".join(x for x in REPLAY.split() if x not in ALONE) +
                   " --socket --out --rates --cells --window --planned --only --first --note",
    "bench merge": "--out --keep --plan --note",
    "profile": "--out --config --set --budget --power-w --json",
    "explain": "--at --iteration --slowest --fallback --flight", "trace": "--format --seconds --flight",
}
# These read their words themselves; the rest has one reader.
OWN = ("appliance", "plan", "replay", "bench", "profile", "explain", "trace")
# of show: the words whose figures are counts over a time
COUNTED = ("status health slo scheduler attention fallbacks drops rings tiles kv requests flight gpu power").split()
for word in COUNTED + "slowest journey metrics config changes audit models version".split():
    COMMANDS[f"show {word}"] = (SHOW + (" --since" if word in COUNTED else "") +
                                (" --slowest" if word in ("requests", "slowest") else ""))



def told(ctl, env, words):
    try:
        r = subprocess.run([ctl, *words], capture_output=True, text=True, check=False, timeout=10, env=env,
                           stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return -1, "no end within 10 s"
    return r.returncode, r.stderr


def typed(root):
    """What scripts and pages have somebody type: (file, words)."""
    for folder in ("deploy", "tests/perf", "README.md"):
        folder = os.path.join(root, folder)
        for place, _, names in os.walk(folder) if os.path.isdir(folder) else [(root, [], ["README.md"])]:
            for name in names:
                path = os.path.join(place, name)
                try:
                    with open(path, encoding="utf-8") as f:
                        text = f.read().replace("\\\n", " ")
                except UnicodeDecodeError:
                    continue
                for line in re.findall(r"(?:tandemctl|\$ctl)\"? +([a-z][^`|;&<>#()\n]*)", text):
                    yield os.path.relpath(path, root), line.split()


def driven(root):
    """What the end-to-end tests that not every run has (a guest, an image, a GPU, a storm) have tandemctl do."""
    for folder in ("guest", "image", "gpu", "storm"):
        for place, _, names in os.walk(os.path.join(root, "tests/e2e", folder)):
            for path in (os.path.join(place, n) for n in names if n.endswith(".py")):
                with open(path, encoding="utf-8") as f:
                    tree = ast.parse(f.read())
                for node in ast.walk(tree):
                    said = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.List) else []
                    words = [getattr(w, "value", None) if isinstance(w, ast.Constant) else None for w in said]
                    words = [w if isinstance(w, str) else "" for w in words]
                    begin = next((i for i, w in enumerate(words) if any(c.split()[0] == w for c in COMMANDS if c[0] != "-")),
                                 len(words))
                    if any(w.startswith("--") for w in words[begin:]):
                        yield os.path.relpath(path, root), words[begin:]


def check_typed(root):
    """Each option of those has a use there: the table says so, and main holds the table to the program."""
    wrong, cnt = [], 0
    for path, words in [*typed(root), *driven(root)]:
        command = next((c for c in (" ".join(words[:2]), words[0]) if c in COMMANDS), None)
        for i, word in enumerate(words):
            if command is None or not re.fullmatch(r"--[a-z-]+|-o", word):
                continue
            cnt += 1
            option = f"-o-{words[i + 1]}" if word == "-o" and i + 1 < len(words) else word
            if option not in COMMANDS[command].split():
                wrong.append(f"{path}: {' '.join(words)}: {command} has no use for {word}")
    return wrong + ([] if cnt > 30 else [f"only {cnt} options were found in scripts and pages"])


def check_patience(ctl, env):
    """show waits as long for an answer that does not come as it was told to."""
    wrong = []
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        for seconds in (1, 7):
            begin = time.monotonic()
            rc, _ = told(ctl, env, ["show", "health", "--seconds", str(seconds), "--http",
                                    f"http://127.0.0.1:{deaf.getsockname()[1]}"])
            took = time.monotonic() - begin
            if rc != 4 or not seconds - 0.1 <= took < seconds + 2.5:
                wrong.append(f"show health --seconds {seconds}: {rc} after {took:.1f} s")
    return wrong


# Options that are numbers: whole ones, and others, with what they are at least and at most.
COUNTS = {"replay": {"--requests": (1, 1048576), "--context": (2, 1048576), "--vocab": (2, 1048576), "--warm": (0, 256),
                     "--connections": (1, 256), "--open-max": (1, 16384), "--text-seed": (0, 10**15),
                     "--port": (1, 65535), "--seconds": (1, 86400), "--seed": (0, 2**63 - 1)},
          "plan": {"--requests": (2, 1048576), "--appliances": (1, 64), "--kv-pages": (1, 1 << 26), "--seed": (0, 10**15),
                   "--sequences": (1, 256), "--context": (2, 131072), "--prefill-tokens": (1, 8192), "--grid": (1, 1024),
                   "--floor": (1, 8192)},
          "profile": {"--budget": (0, 86400), "--power-w": (0, 100000)},
          "trace": {"--seconds": (1, 1000000)}, "explain": {"--iteration": (1, 2**64 - 1)},
          "bench serve": {"--vocab": (2, 1048576)}, "chat": {"--max-tokens": (1, 2**31 - 1)}}
NUMBERS = {"replay": {"--duration": (1e-3, 1e7), "--rate": (1e-6, 1e6), "--cv": (0.05, 50), "--scale": (1e-6, 1000),
                      "--ttft-ms": (1e-3, 1e7), "--gap-ms": (1e-3, 1e7), "--epsilon": (0, 1)},
           "plan": {"--ttft-ms": (1, 1e7), "--ttft-share": (0.01, 1), "--gap-ms": (1, 1e6), "--epsilon": (1e-6, 1),
                    "--noise": (0, 1), "--kv-bytes": (1, 1e9), "--link-us": (0, 1e6), "--scale": (1e-6, 1000),
                    "--cv": (0.05, 50), "--starve-ms": (1, 1e9), "--clock": (1, 1e5), "--window": (1, 86400)},
           "bench serve": {"--window": (1, 86400), "--seconds": (1, 1e6), "--first": (0, 86400), "--epsilon": (0, 1)}}
# Lists with a number that would be cut to another, or taken for none.
LISTS = {"plan": {"--rates": ("1@", "1@-1", "1@0.5", "1@257", "1@x", "1,1", "0", "nan", "inf", "1,,2"),
                  "--policies": ("static:1.5", "static:", "static:-1", "static:+8", "fifo:0.9", "static:8193", "margin:nan"),
                  "--link-gbit": ("2,1", "nan", "1e-4")},
         "bench serve": {"--rates": ("1@", "1@-1", "1@0.5", "1@257", "1@x", "1,1", "1,1.0005", "nan", "1,,2"),
                         "--cells": ("fused/static:64.5", "fused/static:-18446744073709551104", "fused/fifo:+64",
                                     "fused/static:63", "fused/quantile,"),
                         "--note": ("x", "=x", "k" * 32 + "=x")}}


def check_output(ctl, env):
    """What cannot be written is a failure, of whatever command."""
    wrong = []
    for words in ("version", "help", "completion bash", "plan --profile example --trace azure_conv --requests 9 --rates 1 --json"):
        with open("/dev/full", "w", encoding="ascii") as full:
            r = subprocess.run([ctl, *words.split()], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=env)
        if r.returncode != 1 or "No space left" not in r.stderr:
            wrong.append(f"{words} > /dev/full: gave {r.returncode} and said {r.stderr!r}")
    return wrong


def check_numbers(ctl, env):
    """A number is taken as it was typed or refused by its name: none is cut to another."""
    wrong, asked = [], []
    for option, most in (("--key", 512), ("--http", 384)):  # what is cut off would be another key, another place
        rc, said = told(ctl, env, ["replay", option, "k" * (most + 1)])
        if rc != 2 or f"{option}: takes a" not in said or "k" * 61 in said:
            wrong.append(f"replay {option} of {most + 1} bytes: gave {rc} and said {said!r}")
    for kind, table in ((1, COUNTS), (0, NUMBERS)):
        for command, options in table.items():
            for option, (low, high) in options.items():
                bad = ["", "x", "1x", "nan", "-1", repr(high * 2 + 1), "1e300"] + ([repr(low / 2)] if low > 0 else [])
                for value in bad + ["2.5", "0.9999"] * kind:
                    asked.append((command, option, value, False))
                if option not in ("--seconds", "--scale") or command == "trace":  # those end at once
                    asked += [(command, option, str(v), True) for v in (low, high)]
    asked += [(c, o, v, False) for c, options in LISTS.items() for o, values in options.items() for v in values]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda x: told(ctl, env, [*x[0].split(), x[1], x[2]]), asked))
    for (command, option, value, is_good), (rc, said) in zip(asked, answers):
        refused = [x for x in said.splitlines() if f"{option}" in x and "takes " in x]
        if is_good and refused:
            wrong.append(f"{command} {option} {value}: refused: {said[:200]}")
        if not is_good and not (rc == 2 and refused):
            wrong.append(f"{command} {option} {value}: gave {rc} and said {said[:200]!r}")
    return wrong + ([] if len(asked) > 400 else [f"only {len(asked)} numbers were asked"])


def main():
    ctl, root = sys.argv[1:]
    env = {k: v for k, v in os.environ.items() if k != "TANDEM_SOCKET"} | {"TANDEM_SOCKET": "/nonexistent"}
    ended = subprocess.Popen(["true"])
    ended.wait()
    text = subprocess.run([ctl, "help"], capture_output=True, text=True, check=True).stdout
    commands, options = text.split("options:\n")
    named = set(re.findall(r"^  ([a-z]+)", commands, re.M))
    wrong = check_typed(root) + check_patience(ctl, env) + check_numbers(ctl, env) + check_output(ctl, env)
    if {c.split()[0] for c in COMMANDS} - {"--version"} != named:
        wrong.append(f"commands of the help: {sorted(named)}")
    known = {o.split()[0] for o in {**SHARED, **OTHERS}}
    lacking = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", text)) - known - {"--version", "--help"}
    if lacking:
        wrong.append(f"options of the help that this test does not know: {lacking}")
    if not set(re.findall(r"^  (--[a-z-]+)", options, re.M)) <= set(SHARED):
        wrong.append("options that commands share and this test does not know")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked = {}
        for command, used in COMMANDS.items():
            base = ["--pid", str(ended.pid)] if command == "wait" else []
            others = OTHERS if command.split()[0] in OWN else dict(list(OTHERS.items())[:3])
            for option, value in {**SHARED, **others}.items():
                value = {"OUT": os.path.join(folder, "out"), "PID": str(ended.pid),
                         "ROOT": os.path.join(folder, "root")}.get(value, value)
                words = [*command.split(), *base, *option.split(), *([value] if value else [])]
                is_used = option.replace(" ", "-") in used.split()
                if is_used and command.split()[0] in ("show", "config") and option == "--watch":
                    words.append("--nonsense")  # it would ask again and again
                asked[tuple(words)] = command, option, is_used, pool.submit(told, ctl, env, words)
        for words, (command, option, is_used, r) in asked.items():
            rc, said = r.result()
            name = option.split()[0]
            refused = [x for x in said.splitlines() if f"no use for {name}" in x]
            if is_used and refused:
                wrong.append(f"{words}: refused, and has a use: {said}")
            if not is_used and not (rc == 2 and refused and f"usage: tandemctl {command.split()[0].strip('-')}" in said):
                wrong.append(f"{words}: gave {rc} and said {said[:200]!r}")
        for word in ("drain x", "undrain x", "reload x", "wait x", "top x", "version x", "doctor a b", "show kv x",
                     "chat a b", "support bundle x", "completion bash x", "replay x"):
            rc, said = told(ctl, env, word.split())
            if rc != 2 or f'no use for "{word.split()[-1]}"' not in said:
                wrong.append(f"{word}: gave {rc} and said {said[:200]!r}")
        for words in ("--at -1 --slowest", "--iteration 3 --fallback operator", "--at -1 --iteration 2"):
            rc, said = told(ctl, env, ["explain", *words.split()])
            if rc != 2 or "one of --at" not in said:
                wrong.append(f"explain {words}: gave {rc} and said {said[:200]!r}")
        # what bash offers after a dash is what the command takes
        script = subprocess.run([ctl, "completion", "bash"], capture_output=True, text=True, check=True).stdout
        for command in sorted(named):
            used = " ".join(u for c, u in COMMANDS.items() if c.split()[0] == command).split()
            offered = subprocess.run(["bash", "-c", script + "\n" + f'COMP_WORDS=(tandemctl {command} -); COMP_CWORD=2; '
                                      '_tandemctl; printf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True,
                                     check=True).stdout.split()
            want = {("-o" if x.startswith("-o") else x) for x in used} - {"--reason"}
            if set(offered) != want:
                wrong.append(f"bash offers for {command}: {sorted(set(offered) ^ want)}")
    for line in wrong[:40]:
        print(line)
    print(f"{len(asked)} asked, {len(wrong)} wrong")
    return 1 if wrong else 0


sys.exit(main())
