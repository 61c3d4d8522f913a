// The machine at a glance: figures, the last hour, GPUs, queues, which jobs run and which are next.
import { ask, badge, clock, confirmed, el, failure, fill, gpus, asked, jobLink, mib, num, owner, poller, progress, queueOf, rows, say, session, startOf, timeOf } from "./lib.js";
import { hour } from "./plots.js";

export function overview({ box }) {
  const parts = {
    head: el("div", { class: "head" }), acts: el("div", { class: "acts", role: "group", "aria-label": "The node" }), refused: el("div"), figures: el("dl", { class: "figures" }), left: el("div"), chart: el("div", { class: "chart" }),
    gpus: el("ul", { class: "gpus" }), queues: el("tbody"), running: el("tbody"), waiting: el("tbody"), state: el("div"), links: el("tbody"),
  };
  const plot = hour(parts.chart);
  const network = section("Network", table("Links, the busiest first", ["Link", "Rate", ["Load", 1], ""], parts.links, "slim"));
  network.hidden = true;
  // First what people look for: how full it is, which jobs run and wait. Then what the devices do, and last what changes the node.
  box.append(parts.head, parts.state, parts.figures,
    el("div", { class: "pair" },
      section("Running", table("Running jobs", ["Job", ["GPUs", 1], "State", ["Time", 1]], parts.running, "slim"), el("a", { href: "/jobs?state=running", "data-link": true, text: "all running" })),
      section("Next in line", table("Waiting jobs, the next first", [["", 1], "Job", ["GPUs", 1], "Expected start"], parts.waiting, "slim"), el("a", { href: "/jobs?state=pending", "data-link": true, text: "all waiting" }))),
    section("GPUs", parts.gpus, parts.left),
    section("The last hour", parts.chart),
    network,
    section("Queues", table("Queues", ["Queue", "", ["Holds", 1], ["Fair share", 1], ["Guarantee", 1], ["Limit", 1], ["Running", 1], ["Waiting", 1]], parts.queues, "queues")),
    parts.acts, parts.refused);
  fill(parts.head, el("h1", { text: "Overview" }));
  let node = null;

  async function turn(button, verb) {
    const reason = verb === "drain" && await confirmed({ question: `Drain ${node.name}?`, text: "It takes no more jobs. Running jobs continue to their end.", yes: "Drain it", what: "Reason (shown to others)" });
    if (verb === "drain" && !reason) return;
    button.disabled = true;
    try {
      await ask(`/v1/nodes/${encodeURIComponent(node.name)}/${verb}`, { method: "POST", body: reason ? { reason: reason.text } : {} });
      say(verb === "drain" ? `${node.name} takes no more jobs.` : `${node.name} takes jobs again.`);
      fill(parts.refused);
    } catch (e) {
      say(e.message, true);
      fill(parts.refused, failure(e));
    }
    button.disabled = false;
    p.nudge();
  }

  function show(o, err) {
    fill(parts.state, err ? failure(err) : []);
    if (err) return;
    const all = o.nodes.flatMap((n) => n.gpus || []);
    head(parts.head, o, all);
    if (session.admin && o.nodes[0] && node?.state !== o.nodes[0].state) {
      node = o.nodes[0];
      fill(parts.acts, node.state === "up" ? el("button", { type: "button", text: "Drain this node", onclick: (e) => turn(e.currentTarget, "drain") })
        : el("button", { type: "button", text: "Take jobs again", onclick: (e) => turn(e.currentTarget, "resume") }));
    }
    figures(parts.figures, o, all);
    fill(parts.left, leftText(o.left));
    const byId = new Map(o.running.map((j) => [j.id, j]));
    const count = o.whole ? o.whole.gpus : all.length;
    if (o.whole) {
      rows(parts.gpus, o.nodes, (n) => n.name, (n) => machine(n, byId));
      if (o.nodes.length < o.whole.nodes) parts.gpus.append(el("li", { class: "empty", "data-key": "", text: `and ${o.whole.nodes - o.nodes.length} more nodes: muster nodes lists all` }));
    } else rows(parts.gpus, all, (g) => g.index, (g) => gpu(g, byId));
    if (!count) fill(parts.gpus, el("li", { class: "empty", text: "No GPUs: jobs that ask for none can run." }));
    plot.show(o.series, count);
    rows(parts.queues, o.queues, (q) => q.name, (q) => queue(q, count * 1000, o.queues));
    rows(parts.running, o.running.slice(0, 12), (j) => j.id, running);
    rows(parts.waiting, o.waiting.slice(0, 12), (j) => j.id, waiting);
    network.hidden = !o.links?.length;
    rows(parts.links, (o.links || []).slice(0, 12), (l) => l.name, link);
    empty(parts.running, 4, "Nothing runs.");
    empty(parts.waiting, 4, "Nothing waits.");
    empty(parts.queues, 8, "No queues.");
  }
  const p = poller(() => ask("/v1/overview"), show, 1000);
  p.nudge();
  const slow = setInterval(p.nudge, 10000); // measurements change without an event
  return { title: "Overview", changed: p.nudge, themed: plot.draw, leave() { p.stop(); clearInterval(slow); plot.stop(); } };
}

