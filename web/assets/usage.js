// Who used what, what of it others could have had, and how good the
// predictions were.
import { ask, el, failure, fill, msOf, num, poller, rows, span } from "./lib.js";
import { section, empty, table } from "./overview.js";
import { chart } from "./plots.js";

const spans = [["1d", "the last day"], ["7d", "the last 7 days"], ["30d", "the last 30 days"], ["90d", "the last 90 days"], ["2000-01-01T00:00:00Z", "all that is kept"]];
const ways = [["user", "users"], ["queue", "queues"], ["job", "job names"], ["model", "what they compute"]];
const most = 100; // rows that are shown
const each = 12; // examples of a kind of waste

/* kinds of waste, in words */
const kinds = {
  "idle": ["Held and idle", "GPUs that did nothing while a job held them"],
  "memory-only": ["Memory only", "GPUs that held a job's data and did not compute"],
  "unused-gpus": ["More GPUs than used", "jobs that never used some of their GPUs"],
  "fits-less": ["A slice or a share would do", "jobs of a whole GPU that a part of one would have served"],
  "long-limit": ["More time than used", "time limits far beyond the run time: such jobs start later than they could"],
  "empty-hours": ["Empty hours", "hours of the week in which nine tenths of the GPUs are free"],
};
const days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

export function usage({ box, query }) {
  const choice = (id, list, v) => el("select", { id }, list.map(([x, t]) => el("option", { value: x, text: t, selected: x === v })));
  const since = choice("since", spans, query.get("since") ?? "30d"), by = choice("by", ways, query.get("by") ?? "user");
  const part = { problem: el("div"), figures: el("dl", { class: "figures" }), notes: el("div"), plot: el("div", { class: "chart" }), body: el("tbody"), rest: el("p", { class: "sub" }), waste: el("div"), week: el("div"), score: el("div") };
  const load = chart(part.plot, 170), loaded = el("p", { class: "sub" });
  box.append(el("h1", { text: "Usage" }), el("form", { class: "filter", "aria-label": "Usage" }, el("label", null, el("span", { text: "Time" }), since), el("label", null, el("span", { text: "By" }), by)), part.problem, part.figures, part.notes,
    section("Who used it", table("GPU-hours and what they cost", ["Who", "", ["GPU-hours", 1], ["Cost", 1], ["Utilisation", 1], ["Energy", 1], ["Jobs", 1], ["Preemptions", 1], ["Lost GPU-hours", 1], ["Mean wait", 1], ["Samples per GPU-hour", 1]], part.body, "usage"), part.rest),
    section("How much of the GPUs", part.plot, loaded), section("Waste", part.waste), section("The hours of the week", part.week), section("How good the predictions were", part.score));
  box.querySelector("form").addEventListener("submit", (e) => e.preventDefault());
  box.querySelector("form").addEventListener("change", () => {
    history.replaceState(null, "", `/usage?since=${encodeURIComponent(since.value)}&by=${by.value}`);
    p.nudge();
  });

  function show(u, err) {
    fill(part.problem, err ? failure(err) : []);
    if (err) return;
    const t = u.total, priced = u.gpu_hour_cost > 0, figure = (name, value, unit) => el("div", null, el("dt", { text: name }), el("dd", null, el("b", { text: value }), ` ${unit}`));
    const lost = sum(u.waste.filter((w) => w.kind !== "empty-hours"));
    fill(part.figures, figure("Used", num(t.gpu_hours), "GPU-hours"), priced ? figure("Cost", money(t.cost), `at ${u.gpu_hour_cost} an hour`) : null,
      figure("Utilisation", t.utilisation === undefined ? "–" : num(t.utilisation), t.utilisation === undefined ? "not measured" : "%"), t.kwh ? figure("Energy", num(t.kwh), "kWh") : null,
      figure("Usable by others", num(lost), "GPU-hours"), figure("Mean wait", t.jobs ? span(msOf(t.waited)) : "–", `over ${t.jobs.toLocaleString("en")} jobs`),
      t.preemptions ? figure("Preemptions", t.preemptions, `cost ${num(t.lost_gpu_hours)} GPU-hours`) : null);
    fill(part.notes, (u.notes || []).map((n) => el("p", { class: "note", text: n[0].toUpperCase() + n.slice(1) + "." })));
    people(part, u);
    machine(u);
    fill(part.waste, waste(u, priced));
    fill(part.week, week(u.week));
    fill(part.score, score(u.predictions));
  }
  function machine(u) {
    const known = u.load.filter((l) => l.total > 0), share = (v, l) => (v === undefined || !l.total ? null : v / l.total * 100), width = u.daily ? 86400 : 3600;
    part.plot.hidden = !known.length;
    const all = sum(known.map((l) => ({ gpu_hours: l.total }))), kept = sum(known.map((l) => ({ gpu_hours: l.held }))), percent = (v) => `${num(v)} %`;
    loaded.textContent = known.length ? `Jobs held ${percent(kept / all * 100)} of ${num(all)} GPU-hours; each step is ${u.daily ? "a day" : "an hour"}.` : "No figures yet: the first ones come a minute after the daemon has started.";
    if (!known.length) return;
    const steps = [];
    for (const l of known) {
      const end = steps[steps.length - 1]?.end;
      if (end && l.at > end + 7200) steps.push({ at: end }, { at: l.at - 1 }); // the daemon was down; up to two hours may be a change to or from summer time
      steps.push({ ...l, end: l.at + width });
    }
    const last = known[known.length - 1], held = steps.map((l) => share(l.held, l)), busy = steps.map((l) => share(l.busy, l));
    const lines = [{ name: "held by jobs", cls: "held", color: "--c0", fill: "--fill0", step: true, say: percent, values: [...held, share(last.held, last)] }];
    if (known.some((l) => l.busy !== undefined)) lines.push({ name: "computing", cls: "busy", color: "--c2", step: true, say: percent, values: [...busy, share(last.busy, last)] });
    load.show({ at: [...steps.map((l) => l.at), last.at + width], lines, top: 100, dates: u.daily, unit: (v) => `${v} %`, size: 48, text: `${loaded.textContent} At most ${percent(Math.max(...lines[0].values))} of the GPUs were held.` });
  }
  const p = poller(() => ask(`/v1/usage?since=${encodeURIComponent(since.value)}&by=${by.value}`), show, 1000);
  p.nudge();
  const slow = setInterval(p.nudge, 30000); // a report is too expensive to be made again with every event
  return { title: "Usage", themed: load.draw, leave() { p.stop(); clearInterval(slow); load.stop(); } };
}

