// Measurements of a job, as curves over time.
import { el, mib, num } from "./lib.js";
import { chart, gaps } from "./plots.js";

const percent = (v) => `${num(v)} %`;

/* kinds of curves: value, unit, greatest possible value */
const kinds = [
  { id: "util", title: "GPU utilisation", of: (p) => p.utilisation, top: 100, say: percent, unit: (v) => `${v} %`, color: "--c2", cls: "busy" },
  { id: "mem", title: "GPU memory", of: (p) => p.memory === undefined ? undefined : p.memory / 1024, say: (v) => mib(Math.round(v * 1024)), unit: (v) => `${v} GiB`, color: "--c3", cls: "c3" },
  { id: "power", title: "GPU power", of: (p) => p.power, say: (v) => `${Math.round(v)} W`, unit: (v) => `${v} W`, color: "--c5", cls: "c5" },
  { id: "steps", title: "Progress", of: (p) => p.step, say: (v) => `step ${Math.round(v).toLocaleString("en")}`, unit: (v) => v >= 1000 ? `${v / 1000}k` : String(v), color: "--c0", cls: "held" },
  { id: "rate", title: "Samples per second", of: (p) => p.samples_per_s, say: (v) => `${num(v)} per second`, unit: String, color: "--c4", cls: "c4" },
  { id: "cpu", title: "CPU cores in use", of: (p) => p.cpu, say: (v) => `${num(v)} cores`, unit: String, color: "--c1", cls: "cpu", least: 0.01 },
  { id: "ram", title: "Host memory", of: (p) => p.ram / 1024, say: (v) => mib(Math.round(v * 1024)), unit: (v) => v < 1 ? (v ? `${Math.round(v * 1024)} MiB` : "0") : `${v} GiB`, color: "--c6", cls: "c6", least: 0.01 },
];

/* curves draws those for which there are measurements. */
export function curves(box) {
  const grid = el("div", { class: "plots" }), note = el("p", { class: "sub" });
  const part = el("section", { "aria-labelledby": "curves", hidden: true }, el("h2", { id: "curves", text: "While it ran" }), grid, note);
  box.append(part);
  const shown = new Map();

  function one(k) {
    if (!shown.has(k.id)) {
      const figure = el("div", { class: "chart" }, el("h3", { text: k.title }));
      shown.set(k.id, { figure, plot: chart(figure, 120) });
      const after = kinds.slice(kinds.indexOf(k) + 1).map((x) => shown.get(x.id)).find(Boolean);
      grid.insertBefore(figure, after?.figure || null);
    }
    return shown.get(k.id).plot;
  }
  return {
    show(m, job) {
      const points = gaps(m.points), at = points.map((p) => p.at);
      part.hidden = !points.length;
      for (const k of kinds) {
        const values = points.map((p) => (p.cpu === undefined ? null : k.of(p) ?? null)), known = values.filter((v) => v !== null);
        if (!known.length || k.id === "ram" && !known.some((v) => v > 0)) continue;
        const most = Math.max(...known), mean = known.reduce((a, b) => a + b, 0) / known.length, last = known[known.length - 1];
        one(k).show({ at, top: k.top, least: k.least, unit: k.unit, size: 62, to: Math.max(at[at.length - 1], at[0] + 10), lines: [{ name: k.title, cls: k.cls, color: k.color, values, say: k.say }],
          text: k.id === "steps" ? `Progress over time: ${k.say(last)} at last${job.progress?.steps ? ` of ${job.progress.steps.toLocaleString("en")}` : ""}.` : `${k.title} over time: ${k.say(mean)} on average, at most ${k.say(most)}, ${k.say(last)} at last.` });
      }
      note.textContent = m.every > 1 ? `Each point is one of ${m.every} looks.` : "";
    },
    draw() { for (const s of shown.values()) s.plot.draw(); },
    stop() { for (const s of shown.values()) s.plot.stop(); },
  };
}
