// Services: their load and latency against the goal, and where their replicas are.
import { ask, clock, el, failure, fill, num, poller, rows } from "./lib.js";
import { empty, section, table } from "./overview.js";
import { chart } from "./plots.js";

const kept = 300; // points of a curve, one every two seconds

/* seconds as people read them */
const short = (s) => s >= 1 ? `${num(s)} s` : `${num(s * 1000)} ms`;

export function services({ box }) {
  const part = { problem: el("div"), body: el("tbody"), each: el("div") };
  const seen = new Map(); // by service: its card, with what was seen of it since the page was opened
  box.append(el("h1", { text: "Services" }), part.problem,
    section("All services", table("Services, with what became of their requests in the last minute", ["Service", "Goal", ["Replicas", 1], ["Requests/s", 1], ["Median", 1], ["At the goal's percentile", 1], ["In time", 1], ["Batch", 1], ["Cost/h", 1], ["Cost of 1000", 1]], part.body, "services")),
    part.each);

  function show(list, err) {
    fill(part.problem, err ? failure(err) : []);
    if (err) return;
    rows(part.body, list, (s) => s.name, line);
    empty(part.body, 10, "No services: muster service apply FILE runs one.");
    for (const [name, c] of seen) if (!list.some((s) => s.name === name)) { c.stop(); c.box.remove(); seen.delete(name); }
    for (const s of list) {
      if (!seen.has(s.name)) {
        seen.set(s.name, card());
        part.each.append(seen.get(s.name).box);
      }
      seen.get(s.name).show(s);
    }
  }
  const p = poller(() => ask("/v1/services"), show, 1000);
  p.nudge();
  const beat = setInterval(p.nudge, 2000);
  return { title: "Services", changed: p.nudge, themed: () => seen.forEach((c) => c.draw()), leave() { p.stop(); clearInterval(beat); seen.forEach((c) => c.stop()); } };
}

const cell = (text) => el("td", { class: "n", text });

function line(s) {
  const known = s.measured && s.median_s > 0, dash = (v) => known ? v : "–";
  return el("tr", null, el("th", { scope: "row", text: s.name }), el("td", { text: s.goal }), cell(`${s.answers} of ${s.wanted}`),
    cell(s.measured ? num(s.rate) : "–"), cell(dash(short(s.median_s))), cell(dash(short(s.quantile_s))),
    cell(dash(`${(s.attainment * 100).toFixed(2)} %`)), cell(s.batch > 0 ? num(s.batch) : "–"), cell(num(s.cost_per_hour)),
    cell(s.rate > 0 ? num(s.cost_per_hour / 3.6 / s.rate) : "–"));
}

/* lends says which jobs hold what a service lends, and how it got it back so far. */
function lends(l) {
  const link = (id) => [" ", el("a", { href: `/jobs/${id}`, "data-link": true, class: "job", text: `job ${id}` })];
  return [l.jobs.length ? "Lent until it is needed, to" : "Lends nothing now", ...l.jobs.flatMap(link), `; back within ${short(l.within_s)}`,
    l.returns ? `. Given back ${l.returns} times, after ${short(l.mean_s)} in the mean, ${short(l.longest_s)} at most; ${l.late} later than promised.` : "."];
}

/* card is a service by itself: curves, reasons, replicas. */
function card() {
  const part = { title: el("h2"), rate: el("div", { class: "chart" }), late: el("div", { class: "chart" }), of: el("p", { class: "sub" }), lends: el("p", { class: "sub lends" }), why: el("ul", { class: "found" }), body: el("tbody") };
  const box = el("section", null, part.title, el("p", { class: "sub", text: "Requests a second" }), part.rate, part.of, part.late, part.lends, part.why,
    table("Replicas", ["Job", "Variant", "State", "Since", "GPUs", ["Port", 1]], part.body, "slim"));
  const rate = chart(part.rate, 130), late = chart(part.late, 130), points = [];
  function show(s) {
    fill(part.title, s.name);
    fill(part.of, `Latency that ${s.percentile} % of the requests keep`);
    points.push({ at: Date.now() / 1000, rate: s.measured ? s.rate : null, answers: s.answers, late: s.measured && s.quantile_s > 0 ? s.quantile_s * 1000 : null });
    if (points.length > kept) points.shift();
    const at = points.map((x) => x.at);
    part.rate.hidden = part.late.hidden = points.length < 2;
    if (points.length > 1) {
      rate.show({ at, lines: [{ name: "requests a second", cls: "held", color: "--c0", fill: "--fill0", say: num, values: points.map((x) => x.rate) }],
        least: 1, unit: (v) => num(v), size: 48, text: `${s.name}: ${num(s.rate)} requests a second.` });
      late.show({ at, lines: [{ name: `latency at ${s.percentile} %, in ms`, cls: "busy", color: "--c2", say: (v) => `${num(v)} ms`, values: points.map((x) => x.late) }],
        least: 1, unit: (v) => `${num(v)} ms`, size: 60, text: `${s.name}: ${short(s.quantile_s)} at the goal's percentile; the goal is ${s.goal}.` });
    }
    part.lends.hidden = !s.loans;
    fill(part.lends, s.loans ? lends(s.loans) : []);
    fill(part.why, s.why.map((w) => el("li", { text: w })));
    rows(part.body, s.replicas, (r) => r.job, (r) => el("tr", null, el("th", { scope: "row" }, el("a", { href: `/jobs/${r.job}`, "data-link": true, class: "job", text: `job ${r.job}` })),
      el("td", { text: r.variant }), el("td", { text: r.former ? `${r.state} (former)` : r.state }), el("td", null, clock(r.since)), el("td", { text: (r.devices || []).join(", ") }), cell(r.port)));
    empty(part.body, 6, "No replicas.");
  }
  return { box, show, draw() { rate.draw(); late.draw(); }, stop() { rate.stop(); late.stop(); } };
}
