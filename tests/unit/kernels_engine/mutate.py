#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts bugs into the rules of two iterations under way, one at a time, and asks the engine's unit
tests.

usage: tests/unit/kernels_engine/mutate.py

As tests/sim/mutate.py: a text that must occur exactly once and what it becomes; caught where a
test fails or does not end.  Exit 1 where one is missed."""
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
sys.path.insert(0, os.path.join(ROOT, "tests", "sim"))
from mutate import compile_all, link, run  # noqa: E402
from planted import planted  # noqa: E402

MUTANTS = [
    ("a decode runs on what the history held before", "engine.c",
     "if (row->token == TDM_ROW_DRAWN)", "if (0)"),
    ("a token that is not drawn yet is read", "engine.c",
     "->token_cnt <= d->pos) return TDM_ROW_DRAWN;", "->token_cnt > d->pos) return TDM_ROW_DRAWN;"),
    ("a drawn token enters the history with its answer", "engine.c",
     "            enter(e, t); /* at once: the next iteration runs on them */", "            (void)0;"),
    ("what a queue drew is not in the history", "engine.c",
     "        if (st != TDM_OK) return st;\n        enter(e, t);", "        if (st != TDM_OK) return st;"),
    ("both iterations have one place", "engine.c",
     "return &e->turn[iteration % e->config.depth];", "return &e->turn[0 * iteration];"),
    ("a NaN is forgotten by what runs on it", "engine.c",
     "if (tdm_slots_at(e->slots, slot)->is_poisoned)", "if (0)"),
    ("the second begins before the first ends", "engine.c",
     "    r->start_ns = TDM_MAX(r->start_ns, e->end_ns);\n", ""),
    ("a slot is opened while it runs", "slots_check.c",
     "if (s->slot[o->slot].busy_cnt)", "if (0)"),
    ("a slot that ran stays busy", "slots.c", "    s->slot[slot].busy_cnt--;\n", ""),
    ("a decode may follow a prompt that goes on", "slots.c",
     "t->due_cnt = t->next_pos + c->is_last;", "t->due_cnt = t->next_pos + 1;"),
    ("a token that is due counts as known", "slots.c",
     "        t->due_cnt = t->next_pos + 1;\n", "        t->token_cnt = t->due_cnt = t->next_pos + 1;\n"),
    ("nothing is due of a decode", "slots.c",
     "        t->due_cnt = t->next_pos + 1;\n", ""),
    ("tokens drawn ahead are not kept with their page", "slots.c",
     "for (uint32_t i = pos; i < pos + cnt; i++) note_input(",
     "for (uint32_t i = pos; i + 1 < pos + cnt; i++) note_input("),
]
SOURCES = ["kernels/engine/engine.c", "kernels/engine/slots.c", "kernels/engine/slots_check.c",
           "kernels/worklist/worklist.c", "kernels/sample/sample.c", "kernels/sample/select.c",
           "appliance/abi/reasons.c", "appliance/base/status.c", "appliance/base/check.c",
           "appliance/base/clock.c"]
RIG = ["rig.c", "queue.c"]  # each test is linked with them, used or not
TESTS = ["test_engine.c", "test_queue.c", "test_ahead.c", "test_slots.c"]


def is_caught(tree, out, objects):
    for test in TESTS:
        exe = os.path.join(out, test + ".exe")
        src = os.path.join(tree, "tests/unit/kernels_engine", test)
        link(objects + compile_all(tree, out, [src]), exe)
        try:
            if run([exe], timeout=60).returncode != 0:
                return True
        except subprocess.TimeoutExpired:
            return True
    return False


def main():
    missed = 0
    with tempfile.TemporaryDirectory() as tmp:
        tree, out = os.path.join(tmp, "tree"), os.path.join(tmp, "out")
        os.mkdir(out)
        for d in ("kernels", "appliance/abi", "appliance/base", "tests/unit/kernels_engine"):
            shutil.copytree(os.path.join(ROOT, d), os.path.join(tree, d))
        rig = [os.path.join("tests/unit/kernels_engine", s) for s in RIG]
        objects = compile_all(tree, out, [os.path.join(tree, s) for s in SOURCES + rig])
        if is_caught(tree, out, objects):
            sys.exit("mutate: the unchanged engine fails")
        for name, file, old, new in MUTANTS:
            path = os.path.join(tree, "kernels/engine", file)
            with planted(path, name, old, new):
                compile_all(tree, out, [path])
                hit = is_caught(tree, out, objects)
            missed += not hit
            print(f"{'caught' if hit else 'MISSED'}  {file:14} {name}", flush=True)
            compile_all(tree, out, [path])
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
