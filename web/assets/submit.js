// Submit a job: errors are shown at their field.
import { ask, el, failure, fill, say } from "./lib.js";

export function submit({ box, go }) {
  const key = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
  let attempt = key();
  const queues = el("select", { id: "f-queue" }, el("option", { value: "", text: "my default queue" }));
  const fields = {
    script: area("Command or script", "f-script", 6, "One or more lines for /bin/sh, or a script whose first line names its interpreter, such as #!/usr/bin/env python3", true),
    name: input("Name", "f-name", "text", "the command's name if empty"),
    gpus: input("GPUs", "f-gpus", "text", "a number, or a part of one such as 0.5", { value: "1", inputmode: "decimal" }),
    limit: input("Time limit", "f-limit", "text", "such as 30m or 2h; none if empty"),
    queue: wrap("Queue", queues, ""),
    tier: wrap("Tier", el("select", { id: "f-tier" }, option("", "standard"), option("critical", "critical: may preempt others"), option("best-effort", "best effort: leaves when others need the GPUs")), ""),
    dir: input("Folder", "f-dir", "text", "your home folder if empty"),
    tasks: input("Tasks", "f-tasks", "number", "each with the GPUs above", { value: "1", min: 1 }),
    cpu: input("CPU cores of each task", "f-cpu", "number", "", { min: 0, step: "any" }),
    ram: input("Memory of each task, GiB", "f-ram", "number", "", { min: 0, step: "any" }),
    estimate: input("Expected run time", "f-estimate", "text", "such as 1h, if it is known"),
    kind: wrap("Kind", el("select", { id: "f-kind" }, ["", "batch", "service", "interactive", "trial"].map((k) => option(k, k || "training"))), ""),
    array: input("Array", "f-array", "text", "indices and how many at once, such as 0-15%4"),
    output: input("Output file", "f-output", "text", "muster-JOB.out in the folder if empty"),
    env: area("Environment", "f-env", 3, "One NAME=VALUE per line, in addition to the usual variables"),
  };
  const hold = el("input", { type: "checkbox", id: "f-hold" }), norequeue = el("input", { type: "checkbox", id: "f-norequeue" });
  const problem = el("div"), send = el("button", { type: "submit", class: "primary", text: "Submit" });
  const rest = ["tasks", "cpu", "ram", "estimate", "kind", "array", "output", "env"];
  const more = el("details", { class: "more" }, el("summary", { text: "More" }), el("div", { class: "fields" }, rest.map((k) => fields[k])),
    el("label", { class: "check" }, hold, " Hold it until it is released"), el("label", { class: "check" }, norequeue, " End after a preemption instead of waiting again"));
  const form = el("form", { class: "submit", novalidate: true }, problem, fields.script, el("div", { class: "fields" }, ["name", "gpus", "limit", "queue", "tier", "dir"].map((k) => fields[k])), more, el("p", null, send));
  box.append(el("h1", { text: "Submit a job" }), form);
  ask("/v1/queues").then((list) => {
    const parents = new Set(list.map((q) => q.parent));
    for (const q of list) if (!parents.has(q.name)) queues.append(option(q.name, q.name));
  }, () => { /* only the default queue can be chosen */ });

  const value = (k) => fields[k].querySelector("input, select, textarea").value.trim();

  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    for (const f of Object.values(fields)) wrong(f, "");
    fill(problem);
    const errors = [], s = read(value, errors);
    s.hold = hold.checked || undefined;
    s.no_requeue = norequeue.checked || undefined;
    if (errors.length) return tell(errors);
    send.disabled = true;
    try {
      const r = await ask("/v1/jobs", { method: "POST", body: s, headers: { "Idempotency-Key": attempt } });
      attempt = key();
      say(r.jobs.length > 1 ? `Array ${r.job.id} with ${r.jobs.length} jobs is submitted.` : `Job ${r.job.id} is submitted.`);
      go(`/jobs/${r.job.id}`);
    } catch (err) {
      attempt = err.status ? key() : attempt; // without an answer the request may have arrived: use the same key again
      err.fields?.some((f) => fields[nameOf(f.field)]) ? tell(err.fields.map((f) => [nameOf(f.field), f.text])) : fill(problem, failure(err));
      problem.querySelector("[role=alert]")?.scrollIntoView({ block: "center" });
    } finally {
      send.disabled = false;
    }
  });

  function tell(errors) {
    for (const [k, text] of errors) if (fields[k]) wrong(fields[k], text);
    const other = errors.filter(([k]) => !fields[k]).map(([k, t]) => `${k ? k + ": " : ""}${t}`);
    if (other.length) fill(problem, failure(new Error(other.join("; "))));
    const bad = form.querySelector("[aria-invalid=true]");
    if (bad && more.contains(bad)) more.open = true;
    bad?.focus();
    say(`Not submitted: ${errors.map(([, t]) => t).join("; ")}`, true);
  }
  return { title: "Submit a job" };
}