export function section(title, ...kids) {
  const id = "s-" + title.toLowerCase().replace(/\W+/g, "-");
  return el("section", { "aria-labelledby": id }, el("h2", { id, text: title }), ...kids);
}

/* table makes a table with a caption for screen readers. A column is its name,
   or its name and a flag for numbers. */
export function table(caption, columns, body, cls) {
  return el("div", { class: "scroll" }, el("table", { class: cls }, el("caption", { class: "hidden", text: caption }),
    el("thead", null, el("tr", null, columns.map((c) => {
      const [name, n] = Array.isArray(c) ? c : [c, 0];
      return name ? el("th", { scope: "col", class: n ? "n" : null, text: name }) : el("td");
    }))), body));
}

export function empty(body, columns, text) {
  if (!body.children.length) body.append(el("tr", { "data-key": "none" }, el("td", { colspan: columns, class: "empty", text })));
}

function head(box, o, all) {
  const w = o.whole;
  if (w) {
    fill(box, el("h1", { text: "Overview" }),
      el("p", { class: "sub" }, el("b", { text: `${w.nodes} ${w.nodes === 1 ? "node" : "nodes"}` }), ` · ${w.gpus} × ${w.models.join(", ") || "no GPU"} · ${Math.round(w.cpu / 1000)} cores · ${mib(w.ram)}`),
      w.off ? el("p", { class: "note bad" }, el("b", { text: `On ${w.off} of ${w.nodes} nodes nothing starts.` }), " What runs there goes on.") : null);
    return;
  }
  const n = o.nodes[0], models = [...new Set(all.map((g) => g.model))].join(", ");
  const played = all.some((g) => g.simulated);
  fill(box, el("h1", { text: "Overview" }),
    el("p", { class: "sub" }, el("b", { text: n ? n.name : "" }), ` · ${all.length} × ${models || "no GPU"} · ${Math.round((n?.cpu || 0) / 1000)} cores · ${mib(n?.ram || 0)}`,
      n && n.state !== "up" ? ` · ${n.state}` : ""),
    n && n.state !== "up" ? el("p", { class: "note bad" }, el("b", { text: n.state === "draining" ? "It takes no more jobs." : "It is down." }), n.reason ? ` ${n.reason}` : "") : null,
    played ? el("p", { class: "note" }, el("b", { text: "Simulated GPUs." }), " The jobs are real processes; the devices are only played, so nothing is measured on them.") : null);
}

function figures(box, o, all) {
  const w = o.whole, count = w ? w.gpus : all.length, total = count * 1000, used = w ? total - w.free : all.reduce((s, g) => s + 1000 - g.free, 0);
  const measured = all.filter((g) => g.utilisation !== undefined);
  const mean = measured.length ? measured.reduce((s, g) => s + g.utilisation, 0) / measured.length : null;
  const c = o.counts, run = (c.running || 0) + (c.starting || 0) + (c.stopping || 0), bad = w ? w.unhealthy : all.filter((g) => !g.healthy).length;
  const figure = (name, value, unit, part, cls) => el("div", { class: cls }, el("dt", { text: name }), el("dd", null, el("b", { text: value }), unit ? ` ${unit}` : "",
    part === null ? null : el("span", { class: "meter", "aria-hidden": "true" }, el("span", { "width%": part }))));
  fill(box,
    figure("GPUs held", gpus(used), `of ${count}`, total ? used / total * 100 : null),
    figure("Utilisation", mean === null ? "–" : num(mean), mean === null ? "not measured" : "%", mean),
    figure("Waiting", String(c.pending || 0), (c.pending || 0) === 1 ? "job" : "jobs", null),
    figure("Running", String(run), run === 1 ? "job" : "jobs", null),
    c.suspended ? figure("Suspended", String(c.suspended), "", null) : null,
    bad ? figure("Unhealthy", String(bad), bad === 1 ? "GPU" : "GPUs", null, "bad") : null);
}

