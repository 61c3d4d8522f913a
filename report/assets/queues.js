/* GPUs per queue against its guarantee, for one policy at a time. */

function queuePanels() {
  var sec = $("shares"), run = 0, mode, off = {}, hot = -1;
  var any = runs.some(function (r) { return r.queues.length; });
  if (!any) { sec.hidden = true; return; }
  var owed = runs.some(function (r) { return r.queues.some(function (q) { return q.owed > 0; }); });
  var most = Math.max.apply(null, runs.map(function (r) { return r.queues.length; }));
  mode = owed && most > 4 ? "Each queue" : owed ? "Lines" : "Stacked";
  var tools = el("div", { class: "tools" }), holder = el("div", {}), legend = el("div", { class: "legend", role: "group", "aria-label": "Queues shown" });
  if (runs.length > 1) tools.append(choose("policy", runs.map(function (r) { return r.label; }), function (i) { run = i; all(); }));
  tools.append(seg("How queues are drawn", ["Each queue", "Stacked", "Lines"], mode, function (m) { mode = m; all(); }));
  sec.append(el("p", { class: "lead", text: owed ? "GPUs that each queue holds; the dashed line is its guarantee. Above it a queue borrows, below it a queue lends or has no work." : "GPUs that each queue holds. No queue has a guarantee." }), tools, holder, legend,
    more("Show as a table", table));

  /* list is the run's queues, largest first, with a colour each. */
  function list() {
    return runs[run].queues.map(function (q, i) {
      var sum = 0, top = 0;
      q.use.forEach(function (v) { sum += v; top = Math.max(top, v); });
      return { i: i, q: q, name: D.queues[q.name], mean: q.use.length ? sum / q.use.length : 0, top: top };
    }).sort(function (a, b) { return b.mean - a.mean || a.i - b.i; });
  }
  function source(q) { return { width: q.width, first: q.first, end: runs[run].series.end, use: q.use }; }
  function table() {
    return grid(["queue", "guarantee", "mean GPUs", "most GPUs", "jobs"], list().map(function (e) {
      return [e.name, e.q.owed ? num(e.q.owed) : "–", num(e.mean), num(e.top), comma(e.q.jobs)];
    }));
  }

  var plot = new Plot(holder, { title: "GPUs per queue", unit: "GPUs", make: make, read: read, keep: true, height: 320, empty: "No queue is switched on.",
    at: function (x) { return instant(x - D.epoch); }, top: function (hi) { return mode === "Stacked" ? Math.max(hi, D.capacity) * 1.02 : hi > 0 ? hi * 1.08 : 1; } });
  parts.splice(parts.indexOf(plot), 1); /* this part draws it */
  var panels = el("div", { class: "panels" });
  var scale = el("p", { class: "hint" });
  holder.append(panels, scale);
  var shown = [];

  function make(px) {
    shown = list().filter(function (e) { return !off[e.name]; });
    if (!shown.length) return null;
    var tables = [], series = [], under = null, stack = [];
    shown.forEach(function (e) { e.b = bins(source(e.q), ["use"], fine(px)); });
    shown.forEach(function (e, k) {
      var c = runs[run].queues.length > 7 ? tint(k0(e)) : colour(k0(e));
      if (mode === "Stacked") {
        under = e.b.use.map(function (v, i) { return v + (under ? under[i] : 0); });
        stack.unshift([column(e.b, under), { stroke: css("--card"), width: 0.6, fill: faded(e) ? fade(tint(k0(e))) : tint(k0(e)), paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }]);
        return;
      }
      tables.push(column(e.b, e.b.use));
      series.push({ stroke: faded(e) ? fade(c) : colour(k0(e)), width: 1.8, dash: dash(k0(e)), paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } });
      if (e.q.owed > 0) {
        tables.push([[whole[0], whole[1]], [e.q.owed, e.q.owed]]);
        series.push({ stroke: faded(e) ? fade(c) : colour(k0(e)), width: 1.2, dash: [6, 5], points: { show: false } });
      }
    });
    stack.forEach(function (s) { tables.push(s[0]); series.push(s[1]); });
    if (mode === "Stacked") { tables.push([[whole[0], whole[1]], [D.capacity, D.capacity]]); series.push({ stroke: css("--cap"), width: 1.5, dash: [3, 3], points: { show: false } }); }
    tables = tables.map(function (t) { return [t[0].map(function (x) { return x + D.epoch; }), t[1]]; });
    return { data: uPlot.join(tables), series: series };
  }
  function k0(e) { return e.rank; }
  function faded(e) { return hot >= 0 && e.rank !== hot; }
  function fade() { return css("--line"); }
  function read(x) {
    return shown.slice().reverse().map(function (e) {
      var v = at(e.b, e.b.use, x - D.epoch);
      return { v: v || 0, name: e.name, mark: square(mode === "Stacked" ? tint(e.rank) : colour(e.rank)), text: v === null ? "–" : num(v) + (e.q.owed ? " of " + num(e.q.owed) : "") };
    });
  }

  /* panel is one queue's area under its guarantee, all to one scale. */
  function panel(e, top) {
    var W = 240, H = 64, r = seen(), b = bins(source(e.q), ["use"], (r[1] - r[0]) / 160), pts = "";
    function X(t) { return ((t - r[0]) / (r[1] - r[0]) * W).toFixed(1); }
    function Y(v) { return (H - 1 - v / top * (H - 4)).toFixed(1); }
    b.x.forEach(function (x, i) {
      var to = Math.min(b.end, x + b.width);
      if (to < r[0] || x > r[1]) return;
      pts += "L" + X(Math.max(x, r[0])) + " " + Y(b.use[i]) + "L" + X(Math.min(to, r[1])) + " " + Y(b.use[i]);
    });
    var s = svg("svg", { viewBox: "0 0 " + W + " " + H, preserveAspectRatio: "none", role: "img", "aria-label": e.name + ": mean " + num(e.mean) + " GPUs" + (e.q.owed ? ", guarantee " + num(e.q.owed) : "") });
    if (pts) {
      s.append(svg("path", { d: "M" + pts.slice(1).split("L")[0].split(" ")[0] + " " + (H - 1) + pts + "V" + (H - 1) + "Z", fill: colour(0), "fill-opacity": 0.18 }));
      s.append(svg("path", { d: "M" + pts.slice(1), fill: "none", stroke: colour(0), "stroke-width": 1.4, "vector-effect": "non-scaling-stroke" }));
    }
    if (e.q.owed) s.append(svg("line", { x1: 0, x2: W, y1: Y(e.q.owed), y2: Y(e.q.owed), stroke: colour(1), "stroke-width": 1.4, "stroke-dasharray": "5 4", "vector-effect": "non-scaling-stroke" }));
    var cap = el("span", { text: "mean " + num(e.mean) + (e.q.owed ? " · guarantee " + num(e.q.owed) : "") }), was = cap.textContent;
    var box = el("div", { class: "panel" }, el("div", { class: "cap" }, el("b", { text: e.name, title: e.name }), cap), s);
    s.addEventListener("mousemove", function (ev) {
      var g = s.getBoundingClientRect(), t = r[0] + (ev.clientX - g.left) / g.width * (r[1] - r[0]), v = at(b, b.use, t);
      cap.textContent = v === null ? was : instant(t).replace(" UTC", "") + "  " + num(v);
    });
    s.addEventListener("mouseleave", function () { cap.textContent = was; });
    return box;
  }

  function rank() {
    /* a queue keeps its colour from policy to policy */
    var sum = {};
    runs.forEach(function (r) { r.queues.forEach(function (q) { sum[q.name] = (sum[q.name] || 0) + q.use.reduce(function (a, b) { return a + b; }, 0); }); });
    return Object.keys(sum).sort(function (a, b) { return sum[b] - sum[a] || a - b; }).map(Number);
  }
  var ranks = rank(), plainList = list;
  list = function () { return plainList().map(function (e) { e.rank = ranks.indexOf(e.q.name); return e; }); };

  function chips() {
    legend.textContent = "";
    list().forEach(function (e) {
      var c = chip(e.name, square(mode === "Stacked" ? tint(e.rank) : colour(e.rank)), !off[e.name], function (on) { if (on) delete off[e.name]; else off[e.name] = true; all(); });
      c.addEventListener("mouseenter", function () { hot = e.rank; plot.draw(); });
      c.addEventListener("mouseleave", function () { hot = -1; plot.draw(); });
      legend.append(c);
    });
  }
  function all() {
    var each = mode === "Each queue";
    plot.fig.hidden = each;
    legend.hidden = each;
    panels.hidden = scale.hidden = !each;
    panels.textContent = "";
    if (!each) { if (!legend.contains(document.activeElement)) chips(); plot.draw(); return; }
    var l = list(), top = 1e-9;
    l.forEach(function (e) { top = Math.max(top, e.top, e.q.owed); });
    l.forEach(function (e) { panels.append(panel(e, top)); });
    scale.textContent = "All panels have one scale: 0 to " + num(top) + " GPUs, " + instant(seen()[0]) + " to " + instant(seen()[1]) + ".";
  }
  parts.push({ draw: all, ranged: all });
}
