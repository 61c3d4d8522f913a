// The last hour as a plot.
import { el, gpus } from "./lib.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* hour draws what was held, and the utilisation where it is measured. */
export function hour(box) {
  const canvas = el("div", { role: "img", class: "canvas" }), legend = el("div", { class: "legend" });
  box.append(canvas, legend);
  let plot = null, data = null, capacity = 0, measured = false;

  function draw() {
    plot?.destroy();
    plot = null;
    if (!data?.[0].length || !canvas.clientWidth) return;
    const grid = { stroke: css("--line"), width: 1 }, axis = { stroke: css("--muted"), grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const series = [{}, { label: "held", stroke: css("--c0"), fill: css("--fill0"), width: 1.5, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) },
      { label: "waiting", stroke: css("--c1"), width: 1.5, dash: [5, 4], scale: "jobs", points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) }];
    if (measured) series.push({ label: "busy", stroke: css("--c2"), width: 1.5, points: { show: false } });
    plot = new uPlot({
      width: canvas.clientWidth, height: 170, series, legend: { show: false }, cursor: { show: false }, padding: [8, 4, 0, 0],
      scales: { x: { time: true, range: () => [Math.min(data[0][0], data[0][data[0].length - 1] - 300), data[0][data[0].length - 1]] }, y: { range: () => [0, Math.max(1, capacity)] }, jobs: { range: (u, a, b) => [0, Math.max(4, Math.ceil((b || 0) * 1.15))] } },
      axes: [{ ...axis, space: 70, size: 30, values: (u, v) => v.map((x) => { const d = new Date(x * 1000); return String(d.getHours()).padStart(2, "0") + ":" + String(d.getMinutes()).padStart(2, "0"); }) },
        { ...axis, size: 34, incrs: [1, 2, 4, 8, 16, 32] }, { ...axis, scale: "jobs", side: 1, size: 40, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] }],
    }, measured ? data : data.slice(0, 3), canvas);
  }
  const watch = new ResizeObserver(() => { if (plot && plot.width !== canvas.clientWidth || !plot) draw(); });
  watch.observe(canvas);

  return {
    show(samples, n) {
      capacity = n;
      const was = measured;
      measured = samples.some((s) => s.utilisation !== undefined);
      data = [samples.map((s) => Date.parse(s.at) / 1000), samples.map((s) => s.allocated / 1000), samples.map((s) => s.waiting),
        samples.map((s) => s.utilisation === undefined ? null : s.utilisation / 100 * n)];
      const last = samples[samples.length - 1];
      if (last) canvas.setAttribute("aria-label", `The last hour: now ${gpus(last.allocated)} of ${n} GPUs are held and ${last.waiting} jobs wait; at most ${gpus(Math.max(...samples.map((s) => s.allocated)))} GPUs were held and ${Math.max(...samples.map((s) => s.waiting))} jobs waited.`);
      legend.replaceChildren(...[["held", "GPUs held (left)"], ["waiting", "jobs waiting (right)"], measured && ["busy", "GPUs busy (left)"]].filter(Boolean)
        .map(([c, t]) => el("span", null, el("i", { class: "key " + c, "aria-hidden": "true" }), t)));
      if (plot && was === measured) plot.setData(measured ? data : data.slice(0, 3)); else draw();
    },
    draw,
    stop() { watch.disconnect(); plot?.destroy(); },
  };
}
