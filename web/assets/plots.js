// Plots: lines over time, drawn by uPlot in the page's colours.
import { el, gpus } from "./lib.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const two = (n) => String(n).padStart(2, "0");
const day = 86400;

/* moment formats a time, as exactly as the span on show needs. */
function moment(at, span) {
  const d = new Date(at * 1000), time = `${two(d.getHours())}:${two(d.getMinutes())}`, date = `${d.getDate()} ${d.toLocaleString("en", { month: "short" })}`;
  if (span > 4 * day) return date;
  return span > day ? `${date} ${time}` : span < 600 ? `${time}:${two(d.getSeconds())}` : time;
}

/* chart draws lines over time. What it shows: at (Unix seconds), lines (name,
   cls of its key, color, values, say, and dash, fill, right, step), top (of the
   left axis), text for those who do not see it, from and to where they are fixed;
   dates: days, not hours. */
export function chart(box, height) {
  const canvas = el("div", { role: "img", class: "canvas" }), legend = el("div", { class: "legend" }), here = el("span", { class: "here", "aria-hidden": "true" });
  canvas.style.minHeight = height + "px";
  box.append(canvas, legend);
  let plot = null, spec = null;

  const data = () => [spec.at, ...spec.lines.map((l) => l.values)];
  const shape = (s) => JSON.stringify([s.top, s.lines.map((l) => [l.name, l.color])]);

  function draw() {
    plot?.destroy();
    plot = null;
    if (!spec?.at.length || !canvas.clientWidth) return;
    const grid = { stroke: css("--line"), width: 1 }, axis = { stroke: css("--muted"), grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const right = spec.lines.some((l) => l.right), long = () => (spec.to ?? spec.at[spec.at.length - 1]) - (spec.from ?? spec.at[0]);
    const round = [1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 200, 256, 500, 512].concat([1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7]);
    const fine = [-3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8].flatMap((e) => [1, 2, 5].map((n) => n * 10 ** e));
    const axes = [{ ...axis, space: long() > day ? 90 : 70, size: 30, incrs: spec.dates ? [day, 2 * day, 7 * day, 30 * day, 90 * day, 365 * day] : [10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, day, 2 * day, 7 * day, 14 * day, 30 * day, 90 * day], values: (u, v) => v.map((x) => moment(x, spec.dates ? 10 * day : long())) },
      { ...axis, size: spec.size || 40, incrs: spec.top ? round : fine, values: spec.unit && ((u, v) => v.map(spec.unit)) }];
    if (right) axes.push({ ...axis, scale: "right", side: 1, size: 40, grid: { show: false }, incrs: round });
    plot = new uPlot({
      width: canvas.clientWidth, height, legend: { show: false }, padding: [8, 4, 0, 0],
      cursor: { x: true, y: false, drag: { x: false, y: false }, points: { show: false } },
      series: [{}, ...spec.lines.map((l) => ({ label: l.name, stroke: css(l.color), width: 1.5, dash: l.dash, fill: l.fill && css(l.fill), scale: l.right ? "right" : "y", points: { show: spec.at.length === 1 },
        paths: l.step ? uPlot.paths.stepped({ align: 1 }) : undefined }))],
      scales: { x: { time: true, range: () => range() }, y: { range: (u, a, b) => [0, spec.top || Math.max(spec.least || 1e-3, (b || 0) * 1.1)] }, right: { range: (u, a, b) => [0, Math.max(4, Math.ceil((b || 0) * 1.15))] } },
      axes, hooks: { setCursor: [(u) => point(u.cursor.idx)] },
    }, data(), canvas);
  }
  function range() {
    const a = spec.from ?? spec.at[0], b = spec.to ?? spec.at[spec.at.length - 1];
    return b > a ? [a, b] : [a - 30, a + 30];
  }
  /* point describes the values at the mouse. */
  function point(i) {
    if (i === null || i === undefined || !spec.at[i]) { here.textContent = ""; return; }
    const long = spec.at[spec.at.length - 1] - spec.at[0] > day;
    here.textContent = [moment(spec.at[i], long ? 2 * day : 0), ...spec.lines.filter((l) => l.values[i] !== null && l.values[i] !== undefined).map((l) => `${spec.lines.length > 1 ? l.name + " " : ""}${l.say(l.values[i])}`)].join(" · ");
  }
  const watch = new ResizeObserver(() => { if (!plot || plot.width !== canvas.clientWidth) draw(); });
  watch.observe(canvas);

  return {
    show(next) {
      const same = spec && shape(spec) === shape(next);
      spec = next;
      if (canvas.getAttribute("aria-label") !== spec.text) canvas.setAttribute("aria-label", spec.text);
      if (!same) legend.replaceChildren(...(spec.lines.length < 2 ? [] : spec.lines).map((l) => el("span", null, el("i", { class: "key " + l.cls, "aria-hidden": "true" }), l.name + (l.right ? " (right)" : spec.lines.some((x) => x.right) ? " (left)" : ""))), here);
      if (plot && same) plot.setData(data()); else draw();
    },
    draw,
    stop() { watch.disconnect(); plot?.destroy(); plot = null; },
  };
}

/* hour draws GPUs held, GPUs free and usable, and the utilisation where it is measured. */
export function hour(box) {
  const c = chart(box, 170);
  return {
    ...c,
    show(samples, n) {
      const last = samples[samples.length - 1], at = samples.map((s) => Date.parse(s.at) / 1000), whole = (v) => String(Math.round(v));
      if (!last) return;
      const lines = [{ name: "GPUs held", cls: "held", color: "--c0", fill: "--fill0", step: true, say: (v) => String(+v.toFixed(2)), values: samples.map((s) => s.allocated / 1000) },
        { name: "jobs waiting", cls: "waiting", color: "--c1", dash: [5, 4], right: true, step: true, say: whole, values: samples.map((s) => s.waiting) }];
      if (samples.some((s) => s.utilisation !== undefined)) lines.push({ name: "GPUs busy", cls: "busy", color: "--c2", say: (v) => v.toFixed(1), values: samples.map((s) => s.utilisation === undefined ? null : s.utilisation / 100 * n) });
      if (samples.some((s) => s.usable !== undefined)) for (const [name, cls, color, of] of [["GPUs free", "c3", "--c3", "free"], ["of them usable", "c5", "--c5", "usable"]])
        lines.push({ name, cls, color, step: true, say: (v) => String(+v.toFixed(2)), values: samples.map((s) => s[of] === undefined ? null : s[of] / 1000) });
      const left = last.usable === undefined ? "" : ` ${gpus(last.free)} are free, ${gpus(last.usable)} of them usable by the tasks submitted last.`;
      c.show({ at, lines, top: Math.max(1, n), from: Math.min(at[0], at[at.length - 1] - 300), to: at[at.length - 1],
        text: `The last hour: now ${gpus(last.allocated)} of ${n} GPUs are held and ${last.waiting} jobs wait; at most ${gpus(Math.max(...samples.map((s) => s.allocated)))} GPUs were held and ${Math.max(...samples.map((s) => s.waiting))} jobs waited.${left}` });
    },
  };
}

/* gaps interrupts lines where there was no measurement for long, as while a job waited. */
export function gaps(points) {
  const steps = points.slice(1).map((p, i) => p.at - points[i].at).sort((a, b) => a - b), usual = steps[Math.floor(steps.length / 2)] || 1;
  const list = [];
  points.forEach((p, i) => {
    if (i && p.at - points[i - 1].at > 4 * usual + 1) list.push({ at: points[i - 1].at + usual });
    list.push(p);
  });
  return list;
}
