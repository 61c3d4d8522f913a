// A job: what it does, why it waits, what happened to it, its output.
import { alive, ask, asked, badge, clock, confirmed, devices, el, failure, fill, gpus, held, mib, msOf, now, num, poller, queueOf, say, session, since, span, startOf, stateClass } from "./lib.js";
import { curves } from "./curves.js";
import { follow } from "./log.js";
import { section, table } from "./overview.js";

export function job({ box, args, title }) {
  const id = args[0], path = `/v1/jobs/${id}`;
  const part = { head: el("div", { class: "head" }), problem: el("div"), now: el("p", { class: "lead" }), prog: el("div"), acts: el("div", { class: "acts", role: "group", "aria-label": "Actions" }), refused: el("div"), pods: el("div"), why: el("div"), line: el("div"), curves: el("div"), used: el("div"), facts: el("div"), log: el("div") };
  box.append(part.head, part.problem, part.now, part.prog, part.acts, part.refused, part.why, part.line, part.pods, part.log, part.curves, part.used, part.facts);
  fill(part.head, el("h1", { text: `Job ${id}` }));
  let log = null, last = null, acted = 0;
  const drawn = curves(part.curves);

  async function get() {
    const j = await ask(path);
    const [why, moments] = await Promise.all([j.state === "pending" || j.state === "suspended" ? ask(path + "/why") : null, ask(path + "/history")]);
    return { j: why?.job?.state === "pending" ? why.job : j, why, moments };
  }
  function show(a, err) {
    fill(part.problem, err ? failure(err) : []);
    if (err) return;
    const { j, why, moments } = a, s = j.submission;
    title(`${s.name || "job"} (${j.id})`);
    fill(part.head, el("h1", null, s.name || `Job ${id}`, j.array ? ` [${j.index || 0}]` : ""),
      el("p", { class: "sub" }, badge(j), ` · job ${j.id}`, j.array ? ` of array ${j.array}` : "", ` · ${j.user}`, ` · ${queueOf(j)}`, s.tier && s.tier !== "standard" ? ` · ${s.tier}` : ""));
    fill(part.now, sentence(j));
    fill(part.prog, bar(j));
    fill(part.why, blockers(j, why));
    fill(part.line, timeline(j, moments));
    fill(part.facts, facts(j));
    fill(part.pods, pods(j));
    if (!last || last.state !== j.state || held(last) !== held(j) || last.code !== j.code) fill(part.acts, actions(j));
    if (last?.state !== j.state) {
      measure.nudge();
      if (last && performance.now() - acted > 3000) say(`Job ${id} is ${j.state === "pending" ? "waiting" : j.state} now.`);
    }
    last = j;
    if (!log && !session.readonly && (session.admin || j.user === session.user)) log = follow(part.log, j);
    log?.changed(j);
  }
  function actions(j) {
    if (session.readonly || !session.admin && j.user !== session.user) return [];
    const list = [], byPerson = j.state === "suspended" && !j.code; // otherwise it resumes by itself when there is room
    const b = (verb, text, done, sure) => list.push(el("button", { type: "button", class: verb === "cancel" ? "danger" : "", text, onclick: (e) => act(e.currentTarget, verb, done, sure) }));
    if (j.state === "pending") held(j) ? b("release", "Release", "released") : b("hold", "Hold", "held");
    if (j.state === "running") b("suspend", "Suspend", "suspended", { question: "Suspend this job?", text: "Its processes are frozen, and keep their GPUs and memory until it is resumed.", yes: "Suspend it" });
    if (byPerson) b("resume", "Resume", "resumed");
    if (j.state === "running") b("requeue", "Requeue", "asked to stop and wait again", { question: "Requeue this job?", text: "It is asked for a checkpoint, and then waits again under its number.", yes: "Requeue it" });
    if (alive(j.state) && j.state !== "stopping") b("cancel", "Cancel", "cancelled", { question: "Cancel this job?", text: j.state === "pending" ? "It will not run." : "It is stopped. What it has not saved is lost.", yes: "Cancel it", danger: true });
    return list;
  }
  async function act(button, verb, done, sure) {
    if (sure && !await confirmed(sure)) return;
    button.disabled = true;
    acted = performance.now();
    try {
      await ask(`${path}/${verb}`, { method: "POST" });
      say(`Job ${id} is ${done}.`);
      fill(part.refused);
    } catch (e) {
      say(e.message, true);
      fill(part.refused, failure(e));
    }
    button.disabled = false;
    p.nudge();
  }
  const measure = poller(() => ask(path + "/samples"), (m, err) => {
    if (err) return; // the request for the job reports the error
    drawn.show(m, last);
    fill(part.used, used(last, m));
  }, 4000);
  const p = poller(get, show, 700);
  p.nudge();
  const slow = setInterval(() => { if (last && alive(last.state)) { p.nudge(); measure.nudge(); } }, 5000); // expected starts change without an event
  return {
    title: `Job ${id}`,
    changed(c) { if (c.many || c.jobs.includes(Number(id)) || last?.state === "pending") p.nudge(); },
    themed: drawn.draw,
    leave() { p.stop(); measure.stop(); clearInterval(slow); drawn.stop(); log?.stop(); },
  };
}