/* leftText is how much of the free GPUs is of no use to what people ask for (docs/reference/gpus.md). */
function leftText(l) {
  if (!l?.free) return [];
  return el("p", { class: "sub left" }, `${about(l.free)} ${l.free === 1000 ? "GPU" : "GPUs"} free, ${about(l.usable)} usable by the tasks submitted last`,
    l.usable < l.free ? `; the rest, ${Math.round((1 - l.usable / l.free) * 100)} %, are fragments: parts too small for what people ask for, too few GPUs on one node, or no CPU or RAM left with them.` : ".");
}

const about = (milli) => String(Math.round(milli / 10) / 100);

/* machine is a node of a cluster, where the kubelet chooses the devices of a job. */
function machine(n, byId) {
  const ids = [...new Set(n.gpus.flatMap((g) => g.jobs || []))], jobs = ids.map((id) => byId.get(id) || { id, submission: {}, user: "", devices: [] });
  const free = n.gpus.filter((g) => g.healthy && g.free).length, sick = n.gpus.filter((g) => !g.healthy).length, off = n.state !== "up";
  return el("li", { class: `gpu ${off || sick ? "sick" : ""} ${ids.length ? "" : "idle"}` },
    el("div", { class: "top" }, el("h3", null, el("b", { text: n.name })), off ? el("span", { class: "state bad", text: n.state }) : null),
    el("div", { class: "share", "aria-hidden": "true" }, n.gpus.map((g) => el("span", { class: g.jobs?.length ? owner(queueOf(byId.get(g.jobs[0]) || { submission: {} })) : "none", "width%": 100 / n.gpus.length }))),
    el("div", { class: "held" }, jobs.slice(0, 4).map((j) => el("div", { class: "holder" }, el("i", { class: owner(queueOf(j)), "aria-hidden": "true" }), jobLink(j),
      el("span", { class: "by", text: [n.gpus.filter((g) => g.jobs?.includes(j.id)).length + " GPUs", j.submission.queue].filter(Boolean).join(" · ") }))),
    jobs.length > 4 ? el("span", { class: "free", text: `and ${jobs.length - 4} more jobs` }) : null,
    el("span", { class: "free", text: n.gpus.length ? `${free} of ${n.gpus.length} GPUs free` : "no GPUs" })),
    n.reason || sick ? el("p", { class: "fault", text: [n.reason, sick ? `${sick} not offered` : ""].filter(Boolean).join("; ") }) : null);
}

function gpu(g, byId) {
  const used = (1000 - g.free) / 10, jobs = (g.jobs || []).map((id) => byId.get(id) || { id, submission: {}, user: "", devices: [] });
  const facts = [], open = (g.instances || []).filter((x) => x.job === undefined); // MIG
  if (g.utilisation !== undefined) facts.push(el("span", null, el("b", { text: num(g.utilisation) }), " % busy"));
  if (g.memory_used !== undefined) facts.push(el("span", null, el("b", { text: mib(g.memory_used) }), ` of ${mib(g.memory)}`));
  if (g.temperature !== undefined) facts.push(el("span", null, el("b", { text: Math.round(g.temperature) }), " °C"));
  if (g.power !== undefined) facts.push(el("span", null, el("b", { text: Math.round(g.power) }), " W"));
  const whole = jobs.length === 1 ? owner(queueOf(jobs[0])) : "";
  return el("li", { class: `gpu ${whole} ${g.healthy ? "" : "sick"} ${jobs.length ? "" : "idle"}` },
    el("div", { class: "top" }, el("h3", null, "GPU ", el("b", { text: g.index })), g.healthy ? null : el("span", { class: "state bad", text: "unhealthy" }),
      g.simulated ? el("span", { class: "tag", text: "simulated" }) : null),
    el("div", { class: "share", "aria-hidden": "true" }, jobs.map((j) => {
      const d = (j.devices || []).find((x) => x.index === g.index);
      return el("span", { class: owner(queueOf(j)), "width%": d && d.share ? d.share / 10 : used / jobs.length });
    })),
    el("div", { class: "held" }, jobs.length ? jobs.map((j) => {
      const d = (j.devices || []).find((x) => x.index === g.index), part = d?.profile || (d?.share && d.share < 1000 ? gpus(d.share) : "");
      return el("div", { class: "holder" }, el("i", { class: owner(queueOf(j)), "aria-hidden": "true" }), jobLink(j),
        el("span", { class: "by", text: [j.user, queueOf(j), part && `${part} GPU`].filter(Boolean).join(" · ") }));
    }) : el("span", { class: "free", text: g.healthy ? "free" : "not handed out" })),
    open.length ? el("span", { class: "free", text: `free slices: ${open.map((x) => x.profile).join(", ")}` }) : null,
    g.fault ? el("p", { class: "fault", text: g.fault }) : null,
    g.memory_used !== undefined ? el("span", { class: "meter thin", title: "memory in use", "aria-hidden": "true" }, el("span", { "width%": g.memory_used / Math.max(1, g.memory) * 100 })) : null,
    facts.length ? el("div", { class: "facts" }, facts) : null);
}

