// SPDX-License-Identifier: Apache-2.0
// The console: panels made once, fed by the stream of server-sent events.
"use strict";

(() => {
  const { element, table, Plot, Lines } = draw;
  const by = (id) => document.getElementById(id);
  let status = null, before = null;
  let heard = 0; // when the appliance said something last, as Date.now()
  const iterations = [], heat = [];

  // --- panels, in their order -----------------------------------------------
  // Each has the query of Prometheus that it equals.
  const panels = [];

  function panel(title, queries, isWide) {
    const s = element("section", undefined, isWide ? "wide" : "");
    const h = element("h2", (panels.length + 1) + " " + title);
    h.id = "panel" + (panels.length + 1);
    s.setAttribute("aria-labelledby", h.id);
    const body = element("div"), more = element("details");
    more.append(element("summary", "PromQL"));
    for (const q of queries) more.append(element("code", q), element("br"));
    s.append(h, body, more);
    by("panels").append(s);
    panels.push(s);
    return body;
  }

  function plot(body) {
    const p = element("div");
    body.append(p);
    return p;
  }

  function space(body) {
    const d = element("div", undefined, "scroll");
    body.append(d);
    return d;
  }

  let b = panel("promises kept, and error budget burnt", [
    'sum by (slo_class) (rate(tandem_slo_requests_total{objective="all",result="met"}[1m])) / sum by (slo_class) (rate(tandem_slo_requests_total{objective="all"}[1m]))',
    'sum by (slo_class) (rate(tandem_slo_requests_total{objective="all",result="missed"}[1m])) / sum by (slo_class) (rate(tandem_slo_requests_total{objective="all"}[1m])) / 0.01']);
  const sloTable = space(b), slo = new Lines(plot(b), "share of streams that kept all promises, by class",
    "no stream ended in the last five minutes", { max: 1 });
  b = panel("time to first token and gaps, with what is promised", [
    "histogram_quantile(0.5, sum by (le) (rate(tandem_ttft_seconds_bucket[15s])))",
    "histogram_quantile(0.99, sum by (le) (rate(tandem_ttft_seconds_bucket[15s])))",
    "histogram_quantile(0.99, sum by (le) (rate(tandem_itl_seconds_bucket[15s])))",
    "max by (slo_class, objective) (tandem_slo_target_seconds)"]);
  const ttft = new Lines(plot(b), "time to first token, milliseconds", "");
  const itl = new Lines(plot(b), "gap between tokens, milliseconds", "");
  b = panel("iterations", ["rate(tandem_iterations_total[1m])", "rate(tandem_iteration_seconds_sum[1m]) / rate(tandem_iteration_seconds_count[1m])"], true);
  const lanePlot = new Plot(plot(b), "the newest iterations: height is time, letter is the path", "no iteration yet");
  const laneText = element("p", "F fused, S serial, 2 streams, p prefill only, d decode only, X lost, ! a token came late", "dim");
  b.append(laneText);
  b = panel("fused share, and why not", [
    'sum(rate(tandem_hybrid_iterations_total{outcome="fused"}[1m])) / sum(rate(tandem_hybrid_iterations_total[1m]))',
    "sum by (reason) (rate(tandem_fallbacks_total[1m]))"]);
  const fused = new Lines(plot(b), "share of hybrid iterations that were fused",
    "no iteration had both prefill and decode in the last five minutes", { max: 1 });
  const fallbacks = new Lines(plot(b), "fallbacks a second, by reason", "no hybrid iteration ran otherwise since start", { stacked: true });
  b = panel("virtual CTAs: decode share of fused iterations", [
    "sum by (le) (rate(tandem_vcta_decode_share_bucket[1m]))",
    "sum by (op) (rate(tandem_vcta_total[1m]))",
    "sum by (shape, split) (rate(tandem_tile_iterations_total[1m]))"]);
  const heatPlot = new Plot(plot(b), "decode share of virtual CTAs over time", "none of the newest iterations was fused");
  const vctaText = element("p", "", "dim");
  b.append(vctaText);
  const tileTable = space(b);
  b = panel("where the time of iterations goes", [
    "sum(rate(tandem_attention_seconds_total[1m])) / sum(rate(tandem_iteration_seconds_sum[1m]))",
    "rate(tandem_sampling_seconds_total[1m])",
    "sum by (stage) (rate(tandem_stage_seconds_total[1h])) / scalar(sum(rate(tandem_stage_seconds_total[1h])))"]);
  const time = new Lines(plot(b), "share of iteration time", "no iteration in the last five minutes", { stacked: true, max: 1 });
  const stageText = element("p", "", "dim");
  b.append(stageText);
  b = panel("streaming multiprocessors", [
    "sum by (op) (rate(tandem_vcta_seconds_total[1m])) / scalar(max(tandem_executor_sms))",
    "rate(tandem_colocated_seconds_total[1m])", "tandem_gpu_sm_active_ratio", "tandem_gpu_sm_occupancy_ratio",
    "tandem_gpu_tensor_active_ratio", "tandem_gpu_dram_bandwidth_ratio"]);
  const sms = new Lines(plot(b), "share of SM time inside virtual CTAs", "", { stacked: true });
  const board = new Lines(plot(b), "the board: SM active, occupancy, tensor cores, DRAM bandwidth",
    "SM activity, occupancy, tensor cores, DRAM bandwidth: the device does not tell", { max: 1 });
  const smText = element("p", "", "dim");
  b.append(smText);
  b = panel("clock and power", ["tandem_executor_sm_clock_hertz", "tandem_executor_sm_clock_max_hertz",
    'tandem_gpu_power_watts{mode="instant_max"}', 'tandem_gpu_power_watts{mode="average"}', "tandem_gpu_power_limit_watts",
    'rate(tandem_gpu_energy_joules_total[1m]) / ignoring(kind) rate(tandem_tokens_total{kind="output"}[1m])',
    "sum by (reason) (rate(tandem_gpu_throttle_seconds_total[1m]))"]);
  const power = new Lines(plot(b), "power of the board, watts", "the device does not tell its power");
  const clock = new Lines(plot(b), "SM clock, MHz", "the device does not tell its clock");
  const powerText = element("p", "", "dim");
  b.append(powerText);
  b = panel("queue, KV pages, admission", [
    "sum by (state) (tandem_queue_requests)", "max(tandem_kv_usage_ratio)",
    "sum by (decision) (rate(tandem_admission_total[1m]))"]);
  const queue = new Lines(plot(b), "requests waiting and running", "");
  const refusals = space(b);
  b = panel("packets, drops, rings", [
    "sum by (direction) (rate(tandem_net_packets_total[1m]))",
    "sum by (reason) (rate(tandem_net_drops_total[1m]))", "tandem_ring_high_watermark_entries / tandem_ring_capacity_entries"]);
  const net = new Lines(plot(b), "packets a second", "");
  const drops = space(b), rings = space(b);
  b = panel("slowest requests", [
    "histogram_quantile(0.99, sum by (le) (rate(tandem_e2e_seconds_bucket[5m])))",
    "sum(rate(tandem_queue_seconds_sum[1m])) / sum(rate(tandem_queue_seconds_count[1m]))"], true);
  const slowest = space(b);
  b = panel("health, changes, events", ["tandem_state", "tandem_config_revision", "tandem_config_confirm_seconds", "sum by (change, result) (increase(tandem_control_changes_total[1h]))"], true);
  const changesText = element("p");
  b.append(changesText, operate.form(() => status ? status.requests.running + status.requests.waiting : 0));
  const revisions = space(b);

  // --- feeding ----------------------------------------------------------------
  const number = (v, digits = 0) => (v === null || v === undefined || Number.isNaN(v) ? "-" : v.toFixed(digits));
  const clockText = () => new Date().toTimeString().slice(0, 8);
  const delta = (pick) => (before ? pick(status) - pick(before) : 0);
  const span = () => (before ? Math.max(1e-3, status.uptime_s - before.uptime_s) : 1);
  const share = (part, all) => (all > 0 ? part / all : null);

  function onVerdict() {
    const box = by("verdict");
    const lines = status.findings.map((f) => element("p", f.gravity + ": " + f.text, f.gravity));
    box.replaceChildren(...(lines.length ? lines : [element("p", "nothing is wrong", "good")]));
    by("state").textContent = status.state;
    by("state").className = "badge " + (status.state === "ready" ? "good" : "critical");
    by("model").textContent = status.tandem.model;
    by("facts").textContent = facts() + ", " + number(delta((s) => s.tokens.output) / span(), 1) + " tokens a second";
    document.body.classList.remove("stale");
  }

  const facts = () => "version " + status.tandem.version + ", " + status.tandem.backend + ", up " + number(status.uptime_s) +
    " s, revision " + status.revision;

  // onSilence marks all that stands there as said before it.
  function onSilence(why) {
    by("link").textContent = "not connected (" + why + "), asking again";
    by("state").textContent = "no answer";
    by("state").className = "badge critical";
    if (!status) return;
    document.body.classList.add("stale");
    by("facts").textContent = "then: " + facts();
    const said = status.findings.map((f) => f.gravity + ": " + f.text);
    const since = new Date(heard).toTimeString().slice(0, 8);
    by("verdict").replaceChildren(element("p", "no answer since " + since + ": what stands below was said before", "critical"),
      ...(said.length ? said : ["nothing is wrong"]).map((text) => element("p", "then: " + text, "dim")));
  }

  const sloOf = (s, cls, objective) => s.slo.find((r) => r.class === cls && r.objective === objective);
  const sloPast = [];

  function onPromises(t) {
    sloPast.push(status);
    if (sloPast.length > 61) sloPast.shift();
    const old = sloPast[0], rows = [], values = {};
    for (const cls of [...new Set(status.slo.map((r) => r.class))]) {
      const now = sloOf(status, cls, "all"), then = sloOf(old, cls, "all");
      const met = now.met - then.met, missed = now.missed - then.missed;
      const kept = share(met, met + missed);
      values[cls] = kept;
      rows.push([cls, number(kept === null ? null : 100 * kept, 2), number(share(missed, met + missed) === null ? null : (1 - kept) / 0.01, 1),
                 number(sloOf(status, cls, "ttft").promise_ms), number(sloOf(status, cls, "tpot").promise_ms), now.met, now.missed]);
    }
    sloTable.replaceChildren(table(["class", "kept, % of 60 s", "burn (1 = budget)", "first token, ms", "gap, ms", "met", "missed"], rows));
    slo.add(t, values);
    const recent = status.recent || status.latency;
    const seen = (h) => (h.count ? { p50: h.p50, p99: h.p99 } : { p50: null, p99: null });
    ttft.add(t, { "promise": sloOf(status, "interactive", "ttft").promise_ms, ...seen(recent.ttft_ms) });
    itl.add(t, { "promise": sloOf(status, "interactive", "tpot").promise_ms, ...seen(recent.itl_ms) });
  }

  function onAttention(t) {
    const f = delta((s) => s.hybrid.fused), n = delta((s) => s.hybrid.fallback);
    fused.add(t, { fused: share(f, f + n) });
    const why = {};
    for (const [reason, count] of Object.entries(status.fallbacks))
      why[reason] = (count - ((before && before.fallbacks[reason]) || 0)) / span();
    fallbacks.add(t, why);
    vctaText.textContent = "executed since start: prefill " + status.vcta.executed.prefill + ", decode " + status.vcta.executed.decode +
      "; planned and executed " + (status.vcta.executed.prefill === status.vcta.planned.prefill &&
      status.vcta.executed.decode === status.vcta.planned.decode ? "agree" : "differ");
    const tiles = Object.entries(status.cta_tiles), ran = tiles.reduce((sum, [, n]) => sum + n.whole + n.split, 0);
    tileTable.replaceChildren(table(["prefill tile, rows x keys", "iterations", "of all, %", "split over keys, %"],
      tiles.map(([shape, n]) => [shape, n.whole + n.split, number(100 * (n.whole + n.split) / ran, 1),
                                 number(100 * n.split / (n.whole + n.split), 1)]), "no iteration had prefill since start"));
    const all = delta((s) => s.time.iterations_s), a = delta((s) => s.time.attention_s), m = delta((s) => s.time.sampling_s);
    time.add(t, { attention: share(a, all), sampling: share(m, all), other: share(Math.max(0, all - a - m), all) });
    const stages = ["attention", "linear", "norm", "sampling", "copy"].map((s) => [s, status.time["device_" + s + "_share"]]);
    stageText.textContent = stages[0][1] === null ? "" : "of the device's time, since start: " +
      stages.map(([s, x]) => s + " " + number(100 * x) + " %").join(", ");
    const room = span() * Math.max(1, status.gpu.sms);
    sms.add(t, { prefill: delta((s) => s.gpu.sm_prefill_s) / room, decode: delta((s) => s.gpu.sm_decode_s) / room });
    smText.textContent = status.gpu.sms + " SMs, life " + status.gpu.life + "; both kinds at once for " +
      number(100 * share(delta((s) => s.time.colocated_s), room), 1) + " % of their time";
    board.add(t, { "SM active": status.board.sm_active, occupancy: status.board.occupancy, tensor: status.board.tensor, DRAM: status.board.dram });
    clock.add(t, { "SM clock": status.power.sm_clock_mhz, "highest": status.power.sm_clock_max_mhz });
    onPower(t);
  }

  function onPower(t) {
    const p = status.power;
    power.add(t, { limit: p.limit_w, "peak of a second": p.instant_max_w, average: p.average_w });
    powerText.textContent = "";
    if (p.average_w === null) return;
    // the board is looked at at moments of its own: of one second it may tell a little more than a second
    const held = ["power", "heat", "hardware"].map((why) => [why, Math.min(1, delta((s) => s.power["held_by_" + why + "_s"]) / span())]).filter(([, x]) => x > 0.01);
    const joules = delta((s) => s.power.energy_j), tokens = delta((s) => s.tokens.output);
    powerText.textContent = number(p.average_w) + " of " + number(p.limit_w) + " W" + (tokens > 0 ? ", " + number(joules / tokens, 2) + " J a token" : "") +
      (status.board.temperature_c === null ? "" : ", " + status.board.temperature_c + " C") +
      (held.length ? "; clocks held back by " + held.map(([why, x]) => why + " " + number(100 * x) + " % of the time").join(", ") : "; nothing holds the clocks back");
  }

  const counts = (o) => Object.entries(o).sort((x, y) => y[1] - x[1]).slice(0, 8);

  function onHouse(t) {
    queue.add(t, { waiting: status.requests.waiting, running: status.requests.running, "KV used, %": 100 * share(status.kv.used, status.kv.total) });
    refusals.replaceChildren(table(["refused since start", "times"], counts(status.refusals), "nothing was refused since start"));
    net.add(t, { rx: delta((s) => s.net.packets.rx) / span(), tx: delta((s) => s.net.packets.tx) / span() });
    drops.replaceChildren(table(["dropped since start", "times"], counts(status.net.drops), "nothing was dropped since start"));
    rings.replaceChildren(table(["ring", "now", "highest", "holds", "times full"],
      status.rings.map((r) => [r.ring, r.entries, r.high_watermark, r.capacity, r.full])));
  }

  function waterfall(r, longest) {
    const bar = element("div", undefined, "fall");
    const words = [];
    ["ingest", "queue", "prefill", "decode"].forEach((name, k) => {
      const ms = r.phases[name] || 0, piece = element("span", undefined, "p" + k);
      piece.style.width = 100 * ms / longest + "%";
      words.push(name + " " + number(ms, 1) + " ms");
      bar.append(piece);
    });
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", words.join(", "));
    bar.title = words.join(", ");
    return bar;
  }

  function onRequests(list) {
    const longest = Math.max(1e-3, ...list.map((r) => r.total_ms));
    slowest.replaceChildren(table(["request", "class", "ending", "ms", "prompt", "output", "ingest, queue, prefill, decode"],
      list.map((r) => [r.id, r.class, r.ending, number(r.total_ms, 1), r.prompt, r.output, waterfall(r, longest)]), "no request ended yet"));
  }

  function onChanges(c) {
    const words = ["revision " + c.revision + " is in force"];
    if (c.pending) words.push("it goes back to " + c.pending.back_to + " in " + number(c.pending.left_s) + " s unless confirmed");
    if (c.drained) words.push("drained by " + c.drained.by + ": " + c.drained.why);
    changesText.textContent = words.join("; ");
    revisions.replaceChildren(table(["revision", "what", "by", "why", "changed"], c.revisions.map((r) =>
      [r.revision, r.what, r.by, r.why, r.changes.map((k) => k.key + " " + k.from + " -> " + k.to).join(", ")])));
  }

  function onLane(list) {
    iterations.push(...list);
    if (iterations.length > 600) iterations.splice(0, iterations.length - 600);
    const column = new Array(20).fill(0);
    for (const r of list) {
      const all = r.vcta[0] + r.vcta[1];
      if (r.path === "fused" && all) column[Math.min(19, Math.floor(20 * r.vcta[1] / all))]++;
    }
    heat.push(column);
    if (heat.length > 400) heat.shift();
    pictures();
  }

  // pictures draws once a frame at most: a page that nobody looks at has none.
  let isDue = false;

  function pictures() {
    if (isDue || !status) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      draw.lane(lanePlot, iterations);
      draw.heat(heatPlot, heat);
    });
  }

  // repaint: what is drawn keeps the colours of the moment it was drawn at.
  function repaint() {
    pictures();
    for (const lines of [slo, ttft, itl, fused, fallbacks, time, sms, board, power, clock, queue, net]) lines.show();
  }

  function onStatus(s) {
    before = status && status.uptime_s <= s.uptime_s ? status : null;
    if (!before) sloPast.length = 0; // another process counts from 0
    status = s;
    const t = clockText();
    onVerdict();
    onPromises(t);
    onAttention(t);
    onHouse(t);
    pictures();
  }

  const on = { status: onStatus, lane: onLane, requests: onRequests, changes: onChanges };

  // --- the stream ---------------------------------------------------------------
  // By fetch, as EventSource cannot send a key.  A stream that is open and says nothing is given up: it has
  // something to say each second.
  const SILENCE_MS = 6000;

  async function listen() {
    const gone = new AbortController();
    let word = Date.now();
    const watch = setInterval(() => {
      if (Date.now() - word > SILENCE_MS) gone.abort(new Error("it says nothing"));
    }, 1000);
    try {
      await read(gone.signal, () => { word = heard = Date.now(); });
    } finally {
      clearInterval(watch);
    }
  }

  async function read(signal, onWord) {
    const reply = await fetch("/api/v1/stream", { headers: operate.headers(), cache: "no-store", signal });
    if (!reply.ok) throw new Error(reply.status === 401 ? "a key is needed to look" : "the stream answers " + reply.status);
    by("link").textContent = "live";
    operate.renew(); // another process has another token
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the stream ended");
      onWord();
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      for (const e of events) {
        const name = /^event: (\w+)$/m.exec(e), data = /^data: (.*)$/m.exec(e);
        if (name && data && on[name[1]]) on[name[1]](JSON.parse(data[1]));
      }
    }
  }

  async function follow() {
    for (let wait = 500; ; wait = Math.min(8000, 2 * wait)) {
      const begin = Date.now();
      try {
        await listen();
      } catch (e) {
        if (Date.now() - begin > 5000) wait = 500;
        onSilence(e.message);
      }
      await new Promise((next) => setTimeout(next, wait));
    }
  }

  const sizes = new ResizeObserver(pictures); // also where a scroll bar comes or goes
  for (const p of [lanePlot, heatPlot]) sizes.observe(p.holder);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  operate.start();
  follow();
})();
