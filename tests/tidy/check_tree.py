#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of the tree that a compiler does not make: include arrows, who may
include which library, banned words, layout, long functions, untested reasons,
names that nobody uses, pages that name what is not there, programs that
nothing runs, formatting.

usage: check_tree.py ROOT     prints one line per finding; exit 1 if any
       check_tree.py --self   proves that each check can fail
"""
import ast
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

CODE = (".c", ".h", ".cu", ".cuh", ".def")
TOP = {"CMakeLists.txt", "appliance", "net", "scheduler", "kernels", "telemetry", "deploy", "tests",
       "README.md", "LICENSE", "CMakePresets.json"}
LINE_MAX = 100
FILE_MAX = 600
FUNCTION_MAX = 80  # lines, also of Python: a screen
FILE_ENDS = {"c", "h", "def", "json", "bin", "gguf", "key", "raucb", "md", "py", "conf", "html"}  # no key of a section

# Which rooms may include which outside headers.
PRIVATE = [
    (r"<rte_ring", {"ring"}),
    (r"<rte_", {"net_port", "net_tile", "ring"}),
    (r"<(ngtcp2|nghttp3)/", {"net_quic", "net_h3", "net_client"}),
    (r"<microhttpd", {"net_http1"}),
    (r"<cuda", {"kernels_cuda", "kernels_device", "kernels_attention", "kernels_ptx"}),
    (r"<hugetlbfs", {"base"}),
    (r"<pcre2", {"tokenizer"}),
    (r"<jansson", {"api", "config", "control", "ctl", "model", "profile", "setup",
                     "tokenizer"}),
    (r"<n?curses", {"ctl"}),
    (r"<seccomp", {"exec"}),
    (r"<gnutls/", {"api", "net_quic", "net_client", "setup"}),
]

# Words that no source may hold, with where they are allowed.
BANNED = [
    (r"\bvolatile\b", r"^kernels/ptx/", "use appliance/base/atomic.h"),
    (r"\b(asm|__asm__)\b", r"^(kernels/ptx/|appliance/base/atomic\.h)", "asm lives in kernels/ptx"),
    (r"\b(TODO|FIXME|XXX|HACK)\b", None, "no bare reminders"),
    (r"\t", None, "a tab"),
    (r"[ \t]+$", None, "trailing space"),
    (r"\b(strcpy|strcat|sprintf|gets|vsprintf)\s*\(", r"^tests/", "unbounded string call"),
    (r"\b(pypi\.org|files\.pythonhosted|deb\.debian|registry\.npmjs)\b", None, "a registry host"),
    (r"(^|[^A-Za-z.])/(work|farm|root|home)/", None, "a machine path"),
]
TILE = re.compile(r"^(net/(tile|quic|h3|link)|scheduler(/tile)?)/[^/]*\.c$")
TILE_BANNED = re.compile(r"\b(malloc|calloc|realloc|free|printf|fprintf|tdm_log|pthread_\w+|usleep|"
                         r"nanosleep)\s*\(")
TILE_ALLOWED = {"net/quic/cert.c"}  # boot time only
ORDERS = re.compile(r"\btdm_(load_acquire|store_release|swap_acq_rel|add_acq_rel|cas_acq_rel)\b"
                    r"|\bmemory_order_(acquire|release|acq_rel|seq_cst)\b|\b__threadfence")
# Part of tandem-exec, whose image what was measured on GPUs belongs to: they go with its next change.
UNUSED = {"tdm_reason_group_name", "tdm_pod_spans", "tdm_hopper_time", "tdm_worklist_tile_tok"}


def arrows(root):
    table = {}
    text = read(root, "CMakeLists.txt")
    block = re.search(r"set\(TDM_ARROWS(.*?)\)", text, re.S).group(1)
    for row in re.findall(r'"([a-z0-9_]+):\s*([^"]*)"', block):
        table[row[0]] = set(row[1].split())
    return table


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


def files(root):
    try:
        out = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                             capture_output=True, text=True, check=True).stdout
        names = out.split("\n")
    except (OSError, subprocess.CalledProcessError):
        names = [os.path.relpath(os.path.join(d, f), root)
                 for d, _, fs in os.walk(root) for f in fs if "/build" not in d and "/.git" not in d]
    return sorted(n for n in names if n and os.path.isfile(os.path.join(root, n)))


def room_of(path):
    parts = path.split("/")
    if parts[0] == "appliance" and len(parts) > 2:
        return "execmain" if parts[-1] == "tandem_exec.c" else parts[1]
    if parts[0] in ("net", "kernels", "telemetry") and len(parts) > 2:
        return parts[0] + "_" + parts[1]
    if parts[0] == "scheduler":
        return "scheduler" if len(parts) == 2 else "scheduler_" + parts[1]
    return None


def check_file(root, path, table, out):
    text = read(root, path)
    lines = text.split("\n")
    if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(lines[:2]):
        out.append(f"{path}:1: the first line is not the licence")
    room = room_of(path)
    if len(lines) > FILE_MAX + 1 and room:
        out.append(f"{path}: {len(lines)} lines: look for a second noun")
    for i, line in enumerate(lines, 1):
        if len(line) > LINE_MAX and path.endswith(CODE) and not path.startswith("tests/"):
            out.append(f"{path}:{i}: over {LINE_MAX} columns")
        for pattern, allowed, why in BANNED:
            if re.search(pattern, line) and not (allowed and re.match(allowed, path)):
                out.append(f"{path}:{i}: {why}: {line.strip()[:60]}")
        if room is None:
            continue
        if TILE.match(path) and path not in TILE_ALLOWED and TILE_BANNED.search(line):
            out.append(f"{path}:{i}: not in a polling tile: {line.strip()[:60]}")
        m = re.match(r'\s*#\s*include\s+("([^"]+)"|<[^>]+>)', line)
        if not m:
            continue
        if m.group(2) is None:
            for pattern, rooms in PRIVATE:
                if re.match(pattern, m.group(1)):
                    if room not in rooms:
                        out.append(f"{path}:{i}: {room} may not include {m.group(1)}")
                    break
            continue
        target = room_of(m.group(2))
        if target is None:
            out.append(f"{path}:{i}: include from the repository root: {m.group(2)}")
        elif target == room:
            pass
        elif m.group(2).endswith("_private.h"):
            out.append(f"{path}:{i}: a private header leaves its room")
        elif target not in ("base", "abi") and target not in table.get(room, set()):
            out.append(f"{path}:{i}: {room} may not include {target} (TDM_ARROWS)")


def check_functions(root, names, out):
    """A function fits a screen.  In C, as clang-format has it: from the last line that begins at the margin to the
    brace that ends there."""
    for path in names:
        if path.endswith((".c", ".h")):
            begin = 0
            for i, line in enumerate(read(root, path).split("\n"), 1):
                if line == "}" and i - begin >= FUNCTION_MAX:
                    out.append(f"{path}:{begin}: a function of {i - begin + 1} lines")
                if re.match(r"\w", line):
                    begin = i
        elif path.endswith(".py"):
            out += [f"{path}:{f.lineno}: {f.name} has {f.end_lineno - f.lineno + 1} lines"
                    for f in ast.walk(ast.parse(read(root, path)))
                    if isinstance(f, ast.FunctionDef) and f.end_lineno - f.lineno >= FUNCTION_MAX]


def check_cycles(table, out):
    def visit(room, trail):
        if room in trail:
            out.append("CMakeLists.txt: a cycle of arrows: " + " -> ".join(trail + [room]))
            return
        for dep in table.get(room, ()):
            visit(dep, trail + [room])
    for room in table:
        visit(room, [])


def check_walked(root, names, table, out):
    """An arrow of the table is walked: by an include line, or by what a room or a program links."""
    walked = set()
    for path in names:
        if path.endswith(CODE):
            walked |= {(room_of(path), room_of(m)) for m in re.findall(r'^\s*#\s*include\s+"([^"]+)"', read(root, path), re.M)}
        elif path.endswith("CMakeLists.txt"):
            for kind, name, row, body in re.findall(r"tdm_(module|program)\((\S+)(?: (\w+))?\s([^)]*)\)", read(root, path)):
                deps = re.sub(r"\b(PKG|LIBS)\b.*", "", body.partition("DEPS")[2], flags=re.S).split()
                walked |= {(row if kind == "program" else name, dep) for dep in deps}
    out += [f"CMakeLists.txt: TDM_ARROWS lets {room} use {dep}, and it does not"
            for room in table for dep in sorted(table[room]) if (room, dep) not in walked]


def check_reasons(root, names, out):
    text = read(root, "appliance/abi/reasons.def")
    tests = "\n".join(read(root, n) for n in names
                      if n.startswith("tests/") and n.endswith((".c", ".py", ".sh", ".h")))
    for group, name in re.findall(r"^TDM_(DROP|REFUSE|CAP|FALLBACK|FAULT)\((\w+)", text, re.M):
        if not re.search(r"\b" + name + r"\b|TDM_" + group + "_" + name + r"\b", tests):
            out.append(f"appliance/abi/reasons.def: no test names {group.lower()} {name}")


def check_faults(root, names, out):
    """Each test that the table of faults names exists."""
    page = "deploy/docs/faults.md"
    if page not in names:
        return
    tests = "\n".join(read(root, n) for n in names
                      if n.startswith("tests/") and n.endswith((".c", ".py", "CMakeLists.txt")))
    for name in re.findall(r"`([a-z0-9]+_[a-z0-9_]+)`", read(root, page)):
        if not name.startswith("tandem_") and not re.search(r"\b" + name + r"\b", tests):
            out.append(f"{page}: no test is named {name}")


def check_fields(root, names, out):
    """The page of the API names each field of a body, under what becomes of it, and no other."""
    page, table = "deploy/docs/api.md", "appliance/api/fields.c"
    if page not in names:
        return
    part = {head: set(re.findall(r"`([a-z_]+)`", text))
            for head, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", read(root, page), re.M | re.S)}
    head_of = {"NEUTRAL": "Refused by name", "IGNORED": "Without effect"}
    known = {head: set() for head in part}
    for kind, name in re.findall(r'^ +([A-Z_]+)\("(\w+)",', read(root, table), re.M):
        known.setdefault(head_of.get(kind, "Fields that count"), set()).add(name)
    for head, fields in known.items():
        out += [f"{page}: \"{head}\" does not name {f}" for f in sorted(fields - part.get(head, set()))]
    for head in head_of.values():
        out += [f"{page}: \"{head}\" names {f}, which it is not"
                for f in sorted(part.get(head, set()) - known[head] - {"null", "message", "param", "unsupported_parameter"})
                if not f.startswith("tandem_")]


def check_orders(root, names, out):
    """A file that orders memory is in the list of pairs."""
    page = "deploy/docs/memory-order.md"
    if page not in names:
        return
    text = read(root, page)
    for path in names:
        if (path.endswith(CODE) and not path.startswith("tests/") and path != "appliance/base/atomic.h"
                and ORDERS.search(read(root, path)) and os.path.basename(path) not in text):
            out.append(f"{path}: orders memory and is not in {page}")


def check_figures(root, names, out):
    """A figure that a page gives beside a line of the ledger is that line's, rounded; and a name that looks like one
    of the ledger's is."""
    ledger = "tests/perf/results/ledger.jsonl"
    if ledger not in names:
        return
    lines = [json.loads(line) for line in read(root, ledger).splitlines()]
    figure = {line["name"]: line["value"] for line in lines}
    rooms = {name.partition(".")[0] for name in figure}
    for page in names:
        if not page.endswith(".md"):
            continue
        text = read(root, page)
        # in README's rows the name stands last, in those of reports it is the first word
        rows = re.findall(r"^\|[^|]*\| \*\*([0-9.]+)\*\*[^|]*\|.*\| `([a-z0-9_.]+)` \|$", text, re.M)
        rows += [(v, n) for n, v in re.findall(r"^\| ([a-z0-9_.]+):[^|]*\| \*\*([0-9.]+)\*\*[^|]*\|", text, re.M)]
        for value, name in rows:
            digits = len(value.partition(".")[2])
            if name in figure and f"{figure[name]:.{digits}f}" != value:
                out.append(f"{page}: {name} is {figure[name]} in the ledger, not {value}")
        for name in re.findall(r"(?<![\w./])[a-z0-9_]+(?:\.[a-z0-9_]+){2,}(?![\w./])", text):
            if name.partition(".")[0] in rooms and name not in figure:
                out.append(f"{page}: the ledger has no {name}")


