// SPDX-License-Identifier: Apache-2.0
// What the console changes, and how it asks: with a key, the session's
// CSRF token, a reason, and the effect shown before.
"use strict";

const operate = (() => {
  let key = "", session = null;

  const headers = () => (key ? { Authorization: "Bearer " + key } : {});

  async function get(path) {
    const r = await fetch(path, { headers: headers(), cache: "no-store" });
    if (!r.ok) throw new Error(path + ": " + r.status);
    return r.json();
  }

  async function post(path, body) {
    const r = await fetch(path, {
      method: "POST", cache: "no-store",
      headers: { ...headers(), "Content-Type": "application/json", "X-CSRF-Token": session ? session.csrf : "" },
      body: JSON.stringify(body),
    });
    const reply = await r.json();
    if (!r.ok) throw new Error(reply.error ? reply.error.message : String(r.status));
    return reply;
  }

  // settle waits for what came of ask number n.
  async function settle(n) {
    for (let i = 0; i < 100; i++) {
      const state = await get("/api/v1/changes?asked=" + n);
      if (state.done >= n) {
        if (state.result !== "ok") throw new Error(state.result + " " + state.message);
        return "revision " + state.revision + " is in force";
      }
      await new Promise((next) => setTimeout(next, 100));
    }
    throw new Error("no answer");
  }

  const by = (id) => document.getElementById(id);

  function say(text) {
    by("done").textContent = text;
  }

  // ask shows what will happen and wants a reason; null: left.
  function ask(title, effect, diff) {
    const dialog = by("ask");
    by("ask-title").textContent = title;
    by("ask-effect").textContent = effect;
    by("ask-diff").textContent = diff;
    by("ask-why").value = "";
    dialog.returnValue = "";
    dialog.showModal();
    return new Promise((end) => {
      dialog.addEventListener("close", () => end(dialog.returnValue === "yes" ? by("ask-why").value : null),
                              { once: true });
    });
  }

  async function act(title, path, effect, body = {}, diff = "") {
    try {
      const why = await ask(title, effect, diff);
      if (why === null) return;
      const reply = await post(path, { ...body, why });
      say(title + ": " + await settle(reply.asked));
    } catch (e) {
      say(title + ": " + e.message);
    }
  }

  async function apply(running) {
    let config;
    try {
      config = JSON.parse(by("candidate").value);
      const diff = await post("/api/v1/config/diff", { config });
      const lines = diff.changes.map((c) => c.key + ": " + c.from + " -> " + c.to).join("\n");
      const confirm_s = Number(by("confirm-s").value) || 0;
      await act("apply", "/api/v1/config/apply",
                running() + " requests run on through it." +
                (confirm_s ? " It goes back by itself after " + confirm_s + " s unless confirmed." : ""),
                { config, confirm_s, revision: diff.revision }, lines || "nothing would change");
    } catch (e) {
      say("apply: " + e.message);
    }
  }

  // form makes the controls; running tells how many requests are in flight.
  function form(running) {
    const box = draw.element("div");
    const button = (text, run) => {
      const b = draw.element("button", text);
      b.type = "button";
      b.className = "change";
      b.addEventListener("click", run);
      box.append(b, " ");
    };
    button("drain", () => act("drain", "/api/v1/drain", running() +
      " requests are in flight: they end whole. New ones hear 503 until it is undrained."));
    button("undrain", () => act("undrain", "/api/v1/undrain", "Requests are taken again."));
    button("confirm", () => act("confirm", "/api/v1/config/confirm", "What awaits confirmation stays."));
    button("roll back", () => act("rollback", "/api/v1/config/rollback", "The configuration before is in force again."));
    button("apply", () => apply(running));
    const label = draw.element("label", "candidate (JSON, live keys) ");
    const area = draw.element("textarea", '{"sched": {"gap_ms": 500}}');
    area.id = "candidate";
    label.append(area);
    const again = draw.element("label", "back after, seconds (0: stays) ");
    const seconds = draw.element("input");
    seconds.id = "confirm-s";
    seconds.type = "number";
    seconds.min = "0";
    seconds.value = "60";
    again.append(seconds);
    const done = draw.element("p");
    done.id = "done";
    done.setAttribute("role", "status");
    box.append(label, again, done);
    return box;
  }

  async function renew() {
    try {
      session = await get("/api/v1/session");
      const may = session.role === "admin";
      by("who").textContent = session.who + ", " + session.role +
        (session.can_change ? "" : "; read-only: no admin key is configured");
      for (const b of document.querySelectorAll("button.change")) b.disabled = !may;
    } catch (e) {
      by("who").textContent = e.message;
    }
  }

  function start() {
    by("key-form").addEventListener("submit", (e) => {
      e.preventDefault();
      key = by("key").value;
      by("key").value = "";
      renew();
    });
    return renew();
  }

  return { form, start, renew, headers };
})();
