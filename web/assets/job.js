// A job: what it does, why it waits, what happened to it, its output.
import { alive, ask, asked, badge, clock, devices, el, failure, fill, gpus, held, mib, msOf, now, num, poller, queueOf, say, session, since, span, stateClass } from "./lib.js";
import { follow } from "./log.js";

export function job({ box, args, title }) {
  const id = args[0], path = `/v1/jobs/${id}`;
  const part = { head: el("div", { class: "head" }), problem: el("div"), now: el("p", { class: "lead" }), prog: el("div"), acts: el("div", { class: "acts", role: "group", "aria-label": "Actions" }), why: el("div"), line: el("div"), facts: el("div"), log: el("div") };
  box.append(part.head, part.problem, part.now, part.prog, part.acts, part.why, part.line, part.log, part.facts);
  fill(part.head, el("h1", { text: `Job ${id}` }));
  let log = null, last = null;

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
    if (!last || last.state !== j.state || held(last) !== held(j)) fill(part.acts, actions(j));
    last = j;
    if (!log && (session.admin || j.user === session.user)) log = follow(part.log, j);
    log?.changed(j);
  }
  function actions(j) {
    if (!session.admin && j.user !== session.user) return [];
    const list = [];
    const b = (verb, text, done, sure) => list.push(el("button", { type: "button", class: verb === "cancel" ? "danger" : "", text, onclick: (e) => act(e.currentTarget, verb, done, sure) }));
    if (j.state === "pending") held(j) ? b("release", "Release", "released") : b("hold", "Hold", "held");
    if (j.state === "running") b("requeue", "Requeue", "asked to stop and wait again", ["Requeue this job?", "It is asked for a checkpoint, then it waits again under its number.", "Requeue it"]);
    if (alive(j.state) && j.state !== "stopping") b("cancel", "Cancel", "cancelled", ["Cancel this job?", j.state === "pending" ? "It will not run." : "It is stopped. What it has not saved is lost.", "Cancel it"]);
    return list;
  }
  async function act(button, verb, done, sure) {
    if (sure && !await confirm(...sure)) return;
    button.disabled = true;
    try {
      await ask(`${path}/${verb}`, { method: "POST" });
      say(`Job ${id} is ${done}.`);
    } catch (e) {
      say(e.message, true);
    }
    button.disabled = false;
    p.nudge();
  }
  const p = poller(get, show, 700);
  p.nudge();
  const slow = setInterval(() => { if (last && alive(last.state)) p.nudge(); }, 5000); // what holders and starts are expected changes without an event
  return {
    title: `Job ${id}`,
    changed(c) { if (c.many || c.jobs.includes(Number(id)) || last?.state === "pending") p.nudge(); },
    leave() { p.stop(); clearInterval(slow); log?.stop(); },
  };
}

function confirm(question, text, yes) {
  const d = document.getElementById("ask");
  document.getElementById("ask-title").textContent = question;
  document.getElementById("ask-text").textContent = text;
  document.getElementById("ask-yes").textContent = yes;
  d.showModal();
  return new Promise((answer) => {
    const end = new AbortController(), say = (yes) => () => { end.abort(); d.close(); answer(yes); };
    document.getElementById("ask-yes").addEventListener("click", say(true), { signal: end.signal });
    document.getElementById("ask-no").addEventListener("click", say(false), { signal: end.signal });
    d.addEventListener("cancel", say(false), { signal: end.signal });
  });
}