/* how the expected end of a running job is known */
const how = { progress: " by its progress", estimate: " as was stated", history: " as earlier runs suggest", limit: " at its time limit" };

/* when a waiting job is expected to start, in the words of the command line */
function expectation(j) {
  if (!j.expected) return "";
  if (j.at_earliest) return [", expected to start at the earliest ", clock(j.earliest || j.expected), j.scored ? ["; four of five do by ", clock(j.latest)] : ""];
  if (j.by_limits) return [", expected to start at ", clock(j.expected), " if those ahead run to their time limits, sooner if they end sooner"];
  return [", expected to start ", ...startOf(j), j.earliest && j.latest
    ? [", ", j.scored ? "four of five do " : "", "between ", clock(j.earliest), " and ", clock(j.latest), j.scored ? "" : " as earlier runs suggest"] : ""];
}

function sentence(j) {
  switch (j.state) {
    case "pending":
      return ["Waiting for ", since(j.submitted && new Date(now()).toISOString(), msOf(j.waited)), held(j) ? ", held until it is released" : j.position ? `, number ${j.position} in the line` : "",
        expectation(j), "."].flat(2);
    case "running": case "starting": case "stopping":
      return [`${j.state === "starting" ? "Starting" : j.state === "stopping" ? "Stopping" : "Running"} on ${devices(j)} of ${j.node || "this machine"} since `, j.started ? clock(j.started) : "now", ", in all ", since(new Date(now()).toISOString(), msOf(j.ran)),
        j.submission.limit ? ` of at most ${j.submission.limit}` : "", j.state === "stopping" && j.reason ? `: ${j.reason}` : "", j.expected_end ? [", expected to end ", clock(j.expected_end), how[j.end_by] || ""].flat() : "", ".", j.idle ? ` It is ${j.idle.text}.` : ""].flat();
    case "suspended":
      return [`Suspended${j.reason ? ": " + j.reason : ""}.`];
  }
  return [`${j.state[0].toUpperCase()}${j.state.slice(1)}${j.reason ? ": " + j.reason : ""}`, j.ended ? [", ", clock(j.ended)] : [], j.started ? `, after ${span(msOf(j.ran))} on devices` : ", without having run", "."].flat();
}

function bar(j) {
  const p = j.progress;
  if (!p) return [];
  const part = p.steps ? Math.max(0, Math.min(1, p.step / p.steps)) : null, text = [];
  if (j.state === "pending") text.push("in its last run");
  text.push(`step ${p.step.toLocaleString("en")}${p.steps ? ` of ${p.steps.toLocaleString("en")}` : ""}`);
  if (p.epoch) text.push(`epoch ${num(p.epoch)}`);
  if (p.samples_per_s) text.push(`${num(p.samples_per_s)} samples/s`);
  if (p.checkpoint) text.push(`checkpoint ${p.checkpoint}`);
  return [part === null ? null : el("div", { class: "prog big" },
    el("span", { class: "meter", role: "progressbar", "aria-label": "progress", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(part * 100) }, el("span", { "width%": part * 100 })), el("span", { class: "pct", text: Math.round(part * 100) + "%" })),
  el("p", { class: "sub", text: text.join(" · ") })];
}

