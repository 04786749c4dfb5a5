#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts bugs into the scheduler, one at a time, and asks the simulator.

usage: tests/sim/mutate.py [--seeds N] [--steps N]

Each mutant is a text that must occur exactly once in one source and what it
becomes.  A mutant is caught when test_sched_sim fails, aborts or does not
end in time.  Prints one line each and a total; exit 1 where fewer than all
but one are caught, or where the unchanged scheduler is "caught".
Needs gcc and cmocka; builds in a temporary folder, changes nothing here.
"""
import argparse
import glob
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from planted import planted  # noqa: E402

MUTANTS = [
    ("page leak: a retired slot keeps one", "kv.c",
     "for (uint32_t i = t->owned_cnt; i-- > 0;) {", "for (uint32_t i = t->owned_cnt; i-- > 1;) {"),
    ("double free: a page is given back twice", "kv.c",
     "kv->free[kv->free_cnt++] = page;",
     "kv->free[kv->free_cnt++] = page, kv->free[kv->free_cnt++] = page;"),
    ("no fence: pages return while an iteration reads them", "kv.c",
     "if (t->last_iteration > kv->done_iteration) {", "if (0) {"),
    ("a promise is one page short", "step.c",
     "return tdm_kv_pages(prompt_cnt + output_max - 1u);",
     "return TDM_MAX(tdm_kv_pages(prompt_cnt + output_max - 1u), 2u) - 1u;"),
    ("promises are not counted against the pool", "kv.c",
     "page_cnt <= tdm_kv_spare(kv)", "page_cnt <= kv->free_cnt + kv->prefix.idle_cnt"),
    ("decode skipped: the last slot gets no turn", "plan.c",
     "!tdm_draft_is_skipped(d, i))", "!tdm_draft_is_skipped(d, i) && i + 1u < s->sizes.seq_max)"),
    ("decode dropped from draft and plan in every 64th iteration", "draft_private.h",
     "return q->pos >= q->fill_cnt && q->pos < tdm_seq_last(q);",
     "return q->pos >= q->fill_cnt && q->pos < tdm_seq_last(q) && q->pos % 64u != 63u;"),
    ("one decode too many: past the last token", "draft_private.h",
     "q->pos < tdm_seq_last(q);", "q->pos <= tdm_seq_last(q);"),
    ("budget off by one: a token over the bound", "draft.c",
     "b->token_max > d->load.prefill_cnt ? b->token_max - d->load.prefill_cnt : 0u;",
     "b->token_max >= d->load.prefill_cnt ? b->token_max - d->load.prefill_cnt + 1u : 0u;"),
    ("slices off by one", "draft.c",
     "if (!p && (d->pick_cnt == s->live.slice_max ||", "if (!p && (d->pick_cnt == s->live.slice_max + 1u ||"),
    ("time limit ignored", "draft.c",
     "return tdm_draft_predict(s, d->both, &more) <= budget_ns;",
     "return tdm_draft_predict(s, d->both, &more) <= budget_ns * 2;"),
    ("starvation: long prompts are never fed", "draft.c",
     "if (b->is_short_only && !tdm_queue_is_short(*at)) continue;",
     "if (!tdm_queue_is_short(*at)) continue;"),
    ("starvation: a lone prompt over the limit is not forced", "draft.c",
     "if (!may_force || !(is_starved || is_alone)) return 0;", "return 0;"),
    ("last slice marked one slice early", "plan.c",
     "int is_last = end == q->fill_cnt;", "int is_last = end + 1u >= q->fill_cnt;"),
    ("a page is not granted to the executor", "plan.c",
     "uint32_t want = tdm_kv_pages(tok);", "uint32_t want = tdm_kv_pages(TDM_MAX(tok, 1u) - 1u);"),
    ("a former owner's slot is not closed", "plan.c",
     "        plan->close[plan->close_cnt++] = i;\n", ""),
    ("after a restart output tokens are lost", "step.c",
     "q->fill_cnt = q->prompt_cnt + q->out_cnt;", "q->fill_cnt = q->prompt_cnt;"),
    ("a kept token goes one place too far", "result.c",
     "*tdm_tape_at(&s->tape, q->row, q->out_cnt) = token;",
     "*tdm_tape_at(&s->tape, q->row, q->out_cnt + 1u) = token;"),
    ("an ended sequence's sample reaches its slot's next owner", "result.c",
     "int is_live = q && q->state != TDM_SEQ_FREE && TDM_ENTRY_IS_OF(e, q);",
     "int is_live = q && q->state != TDM_SEQ_FREE;"),
    ("END sent twice on the length limit", "result.c",
     "        tdm_sched_end(s, idx, TDM_SEQ_DONE, TDM_FINISH_LENGTH, TDM_REASON_NONE);\n",
     "        tdm_sched_push(s, q->api, &(tdm_event_t){.handle = q->handle, .kind = TDM_EVENT_END,"
     " .finish = TDM_FINISH_LENGTH, .index = q->out_cnt});\n"
     "        tdm_sched_end(s, idx, TDM_SEQ_DONE, TDM_FINISH_LENGTH, TDM_REASON_NONE);\n"),
    ("a cancelled waiting request stays counted", "step.c",
     "        s->waiting_tokens -= q->prompt_cnt;\n        s->waiting_pages", "        s->waiting_pages"),
    ("a tenant's count never falls", "order.c", "    o->present_cnt[tenant]--;\n", ""),
    ("the gap ledger forgets iterations with prefill", "result.c",
     "s->stats.gap_cnt += f->record.decode_cnt;",
     "s->stats.gap_cnt += f->record.prefill_cnt ? 0u : f->record.decode_cnt;"),
    ("samples in flight of one who gave its place up reach it", "step.c",
     "    orphan(s, idx);\n", ""),
    ("places are given up without a bound", "room.c",
     "q->slo_class > slo_class && q->evict_cnt < s->live.evict_max", "q->slo_class > slo_class"),
    ("a place is given up for one of the same class", "room.c",
     "q->slo_class > slo_class && q->evict_cnt < s->live.evict_max",
     "q->slo_class >= slo_class"),
    ("the place that was given up goes to anyone", "start.c",
     "s->heir != TDM_SEQ_NONE ? s->heir != idx : d->ward",
     "d->ward"),
    ("a turn is sat out without account", "skip.c",
     "    q->skip_cnt++;\n", ""),
    ("cache: another tenant's pages match", "start.c",
     "tdm_kv_match(&s->kv, q->slot, q->tenant,", "tdm_kv_match(&s->kv, q->slot, 0,"),
    ("cache: what went before a page is not compared", "prefix.c",
     "p->hash != hash || p->tenant != tenant || p->parent != parent",
     "p->tenant != tenant"),
    ("cache: a sharer is not counted", "prefix.c",
     "    if (p->is_idle) idle_remove(x, page);\n    p->ref++;",
     "    if (p->is_idle) idle_remove(x, page), p->ref++;"),
    ("cache: a page is shared before its last row is computed", "result.c",
     "while ((c->cnt + 1u) * TDM_KV_PAGE_TOKENS <= e->pos)",
     "while (c->cnt * TDM_KV_PAGE_TOKENS < e->pos && (c->cnt + 1u) * TDM_KV_PAGE_TOKENS <= "
     "q->prompt_cnt)"),
    ("cache: it survives the executor that computed it", "kv.c", "    flush(kv);\n", ""),
    ("cache: pages of a sequence without finite logits stay", "result.c",
     "        if (s->sample_flags[n] & TDM_SAMPLE_NAN) tdm_kv_doubt(&s->kv, e->slot);\n", ""),
    ("cache: nothing of the prompt is left to compute", "start.c",
     "(q->fill_cnt - 1u) / TDM_KV_PAGE_TOKENS", "q->fill_cnt / TDM_KV_PAGE_TOKENS"),
    ("cache: a matched page uses no promise", "kv.c",
     "    t->filled_cnt++;\n    t->promised_cnt--;\n    kv->promised_cnt--;\n",
     "    t->filled_cnt++;\n"),
    ("cache: idle pages leave the fence", "kv.c",
     "if (t->last_iteration > kv->done_iteration) {",
     "if (t->last_iteration > kv->done_iteration && t->shared_cnt == 0) {"),
    ("held: pages from elsewhere are shared", "result.c",
     "    if (s->kv.slot[e->slot].is_foreign) return;\n", ""),
    ("held: a restart believes in them", "start.c",
     "q->is_returned ? 0u : q->held_cnt", "q->held_cnt"),
    ("held: nothing of the prompt is left to compute", "step.c",
     "TDM_MIN(request->held_cnt, request->prompt_cnt - 1u)", "request->held_cnt"),
    ("cache: an evicted page stays in the index", "prefix.c",
     "    uint32_t page = x->oldest;\n    TDM_CHECK(page != TDM_PREFIX_NONE);\n    unlist(x, page);",
     "    uint32_t page = x->oldest;\n    TDM_CHECK(page != TDM_PREFIX_NONE);\n"
     "    idle_remove(x, page);"),
]


def run(cmd, **kw):
    return subprocess.run(cmd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **kw)


CFLAGS = ["-O1", "-g", "-std=gnu17", "-D_GNU_SOURCE", "-DTDM_DEV=1", f'-DTDM_SOURCE_DIR="{ROOT}"']


def compile_all(tree, out, sources):
    objects = []
    for src in sources:
        obj = os.path.join(out, os.path.relpath(src, tree).replace("/", "_") + ".o")
        subprocess.run(["gcc", *CFLAGS, "-I", tree, "-c", src, "-o", obj], check=True)
        objects.append(obj)
    return objects


def link(objects, exe):
    subprocess.run(["gcc", "-o", exe, *objects, "-lcmocka", "-lm"], check=True)


def is_caught(exe, args):
    try:
        done = run([exe, "--seeds", str(args.seeds), "--steps", str(args.steps)], timeout=60)
        return done.returncode != 0
    except subprocess.TimeoutExpired:
        return True


def scheduler_sources(tree):
    return sorted(glob.glob(os.path.join(tree, "scheduler", "*.c")))


def mutate(tree, out, base, mutant, args):
    name, file, old, new = mutant
    path = os.path.join(tree, "scheduler", file)
    sources = scheduler_sources(tree) if file.endswith(".h") else [path]
    exe = os.path.join(out, "mutant")
    with planted(path, name, old, new):
        changed = compile_all(tree, out, sources)
    link(changed + [o for o in base if o not in changed], exe)
    caught = is_caught(exe, args)
    compile_all(tree, out, sources)
    return caught


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seeds", type=int, default=400)
    p.add_argument("--steps", type=int, default=1200)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        tree, out = os.path.join(tmp, "tree"), os.path.join(tmp, "out")
        os.mkdir(out)
        for d in ("scheduler", "appliance/abi", "appliance/base", "tests/sim"):
            shutil.copytree(os.path.join(ROOT, d), os.path.join(tree, d))
        sources = scheduler_sources(tree)
        sources += [os.path.join(tree, "tests/sim", f)
                    for f in ("test_sched_sim.c", "world.c", "fake_executor.c")]
        sources += [os.path.join(tree, "appliance", f)
                    for f in ("abi/reasons.c", "base/status.c", "base/check.c")]
        base = compile_all(tree, out, sources)
        exe = os.path.join(out, "plain")
        link(base, exe)
        if is_caught(exe, args):
            sys.exit("mutate: the unchanged scheduler fails")
        caught = 0
        for m in MUTANTS:
            hit = mutate(tree, out, base, m, args)
            caught += hit
            print(f"{'caught' if hit else 'MISSED'}  {m[1]:16} {m[0]}", flush=True)
        print(f"{caught} of {len(MUTANTS)} caught, {args.seeds} seeds of {args.steps} acts")
        return 0 if caught >= len(MUTANTS) - 1 else 1


if __name__ == "__main__":
    sys.exit(main())
