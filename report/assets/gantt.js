/* The Gantt strips: a row per GPU, a bar per stay of a job. */

function gantt() {
  var sec = $("gantt"), have = [];
  runs.forEach(function (r, i) { if (r.spans && r.spans.length) have.push(i); });
  if (!have.length) { sec.hidden = true; return; }
  var run = have[0], by = "job", rows = [], bars = [], hits = [], hot = null;
  var canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": "Jobs on GPUs over time. Plus and minus zoom, brackets pan, 0 resets, arrows go from bar to bar. The stays are in the table below." });
  var tip = el("div", { class: "tip", hidden: true }), live = el("p", { class: "vh", "aria-live": "polite" });
  var box = el("div", { class: "gantt" }, canvas), plot = el("div", { class: "plot" }, box, tip), tools = el("div", { class: "tools" });
  if (have.length > 1) tools.append(choose("policy", have.map(function (i) { return runs[i].label; }), function (k) { run = have[k]; layout(); draw(); }));
  tools.append(seg("Colour of the bars", ["Colour by job", "by queue"], "Colour by job", function (n) { by = n === "by queue" ? "queue" : "job"; draw(); }));
  sec.append(el("p", { class: "lead", text: "A row per GPU, a bar per stay of a job. A job that was stopped and started again has several bars." }), tools, plot, live,
    el("p", { class: "hint", text: "Drag to zoom, double-click for the whole run." }), more("Show as a table", table));

  function table() {
    var r = runs[run];
    return grid(["job", "queue", "node", "GPUs", "from", "to", "for"], r.spans.map(function (s) {
      var j = r.jobs[s[0]];
      return [j.name, D.queues[j.queue], r.nodes[s[1]].name, gpuNames(s), instant(s[4] / 1000), instant(s[5] / 1000), secs((s[5] - s[4]) / 1000)];
    }));
  }
  function gpuNames(s) { return s[3] === 1 ? String(s[2]) : s[2] + "–" + (s[2] + s[3] - 1); }

  /* layout gives every GPU a row; jobs that share a GPU share its height. */
  function layout() {
    var r = runs[run], used = {}, total = 0;
    r.spans.forEach(function (s) { used[s[1]] = true; });
    r.nodes.forEach(function (n) { total += n.gpus; });
    rows = [];
    r.nodes.forEach(function (n, i) { if (total <= 128 || used[i]) rows.push({ node: i, name: n.name, gpus: n.gpus }); });
    var at = {}, count = 0;
    rows.forEach(function (w) { at[w.node] = w; w.first = count; count += w.gpus; });
    var h = count <= 24 ? 17 : count <= 64 ? 12 : count <= 128 ? 8 : 5, y = 6;
    rows.forEach(function (w) { w.y = y; w.h = h; y += w.gpus * h + 9; });
    rows.height = y;
    var busy = {};
    bars = r.spans.map(function (s, i) {
      var w = at[s[1]], j = r.jobs[s[0]], part = (j.share || 1000) / 1000, off = 0;
      if (part < 1) {
        var key = s[1] + ":" + s[2], live = (busy[key] || []).filter(function (o) { return o.to > s[4]; });
        live.sort(function (a, b) { return a.off - b.off; }).forEach(function (o) { if (off + part > o.off + 1e-9) off = o.off + o.part; });
        if (off + part > 1 + 1e-9) off = 0;
        live.push({ to: s[5], off: off, part: part });
        busy[key] = live;
      }
      return { i: i, s: s, job: s[0], y: w.y + s[2] * w.h + off * w.h, h: Math.max(2, s[3] * w.h * (s[3] === 1 ? part : 1) - 1) };
    });
    hot = null;
  }

  function fill(b) {
    var j = runs[run].jobs[b.job];
    if (by === "queue") return tint(j.queue);
    var k = (b.job * 0.61803398875) % 1, hue = Math.round(k * 360);
    return dark() ? "hsl(" + hue + " 28% " + (38 + b.job % 3 * 5) + "%)" : "hsl(" + hue + " 42% " + (72 + b.job % 3 * 5) + "%)";
  }

  function draw() {
    var w = box.clientWidth, h = rows.height + 26, dpr = window.devicePixelRatio || 1, r = runs[run];
    if (!w) return;
    canvas.width = Math.round(w * dpr);
    canvas.height = Math.round(h * dpr);
    canvas.style.width = w + "px";
    canvas.style.height = h + "px";
    var c = canvas.getContext("2d"), gutter = w < 500 ? 58 : 92, range = seen(), X = scale(range, gutter, w - 12);
    canvas.view = { x0: gutter, x1: w - 12, range: range };
    c.scale(dpr, dpr);
    c.font = "12px " + getComputedStyle(document.body).fontFamily;
    c.textBaseline = "middle";
    rows.forEach(function (row) {
      c.fillStyle = css("--soft");
      c.fillRect(gutter, row.y - 1, w - 12 - gutter, row.gpus * row.h + 1);
      c.fillStyle = css("--muted");
      c.textAlign = "right";
      c.fillText(fit(c, row.name, gutter - 12), gutter - 8, row.y + row.gpus * row.h / 2);
    });
    axis(c, X, range, w, gutter, rows.height);
    c.save();
    c.beginPath();
    c.rect(gutter, 0, w - 12 - gutter, rows.height);
    c.clip();
    hits = [];
    c.textAlign = "left";
    bars.forEach(function (b) {
      var a = X(b.s[4] / 1000), z = X(b.s[5] / 1000);
      if (z < gutter || a > w - 12) return;
      var wide = Math.max(1, z - a - 0.5);
      c.globalAlpha = hot && hot.job !== b.job ? 0.3 : 1;
      c.fillStyle = fill(b);
      c.beginPath();
      if (wide > 5 && c.roundRect) c.roundRect(a, b.y, wide, b.h, 2.5); else c.rect(a, b.y, wide, b.h);
      c.fill();
      if (hot === b) { c.strokeStyle = css("--text"); c.lineWidth = 1.5; c.stroke(); }
      hits.push([a, z, b]);
      if (b.h >= 12 && wide > 46) {
        c.fillStyle = dark() ? "#f4f5f6" : "#1c1e21";
        var from = Math.max(a, gutter) + 5;
        c.fillText(fit(c, r.jobs[b.job].name, Math.min(z, w - 12) - from - 4), from, b.y + b.h / 2 + 0.5);
      }
    });
    c.restore();
    if (drag) { c.fillStyle = css("--accent"); c.globalAlpha = 0.16; c.fillRect(Math.min(drag[0], drag[1]), 0, Math.abs(drag[1] - drag[0]), rows.height); c.globalAlpha = 1; }
  }

  function scale(range, x0, x1) { return function (t) { return x0 + (t - range[0]) / (range[1] - range[0]) * (x1 - x0); }; }

  function fit(c, s, room) {
    if (room < 12) return "";
    if (c.measureText(s).width <= room) return s;
    while (s.length > 1 && c.measureText(s + "…").width > room) s = s.slice(0, -1);
    return s.length > 1 ? s + "…" : "";
  }

  function axis(c, X, range, w, gutter, y) {
    var want = (range[1] - range[0]) / Math.max(2, Math.floor((w - gutter) / (w < 500 ? 75 : 110))), step = STEPS[STEPS.length - 1];
    for (var i = 0; i < STEPS.length; i++) if (STEPS[i] >= want) { step = STEPS[i]; break; }
    c.textAlign = "center";
    var shift = D.epoch ? D.epoch % 86400 : 0;
    for (var t = Math.ceil((range[0] + shift) / step) * step - shift; t <= range[1]; t += step) {
      c.fillStyle = css("--line");
      c.fillRect(Math.round(X(t)), 2, 1, y - 4);
      c.fillStyle = css("--muted");
      var name = D.epoch ? day(t, step) : ticks(null, [t])[0];
      c.fillText(name, Math.max(gutter, Math.min(w - 30, X(t))), y + 12);
    }
  }

  function hit(e) {
    var g = canvas.getBoundingClientRect(), x = e.clientX - g.left, y = e.clientY - g.top;
    for (var i = hits.length - 1; i >= 0; i--) {
      var h = hits[i];
      if (x >= h[0] - 1 && x <= Math.max(h[1], h[0] + 2) && y >= h[2].y && y <= h[2].y + h[2].h) return h[2];
    }
    return null;
  }

  function words(b) {
    var r = runs[run], j = r.jobs[b.job], s = b.s;
    return [["queue", D.queues[j.queue]], ["user", j.user], ["GPUs", j.GPUs === undefined ? num(j.gpus) + (j.share ? " × " + j.share / 1000 : "") : ""], ["on", r.nodes[s[1]].name + ", GPU " + gpuNames(s)],
      ["from", instant(s[4] / 1000)], ["to", instant(s[5] / 1000)], ["for", secs((s[5] - s[4]) / 1000)], ["waited", secs(j.waited)], ["stopped", j.stops ? j.stops + "×" : ""], ["outcome", j.outcome]].filter(function (p) { return p[1]; });
  }

  function show(b, x, y, spoken) {
    if (hot !== b) { hot = b; draw(); }
    tip.hidden = !b;
    if (!b) return;
    tip.textContent = "";
    tip.append(el("b", { text: runs[run].jobs[b.job].name }));
    words(b).forEach(function (p) { tip.append(el("div", { class: "r" }, el("span", { class: "h", text: p[0] }), el("span", {}), el("span", { text: p[1] }))); });
    var room = plot.clientWidth;
    tip.style.left = Math.max(4, Math.min(x + 16, room - tip.offsetWidth - 6)) + "px";
    tip.style.top = Math.max(4, y + 18) + "px";
    if (x + 16 + tip.offsetWidth > room) tip.style.left = Math.max(4, x - tip.offsetWidth - 10) + "px";
    if (spoken) live.textContent = runs[run].jobs[b.job].name + ", " + words(b).map(function (p) { return p.join(" "); }).join(", ");
  }

  var drag = null;
  function local(e) { var g = plot.getBoundingClientRect(); return [e.clientX - g.left, e.clientY - g.top]; }
  canvas.addEventListener("mousemove", function (e) { if (!drag) { var p = local(e); show(hit(e), p[0], p[1]); } });
  canvas.addEventListener("mouseleave", function () { if (!drag) show(null); });
  canvas.addEventListener("click", function (e) { var p = local(e); show(hit(e), p[0], p[1]); });
  canvas.addEventListener("dblclick", function () { look(null); });
  canvas.addEventListener("pointerdown", function (e) {
    if (e.pointerType === "touch" || e.button) return;
    var x = e.clientX - canvas.getBoundingClientRect().left;
    drag = [x, x];
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", function (e) {
    if (!drag) return;
    drag[1] = e.clientX - canvas.getBoundingClientRect().left;
    if (Math.abs(drag[1] - drag[0]) > 4) { tip.hidden = true; draw(); }
  });
  canvas.addEventListener("pointerup", function () {
    var d = drag, v = canvas.view;
    drag = null;
    if (!d || Math.abs(d[1] - d[0]) < 5) { draw(); return; }
    function T(x) { return v.range[0] + (x - v.x0) / (v.x1 - v.x0) * (v.range[1] - v.range[0]); }
    look([T(Math.max(v.x0, Math.min(d[0], d[1]))), T(Math.min(v.x1, Math.max(d[0], d[1])))]);
  });
  canvas.addEventListener("keydown", function (e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "ArrowRight" || e.key === "ArrowLeft") {
      var order = hits.slice().sort(function (a, b) { return a[2].s[4] - b[2].s[4] || a[2].i - b[2].i; }), k = order.findIndex(function (h) { return h[2] === hot; });
      k = (k + (e.key === "ArrowRight" ? 1 : -1) + order.length) % order.length;
      if (order.length) show(order[k][2], Math.max(60, order[k][0]), order[k][2].y - box.scrollTop, true);
    } else if (!moveRange(e.key)) return;
    e.preventDefault();
  });
  canvas.addEventListener("blur", function () { show(null); });
  var last = 0;
  new ResizeObserver(function () { if (box.clientWidth !== last) { last = box.clientWidth; draw(); } }).observe(box);
  layout();
  parts.push({ draw: draw, ranged: draw });
}
