/* The header, the bars at a glance and the table of figures. */

function header() {
  $("title").textContent = D.title;
  document.querySelector(".brand").hidden = /^muster\b/i.test(D.title);
  document.title = D.title;
  var jobs = runs.length ? runs[0].values[keyAt("jobs")] : 0;
  var bits = [D.cluster, D.capacity ? num(D.capacity) + " GPUs" : "", D.trace, jobs ? comma(jobs) + " jobs" : "",
    secs(whole[1] - whole[0]) + (D.epoch ? " from " + instant(whole[0]) : ""), runs.length + (runs.length === 1 ? " policy" : " policies")];
  $("subtitle").textContent = bits.filter(Boolean).join("  ·  ");
}

function keyAt(key) {
  for (var i = 0; i < D.figures.length; i++) if (D.figures[i].key === key) return i;
  return -1;
}

/* The figures that the page opens with; the rest is a click away. */
var KEYS = ["jct.mean", "jct.p50", "jct.p99", "queueing_delay.mean", "makespan", "gpu_utilisation", "goodput",
  "fragmentation", "finish_time_ratio.mean", "jain_queues", "preemptions", "gpu_hours_lost", "deadlines_met", "accepted_late", "unfinished"];

function glance() {
  var box = document.querySelector(".glance");
  if (runs.length < 2) { $("glance").hidden = true; return; }
  var opening = D.picks ? el("div", { class: "opening" }) : null;
  if (opening) box.before(opening);
  function open() {
    opening.textContent = "";
    opening.append(el("p", { class: "lead", text: state.few ? runs.length + " policies were replayed. The page opens with these " + D.picks.length + ":" : "All " + runs.length + " policies. The page opened with " + D.picks.length + " of them:" }));
    var list = el("ul", { class: "picks" });
    D.picks.forEach(function (p) { list.append(el("li", {}, swatch(p.run), el("b", { text: runs[p.run].label }), el("span", { text: p.why }))); });
    opening.append(list, allButton());
  }
  function draw() {
    box.textContent = "";
    if (opening) open();
    ["jct.mean", "jct.p99", "queueing_delay.mean", "goodput"].forEach(function (key) {
      var f = keyAt(key);
      if (f >= 0) box.append(bars(f));
    });
  }
  parts.push({ draw: draw });
}

function bars(f) {
  var fig = D.figures[f], top = 0, list = el("div", { class: "bars", role: "list" });
  runs.forEach(function (r, i) { if (listed(i)) top = Math.max(top, r.values[f] || 0); });
  if (fig.unit === "share") top = 1;
  runs.forEach(function (r, i) {
    if (!listed(i)) return;
    var b = el("div", { class: "b" });
    b.style.width = (top ? (r.values[f] || 0) / top * 100 : 0) + "%";
    b.style.background = colour(i);
    list.append(el("span", { class: "n", text: r.label, title: r.label }), el("div", { class: "t", "aria-hidden": "true" }, b),
      el("span", { class: r.best[f] ? "v best" : "v", text: r.texts[f] }));
  });
  return el("div", {}, el("h3", { text: title(fig) }), list);
}

function title(fig) {
  return /\./.test(fig.key) && fig.group !== "Fairness" ? fig.group + ", " + fig.label : fig.label.charAt(0).toUpperCase() + fig.label.slice(1);
}

function tiles() {
  var box = el("div", { class: "tiles" }), dl, group = "";
  D.figures.forEach(function (f, i) {
    if (f.group !== group) { group = f.group; dl = el("dl", {}); box.append(el("div", {}, el("h3", { text: group }), dl)); }
    dl.append(el("dt", { text: f.label, title: f.help }), el("dd", { text: runs[0].texts[i] }));
  });
  return box;
}