function blockers(j, why) {
  if (!why || !(why.blockers?.length || why.holders?.length || why.changes?.length)) return [];
  const list = (name, items) => items?.length ? [el("h3", { text: name }), el("ul", null, items.map((t) => el("li", null, linked(t))))] : [];
  return el("section", { class: "card why", "aria-labelledby": "why" }, el("h2", { id: "why", text: "Why it waits" }),
    list("What blocks it", why.blockers), list("Jobs that hold what it needs, the soonest to end first", why.holders), list("What would start it now", why.changes));
}

/* linked turns the job that a line begins with into a link. */
function linked(text) {
  const m = text.match(/^job (\d+)/);
  return m ? [el("a", { href: `/jobs/${m[1]}`, "data-link": true, text: m[0] }), text.slice(m[0].length)] : text;
}

/* words of the timeline; a wait after a preemption has its own */
const words = { pending: "waiting" };
const kindOf = (m) => (m.state === "pending" && /^preempted/.test(m.text || "") ? "preempted" : m.state);

function timeline(j, moments) {
  if (!moments.length) return [];
  const from = Date.parse(moments[0].at), end = j.ended ? Date.parse(j.ended) : now(), all = Math.max(1, end - from);
  const parts = moments.map((m, i) => ({ ...m, kind: kindOf(m), ms: (moments[i + 1] ? Date.parse(moments[i + 1].at) : alive(m.state) ? now() : Date.parse(m.at)) - Date.parse(m.at) }));
  const sum = new Map(), word = (k) => words[k] || k;
  for (const p of parts) if (p.ms > 0) sum.set(p.kind, (sum.get(p.kind) || 0) + p.ms);
  return el("section", { "aria-labelledby": "line" }, el("h2", { id: "line", text: "What happened" }),
    el("div", { class: "tl", "aria-hidden": "true" }, parts.filter((p) => p.ms > 0).map((p) => el("span", { class: stateClass(p.kind), "width%": p.ms / all * 100, title: `${word(p.kind)} ${span(p.ms)}` }))),
    el("p", { class: "ends", "aria-hidden": "true" }, clock(moments[0].at), j.ended ? clock(j.ended) : el("span", { text: "now" })),
    el("p", { class: "sub legend" }, [...sum].filter(([, ms]) => ms >= 500).map(([k, ms]) => el("span", null, el("i", { class: "key " + stateClass(k), "aria-hidden": "true" }), `${word(k)} ${span(ms)}`))),
    el("ol", { class: "moments" }, parts.slice(-30).map((m) => el("li", null, clock(m.at), " ", badge(m.kind), m.text ? el("span", { class: "muted", text: " " + m.text }) : null, m.ms >= 1000 && !(alive(m.state) && m === parts[parts.length - 1]) ? el("span", { class: "muted", text: `, for ${span(m.ms)}` }) : null))));
}

/* pods are the tasks of a job on a cluster. */
function pods(j) {
  if (!j.tasks?.length) return [];
  const r = j.tasks.slice(0, 200).map((t) => el("tr", null, el("th", { scope: "row", text: t.name }), el("td", { text: t.state }), el("td", { text: t.node || "" }), el("td", { class: "n", text: t.gpus || 0 })));
  return section("Pods", table("Pods", ["Pod", "State", "Node", ["GPUs", 1]], el("tbody", null, r), "slim"), j.tasks.length > 200 ? el("p", { class: "sub", text: `and ${j.tasks.length - 200} more` }) : null);
}

/* network says in which class a job's traffic is, and what it loses to which others. */
function network(n) {
  const said = [];
  if (n.class) said.push(`class ${n.class}`);
  if (n.slots) said.push(`slots: ${n.slots}`);
  if (n.counted) said.push(n.counted);
  if (n.loses?.length) said.push(`an iteration takes ${n.takes} instead of ${n.alone}, because of ${n.loses.map((l) => `job ${l.job} (${l.link})`).join(", ")}`);
  return said.join("; ");
}