function sentence(j) {
  switch (j.state) {
    case "pending":
      return ["Waiting for ", since(j.submitted && new Date(now()).toISOString(), msOf(j.waited)), held(j) ? ", held until it is released" : j.position ? `, number ${j.position} in the line` : "",
        j.expected ? [j.rough ? ", expected to start about " : ", expected to start ", clock(j.expected)].flat() : "", "."].flat();
    case "running": case "starting": case "stopping":
      return [`${j.state === "starting" ? "Starting" : j.state === "stopping" ? "Stopping" : "Running"} on ${devices(j)} of ${j.node || "this machine"} since `, j.started ? clock(j.started) : "now", ", in all ", since(new Date(now()).toISOString(), msOf(j.ran)),
        j.submission.limit ? ` of at most ${j.submission.limit}` : "", j.state === "stopping" && j.reason ? `: ${j.reason}` : "", "."];
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
  const list = (name, items) => items?.length ? [el("h3", { text: name }), el("ul", null, items.map((t) => el("li", { text: t })))] : [];
  return el("section", { class: "card why", "aria-labelledby": "why" }, el("h2", { id: "why", text: "Why it waits" }),
    list("What blocks it", why.blockers), list("Who holds what it needs, the soonest to end first", why.holders), list("What would start it now", why.changes));
}

/* words of the timeline */
const words = { pending: "waiting", completed: "completed", starting: "starting" };

function timeline(j, moments) {
  if (!moments.length) return [];
  const from = Date.parse(moments[0].at), end = j.ended ? Date.parse(j.ended) : now(), all = Math.max(1, end - from);
  const parts = moments.map((m, i) => ({ ...m, ms: (moments[i + 1] ? Date.parse(moments[i + 1].at) : alive(m.state) ? now() : Date.parse(m.at)) - Date.parse(m.at) }));
  const sum = {};
  for (const p of parts) if (p.ms > 0) sum[words[p.state] || p.state] = (sum[words[p.state] || p.state] || 0) + p.ms;
  return el("section", { "aria-labelledby": "line" }, el("h2", { id: "line", text: "What happened" }),
    el("div", { class: "tl", "aria-hidden": "true" }, parts.filter((p) => p.ms > 0).map((p) => el("span", { class: stateClass(p.state), "width%": p.ms / all * 100, title: `${words[p.state] || p.state} ${span(p.ms)}` }))),
    el("p", { class: "sub legend" }, Object.entries(sum).filter(([, ms]) => ms >= 500).map(([k, ms]) => el("span", null, el("i", { class: "key " + stateClass(Object.keys(words).find((w) => words[w] === k) || k), "aria-hidden": "true" }), `${k} ${span(ms)}`))),
    el("ol", { class: "moments" }, parts.slice(-30).map((m) => el("li", null, clock(m.at), " ", badge(m.state), m.text ? el("span", { class: "muted", text: " " + m.text }) : null, m.ms >= 1000 && !(alive(m.state) && m === parts[parts.length - 1]) ? el("span", { class: "muted", text: `, for ${span(m.ms)}` }) : null))));
}

function facts(j) {
  const s = j.submission, list = [], tasks = Math.max(1, s.tasks || 0);
  const add = (name, v) => { if (v !== undefined && v !== null && v !== "" && v !== 0) list.push(el("div", null, el("dt", { text: name }), el("dd", null, v))); };
  add("GPUs", asked(s) + (tasks > 1 ? ` in ${tasks} tasks` : ""));
  add("GPU memory", s.gpu_memory && mib(s.gpu_memory));
  add("GPU types", s.gpu_types?.join(", "));
  add("CPU cores", s.cpu && gpus(s.cpu * tasks));
  add("Memory", s.ram && mib(s.ram * tasks));
  add("Elastic", (s.min_tasks || s.max_tasks) && `${s.min_tasks || 1} to ${s.max_tasks || tasks} tasks`);
  add("Tier", s.tier || "standard");
  add("Kind", s.kind);
  add("Priority", s.priority);
  add("Time limit", s.limit && s.limit !== "0s" ? s.limit : "none");
  add("Expected run time", s.estimate !== "0s" && s.estimate);
  add("Waits for", s.after?.map((a) => a.type + (a.job ? `:${a.job}` : "")).join(", "));
  add("Submitted", clock(j.submitted));
  add("First start", j.first_start && clock(j.first_start));
  add("Ended", j.ended && clock(j.ended));
  add("Waited", span(msOf(j.waited)));
  add("GPU-hours", num(j.gpu_hours));
  add("Restarts", j.restarts);
  add("Preemptions", j.preemptions);
  add("Exit code", j.ended && j.started ? String(j.exit_code) : "");
  add("Folder", s.dir && el("code", { text: s.dir }));
  add("Output", j.stdout && el("code", { text: j.stdout }));
  add("Errors", j.stderr && el("code", { text: j.stderr }));
  add("Comment", s.comment);
  const text = s.script || (s.command || []).map(quote).join(" ");
  return [el("section", { "aria-labelledby": "facts" }, el("h2", { id: "facts", text: "What it asked for" }), el("dl", { class: "facts2" }, list)),
    text ? el("section", { "aria-labelledby": "cmd" }, el("h2", { id: "cmd", text: s.script ? "Script" : "Command" }), el("pre", { class: "code", tabindex: 0, role: "region", "aria-labelledby": "cmd", text })) : null];
}

const quote = (a) => /^[\w@%+=:,./-]+$/.test(a) ? a : "'" + a.replaceAll("'", `'\\''`) + "'";
