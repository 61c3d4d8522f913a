// The list of jobs: filter, search, pages. What is chosen is in the address.
import { ask, asked, badge, el, failure, fill, jobLink, poller, progress, queueOf, rows, session, timeOf, whereOrWhy } from "./lib.js";
import { empty, table } from "./overview.js";

const perPage = 50;
const states = [["active", "not over"], ["", "all"], ["running", "running"], ["pending", "waiting"], ["suspended", "suspended"], ["completed", "completed"],
  ["failed", "failed"], ["timeout", "over their limit"], ["cancelled", "cancelled"], ["preempted", "preempted"], ["lost", "lost"], ["rejected", "rejected"]];

export function jobs({ box, query, go }) {
  const want = { state: query.get("state") ?? "active", queue: query.get("queue") || "", mine: query.get("mine") === "1", search: query.get("search") || "", before: query.get("before") || "" };
  const body = el("tbody"), problem = el("div"), count = el("p", { class: "sub", role: "status" }), pages = el("nav", { class: "pages", "aria-label": "Pages of the list" });
  const queues = el("select", { id: "queue", name: "queue" }, el("option", { value: "", text: "all queues" }));
  if (want.queue) queues.append(el("option", { value: want.queue, selected: true, text: want.queue }));
  const form = el("form", { class: "filter", role: "search", "aria-label": "Jobs" },
    field("Search", el("input", { id: "search", type: "search", value: want.search, placeholder: "name, user, queue or number", autocomplete: "off", spellcheck: "false", "aria-keyshortcuts": "/" })),
    field("State", el("select", { id: "state" }, states.map(([v, t]) => el("option", { value: v, selected: v === want.state, text: t })))),
    field("Queue", queues),
    el("label", { class: "check" }, el("input", { type: "checkbox", id: "mine", checked: want.mine }), " Only mine"));
  box.append(el("h1", { text: "Jobs" }), form, problem, count,
    table("Jobs, the latest first", [["Number", 1], "Job", "User", "Queue", ["GPUs", 1], "State", "Progress", ["Time", 1], "Where or why"], body, "jobs"), pages);

  function address(changes) {
    const w = { ...want, before: "", ...changes }, q = new URLSearchParams();
    if (w.state !== "active") q.set("state", w.state);
    if (w.queue) q.set("queue", w.queue);
    if (w.mine) q.set("mine", "1");
    if (w.search) q.set("search", w.search);
    if (w.before) q.set("before", w.before);
    return "/jobs" + (String(q) ? "?" + q : "");
  }
  let wait = 0;
  function chosen() {
    clearTimeout(wait);
    Object.assign(want, { state: form.querySelector("#state").value, queue: queues.value, mine: form.querySelector("#mine").checked, search: form.querySelector("#search").value.trim(), before: "" });
    history.replaceState(null, "", address({}));
    p.nudge();
  }
  form.addEventListener("submit", (e) => { e.preventDefault(); chosen(); });
  form.addEventListener("change", chosen);
  form.querySelector("#search").addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(chosen, 250); });

  async function get() {
    const q = new URLSearchParams({ limit: perPage, brief: "true" });
    if (want.state) q.set("state", want.state);
    for (const k of ["queue", "search", "before"]) if (want[k]) q.set(k, want[k]);
    if (want.mine) q.set("user", session.user);
    return ask("/v1/jobs?" + q);
  }
  let shown = new Set(), seen = true;
  function show(list, err) {
    fill(problem, err ? failure(err) : []);
    if (err) return;
    seen = true;
    shown = new Set(list.jobs.map((j) => j.id));
    rows(body, list.jobs, (j) => j.id, row);
    empty(body, 9, want.search || want.queue || want.mine || want.state ? "No job is like that." : "There are no jobs yet.");
    const n = list.jobs.length;
    fill(count, n ? `${n} ${n === 1 ? "job" : "jobs"}${want.before ? ` before ${want.before}` : ""}${list.next ? ", more on the next page" : ""}` : "");
    fill(pages, want.before ? el("a", { href: address({}), "data-link": true, text: "← Latest" }) : [], list.next ? el("a", { href: address({ before: list.next }), "data-link": true, text: "Earlier →" }) : []);
  }
  const p = poller(get, show, 1000);
  p.nudge();
  ask("/v1/queues").then((list) => {
    for (const q of list) if (q.name !== want.queue) queues.append(el("option", { value: q.name, text: q.name }));
  }, () => { /* the list is without a choice of queues */ });
  return {
    title: "Jobs",
    changed(c) { // an old page changes only with its own jobs
      if (c.many || !want.before || c.jobs.some((id) => shown.has(id))) p.nudge();
    },
    leave() { clearTimeout(wait); p.stop(); },
  };
}

function field(name, input) {
  return el("label", null, el("span", { text: name }), input);
}

function row(j) {
  const s = j.submission;
  return el("tr", null, el("td", { class: "n id", text: j.id }),
    el("td", { class: "name" }, jobLink(j), j.array ? el("span", { class: "muted", text: ` [${j.index || 0}]` }) : null,
      el("span", { class: "sub narrow", text: [j.id, j.user, queueOf(j)].join(" · ") })),
    el("td", { class: "user", text: j.user }), el("td", { class: "queue", text: queueOf(j) }), el("td", { class: "n", text: asked(s) }),
    el("td", { class: "st" }, badge(j), el("span", { class: "sub narrow" }, whereOrWhy(j))),
    el("td", { class: "pr" }, progress(j)), el("td", { class: "n time" }, timeOf(j)), el("td", { class: "why" }, whereOrWhy(j)));
}