function facts(j) {
  const s = j.submission, list = [], tasks = Math.max(1, s.tasks || 0);
  const add = (name, v) => { if (v !== undefined && v !== null && v !== "" && v !== 0) list.push(el("div", null, el("dt", { text: name }), el("dd", null, v))); };
  add("GPUs", asked(s) + (tasks > 1 ? ` in ${tasks} tasks` : ""));
  add("GPU memory", s.gpu_memory && mib(s.gpu_memory));
  add("Gets", j.sharing);
  add("GPU types", s.gpu_types?.join(", "));
  add("Transmits", j.network?.traffic && `${j.network.traffic} (${j.network.source})`);
  add("On the network", j.network && network(j.network));
  add("CPU cores", s.cpu && gpus(s.cpu * tasks));
  add("Memory", s.ram && mib(s.ram * tasks));
  add("Elastic", (s.min_tasks || s.max_tasks) && `${s.min_tasks || 1} to ${s.max_tasks || tasks} tasks`);
  add("Tier", s.tier || "standard");
  add("Kind", s.kind);
  add("Priority", s.priority);
  add("Time limit", s.limit && s.limit !== "0s" ? s.limit : "none");
  add("Expected run time", s.estimate !== "0s" && s.estimate);
  add("Waits for", s.after?.map((a) => a.type + (a.job ? `:${a.job}` : "")).join(s.any_of ? " or " : ", "));
  add("Submitted", clock(j.submitted));
  add("First start", j.first_start && clock(j.first_start));
  add("Ended", j.ended && clock(j.ended));
  add("Exit code", j.ended && j.started ? String(j.exit_code) : "");
  add("Folder", s.dir && el("code", { text: s.dir }));
  add("Output", j.stdout && el("code", { text: j.stdout }));
  add("Errors", j.stderr && el("code", { text: j.stderr }));
  add("Comment", s.comment);
  const text = s.script || (s.command || []).map(quote).join(" ");
  return [el("section", { "aria-labelledby": "facts" }, el("h2", { id: "facts", text: "What it asked for" }), el("dl", { class: "facts2" }, list)),
    text ? el("section", { "aria-labelledby": "cmd" }, el("h2", { id: "cmd", text: s.script ? "Script" : "Command" }), el("pre", { class: "code", tabindex: 0, role: "region", "aria-labelledby": "cmd", text })) : null];
}

/* used is what the job cost, as far as it is known. */
function used(j, m) {
  const list = [], v = m.measured, hours = (s) => `${num(s / 3600)} GPU-hours`;
  const add = (name, text) => { if (text !== undefined && text !== null && text !== "" && text !== false) list.push(el("div", null, el("dt", { text: name }), el("dd", { text }))); };
  add("GPU-hours", num(j.gpu_hours));
  add("Cost", m.cost !== undefined && m.cost.toFixed(2));
  add("Waited", span(msOf(j.waited)));
  add("Ran", span(msOf(j.ran)));
  add("Restarts", j.restarts ? String(j.restarts) : "");
  add("Preemptions", j.preemptions ? String(j.preemptions) : "");
  add("Work lost by stops", j.lost_gpu_hours ? `${num(j.lost_gpu_hours)} GPU-hours` : "");
  add("Checkpoint", j.saves_nothing || "");
  add("GPU utilisation", v.utilisation !== undefined && `${num(v.utilisation)} % on average, at most ${num(v.most)} %`);
  add("GPU memory", v.memory_most !== undefined && `at most ${mib(v.memory_most)} on one GPU`);
  add("Energy", v.energy !== undefined && `${num(v.energy / 3.6e6)} kWh`);
  add("GPUs did nothing", v.idle >= 1 && `for ${hours(v.idle)}${v.holding >= 1 ? `, of these ${hours(v.holding)} with memory in use` : ""}`);
  add("GPUs never used", v.unused ? String(v.unused) : "");
  add("Samples per GPU-hour", j.samples_per_gpu_hour !== undefined && num(j.samples_per_gpu_hour));
  add("Steps per GPU-hour", j.steps_per_gpu_hour !== undefined && num(j.steps_per_gpu_hour));
  add("CPU time", j.cpu_time && j.cpu_time !== "0s" && span(msOf(j.cpu_time)));
  add("Host memory", v.ram ? `at most ${mib(v.ram)}` : "");
  return el("section", { "aria-labelledby": "used" }, el("h2", { id: "used", text: "What it used" }), el("dl", { class: "facts2" }, list),
    v.samples && v.utilisation === undefined && j.gpu_hours ? el("p", { class: "sub", text: "The GPUs' utilisation was not measured: simulated GPUs have none." }) : null);
}

const quote = (a) => /^[\w@%+=:,./-]+$/.test(a) ? a : "'" + a.replaceAll("'", `'\\''`) + "'";