const sum = (list) => list.reduce((s, w) => s + w.gpu_hours, 0);
const money = (v) => (v === undefined ? "–" : v.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 }));

function people(part, u) {
  const top = Math.max(1e-9, ...u.rows.map((r) => r.gpu_hours)), cell = (text) => el("td", { class: "n", text });
  const line = (r, all) => el("tr", { class: all ? "all" : null }, el("th", { scope: "row", text: r.key }),
    el("td", { class: "wide" }, all ? null : el("span", { class: "ubar", "aria-hidden": "true" }, el("span", { class: "done", "width%": r.gpu_hours / top * 100 }))),
    cell(num(r.gpu_hours)), cell(money(r.cost)), cell(r.utilisation === undefined ? "–" : `${num(r.utilisation)} %`), cell(r.kwh === undefined ? "–" : `${num(r.kwh)} kWh`), cell(r.jobs.toLocaleString("en")),
    cell(r.preemptions), cell(num(r.lost_gpu_hours)), cell(span(msOf(r.waited))), cell(r.samples_per_gpu_hour === undefined ? "–" : num(r.samples_per_gpu_hour)));
  const list = u.rows.slice(0, most).map((r) => [r, false]);
  if (u.rows.length > 1) list.push([u.total, true]);
  rows(part.body, list, ([r, all]) => (all ? "all " : "one ") + r.key, ([r, all]) => line(r, all));
  empty(part.body, 11, "No jobs in that time.");
  fill(part.rest, `Of jobs that ended in that time, and of those that have not ended, all that they used.${u.rows.length > most ? ` The ${most} largest of ${u.rows.length} are shown.` : ""}`);
}

const opened = new Map(); // which kinds the reader opened or closed

/* waste compares the kinds, and lists the worst of each. */
function waste(u, priced) {
  const groups = Object.keys(kinds).map((k) => ({ kind: k, list: u.waste.filter((w) => w.kind === k) })).filter((g) => g.list.length);
  if (!groups.length) return el("p", { class: "empty", text: "No waste was found." });
  const top = Math.max(1e-9, ...groups.map((g) => sum(g.list)));
  const bars = el("dl", { class: "bars" }, groups.map((g) => el("div", null, el("dt", { text: kinds[g.kind][0] }),
    el("dd", null, el("span", { class: "ubar", "aria-hidden": "true" }, el("span", { class: "lost", "width%": sum(g.list) / top * 100 })),
      el("span", { text: g.kind === "long-limit" ? `${g.list.length} ${g.list.length === 1 ? "job" : "jobs"}` : `${num(sum(g.list))} GPU-hours${priced ? `, ${money(sum(g.list) * u.gpu_hour_cost)}` : ""}` })))));
  return [bars, ...groups.map((g) => el("details", { open: opened.get(g.kind) ?? g.list.length <= 4, ontoggle: (e) => opened.set(g.kind, e.target.open) }, el("summary", { text: `${kinds[g.kind][0]}: ${kinds[g.kind][1]}` }),
    el("ul", { class: "found" }, g.list.slice(0, each).map((w) => el("li", null,
      w.job ? el("a", { href: `/jobs/${w.job}`, "data-link": true, class: "job", text: w.name || `job ${w.job}` }) : null, w.job ? el("span", { class: "muted", text: ` of ${w.user}: ` }) : null, w.text,
      w.gpu_hours ? el("span", { class: "muted", text: ` (${num(w.gpu_hours)} GPU-hours${w.cost !== undefined ? `, ${money(w.cost)}` : ""})` }) : null)),
    g.list.length > each ? el("li", { class: "muted", text: `and ${g.list.length - each} more: muster usage --waste` }) : null)))];
}