function queue(q, total, all) {
  const over = q.guarantee > 0 && q.used > q.guarantee, scale = Math.max(total, 1);
  let deep = 0;
  for (let p = q.parent; p && deep < 8; deep++) p = all.find((x) => x.name === p)?.parent;
  const own = q.guarantee > 0 ? Math.min(q.used, q.guarantee) : q.used;
  return el("tr", null,
    el("th", { scope: "row" }, el("i", { class: "sw " + owner(q.name), "aria-hidden": "true" }), "\u2003".repeat(deep) + q.name),
    el("td", { class: "wide" }, el("span", { class: "qbar", "aria-hidden": "true" },
      el("span", { class: "own", "width%": own / scale * 100 }), over ? el("span", { class: "over", "width%": (q.used - q.guarantee) / scale * 100 }) : null,
      q.guarantee > 0 ? el("i", { class: "mark", title: "guarantee", "left%": q.guarantee / scale * 100 }) : null,
      q.limit >= 0 ? el("i", { class: "mark limit", title: "limit", "left%": q.limit / scale * 100 }) : null)),
    el("td", { class: "n", "data-of": "holds" }, gpus(q.used), over ? el("span", { class: "sub", text: ` ${gpus(q.used - q.guarantee)} borrowed` }) : null),
    el("td", { class: "n fair", "data-of": "fair share", title: "what the multifactor order aims at over time, by the queues' shares", text: String(+(q.share * total / 1e6).toFixed(1)) }),
    el("td", { class: "n", "data-of": "guarantee", text: gpus(q.guarantee) }), el("td", { class: "n", "data-of": "limit", text: q.limit < 0 ? "none" : gpus(q.limit) }),
    el("td", { class: "n", "data-of": "running", text: q.running }), el("td", { class: "n", "data-of": "waiting", text: q.pending }));
}

function who(j) {
  return el("td", null, jobLink(j), el("span", { class: "sub", text: [`${j.id}`, j.user, queueOf(j), j.submission.tier && j.submission.tier !== "standard" ? j.submission.tier : ""].filter(Boolean).join(" · ") }));
}

function running(j) {
  return el("tr", null, who(j), el("td", { class: "n", text: asked(j.submission) }),
    el("td", null, j.state === "running" ? progress(j) || badge(j) : badge(j)), el("td", { class: "n" }, timeOf(j)));
}

function waiting(j) {
  return el("tr", null, el("td", { class: "n", text: j.position }), who(j), el("td", { class: "n", text: asked(j.submission) }),
    el("td", null, j.expected ? el("span", null, ...startOf(j)) : el("span", { class: "muted", text: "not in sight" })));
}

/* link is a row of one direction of a link: its rate, and what of it each class of traffic takes. */
function link(l) {
  const bar = el("span", { class: "linkbar", title: l.classes.map((c) => `${c.class ? `class ${c.class}` : "no class"}: ${(100 * c.load).toFixed(1)} %`).join(", ") });
  for (const c of l.classes) {
    const part = el("span", { class: c.class ? `class${Math.min(c.class, 3)}` : "" });
    part.style.width = `${Math.min(100, 100 * c.load)}%`;
    bar.append(part);
  }
  return el("tr", {}, el("td", { text: l.name }), el("td", { text: `${num(l.rate / 1e9)} Gbit/s` }), el("td", { class: "n", text: `${(100 * l.load).toFixed(1)} %${l.counted === undefined ? "" : ` (counted: ${(100 * l.counted).toFixed(1)} %)`}` }), el("td", {}, bar));
}
