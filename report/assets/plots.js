/* Curves over time and distributions, drawn with uPlot. */

/* ---- bins ---- */

/* bins merges a run's bins so that each covers at least width seconds; every
   column is a mean over the time that the run was in the bin. */
function bins(s, cols, width) {
  if (!s.width || !s[cols[0]].length) return cols.reduce(function (o, c) { o[c] = []; return o; }, { x: [], width: 1, end: 0 });
  var f = 1;
  while (s.width * f < width) f *= 2;
  var w = s.width * f, first = Math.floor(s.first / f), n = Math.ceil((s.first + s[cols[0]].length) / f) - first;
  var out = { x: [], width: w, end: s.end };
  cols.forEach(function (c) { out[c] = []; });
  for (var i = 0; i < n; i++) {
    out.x.push((first + i) * w);
    cols.forEach(function (c) {
      var sum = 0, cover = 0;
      for (var k = Math.max(0, (first + i) * f - s.first); k < Math.min(s[c].length, (first + i + 1) * f - s.first); k++) {
        var t = Math.max(1e-3, Math.min(s.width, s.end - (s.first + k) * s.width));
        sum += s[c][k] * t;
        cover += t;
      }
      out[c].push(cover ? sum / cover : 0);
    });
  }
  return out;
}

/* at is a binned curve's value at an instant, or null outside. */
function at(b, y, t) {
  if (!b.x.length || t < b.x[0] || t > b.end) return null;
  var i = Math.min(y.length - 1, Math.floor((t - b.x[0]) / b.width));
  return y[i];
}

/* column is what uPlot joins: steps that hold to the end of the last bin. */
function column(b, y) {
  return [b.x.concat([Math.max(b.end, b.x.length ? b.x[b.x.length - 1] + 1 : 0)]), y.concat([y.length ? y[y.length - 1] : null])];
}

/* fine is the width of bins that suits a plot of so many pixels and lines:
   many noisy lines would hide each other. */
function fine(px, lines) {
  var r = seen();
  return (r[1] - r[0]) / Math.max(60, px / 1.7 / Math.max(1, (lines || 1) / 3));
}

/* ---- a frame around uPlot: caption, size, keys, tooltip, table ---- */

function Plot(parent, o) {
  this.o = o;
  this.stage = el("div", { class: "stage" });
  this.tip = el("div", { class: "tip", hidden: true });
  this.box = el("div", { class: "plot", tabindex: "0", role: "img", "aria-label": o.title + ", " + o.unit + ". " + (o.time === false ? "" : "Arrow keys move, plus and minus zoom, brackets pan, 0 resets. ") + "The values are in the table below." }, this.stage, this.tip);
  this.live = el("p", { class: "vh", "aria-live": "polite" });
  this.fig = el("figure", {}, el("figcaption", {}, el("h3", { text: o.title }), el("span", { class: "unit", text: o.unit })), this.box, this.live);
  if (o.table) this.fig.append(more("Show as a table", o.table));
  parent.append(this.fig);
  this.box.addEventListener("keydown", this.key.bind(this));
  this.box.addEventListener("focusout", this.hide.bind(this));
  var self = this, last = 0;
  new ResizeObserver(function () {
    var w = self.stage.clientWidth;
    if (w && w !== last) { last = w; requestAnimationFrame(function () { self.draw(); }); }
  }).observe(this.stage);
  parts.push(this);
}

Plot.prototype.hide = function () { this.tip.hidden = true; };

Plot.prototype.key = function (e) {
  var u = this.u;
  if (!u || e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "ArrowLeft" || e.key === "ArrowRight") {
    var w = u.over.clientWidth, x = u.cursor.left >= 0 ? u.cursor.left : w / 2;
    x = Math.max(0, Math.min(w, x + (e.key === "ArrowLeft" ? -1 : 1) * (e.shiftKey ? 40 : 8)));
    u.setCursor({ left: x, top: u.over.clientHeight / 3 });
    this.show(u, true);
  } else if (this.o.time === false) {
    if (e.key !== "0" && e.key !== "Escape") return;
    this.local = null;
    this.draw();
  } else if (!moveRange(e.key)) return;
  e.preventDefault();
};

/* show fills the tooltip with the values under the cursor, largest first. */
Plot.prototype.show = function (u, spoken) {
  var x = u.posToVal(u.cursor.left, "x"), rows = this.o.read(x);
  if (u.cursor.left < 0 || !rows.length) return this.hide();
  var t = this.tip, o = this.o;
  t.textContent = "";
  t.append(el("div", { class: "h", text: o.at ? o.at(x) : instant(x) }));
  rows.sort(function (a, b) { return o.keep ? 0 : b.v - a.v; }).slice(0, 24).forEach(function (r) {
    t.append(el("div", { class: "r" }, r.mark, el("span", { text: r.name }), el("b", { text: r.text })));
  });
  t.hidden = false;
  var left = u.cursor.left + u.over.offsetLeft + 8, w = t.offsetWidth, room = this.box.clientWidth;
  t.style.left = Math.max(4, left + 14 + w > room ? left - w - 8 : left + 14) + "px";
  t.style.top = "10px";
  if (spoken) this.live.textContent = (o.at ? o.at(x) : instant(x)) + ": " + rows.map(function (r) { return r.name + " " + r.text; }).join(", ");
};

