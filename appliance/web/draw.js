// SPDX-License-Identifier: Apache-2.0
// What the console draws with: text that is only ever text, line and bar
// charts of Chart.js where it is there, and two pictures of our own.
"use strict";

const draw = (() => {
  const colours = ["--a", "--b", "--c", "--d", "--e", "--f"];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // element(tag, text, class): names of the appliance go through here alone.
  function element(tag, text, cls) {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = String(text);
    if (cls) e.className = cls;
    return e;
  }

  // table(head, rows, none): none is what to say of no rows.
  function table(head, rows, none) {
    if (!rows.length) return element("p", none, "dim");
    const t = element("table"), tr = element("tr");
    for (const h of head) { const th = element("th", h); th.scope = "col"; tr.append(th); }
    t.append(element("thead"), element("tbody"));
    t.tHead.append(tr);
    for (const row of rows) {
      const r = element("tr");
      for (const cell of row) {
        const td = element("td");
        if (cell instanceof Node) td.append(cell); else td.textContent = cell;
        r.append(td);
      }
      t.tBodies[0].append(r);
    }
    return t;
  }

  // Plot is a canvas, or words that say why it would be empty: axes without
  // a curve look like a page that is broken.
  class Plot {
    constructor(holder, label, none) {
      this.holder = holder;
      this.none = none;
      this.canvas = element("canvas");
      this.canvas.setAttribute("role", "img");
      this.canvas.setAttribute("aria-label", label);
      this.words = element("p", "waiting for the first answer", "dim");
      holder.className = "plot empty";
      holder.append(this.canvas, this.words);
    }

    // fill: there is something to draw, or else the words stand there.
    fill(has, none = this.none) {
      this.holder.classList.toggle("empty", !has);
      this.words.textContent = has ? "" : none;
      return has;
    }
  }

  const HISTORY = 300;

  // A point between two that are not there has no line to be seen by.
  const isAlone = (list, i) => list[i] !== null && (list[i - 1] ?? null) === null && (list[i + 1] ?? null) === null;

  // Lines keeps the last values of named series and shows them; null: there
  // was none.
  class Lines extends Plot {
    constructor(holder, label, none, options = {}) {
      super(holder, label, none);
      this.series = new Map();
      this.times = [];
      this.options = options;
    }

    make() {
      return new Chart(this.canvas, {
        type: "line",
        data: { labels: this.times, datasets: [] },
        options: {
          animation: false, responsive: true, maintainAspectRatio: false,
          elements: { point: { radius: (p) => (isAlone(p.dataset.data, p.dataIndex) ? 2 : 0) }, line: { borderWidth: 1.5 } },
          scales: { x: { ticks: { maxTicksLimit: 6, maxRotation: 0 } },
                    y: { beginAtZero: true, stacked: !!this.options.stacked, max: this.options.max } },
          plugins: { legend: { labels: { boxWidth: 12 } }, tooltip: { enabled: true } },
        },
      });
    }

    add(time, values) {
      this.times.push(time);
      for (const [name, v] of Object.entries(values)) {
        if (!this.series.has(name)) this.series.set(name, new Array(this.times.length - 1).fill(null));
        this.series.get(name).push(v);
      }
      for (const list of this.series.values()) {
        if (list.length < this.times.length) list.push(null);
        if (this.times.length > HISTORY) list.shift();
      }
      if (this.times.length > HISTORY) this.times.shift();
      this.show();
    }

    show() {
      if (!this.times.length) return;
      if (!this.fill([...this.series.values()].some((list) => list.some((v) => v !== null)))) return;
      if (typeof Chart === "undefined") {
        this.fill(false, "no curves: Chart.js is not there (control.chart)");
        return;
      }
      const c = this.chart = this.chart || this.make();
      let k = 0;
      for (const [name, list] of this.series) {
        const colour = css(colours[k % colours.length]);
        let set = c.data.datasets[k];
        if (!set) c.data.datasets.push(set = { label: name, data: list });
        set.label = name;
        set.data = list;
        set.borderColor = colour;
        set.backgroundColor = colour + "44";
        set.fill = !!this.options.stacked;
        set.borderDash = name === "promise" || name === "limit" ? [5, 4] : k > 2 ? [2, 2] : [];
        k++;
      }
      const dim = css("--dim");
      for (const axis of ["x", "y"]) {
        c.options.scales[axis].ticks.color = dim;
        c.options.scales[axis].grid = { color: css("--line") };
      }
      c.options.plugins.legend.labels.color = css("--text");
      c.update("none");
    }
  }

  function fit(canvas) {
    const box = canvas.parentElement.getBoundingClientRect(), scale = devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.floor(box.width * scale));
    canvas.height = Math.max(1, Math.floor(box.height * scale));
    canvas.style.width = box.width + "px";
    canvas.style.height = box.height + "px";
    const g = canvas.getContext("2d");
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.clearRect(0, 0, box.width, box.height);
    return [g, box.width, box.height];
  }

  const LETTER = { fused: "F", streams: "2", serial: "S", prefill_only: "p", decode_only: "d", idle: "." };
  const PATH_COLOUR = { fused: "--c", streams: "--f", serial: "--f", prefill_only: "--a", decode_only: "--e" };

  // lane: a bar per iteration, the newest right; colour and letter say the
  // path, the dashed line is the time limit.
  function lane(plot, list) {
    if (!plot.fill(list.length > 0)) return;
    const [g, width, height] = fit(plot.canvas), step = 9, base = height - 16;
    const shown = list.slice(-Math.floor(width / step));
    const top = Math.max(1e-3, ...shown.map((r) => r.ms));
    const limit = shown.length ? shown[shown.length - 1].limit_ms : 0;
    g.font = "9px monospace";
    shown.forEach((r, i) => {
      const x = width - (shown.length - i) * step, h = Math.max(1, r.ms / top * (base - 12));
      g.fillStyle = css(r.lost ? "--bad" : PATH_COLOUR[r.path] || "--dim");
      g.fillRect(x, base - h, step - 2, h);
      if (r.late) g.fillText("!", x + 2, base - h - 2);
      g.fillStyle = css("--dim");
      g.fillText(r.lost ? "X" : LETTER[r.path] || "?", x + 1, height - 5);
    });
    g.fillStyle = css("--text");
    g.fillText(top.toFixed(1) + " ms", 2, 10);
    if (!limit) return;
    g.fillText("limit " + limit.toFixed(1) + " ms", 70, 10);
    if (limit > top) return;
    const y = base - limit / top * (base - 12);
    g.strokeStyle = css("--bad");
    g.setLineDash([4, 3]);
    g.beginPath();
    g.moveTo(0, y);
    g.lineTo(width, y);
    g.stroke();
    g.setLineDash([]);
  }

  // heat: columns of time, rows of the decode share of virtual CTAs in
  // twentieths; the darker, the more fused iterations.
  function heat(plot, columns) {
    if (!plot.fill(columns.some((column) => column.some((n) => n > 0)))) return;
    const [g, width, height] = fit(plot.canvas), rows = 20, step = 6;
    const shown = columns.slice(-Math.floor((width - 30) / step));
    const most = Math.max(1, ...shown.flat());
    g.fillStyle = css("--a");
    shown.forEach((column, i) => {
      column.forEach((n, k) => {
        if (!n) return;
        g.globalAlpha = 0.15 + 0.85 * n / most;
        g.fillRect(width - (shown.length - i) * step, height - (k + 1) * height / rows, step - 1,
                   height / rows - 1);
      });
    });
    g.globalAlpha = 1;
    g.font = "9px monospace";
    g.fillStyle = css("--dim");
    g.fillText("all decode", 2, 9);
    g.fillText("all prefill", 2, height - 2);
  }

  return { element, table, Plot, Lines, lane, heat };
})();