function summary() {
  var sec = $("summary"), all = false, by = -1, up = true, body = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Figures of each policy" });
  if (runs.length === 1) sec.append(tiles());
  else {
    sec.append(el("p", { class: "lead", text: "A row per policy. Click a column to sort by it; the best value of each is marked." }));
    sec.append(el("div", { class: "tools" }, seg("Figures shown", ["Key figures", "All figures"], "Key figures", function (n) { all = n === "All figures"; draw(); })), body);
  }
  var notes = el("ul", { class: "notes" });
  if (D.unlike) notes.append(el("li", { text: D.unlike.charAt(0).toUpperCase() + D.unlike.slice(1) + "." }));
  var said = {};
  runs.forEach(function (r) { if (r.note) (said[r.note] = said[r.note] || []).push(r.label); });
  Object.keys(said).forEach(function (n) {
    notes.append(el("li", { text: (said[n].length === runs.length && runs.length > 1 ? "all" : said[n].join(", ")) + ": " + n }));
  });
  if (notes.children.length) sec.append(notes);
  if (runs.length === 1) return;

  function sort(i) {
    if (by === i) up = !up;
    else { by = i; up = i < 0 || D.figures[i].better <= 0; }
    draw();
    var b = body.querySelector("[data-col=\"" + i + "\"]");
    if (b) b.focus();
  }
  function order() {
    var o = runs.map(function (_, i) { return i; }).filter(listed);
    if (by === -1) return up ? o : o.reverse();
    var big = up ? Infinity : -Infinity;
    function v(i) { var x = runs[i].values[by]; return x === null ? big : x; }
    return o.sort(function (a, b) { return (up ? 1 : -1) * (v(a) - v(b)) || a - b; });
  }
  function head(text, help, i) {
    var b = el("button", { type: "button", text: text, title: help, "data-col": i, onclick: function () { sort(i); } });
    return el("th", { scope: "col", "aria-sort": by === i ? (up ? "ascending" : "descending") : null }, b);
  }
  function draw() {
    var cols = [];
    D.figures.forEach(function (f, i) { if (all || KEYS.indexOf(f.key) >= 0) cols.push(i); });
    var groups = el("tr", { class: "groups" }, el("td", {})), names = el("tr", {}, head("policy", "in the order in which they were given", -1)), last = null;
    cols.forEach(function (i) {
      var f = D.figures[i], th = head(f.short, f.label + ": " + f.help, i);
      if (!last || last.group !== f.group) { last = { group: f.group, n: 0, th: el("th", { text: f.group, scope: "colgroup" }) }; groups.append(last.th); th.classList.add("edge"); }
      last.th.colSpan = ++last.n;
      names.append(th);
    });
    var tb = el("tbody", {});
    order().forEach(function (k) {
      var r = runs[k], tr = el("tr", {}, el("th", { scope: "row", title: r.label + (r.placer ? ", placer " + r.placer : "") + (r.backfill ? ", backfill " + r.backfill : "") },
        el("span", {}, swatch(k), el("span", { text: r.label })))), g = null;
      cols.forEach(function (i) {
        var c = (r.best[i] ? "best" : "") + (D.figures[i].group !== g ? " edge" : "");
        g = D.figures[i].group;
        tr.append(el("td", { class: c, text: r.texts[i] }, r.best[i] ? el("span", { class: "vh", text: " best" }) : null));
      });
      tb.append(tr);
    });
    body.textContent = "";
    body.append(el("table", {}, el("caption", { class: "vh", text: "Figures of each policy" }), el("thead", {}, groups, names), tb));
  }
  parts.push({ draw: draw });
}

function footer() {
  var f = $("foot");
  f.append(el("p", { text: "Completion times cover jobs that ended; jobs that never finished are counted above, never dropped. Curves are means over short intervals that become finer as you zoom in." }));
  if (runs.length) f.append(more("Placers, backfill and decision hashes", function () {
    return grid(["policy", "placer", "backfill", "hash of all decisions"], runs.map(function (r) { return [r.label, r.placer || "–", r.backfill || "–", r.hash || "–"]; }));
  }));
  f.append(el("p", { text: "Plots drawn with uPlot (MIT). This page loads and sends nothing." }));
}