var sync = uPlot.sync("time");

/* draw builds the plot again: for a theme, a width, or other data. */
Plot.prototype.draw = function () {
  var o = this.o, w = this.stage.clientWidth, self = this;
  if (!w) return;
  if (this.u) { this.u.destroy(); this.u = null; }
  this.stage.textContent = "";
  this.hide();
  var made = o.make(w - 60, this.local);
  if (!made) { this.stage.append(el("p", { class: "empty", text: o.empty || "Nothing to draw." })); return; }
  var line = css("--line"), muted = css("--muted"), font = "12px " + getComputedStyle(document.body).fontFamily;
  function axis(more) { return Object.assign({ size: 28, gap: 6, stroke: muted, font: font, grid: { stroke: line, width: 1 }, ticks: { show: false }, border: { show: false } }, more); }
  var time = o.time !== false;
  this.u = new uPlot({
    width: w, height: o.height || 270, legend: { show: false }, padding: [8, 14, 0, 0],
    scales: { x: made.x || { time: !!D.epoch, min: seen()[0] + D.epoch, max: seen()[1] + D.epoch, range: function () { var r = seen(); return [r[0] + D.epoch, r[1] + D.epoch]; } },
      y: { range: function (u, lo, hi) { return [0, o.top ? o.top(hi) : hi > 0 ? hi * 1.06 : 1]; } } },
    tzDate: function (ts) { return uPlot.tzDate(new Date(ts * 1e3), "Etc/UTC"); },
    axes: [axis(made.axis || (D.epoch ? { space: 70, values: function (u, v, i, space, step) { return v.map(function (t) { return day(t - D.epoch, step); }); } } : { space: 70, incrs: STEPS, values: ticks })),
      axis({ size: 52, space: 34, incrs: o.tick ? undefined : COUNTS, values: function (u, v) { return v.map(o.tick || short); } })],
    series: [{}].concat(made.series), bands: made.bands || [],
    focus: { alpha: 0.13 },
    cursor: { y: false, points: { show: false }, focus: { prox: -1 }, sync: time ? { key: "time", setSeries: false } : undefined,
      drag: { x: true, y: false, setScale: false, dist: 4 },
      bind: { dblclick: function () { return function () { if (time) look(null); else { self.local = null; self.draw(); } return null; }; } } },
    hooks: {
      setCursor: [function (u) { if (self.over) self.show(u); }],
      setSelect: [function (u) {
        if (u.select.width < 4) return;
        var a = u.posToVal(u.select.left, "x"), b = u.posToVal(u.select.left + u.select.width, "x");
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        if (time) look([a - D.epoch, b - D.epoch]);
        else { self.local = [a, b]; requestAnimationFrame(function () { self.draw(); }); }
      }]
    }
  }, made.data, this.stage);
  this.u.over.addEventListener("mouseenter", function () { self.over = true; });
  this.u.over.addEventListener("mouseleave", function () { self.over = false; self.hide(); });
  if (time) sync.sub(this.u);
  this.focused();
};

Plot.prototype.toggled = function () { this.draw(); };
Plot.prototype.ranged = function () { if (this.o.time !== false) this.draw(); };

Plot.prototype.focused = function () {
  if (!this.u || !this.o.owner) return;
  var f = state.focus, o = this.o;
  this.u.series.forEach(function (s, i) { if (i) s.alpha = f < 0 || o.owner(i) === f || o.owner(i) < 0 ? 1 : 0.13; });
  this.u.redraw(false);
};

/* Steps of an axis of GPUs or jobs: whole ones where there is room. */
var COUNTS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].concat([0, 1, 2, 3, 4, 5, 6, 7].reduce(function (l, p) { return l.concat([1, 2, 5].map(function (m) { return m * Math.pow(10, p); })); }, []));

/* Ticks from the start, in days and hours. */
var STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 345600, 604800, 1209600, 2419200, 4838400, 9676800, 19353600];

function ticks(u, v) {
  return v.map(function (t) {
    var d = Math.floor(t / 86400), h = Math.floor(t % 86400 / 3600), m = Math.floor(t % 3600 / 60), s = Math.round(t % 60);
    if (t === 0) return "0";
    if (s) return (h ? h + "h" : "") + m + "m" + two(s);
    if (m) return (d ? d + "d " : "") + (h ? h + "h" + two(m) : m + "m");
    if (h) return (d ? d + "d " : "") + h + "h";
    return d + "d";
  });
}