def check_ledger(root, names, out):
    """A name stands once in the ledger, and its command runs what is in the tree."""
    ledger = "tests/perf/results/ledger.jsonl"
    if ledger not in names:
        return
    lines = [json.loads(line) for line in read(root, ledger).splitlines()]
    cnt = collections.Counter(line["name"] for line in lines)
    out += [f"{ledger}: {name} stands {n} times" for name, n in cnt.items() if n > 1]
    made = "\n".join(read(root, n) for n in names if n.startswith("tests/") and n.endswith("CMakeLists.txt"))
    for line in lines:
        for word in re.findall(r"(?:^|[ (])((?:\.ci|tests|deploy)/[\w./-]+)", line["command"]):
            if word not in names and word + ".c" not in names:
                out.append(f"{ledger}: {line['name']}: {word} is not there")
        for test in re.findall(r"ctest -R (?:e2e_)?(\w+)", line["command"]):
            if not re.search(r"\b(e2e_)?" + test + r"\b", made):
                out.append(f"{ledger}: {line['name']}: there is no test {test}")


def check_mutants(root, names, out):
    """The text that a list of bugs to plant replaces stands once in its source."""
    for path in names:
        if os.path.basename(path) != "mutate.py":
            continue
        text = read(root, path)
        folder = re.search(r'os\.path\.join\(tree, "([\w/]+)", file\)', text).group(1)
        lists = [n.value for n in ast.parse(text).body
                 if isinstance(n, ast.Assign) and n.targets[0].id == "MUTANTS"]
        for name, file, old, _ in ast.literal_eval(lists[0]):
            cnt = read(root, f"{folder}/{file}").count(old)
            if cnt != 1:
                out.append(f"{path}: \"{name}\": its text stands {cnt} times in {folder}/{file}")


