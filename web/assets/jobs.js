// Lists of active and of ended jobs. Filter, search and page are in the address.
import { ask, asked, badge, clock, el, failure, fill, jobLink, msOf, num, poller, progress, queueOf, rows, session, span, timeOf, whereOrWhy } from "./lib.js";
import { empty, table } from "./overview.js";

const perPage = 50;
const ends = [["completed", "completed"], ["failed", "failed"], ["timeout", "over their limit"], ["cancelled", "cancelled"], ["preempted", "preempted"], ["lost", "lost"], ["rejected", "rejected"]];
const over = ends.map(([v]) => v).join(",");
const spans = [["1", "the last day"], ["7", "the last 7 days"], ["30", "the last 30 days"], ["90", "the last 90 days"], ["", "any time"]];

const live = {
  title: "Jobs", path: "/jobs", state: "active", states: [["active", "not over"], ["", "all"], ["running", "running"], ["pending", "waiting"], ["suspended", "suspended"], ...ends],
  caption: "Jobs, the latest first", columns: [["Number", 1], "Job", "User", "Queue", ["GPUs", 1], "State", "Progress", ["Time", 1], "Where or why"], row, none: "There are no jobs yet.",
};
const past = {
  title: "History", path: "/history", state: "", states: [["", "all that are over"], ["failed,timeout,lost", "not completed by themselves"], ...ends], days: "7",
  caption: "Ended jobs, the latest submitted first", columns: [["Number", 1], "Job", "User", "Queue", ["GPUs", 1], "How it ended", "Ended", ["Waited", 1], ["Ran", 1], ["GPU-hours", 1]], row: pastRow, none: "No job has ended yet.",
};

export const jobs = (page) => listing(live, page);
export const ended = (page) => listing(past, page);