/* ---- time plots over policies ---- */

/* overTime draws one or two columns of every policy that is switched on. */
function overTime(parent, o) {
  var cache, lines;
  function make(px) {
    var tables = [], series = [];
    cache = [];
    lines = [];
    if (o.cap) {
      tables.push([[whole[0], whole[1]], [o.cap, o.cap]]);
      series.push({ stroke: css("--cap"), width: 1.5, dash: [3, 3] });
      lines.push(-1);
    }
    runs.forEach(function (r, i) {
      if (!state.on[i] || !r.series[o.cols[0]].length) return;
      var b = bins(r.series, o.need || o.cols, fine(px, state.on.filter(Boolean).length));
      cache[i] = b;
      o.cols.forEach(function (c, k) {
        if (o.shows && !o.shows(c)) return;
        tables.push(column(b, o.value ? o.value(b) : b[c]));
        series.push({ stroke: colour(i), width: k ? 1 : 1.8, dash: k ? [2, 2] : dash(i), paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } });
        lines.push(i);
      });
    });
    if (!cache.length) return null;
    tables = tables.map(function (t) { return [t[0].map(function (x) { return x + D.epoch; }), t[1]]; });
    return { data: uPlot.join(tables), series: series };
  }
  return new Plot(parent, {
    title: o.title, unit: o.unit, height: o.height, top: o.top, tick: o.tick, empty: "No policy is switched on.",
    make: make, owner: function (i) { return lines[i - 1]; },
    read: function (x) {
      var rows = [];
      cache.forEach(function (b, i) {
        o.cols.forEach(function (c) {
          if (o.shows && !o.shows(c)) return;
          var v = at(b, o.value ? o.value(b) : b[c], x - D.epoch);
          if (v !== null) rows.push({ v: v, name: runs[i].label + (o.names && o.cols.every(o.shows) ? ", " + o.names[c] : ""), mark: swatch(i), text: o.fmt(v) });
        });
      });
      return rows;
    },
    at: function (x) { return instant(x - D.epoch); },
    table: function () {
      var r = seen(), step = (r[1] - r[0]) / 24, heads = ["from"], cols = [];
      runs.forEach(function (run) {
        o.cols.forEach(function (c) { heads.push(run.label + (o.names ? ", " + o.names[c] : "")); cols.push([bins(run.series, o.need || o.cols, step), c]); });
      });
      var rows = [];
      for (var t = r[0]; t < r[1] - 1; t += step) {
        rows.push([instant(t)].concat(cols.map(function (p) { var v = at(p[0], o.value ? o.value(p[0]) : p[0][p[1]], t); return v === null ? "–" : o.fmt(v); })));
      }
      return grid(heads, rows);
    }
  });
}

function usePlot() {
  var sec = $("use"), on = { alloc: true, busy: false };
  var gap = runs.some(function (r) { return r.series.alloc.some(function (v, i) { return v - r.series.busy[i] > 0.005 * D.capacity; }); });
  on.busy = gap && runs.length <= 3;
  function box(c, name) {
    return el("label", {}, el("input", { type: "checkbox", checked: on[c], onchange: function (e) { on[c] = e.target.checked; p.draw(); } }), el("span", { text: name }));
  }
  sec.append(el("p", { class: "lead", text: "GPUs held by jobs, and of them those that compute (thin, dotted), against the " + num(D.capacity) + " that there are." + (gap ? "" : " Here every held GPU computes all the time.") }),
    el("div", { class: "tools" }, box("alloc", "allocated"), box("busy", "computing")));
  var p = overTime(sec, { title: "GPUs in use", unit: "GPUs, dashed: capacity", cols: ["alloc", "busy"], names: { alloc: "allocated", busy: "computing" },
    shows: function (c) { return on[c]; }, cap: D.capacity, fmt: num, top: function (hi) { return Math.max(hi, D.capacity) * 1.04; } });
  sec.append(el("p", { class: "hint", text: "Drag to zoom all plots over time, double-click for the whole run. With the keyboard: arrows move, + and − zoom, [ and ] pan, 0 resets." }));
}

function queuePlots() {
  var two = $("queue").querySelector(".two");
  overTime(two, { title: "Jobs pending", unit: "jobs", cols: ["pending"], fmt: num });
  overTime(two, { title: "GPUs asked for by pending jobs", unit: "GPUs", cols: ["demand"], fmt: num });
}

