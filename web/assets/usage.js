// Who used what, and what of it came to nothing; from the jobs that ended, and those that run.
import { ask, el, failure, fill, gpus, msOf, num, owner, poller, rows, span } from "./lib.js";
import { empty, table } from "./overview.js";

const spans = [["1", "the last day"], ["7", "the last 7 days"], ["30", "the last 30 days"], ["", "all that is kept"]];
const most = 20000; // jobs that a browser adds up

/* how a job ended says what its GPU-hours were worth */
const lost = { failed: "failed", timeout: "failed", lost: "failed", rejected: "failed", cancelled: "cancelled", preempted: "failed" };

export function usage({ box, query }) {
  const days = el("select", { id: "days" }, spans.map(([v, t]) => el("option", { value: v, text: t, selected: v === (query.get("days") ?? "7") })));
  const by = el("select", { id: "by" }, [["user", "users"], ["queue", "queues"], ["name", "job names"]].map(([v, t]) => el("option", { value: v, text: t, selected: v === query.get("by") })));
  const body = el("tbody"), problem = el("div"), figures = el("dl", { class: "figures" }), note = el("p", { class: "sub" });
  box.append(el("h1", { text: "Usage" }), el("form", { class: "filter", "aria-label": "Usage" }, el("label", null, el("span", { text: "Time" }), days), el("label", null, el("span", { text: "By" }), by)), problem, figures,
    table("GPU-hours and what came of them", ["Who", "", ["GPU-hours", 1], ["Done", 1], ["Running", 1], ["Failed", 1], ["Cancelled", 1], ["Jobs", 1], ["Preemptions", 1], ["Mean wait", 1]], body, "usage"), note);
  box.querySelector("form").addEventListener("change", () => {
    history.replaceState(null, "", `/usage?days=${days.value}&by=${by.value}`);
    p.nudge();
  });

  async function get() {
    const q = new URLSearchParams({ limit: 2000, brief: "true" }), list = [];
    if (days.value) q.set("since", new Date(Date.now() - days.value * 86400e3).toISOString().replace(/\.\d+/, ""));
    for (;;) {
      const page = await ask("/v1/jobs?" + q);
      list.push(...page.jobs);
      if (!page.next || list.length >= most) return { list, more: !!page.next };
      q.set("before", page.next);
    }
  }
  function show(a, err) {
    fill(problem, err ? failure(err) : []);
    if (err) return;
    const all = sum("all"), groups = new Map();
    for (const j of a.list) {
      const name = (by.value === "user" ? j.user : by.value === "queue" ? j.submission.queue : j.submission.name) || "none";
      if (!groups.has(name)) groups.set(name, sum(name));
      for (const g of [all, groups.get(name)]) add(g, j);
    }
    const list = [...groups.values()].sort((x, y) => y.hours - x.hours || (x.name < y.name ? -1 : 1)), top = Math.max(1e-9, ...list.map((g) => g.hours));
    const figure = (name, value, unit) => el("div", null, el("dt", { text: name }), el("dd", null, el("b", { text: value }), ` ${unit}`));
    const share = (v) => all.hours ? `${num(v / all.hours * 100)} %` : "–";
    fill(figures, figure("Used", num(all.hours), "GPU-hours"), figure("Came to something", share(all.done + all.running), "done or running"),
      figure("Failed", share(all.failed), `${num(all.failed)} GPU-hours`), figure("Cancelled", share(all.cancelled), `${num(all.cancelled)} GPU-hours`),
      figure("Mean wait", all.jobs ? span(all.wait / all.jobs) : "–", `over ${all.jobs} jobs`));
    rows(body, list.slice(0, 100), (g) => g.name, (g) => el("tr", null, el("th", { scope: "row", text: g.name }),
      el("td", { class: "wide" }, el("span", { class: "ubar", "aria-hidden": "true" }, ["done", "running", "failed", "cancelled"].map((k) => el("span", { class: k, "width%": g[k] / top * 100 })))),
      ...[g.hours, g.done, g.running, g.failed, g.cancelled].map((v) => el("td", { class: "n", text: num(v) })),
      el("td", { class: "n", text: g.jobs }), el("td", { class: "n", text: g.preemptions }), el("td", { class: "n", text: span(g.wait / g.jobs) })));
    empty(body, 10, "No jobs in that time.");
    fill(note, `Counted from each job's time on devices; jobs that ended in that time, and those that have not ended, with all their hours.${a.more ? ` Only the latest ${most} jobs are counted.` : ""}${list.length > 100 ? " The hundred largest are shown." : ""}`);
  }
  const p = poller(get, show, 5000);
  p.nudge();
  return { title: "Usage", changed: p.nudge, leave: p.stop };
}

const sum = (name) => ({ name, hours: 0, done: 0, running: 0, failed: 0, cancelled: 0, jobs: 0, preemptions: 0, wait: 0 });

function add(g, j) {
  g.jobs++;
  g.hours += j.gpu_hours;
  g[j.ended ? lost[j.state] || "done" : "running"] += j.gpu_hours;
  g.preemptions += j.preemptions;
  g.wait += msOf(j.waited);
}