function listing(view, { box, query }) {
  const want = { state: query.get("state") ?? view.state, queue: query.get("queue") || "", days: view.days && (query.get("days") ?? view.days), user: query.get("user") || "", search: query.get("search") || "", before: query.get("before") || "" };
  if (query.get("mine") === "1") want.user = session.user; // old bookmarks
  const body = el("tbody"), problem = el("div"), count = el("p", { class: "sub" }), pages = el("nav", { class: "pages", "aria-label": "Pages of the list" });
  const told = el("p", { class: "hidden", role: "status" }); // announces the result of a filter, not every update
  const select = (id, list, v) => el("select", { id }, (list.some(([x]) => x === v) ? list : [...list, [v, v]]).map(([x, t]) => el("option", { value: x, selected: x === v, text: t })));
  const queues = select("queue", [["", "all queues"]], want.queue);
  const form = el("form", { class: "filter", role: "search", "aria-label": view.title },
    field("Search", el("input", { id: "search", type: "search", value: want.search, placeholder: "name, user, queue or number", autocomplete: "off", spellcheck: "false", "aria-keyshortcuts": "/" })),
    field("State", select("state", view.states, want.state)), field("Queue", queues), view.days ? field("Ended in", select("days", spans, want.days)) : null,
    el("label", { class: "check rw" }, el("input", { type: "checkbox", id: "mine", checked: !!want.user && want.user === session.user }), " Only mine"));
  box.append(el("h1", { text: view.title }), form, problem, told, count, table(view.caption, view.columns, body, view === past ? "jobs past" : "jobs"), pages);

  function address(changes) {
    const w = { ...want, before: "", ...changes }, q = new URLSearchParams();
    if (w.state !== view.state) q.set("state", w.state);
    if (view.days && w.days !== view.days) q.set("days", w.days);
    for (const k of ["queue", "user", "search", "before"]) if (w[k]) q.set(k, w[k]);
    return view.path + (String(q) ? "?" + q : "");
  }
  let wait = 0, asked = false;
  function chosen() {
    clearTimeout(wait);
    const at = (id) => form.querySelector("#" + id);
    const other = want.user === session.user ? "" : want.user; // a user named in the address is kept
    Object.assign(want, { state: at("state").value, queue: queues.value, days: at("days")?.value, user: at("mine").checked ? session.user : other, search: at("search").value.trim(), before: "" });
    history.replaceState(null, "", address({}));
    asked = true;
    p.nudge();
  }
  form.addEventListener("submit", (e) => { e.preventDefault(); chosen(); });
  form.addEventListener("change", chosen);
  form.querySelector("#search").addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(chosen, 250); });

  async function get() {
    const q = new URLSearchParams({ limit: perPage, brief: "true" }), state = want.state || (view === past ? over : "");
    if (state) q.set("state", state);
    if (want.days) q.set("since", new Date(Date.now() - want.days * 86400e3).toISOString().replace(/\.\d+/, ""));
    for (const k of ["queue", "user", "search", "before"]) if (want[k]) q.set(k, want[k]);
    return ask("/v1/jobs?" + q);
  }
  let shown = new Set();
  function show(list, err) {
    fill(problem, err ? failure(err) : []);
    if (err) return;
    shown = new Set(list.jobs.map((j) => j.id));
    rows(body, list.jobs, (j) => j.id, view.row);
    empty(body, view.columns.length, want.search || want.queue || want.user || want.state || want.days ? "No job matches." : view.none);
    const n = list.jobs.length, text = `${n || "no"} ${n === 1 ? "job" : "jobs"}${want.user ? ` of ${want.user}` : ""}${want.before ? ` before ${want.before}` : ""}${list.next ? ", more on the next page" : ""}`;
    fill(count, text);
    if (asked) told.textContent = text;
    asked = false;
    fill(pages, want.before ? el("a", { href: address({}), "data-link": true, text: "← Latest" }) : [], list.next ? el("a", { href: address({ before: list.next }), "data-link": true, text: "Earlier →" }) : []);
  }
  const p = poller(get, show, 1000);
  p.nudge();
  ask("/v1/queues").then((list) => {
    for (const q of list) if (q.name !== want.queue) queues.append(el("option", { value: q.name, text: q.name }));
  }, () => { /* the filter by queue is left out */ });
  return {
    title: view.title,
    changed(c) { // pages after the first update only when one of their jobs changes
      if (c.many || !want.before || c.jobs.some((id) => shown.has(id))) p.nudge();
    },
    leave() { clearTimeout(wait); p.stop(); },
  };
}

function field(name, input) {
  return el("label", null, el("span", { text: name }), input);
}

function begin(j) {
  return [el("td", { class: "n id", text: j.id }),
    el("td", { class: "name" }, jobLink(j), j.array ? el("span", { class: "muted", text: ` [${j.index || 0}]` }) : null,
      el("span", { class: "sub narrow", text: [j.id, j.user, queueOf(j)].join(" · ") })),
    el("td", { class: "user", text: j.user }), el("td", { class: "queue", text: queueOf(j) }), el("td", { class: "n", text: asked(j.submission) })];
}

function row(j) {
  return el("tr", null, begin(j),
    el("td", { class: "st" }, badge(j), el("span", { class: "sub narrow" }, whereOrWhy(j))),
    el("td", { class: "pr" }, progress(j)), el("td", { class: "n time" }, timeOf(j)), el("td", { class: "why" }, whereOrWhy(j)));
}

function pastRow(j) {
  return el("tr", null, begin(j),
    el("td", { class: "st" }, badge(j), j.reason ? el("span", { class: "sub", text: j.reason }) : null, j.ended ? el("span", { class: "sub narrow" }, clock(j.ended), ` · ${num(j.gpu_hours)} GPU-hours`) : null),
    el("td", { class: "end" }, j.ended ? clock(j.ended) : null), el("td", { class: "n time", text: span(msOf(j.waited)) }),
    el("td", { class: "n time", text: j.started ? span(msOf(j.ran)) : "–" }), el("td", { class: "n", text: num(j.gpu_hours) }));
}