def anchors(text):
    """What GitHub calls the headings of a page."""
    heads = [re.sub(r"\]\([^)]*\)|[`*\[]", "", h).strip().lower() for h in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r" ", "-", re.sub(r"[^\w\- ]", "", h)) for h in heads}


def typed(text):
    """The spans of code of a page and the lines of its blocks, as (words, is a block's)."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return [(s.split(), False) for s in spans] + [(line.split(), True) for b in blocks for line in b.splitlines()]


def check_pages(root, names, out):
    """What a page names is there: files and headings that it links, paths of the tree, configuration keys, metrics,
    presets."""
    folders = {os.path.dirname(n) for n in names} | {os.path.dirname(os.path.dirname(n)) for n in names}
    if "appliance/config/config.def" not in names:
        return
    keys = {f"{a}.{b}" for a, b in re.findall(r"^TDM_\w+\((\w+), (\w+)", read(root, "appliance/config/config.def"), re.M)}
    sections = {k.partition(".")[0] for k in keys}
    metrics = set(re.findall(r"\btandem_\w+", read(root, "deploy/docs/metrics.md")))
    presets = set(re.findall(r'"name": "(\w+)"', read(root, "CMakePresets.json")))
    for page in names:
        if not page.endswith(".md") or page == "deploy/docs/metrics.md":
            continue
        text = read(root, page)
        for link, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", text):
            path = os.path.normpath(os.path.join(os.path.dirname(page), link)) if link else page
            if path not in names and path not in folders:
                out.append(f"{page}: links {link}, which is not there")
            elif anchor and anchor not in anchors(read(root, path)):
                out.append(f"{page}: links {link}#{anchor}, and there is no such heading")
        for words, is_block in typed(text):
            for before, word in zip([None, *words], words):
                word = word.rstrip(",;:.")
                section, _, key = word.partition("=")[0].partition(".")
                if re.fullmatch(r"(appliance|net|scheduler|kernels|telemetry|deploy|tests)/[\w./-]+", word):
                    if word.rstrip("/") not in names and word.rstrip("/") not in folders:
                        out.append(f"{page}: {word} is not there")
                elif ("=" in word if is_block or len(words) > 1 else key not in FILE_ENDS) and section in sections \
                        and re.fullmatch(r"\w+", key) and f"{section}.{key}" not in keys:
                    out.append(f"{page}: there is no key {section}.{key}")
                elif before == "--preset" and word not in presets and word.islower():
                    out.append(f"{page}: there is no preset {word}")
        for name in re.findall(r"`(tandem_\w+)[`{]", text):
            if re.sub("_(bucket|sum|count)$", "", name) not in metrics:
                out.append(f"{page}: there is no metric {name}")


def check_orphans(root, names, out):
    """A program of the tests is started or imported by something, a page of the documents linked by another; what
    makes files that are kept is run by hand."""
    texts = {n: read(root, n) for n in names if n.endswith((".py", ".txt", ".md", ".c", ".cu", ".jsonl")) or "." not in os.path.basename(n)
             and n.startswith(("tests/", "deploy/")) and "/corpus/" not in n}
    for path in names:
        name = os.path.basename(path)
        stem, end = os.path.splitext(name)
        if path.startswith("tests/") and end == ".py" and not name.startswith("make_"):
            if not any(re.search(r"\b" + stem + r"\b", t) for n, t in texts.items() if n != path):
                out.append(f"{path}: nothing runs it")
        elif path.startswith("deploy/docs/") and end == ".md":
            if not any(f"{name})" in t for n, t in texts.items() if n.endswith(".md") and n != path):
                out.append(f"{path}: no page links it")


def check_options(root, names, out):
    """tandemctl's help names each option that it reads, and no other."""
    main, rest = "appliance/ctl/tandemctl.c", "appliance/ctl/options.c"
    if main not in names:
        return

    def literals(path):
        return re.findall(r'"((?:\\.|[^"\\\n])*)"', read(root, path))
    option = r"--[a-z][a-z-]*"
    reads = {w for n in names if n.startswith("appliance/ctl/") and n.endswith(".c")
             for w in literals(n) if re.fullmatch(option, w)} - {"--help"}
    told = {o for n in (main, rest) for w in literals(n) if not re.fullmatch(option, w) for o in re.findall(option, w)}
    out += [f"{main}: the help does not name {o}" for o in sorted(reads - told)]
    out += [f"{main}: nothing reads {o}" for o in sorted(told - reads)]


