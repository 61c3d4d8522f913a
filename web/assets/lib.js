// Shared by all pages: elements, requests, units, states.

/* plain escapes characters that act instead of being shown: control characters, and those that change the direction of text. */
export function plain(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

/* el makes an element. Text is inserted as text, never as markup. */
export function el(tag, attrs, ...kids) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v === null || v === undefined || v === false) continue;
    if (k === "text") e.textContent = plain(v);
    else if (k === "class") e.className = v;
    else if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k === "width%") e.style.width = Math.max(0, Math.min(100, v)) + "%";
    else if (k === "left%") e.style.left = Math.max(0, Math.min(100, v)) + "%";
    else e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...kids.flat().filter((x) => x !== null && x !== undefined && x !== false).map((x) => x instanceof Node ? x : plain(x)));
  return e;
}

const NS = "http://www.w3.org/2000/svg";

export function svg(tag, attrs, ...kids) {
  const e = document.createElementNS(NS, tag);
  for (const [k, v] of Object.entries(attrs || {})) e.setAttribute(k, v);
  e.append(...kids);
  return e;
}

/* fill replaces the content of a node, unless it is the same. */
export function fill(node, ...kids) {
  const next = kids.flat().filter((x) => x !== null && x !== undefined && x !== false);
  const box = el(node.tagName, null, next);
  if (box.innerHTML === node.innerHTML) return;
  node.replaceChildren(...box.childNodes);
}

/* rows keeps a list of children, one per key: unchanged ones stay, with their
   focus; changed ones are replaced. make returns the content. */