/* the interface's names of fields that have other names in the form */
const nameOf = (f) => ({ command: "script", share: "gpus", memory: "ram" })[f.replace(/\[.*|\..*/, "")] || f.replace(/\[.*|\..*/, "");

function read(value, errors) {
  const s = {}, text = value("script");
  if (!text) errors.push(["script", "Nothing to run: write a command or a script."]);
  s.script = text.startsWith("#!") ? text + "\n" : "#!/bin/sh\n" + text + "\n";
  s.name = value("name") || (text.split("\n").find((l) => l.trim() && !l.startsWith("#")) || "job").trim().split(/\s+/)[0].split("/").pop().slice(0, 60) || "job";
  const g = Number(value("gpus").replace(",", ".") || 0);
  if (!(g >= 0) || g > 1 && g !== Math.round(g)) errors.push(["gpus", "Write a whole number, or a part of one GPU such as 0.5."]);
  else if (g > 0 && g < 1) Object.assign(s, { gpus: 1, share: Math.round(g * 1000) });
  else s.gpus = g;
  for (const k of ["limit", "estimate", "queue", "tier", "kind", "dir", "array", "output"]) if (value(k)) s[k] = value(k);
  for (const k of ["limit", "estimate"]) if (s[k] && !/^(\d+(\.\d+)?(ms|[wdhms]))+$/.test(s[k])) errors.push([k, `“${s[k]}” is no duration: write 90s, 30m, 2h30m or 1d.`]);
  for (const [k, factor] of [["tasks", 1], ["cpu", 1000], ["ram", 1024]]) {
    const v = Number(value(k) || 0);
    if (!(v >= 0)) errors.push([k, "Write a number."]);
    else if (v) s[k] = Math.round(v * factor);
  }
  const env = value("env").split("\n").map((l) => l.trim()).filter(Boolean);
  if (env.some((l) => !/^[^=\s]+=/.test(l))) errors.push(["env", "Write one NAME=VALUE per line."]);
  if (env.length) s.env = env;
  return s;
}

const option = (value, text) => el("option", { value, text });

function wrap(name, control, hint) {
  const id = control.id;
  if (hint) control.setAttribute("aria-describedby", id + "-hint");
  return el("div", { class: "field" }, el("label", { for: id, text: name }), control, hint ? el("span", { class: "hint", id: id + "-hint", text: hint }) : null, el("span", { class: "wrong", id: id + "-wrong", hidden: true }));
}

const input = (name, id, type, hint, more = {}) => wrap(name, el("input", { id, type, autocomplete: "off", spellcheck: "false", ...more }), hint);

function area(name, id, rows, hint, required) {
  return wrap(name, el("textarea", { id, rows, spellcheck: "false", autocomplete: "off", autocapitalize: "off", required, "aria-required": required ? "true" : null }), hint);
}

function wrong(field, text) {
  const control = field.querySelector("input, select, textarea"), note = field.querySelector(".wrong");
  note.textContent = text;
  note.hidden = !text;
  if (text) control.setAttribute("aria-invalid", "true"); else control.removeAttribute("aria-invalid");
  const ids = [field.querySelector(".hint")?.id, text && note.id].filter(Boolean).join(" ");
  if (ids) control.setAttribute("aria-describedby", ids);
}