function fragPlot() {
  var sec = $("frag");
  sec.append(el("p", { class: "lead", text: "Of the idle GPUs, the share on nodes that are partly used: whole-node jobs cannot have them; and the share that the tasks submitted last could not use on average: parts that are too small, too few GPUs, no CPU or memory beside them, another model. There is no value while no GPU is idle." }));
  function ofIdle(title, col) {
    overTime(sec, { title: title, unit: "share of idle GPUs", cols: [col], need: [col, "free"], fmt: share, tick: share0,
      value: function (b) { return b[col].map(function (v, i) { return b.free[i] > 1e-6 ? Math.min(1, v / b.free[i]) : null; }); }, top: function () { return 1.02; } });
  }
  ofIdle("Idle GPUs on partly used nodes", "split");
  ofIdle("Idle GPUs of no use to the tasks that are submitted", "useless");
}

function share0(v) { return Math.round(v * 100) + "%"; }

/* ---- distributions ---- */

/* below is the share of a distribution at or under v. */
function below(d, v) {
  var lo = 0, hi = d.q.length;
  while (lo < hi) { var m = (lo + hi) >> 1; if (d.q[m] <= v) lo = m + 1; else hi = m; }
  return d.q.length ? lo / d.q.length * d.n / Math.max(1, d.of) : 0;
}

function quantile(d, p) {
  var i = Math.ceil(p * Math.max(1, d.of) / Math.max(1, d.n) * d.q.length) - 1;
  return i < d.q.length ? d.q[Math.max(0, i)] : null;
}

var MARKS = [1, 10, 60, 600, 3600, 21600, 86400, 864000, 8640000, 86400000];

function cdf(parent, o) {
  var lines, top = 10, low = 1e9;
  runs.forEach(function (r) {
    var q = r[o.key].q;
    if (!q.length) return;
    top = Math.max(top, q[q.length - 1]);
    for (var i = 0; i < q.length && q[i] < low; i++) if (q[i] > 0) low = q[i];
  });
  low = Math.max(1, Math.min(low * 0.8, top / 10));
  function make(px, local) {
    var r = local || [low, top * 1.05], n = Math.max(120, Math.round(px / 1.5)), xs = [], data, series = [];
    for (var i = 0; i <= n; i++) xs.push(r[0] * Math.pow(r[1] / r[0], i / n));
    data = [xs];
    lines = [];
    runs.forEach(function (run, k) {
      if (!state.on[k] || !run[o.key].q.length) return;
      data.push(xs.map(function (x) { return below(run[o.key], x); }));
      series.push({ stroke: colour(k), width: 1.8, dash: dash(k), points: { show: false } });
      lines.push(k);
    });
    if (!lines.length) return null;
    return { data: data, series: series, x: { time: false, distr: 3, log: 10, min: r[0], max: r[1], range: function () { return r; } },
      axis: { space: 50, splits: function () { return logTicks(r, px); }, filter: function (u, s) { return s; }, values: function (u, v) { return v.map(round); } } };
  }
  new Plot(parent, { title: o.title, unit: o.unit, time: false, make: make, owner: function (i) { return lines[i - 1]; }, tick: share0, top: function () { return 1.02; }, empty: "No job has a value, or no policy is switched on.",
    at: function (x) { return "within " + secs(x); },
    read: function (x) { return lines.map(function (k) { var v = below(runs[k][o.key], x); return { v: v, name: runs[k].label, mark: swatch(k), text: share(v) }; }); },
    table: function () {
      return grid(["share of jobs"].concat(runs.map(function (r) { return r.label; })), [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1].map(function (p) {
        return [share0(p)].concat(runs.map(function (r) { var v = quantile(r[o.key], p); return v === null ? "–" : secs(v); }));
      }));
    } });
}

/* round names a tick: 1s, 10m, 6h, 10d. */
function round(v) {
  if (v < 10 && v === Math.round(v)) return v + "s";
  return v >= 86400 && v % 86400 === 0 ? comma(v / 86400) + "d" : secs(v);
}

function logTicks(r, px) {
  var all = MARKS;
  if (r[1] / r[0] < 300) all = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000];
  var end = -1e9, out = all.filter(function (v) {
    if (v < r[0] * 0.999 || v > r[1]) return false;
    var x = Math.log(v / r[0]) / Math.log(r[1] / r[0]) * px;
    if (x - end < 44) return false;
    end = x;
    return true;
  });
  if (out.length < 2) out = [r[0], Math.sqrt(r[0] * r[1]), r[1]];
  return out;
}

function distPlots() {
  var sec = $("dist"), two = sec.querySelector(".two");
  sec.insertBefore(el("p", { class: "lead", text: "The share of jobs that needed at most so long: higher and further left is better. A curve that stays below 100% is missing jobs that never finished." }), two);
  cdf(two, { key: "jct", title: "Job completion time", unit: "share of jobs, log time" });
  cdf(two, { key: "delay", title: "Queueing delay", unit: "share of jobs, log time" });
}