/* week is a map of the week: how much of the GPUs is held, hour by hour. */
function week(hours) {
  if (!hours.some((h) => h.total > 0)) return el("p", { class: "empty", text: "No figures for any hour yet." });
  const order = [1, 2, 3, 4, 5, 6, 0];
  const cell = (h) => {
    if (!h.total) return el("td", { class: "h" }, el("span", { class: "hidden", text: "not known" }));
    const part = Math.round(h.held / h.total * 100);
    return el("td", { class: `h h${Math.min(5, Math.ceil(part / 20))}`, title: `${part} % held` }, el("span", { class: "pc", text: String(part) }));
  };
  return [el("div", { class: "scroll" }, el("table", { class: "heat" }, el("caption", { class: "hidden", text: "Percent of the GPUs that jobs hold, by day and hour of the week" }),
    el("thead", null, el("tr", null, el("td"), Array.from({ length: 24 }, (_, i) => el("th", { scope: "col", class: i % 3 ? "odd" : null, text: String(i) })))),
    el("tbody", null, order.map((d) => el("tr", null, el("th", { scope: "row" }, el("abbr", { title: days[d], text: days[d].slice(0, 3) })), hours.slice(d * 24, d * 24 + 24).map(cell)))))),
  el("p", { class: "legend" }, el("span", null, el("i", { class: "box h", "aria-hidden": "true" }), "not known"), [[0, "none held"], [1, "to 20 %"], [3, "to 60 %"], [5, "to 100 %"]].map(([n, t]) => el("span", null, el("i", { class: `box h h${n}`, "aria-hidden": "true" }), t)),
    el("span", { class: "muted", text: "In the server's time zone." }))];
}

function score(s) {
  const ends = s.ends_predicted ? [el("h3", { text: "Ends predicted from jobs' own progress" }), figures([[s.ends_predicted.toLocaleString("en"), "jobs with a predicted end"], [s.ended.toLocaleString("en"), "of these have completed"],
    ...s.ended ? [[span(msOf(s.end_median_error)), "median error"], [span(msOf(s.end_ninety_error)), "90th percentile of the error"]] : []])] : [];
  if (!s.predicted) return [el("p", { class: "empty", text: "No waiting job had an expected start." }), ...ends];
  const list = [[`${s.predicted.toLocaleString("en")}`, "jobs had an expected start"], [`${s.started.toLocaleString("en")}`, "of these have started"]];
  if (s.started) list.push([span(msOf(s.median_error)), "median error"], [span(msOf(s.ninety_error)), "90th percentile of the error"], [String(s.early), "started earlier than expected"]);
  if (s.intervals) list.push([`${Math.round(s.within / s.intervals * 100)} %`, `of ${s.intervals} intervals contained the actual start`]);
  if (s.later) list.push([String(s.later), "later answers to why"], [span(msOf(s.later_median_error)), "median error of the later ones"]);
  const top = Math.max(1, ...s.off.map((o) => o.jobs));
  let before = "";
  const bars = s.off.map((o) => {
    const name = o.up_to && o.up_to !== "0s" ? `within ${o.up_to}` : `more than ${before}`;
    before = o.up_to;
    return el("div", null, el("dt", { text: name }), el("dd", null, el("span", { class: "ubar", "aria-hidden": "true" }, el("span", { class: "done", "width%": o.jobs / top * 100 })), el("span", { text: `${o.jobs} ${o.jobs === 1 ? "job" : "jobs"}` })));
  });
  return [figures(list), s.started ? [el("h3", { text: "How far off they were" }), el("dl", { class: "bars" }, bars)] : null, ends].flat();
}

const figures = (list) => el("dl", { class: "figures" }, list.map(([v, t]) => el("div", null, el("dt", { text: t }), el("dd", null, el("b", { text: v })))));