def check_labels(root, names, out):
    """A metric is set by code, and so is each value of a label of which code names any: an exported 0 that nobody
    ever raises is no news.  Labels that an enum of the code counts through are named by none."""
    births = "telemetry/block/metrics.def"
    if births not in names:
        return
    text = read(root, births)
    code = "".join(read(root, n) for n in names if n.endswith((".c", ".h"))
                   and (not n.startswith(("tests/", "telemetry/read/")) or n == "telemetry/read/process.c"))
    named = set(re.findall(r"\bTDM_(?:LABEL|METRIC)_(\w+)", code))
    for label in re.findall(r"^TDM_LABELS\((\w+)", text, re.M):
        values = re.findall(rf"TDM_VALUE\({label}, (\w+)\)", text)
        if any(f"{label}_{v}" in named for v in values):
            out += [f"{births}: nothing sets {label} {v}" for v in values if f"{label}_{v}" not in named]
    for metric in re.findall(r"^TDM_(?:COUNTER|GAUGE|HISTOGRAM)\((\w+)", text, re.M):
        if metric not in named:
            out.append(f"{births}: nothing sets {metric}")


def check_dead(root, names, out):
    """A function or macro that a header offers is used by code, and a function by another file than its own:
    comments and its definition do not count."""
    code = {n: re.sub(r"/\*.*?\*/|//[^\n]*", "", read(root, n), flags=re.S) for n in names if n.endswith(CODE)}
    said = {path: set(re.findall(r"\b(?:tdm|TDM)_\w+", text)) for path, text in code.items()}
    used = collections.Counter(w for text in code.values() for w in re.findall(r"\b(?:tdm|TDM)_\w+", text))
    defined = {name: path for path, text in code.items() if not path.endswith(".h")
               for name in re.findall(r"^\w[\w *]*?\b(tdm_\w+)\([^;{}]*\)\s*\{", text, re.M)}
    for path, text in code.items():
        if not path.endswith(".h") or path.startswith("tests/"):
            continue
        for name in re.findall(r"^(?:#define |\w[\w *]*?\b(?=tdm_\w+\())((?:tdm|TDM)_\w+)", text, re.M):
            if name in UNUSED or name.endswith("_H"):
                continue
            if used[name] - (name in defined) <= 1:
                out.append(f"{path}: nobody uses {name}")
            elif name in defined and not any(name in words for other, words in said.items()
                                             if other not in (path, defined[name])):
                out.append(f"{path}: only {defined[name]} uses {name}: static there")