export function rows(parent, list, key, make) {
  const old = new Map([...parent.children].map((c) => [c.dataset.key, c]));
  let at = parent.firstElementChild;
  for (const item of list) {
    const k = String(key(item)), fresh = make(item), was = old.get(k);
    fresh.dataset.key = k;
    let use = fresh;
    if (was) {
      old.delete(k);
      if (was.outerHTML === fresh.outerHTML) use = was;
      else {
        const focus = was.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
        if (at === was) at = fresh;
        was.replaceWith(fresh);
        if (focus) fresh.querySelector(`[href="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
      }
    }
    if (use === at) at = at.nextElementSibling;
    else parent.insertBefore(use, at);
  }
  for (const c of old.values()) c.remove();
}

/* ---- requests ---- */

export const session = { user: "", admin: false, csrf: "", offset: 0, readonly: false };

/* Problem is an error answer (problem+json). */
export class Problem extends Error {
  constructor(status, body) {
    const fields = (body && body.errors) || [];
    let text = (body && (body.detail || body.title)) || `the server answered ${status}`;
    for (const f of fields) if (f.message && !text.includes(f.message)) text += "; " + f.message;
    super(text);
    this.status = status;
    this.fields = fields.map((f) => ({ field: String(f.location || "").replace(/^body\.?/, ""), text: f.message }));
  }
}

export async function ask(path, { method = "GET", body, signal, headers = {} } = {}) {
  const h = { Accept: "application/json", ...headers };
  if (body !== undefined) h["Content-Type"] = "application/json";
  if (method !== "GET" && session.csrf) h["X-Muster-CSRF"] = session.csrf;
  const r = await fetch(path, { method, headers: h, body: body === undefined ? undefined : JSON.stringify(body), signal, credentials: "same-origin" });
  const date = Date.parse(r.headers.get("Date") || "");
  if (date && Math.abs(date - Date.now() - session.offset) > 1500) session.offset = date - Date.now();
  const text = await r.text();
  let data = null;
  try { data = JSON.parse(text); } catch { data = text ? { detail: text.trim().slice(0, 300) } : null; }
  if (!r.ok) throw new Problem(r.status, data);
  return data;
}

export const now = () => Date.now() + session.offset;

/* While a mouse button is down nothing is replaced. */
let pressed = false;
addEventListener("pointerdown", () => { pressed = true; }, true);
for (const up of ["pointerup", "pointercancel"]) addEventListener(up, () => setTimeout(() => { pressed = false; }, 50), true);

/* poller sends a request when it is nudged, and shows the answer: one request at a time,
   at least this many milliseconds apart, and none while the page is hidden. */
export function poller(get, show, apart) {
  let due = false, busy = false, last = 0, timer = 0, ended = false;
  async function run() {
    timer = 0;
    if (ended || busy || document.hidden) return;
    busy = true;
    due = false;
    last = performance.now();
    try {
      const answer = await get();
      while (pressed) await new Promise((r) => setTimeout(r, 50));
      if (!ended) show(answer);
    } catch (e) {
      if (!ended) show(null, e);
    } finally {
      busy = false;
      if (due) nudge();
    }
  }
  function nudge() {
    due = true;
    if (ended || busy || timer || document.hidden) return;
    timer = setTimeout(run, Math.max(0, last ? last + apart - performance.now() : 0));
  }
  const seen = () => { if (!document.hidden) nudge(); };
  document.addEventListener("visibilitychange", seen);
  return { nudge, stop() { ended = true; clearTimeout(timer); document.removeEventListener("visibilitychange", seen); } };
}

/* ---- units ---- */

const two = (n) => String(n).padStart(2, "0");

/* span formats a length of time, to two units. */
export function span(ms) {
  let s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 172800) return `${Math.floor(s / 3600)}h${two(Math.floor((s % 3600) / 60))}m`;
  return `${Math.floor(s / 86400)}d${two(Math.floor((s % 86400) / 3600))}h`;
}

/* msOf reads a duration such as 1h30m or 77.8ms. */
export function msOf(text) {
  const unit = { w: 604800e3, d: 86400e3, h: 3600e3, m: 60e3, s: 1e3, ms: 1, "µs": 1e-3, us: 1e-3, ns: 1e-6 };
  let sum = 0;
  for (const [, n, u] of String(text || "").matchAll(/([\d.]+)(ms|µs|us|ns|[wdhms])/g)) sum += n * unit[u];
  return sum;
}

/* since is an element that keeps counting. */
export function since(iso, before = 0) {
  const from = Date.parse(iso) - before;
  return el("span", { "data-since": from, text: span(now() - from) });
}

export function tick() {
  for (const e of document.querySelectorAll("[data-since]")) {
    const t = span(now() - Number(e.dataset.since));
    if (e.textContent !== t) e.textContent = t;
  }
}

/* clock formats a time: without the day if it is today. */
export function clock(iso) {
  const d = new Date(iso), today = new Date(now()).toDateString() === d.toDateString();
  const t = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  const text = today ? t : `${d.getDate()} ${["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][d.getMonth()]} ${d.getFullYear() === new Date(now()).getFullYear() ? "" : d.getFullYear() + " "}${t.slice(0, 5)}`;
  return el("time", { datetime: iso, title: d.toString(), text });
}

export const gpus = (milli) => String(+(milli / 1000).toFixed(2));

export function asked(s) {
  const n = Math.max(1, s.tasks || 0) * (s.gpus || (s.profile ? 1 : 0));
  if (!n && s.gpu_memory) return `${s.tasks > 1 ? `${s.tasks}× ` : ""}${mib(s.gpu_memory)}`;
  if (s.profile) return `${n}× ${s.profile}`;
  return s.share && s.share < 1000 ? gpus(n * s.share) : String(n);
}

export const num = (v) => v === 0 ? "0" : v < 0.01 ? "<0.01" : v < 1 ? v.toFixed(2) : v < 100 ? v.toFixed(1) : Math.round(v).toLocaleString("en");

export const mib = (v) => v >= 1024 ? `${+(v / 1024).toFixed(v < 10240 ? 1 : 0)} GiB` : `${v} MiB`;

/* ---- states: a shape and a word each; colour only repeats them ---- */

const shapes = {
  pending: ["wait", [["circle", { cx: 6, cy: 6, r: 4, fill: "none", "stroke-width": 2 }]]],
  starting: ["run", [["circle", { cx: 6, cy: 6, r: 4, fill: "none", "stroke-width": 2 }], ["path", { d: "M6 2a4 4 0 0 1 0 8z", "stroke-width": 0 }]]],
  running: ["run", [["circle", { cx: 6, cy: 6, r: 5, "stroke-width": 0 }]]],
  suspended: ["hold", [["path", { d: "M3 2h2v8H3zM7 2h2v8H7z", "stroke-width": 0 }]]],
  stopping: ["over", [["rect", { x: 2, y: 2, width: 8, height: 8, "stroke-width": 0 }]]],
  completed: ["good", [["path", { d: "M2 6.5l3 3 5-7", fill: "none", "stroke-width": 2 }]]],
  failed: ["bad", [["path", { d: "M2.5 2.5l7 7m0-7l-7 7", fill: "none", "stroke-width": 2 }]]],
  cancelled: ["over", [["path", { d: "M2 6h8", fill: "none", "stroke-width": 2 }]]],
  preempted: ["hold", [["path", { d: "M6 2v8M3 7l3 3 3-3", fill: "none", "stroke-width": 2 }]]],
};
shapes.timeout = shapes.lost = shapes.rejected = shapes.failed;

export const alive = (s) => ["pending", "starting", "running", "suspended", "stopping"].includes(s);

export function held(j) { return j.state === "pending" && j.code === "JobHeldUser"; }

export function badge(j) {
  const state = typeof j === "string" ? j : j.state, word = typeof j !== "string" && held(j) ? "held" : state === "pending" ? "waiting" : state;
  const [cls, parts] = shapes[word === "held" ? "suspended" : state] || shapes.cancelled;
  return el("span", { class: "state " + cls }, svg("svg", { viewBox: "0 0 12 12", width: 11, height: 11, "aria-hidden": "true" }, ...parts.map(([t, a]) => svg(t, a))), el("span", { text: word }));
}

export const stateClass = (s) => (shapes[s] || shapes.cancelled)[0];

/* owner is the colour of a name, the same everywhere. */
export function owner(name) {
  let h = 7;
  for (const c of String(name)) h = (h * 31 + c.codePointAt(0)) >>> 0;
  return "own" + (h % 7);
}

/* a job without a queue is in the default one */
export const queueOf = (j) => j.submission.queue || "default";

export const jobLink = (j) => el("a", { href: `/jobs/${j.id}`, "data-link": true, class: "job", text: j.submission.name || `job ${j.id}` });

/* how far a job is, if it reports that */
export function progress(j) {
  const p = j.progress;
  if (!p || !p.steps) return null;
  const part = Math.max(0, Math.min(1, p.step / p.steps));
  return el("span", { class: "prog" },
    el("span", { class: "meter", role: "progressbar", "aria-label": `progress of job ${j.id}`, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(part * 100) }, el("span", { "width%": part * 100 })),
    el("span", { class: "pct", text: `${Math.round(part * 100)}%` }));
}

/* when a waiting job is expected to start: "from" for the earliest time, "by" if it assumes that the jobs ahead run to their limits */
export function startOf(j) {
  if (j.at_earliest) return ["from ", clock(j.earliest || j.expected)];
  if (j.by_limits) return ["by ", clock(j.expected)];
  return [j.rough ? "about " : "", clock(j.expected)];
}

/* where it runs, or why it waits, in a line */
export function whereOrWhy(j) {
  if (j.state === "pending") {
    const parts = [];
    if (j.position) parts.push(`${j.position}. in line`);
    else if (j.code && j.code !== "Priority") parts.push(waits[j.code] || j.code);
    if (j.expected) parts.push(el("span", null, "expected ", ...startOf(j)));
    const line = parts.flatMap((p, i) => i ? [" · ", p] : [p]);
    return j.reason ? [...line, el("span", { class: "sub", text: j.reason })] : line;
  }
  if (alive(j.state) && (j.devices || []).length) return [devices(j), j.idle ? ` · idle, ${j.idle.stage}` : j.state === "stopping" && j.reason ? ` · ${j.reason}` : ""];
  return [j.reason || (alive(j.state) && j.node) || ""];
}

const waits = { JobHeldUser: "held until it is released", BeginTime: "not to begin yet", Dependency: "waits for another job", JobArrayTaskLimit: "its array runs no more at once" };

export function devices(j) {
  const d = j.devices || [];
  if (!d.length) return j.submission.gpus ? `${asked(j.submission)} GPUs` : "no GPU";
  const part = d[0].profile ? ` (${d[0].profile})` : d[0].share && d[0].share < 1000 ? ` (${gpus(d[0].share)} of it)` : "";
  return `GPU ${d.map((x) => x.index).join(", ")}${part}`;
}

/* how long it ran, or waits */
export function timeOf(j) {
  if (j.state === "pending") return since(new Date(now()).toISOString(), msOf(j.waited));
  if (alive(j.state) && j.state !== "suspended") return since(new Date(now()).toISOString(), msOf(j.ran));
  return el("span", { text: span(msOf(j.ran)) });
}

/* say announces a text to screen readers, and shows it for a while. */
let saidTimer = 0;
export function say(text, bad) {
  const box = document.getElementById("said");
  box.textContent = text;
  box.className = "said on" + (bad ? " bad" : "");
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => { box.className = "said"; box.textContent = ""; }, bad ? 12000 : 5000);
}

export function failure(e) {
  return el("p", { class: "note bad", role: "alert", text: e.message });
}

/* confirmed asks for confirmation; with what, it also asks for a line of text.
   The answer is false, or true, or the text. */
export function confirmed({ question, text, yes, what, danger }) {
  const $ = (id) => document.getElementById(id), d = $("ask"), field = $("ask-field");
  $("ask-title").textContent = question;
  $("ask-text").textContent = text;
  $("ask-yes").textContent = yes;
  $("ask-yes").className = danger ? "danger" : "";
  field.hidden = !what;
  field.firstElementChild.textContent = what || "";
  field.lastElementChild.value = "";
  d.showModal();
  return new Promise((answer) => {
    const end = new AbortController(), { signal } = end;
    const reply = (v) => { end.abort(); d.close(); answer(v); };
    const agreed = () => reply(what ? { text: field.lastElementChild.value.trim() } : true);
    $("ask-yes").addEventListener("click", agreed, { signal });
    $("ask-no").addEventListener("click", () => reply(false), { signal });
    field.addEventListener("keydown", (e) => { if (e.key === "Enter") { e.preventDefault(); agreed(); } }, { signal });
    d.addEventListener("cancel", () => reply(false), { signal });
  });
}