def check_format(root, names, out):
    tool = shutil.which("clang-format")
    if not tool:
        return
    code = [n for n in names if n.endswith((".c", ".h"))]
    run = subprocess.run([tool, "--dry-run", "-Werror"] + code, cwd=root, capture_output=True,
                         text=True, check=False)
    for path in sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: error: code should be", run.stderr, re.M))):
        out.append(f"{path}: not formatted; run clang-format -i")


def check(root):
    out = []
    table = arrows(root)
    names = files(root)
    for n in names:
        top = n.split("/")[0]
        if top not in TOP and not top.startswith("."):
            out.append(f"{n}: not in the agreed top level")
        if n.endswith(CODE):
            check_file(root, n, table, out)
    check_functions(root, names, out)
    check_cycles(table, out)
    check_walked(root, names, table, out)
    check_reasons(root, names, out)
    check_faults(root, names, out)
    check_fields(root, names, out)
    check_orders(root, names, out)
    check_figures(root, names, out)
    check_ledger(root, names, out)
    check_mutants(root, names, out)
    check_pages(root, names, out)
    check_options(root, names, out)
    check_labels(root, names, out)
    check_orphans(root, names, out)
    check_dead(root, names, out)
    check_format(root, names, out)
    return out


def self_test():
    with tempfile.TemporaryDirectory() as root:
        def put(path, text):
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
        spdx = "/* SPDX-License-Identifier: Apache-2.0 */\n"
        put("CMakeLists.txt", 'set(TDM_ARROWS\n "base:"\n "ring:"\n "api: ring"\n "a: b"\n "b: a")\n')
        put("appliance/abi/reasons.def", spdx + "TDM_DROP(lonely_reason, \"x\")\n")
        put("appliance/api/bad.c", spdx + '#include "appliance/exec/x.h"\n#include <rte_mbuf.h>\n'
            '#include "appliance/ring/r_private.h"\n' + "vola" + "tile int x;\n" + "int y; // TO" + "DO\n")
        put("scheduler/step.c", spdx + "void f(void) { free(0); }\n")
        put("appliance/ring/none.c", "int a;\n")
        put("surplus/file.c", spdx)
        put("appliance/ring/ring.h", spdx + "#define TDM_LONELY 1\nint tdm_alone(void);\n"
            "int tdm_called(void);\n/* tdm_caller: a word. */\nint tdm_caller(void);\nint tdm_inward(void);\n")
        put("appliance/ring/ring.c", spdx + "int tdm_caller(void) { return tdm_load_acquire(tdm_called()); }\n"
            "int tdm_inward(void) {}\nstatic int f(void) { return tdm_inward(); }\n")
        put("deploy/docs/faults.md", "| a fault | `an_absent_test`, `a_present_one` |\n")
        put("appliance/api/fields.c", spdx + '    INT("counts", BOTH)\n    NEUTRAL("hidden", BOTH)\n    IGNORED("idle", BOTH)\n')
        put("deploy/docs/api.md", "## Fields that count\n`counts`\n## Refused by name\n`idle`\n## Without effect\n`idle`\n")
        put("deploy/docs/memory-order.md", "| R1 | `ring.c` | it is whole |\n")
        put("appliance/ring/lost.c", spdx + "int f(int *p) { return tdm_load_acquire(p); }\n")
        put("README.md", "| a | **1.2** x | here | `a.ratio` |\n| b | **3.14** | here | `b.us` |\n"
            "[c](deploy/docs/page.md)\n")
        put("tests/perf/results/ledger.jsonl",
            '{"name": "a.ratio", "value": 1.35, "command": "tests/sim/mutate.py"}\n'
            '{"name": "b.us", "value": 3.1415, "command": "tests/gone/run.py; ctest -R e2e_nothing"}\n'
            '{"name": "b.us", "value": 3.1415, "command": "tests/unit/ring/test_x, ctest -R e2e_something"}\n')
        put("tests/e2e/CMakeLists.txt", "tdm_facts(friend something)\n")
        put("tests/unit/ring/test_x.c", spdx + "static void a_present_one(void **state);\n")
        put("tests/sim/mutate.py", '# SPDX-License-Identifier: Apache-2.0\nMUTANTS = [("gone", "step.c", "free(1)", ""),\n'
            '           ("there", "step.c", "free(0)", "")]\npath = os.path.join(tree, "scheduler", file)\n')
        put("appliance/ctl/tandemctl.c", spdx + '"go --told N --lost N"\n')
        put("appliance/ctl/options.c", spdx + '"--told" "--hidden"\n')
        put("appliance/config/config.def", spdx + 'TDM_U64(door, bytes, 1)\n')
        put("telemetry/block/metrics.def", spdx + 'TDM_LABELS(END, "end", TDM_VALUE(END, met) TDM_VALUE(END, unmet))\n'
            'TDM_LABELS(WAY, "way", TDM_VALUE(WAY, counted))\nTDM_COUNTER(raised, x)\nTDM_GAUGE(idle, x)\n')
        put("telemetry/block/ends.c", spdx + "int a = TDM_LABEL_END_met + TDM_METRIC_raised;\n")
        put("deploy/docs/metrics.md", "`tandem_here`\n")
        put("CMakePresets.json", '{"name": "release"}')
        put("tests/perf/results/page.md", "# A head, of `it`\n| b.us: that | **3.2** us | < 4 |\n| a.ratio: this | **1.35** | |\n"
            "a.lost.ratio, a.ratio\n[a](#a-head-of-it) [b](#gone) `tandemd --set door.wide=1`\n"
            "```\ncmake --preset absent; cmake --preset release\ntests/none --set door.bytes=2\n```\n")
        put("tests/e2e/lonely.py", "# SPDX-License-Identifier: Apache-2.0\nimport friend\n")
        put("tests/e2e/friend.py", "# SPDX-License-Identifier: Apache-2.0\n")
        put("tests/unit/ring/test_long.c", spdx + "int long_one(\n    int a) {\n" + "    a++;\n" * 80 + "}\n"
            "int fits(void) {\n" + "    f();\n" * 78 + "}\n")
        put("tests/e2e/long.py", "def long_two():\n" + "    pass\n" * 80 + "def fits():\n" + "    pass\n" * 79)
        put("deploy/docs/page.md", "[a](gone.md) [b](page.md) `net/none.c` `scheduler/step.c` `door.size=1` `door.bytes` "
            "`tandem_gone` `tandem_here_count`\n")
        found = "\n".join(check(root))
        for want in ("may not include exec", "may not include <rte_mbuf", "private header leaves",
                     "atomic.h", "no bare reminders", "not in a polling tile", "not the licence",
                     "agreed top level", "no test names drop lonely_reason",
                     "no test is named an_absent_test", "does not name hidden", "\"Refused by name\" names idle", "a cycle of arrows", "nobody uses TDM_LONELY",
                     "nobody uses tdm_alone", "nobody uses tdm_caller",
                     "only appliance/ring/ring.c uses tdm_inward", "help does not name --hidden", "nothing reads --lost",
                     "nothing sets END unmet", "nothing sets idle", "links gone.md", "net/none.c is not there", "no key door.size", "no metric tandem_gone",
                     "lets a use b", "lonely.py: nothing runs it", "faults.md: no page links it",
                     "appliance/ring/lost.c: orders memory",
                     "README.md: a.ratio is 1.35 in the ledger, not 1.2", "b.us is 3.1415 in the ledger, not 3.2",
                     "the ledger has no a.lost.ratio", "links #gone, and", "no key door.wide", "tests/none is not there",
                     "no preset absent", "test_long.c:2: a function of 83 lines", "long_two has 81 lines",
                     "b.us stands 2 times", "tests/gone/run.py is not there", "there is no test nothing",
                     "\"gone\": its text stands 0 times"):
            if want not in found:
                print(f"self-test: the check for '{want}' did not fire\n{found}")
                return 1
        for wrong in ("END met", "WAY", "sets raised", "does not name counts", "a_present_one", "not 3.14\n", "tdm_called",
                      "ring.c: orders", "\"there\"", "--told", "page.md: links page.md", "step.c is not", "door.bytes",
                      "tandem_here", "friend.py", "docs/page.md: no page", "lets api", "page.md: a.ratio", "a-head-of-it",
                      "80 lines", "test_x is not", "mutate.py is not", "no test something", "preset release"):
            if wrong in found + "\n":
                print(f"self-test: '{wrong}' is right, and a check fired\n{found}")
                return 1
    return 0


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    if sys.argv[1] == "--self":
        return self_test()
    out = check(sys.argv[1])
    for line in out:
        print(line)
    print(f"{len(out)} findings")
    return 1 if out or self_test() else 0


if __name__ == "__main__":
    sys.exit(main())
