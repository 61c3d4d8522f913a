/* Data, names, units, colours and the few helpers that every part uses. */
var D = JSON.parse(document.getElementById("data").textContent);
var runs = D.runs;
var NS = document.querySelector("svg").namespaceURI;

function $(id) { return document.getElementById(id); }

/* el makes an element with children, or lists of them; text goes in as text, never as markup. */
function el(tag, attrs) {
  var e = document.createElement(tag);
  for (var k in attrs || {}) {
    if (k === "text") e.textContent = attrs[k];
    else if (k === "class") e.className = attrs[k];
    else if (k.slice(0, 2) === "on") e.addEventListener(k.slice(2), attrs[k]);
    else if (attrs[k] !== null && attrs[k] !== false) e.setAttribute(k, attrs[k] === true ? "" : attrs[k]);
  }
  for (var i = 2; i < arguments.length; i++) if (arguments[i]) e.append.apply(e, [].concat(arguments[i]));
  return e;
}

function svg(tag, attrs) {
  var e = document.createElementNS(NS, tag);
  for (var k in attrs || {}) e.setAttribute(k, attrs[k]);
  for (var i = 2; i < arguments.length; i++) e.append(arguments[i]);
  return e;
}

/* ---- units ---- */

function comma(v) { return String(Math.round(v)).replace(/\B(?=(\d{3})+$)/g, ","); }

function two(n) { return n < 10 ? "0" + n : String(n); }

function pair(a, ua, b, ub) { return b ? a + ua + two(b) + ub : a + ua; }

function secs(v) {
  if (v === 0) return "0s";
  if (v < 0.0995) return Math.round(v * 1000) + "ms";
  if (v < 9.95) return v.toFixed(1) + "s";
  if (v < 59.5) return Math.round(v) + "s";
  if (v < 3599.5) { v = Math.round(v); return pair(Math.floor(v / 60), "m", v % 60, "s"); }
  if (v < 172770) { v = Math.round(v / 60); return pair(Math.floor(v / 60), "h", v % 60, "m"); }
  if (v < 8638200) { v = Math.round(v / 3600); return pair(Math.floor(v / 24), "d", v % 24, "h"); }
  return comma(v / 86400) + "d";
}

function num(v) {
  var a = Math.abs(v);
  if (a === 0) return "0";
  if (a < 0.005) return "<0.01";
  if (a < 0.995) return v.toFixed(2);
  if (a < 99.5) return String(+v.toFixed(1));
  return comma(v);
}

function share(v) { return v === 0 ? "0%" : v === 1 ? "100%" : (v * 100).toFixed(1) + "%"; }

function short(v) {
  if (v >= 1e6) return +(v / 1e6).toFixed(1) + "M";
  if (v >= 1e3) return +(v / 1e3).toFixed(1) + "k";
  return String(+v.toFixed(v < 1 ? 2 : 1));
}

/* instant names a moment: by the calendar if there is one, else from the start. */
function instant(t) {
  if (D.epoch) return new Date((D.epoch + t) * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC";
  var s = Math.round(t), d = Math.floor(s / 86400), rest = s % 86400;
  var hm = two(Math.floor(rest / 3600)) + ":" + two(Math.floor(rest / 60) % 60);
  if (ended(runs) < 7200) hm += ":" + two(rest % 60);
  return (d ? "day " + d + ", " : "") + hm;
}

/* day names a tick of the calendar. */
function day(t, step) {
  var iso = new Date(Math.round(D.epoch + t) * 1000).toISOString(), hm = iso.slice(11, 16);
  if (step < 86400 && hm !== "00:00") return hm;
  return +iso.slice(8, 10) + " " + ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][+iso.slice(5, 7) - 1] +
    (step >= 2419200 ? " " + iso.slice(0, 4) : "");
}

function ended(list) { return Math.max.apply(null, list.map(function (r) { return r.series.end; })); }

/* ---- colours: told apart by colour-blind readers, dash after seven ---- */

var LIGHT = ["#0a5aa0", "#d1490c", "#0c8a62", "#a23d7f", "#3d9fd8", "#a67400", "#55585e"];
var DARK = ["#5aa9f0", "#ff8d52", "#36c795", "#e38cc2", "#a4dafa", "#e6b83f", "#bfc4cb"];
var DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

function dark() { return document.documentElement.dataset.theme === "dark"; }

function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function colour(i) { return (dark() ? DARK : LIGHT)[i % 7]; }

function dash(i) { return DASHES[Math.floor(i / 7) % 4]; }

/* tint is a colour for areas: the same hues, lighter after each seven. */
function tint(i) {
  var hex = colour(i), mix = [0.82, 0.52, 0.32, 0.2][Math.floor(i / 7) % 4], back = dark() ? [25, 28, 32] : [255, 255, 255];
  var c = [1, 3, 5].map(function (at, k) { return Math.round(parseInt(hex.slice(at, at + 2), 16) * mix + back[k] * (1 - mix)); });
  return "rgb(" + c.join(",") + ")";
}

function swatch(i) {
  return svg("svg", { width: 22, height: 8, viewBox: "0 0 22 8", "aria-hidden": "true" },
    svg("line", { x1: 0, y1: 4, x2: 22, y2: 4, stroke: colour(i), "stroke-width": 2.5, "stroke-dasharray": dash(i).join(" ") }));
}

function square(c) {
  var s = el("span", { class: "sw", "aria-hidden": "true" });
  s.style.background = c;
  return s;
}

/* ---- state shared by the plots ---- */

/* A page of many policies opens with a few; all() shows the others, too. */
var few = {};
(D.picks || []).forEach(function (p) { few[p.run] = p.why; });
var state = { few: !!D.picks, on: runs.map(function (_, i) { return !D.picks || i in few; }), range: null, focus: -1 };

function listed(i) { return !state.few || i in few; }

/* showAll shows every policy everywhere, or the few again. */
function showAll(all) {
  state.few = !all;
  state.on = runs.map(function (_, i) { return all || i in few; });
  state.focus = -1;
  tell("draw");
}

/* allButton is the way to the others and back. */
function allButton() {
  return el("button", { type: "button", class: "all", text: state.few ? "Show all " + runs.length + " policies" : "Show only the " + D.picks.length + " of the opening",
    onclick: function () {
      var where = this.closest("#policies") ? "#policies" : ".opening";
      showAll(state.few);
      document.querySelector(where + " button.all").focus(); /* what was clicked has been made again */
    } });
}
var whole = (function () {
  var from = Math.min.apply(null, runs.map(function (r) { return r.series.first * r.series.width; }));
  var to = ended(runs);
  return runs.length && isFinite(from) && to > from ? [from, to] : [0, 1];
})();
var parts = []; /* each: {draw(), toggled(), ranged(), focused()}, all optional */

function tell(what) { parts.forEach(function (p) { if (p[what]) p[what](); }); }

function seen() { return state.range || whole; }

/* look sets the time range of every time plot; null is the whole run. */
function look(r) {
  if (r) {
    var least = 60, a = Math.max(whole[0], r[0]), b = Math.min(whole[1], r[1]);
    if (b - a < least) { var mid = (a + b) / 2; a = Math.max(whole[0], mid - least / 2); b = Math.min(whole[1], a + least); }
    r = a <= whole[0] && b >= whole[1] ? null : [a, b];
  }
  state.range = r;
  $("range").classList.toggle("on", !!r);
  $("reset").hidden = !r;
  $("rangetext").textContent = r ? instant(r[0]) + " to " + instant(r[1]) : "";
  tell("ranged");
}

function moveRange(key) {
  var r = seen(), w = r[1] - r[0], c = (r[0] + r[1]) / 2;
  if (key === "+" || key === "=") look([c - w / 4, c + w / 4]);
  else if (key === "-") look([c - w, c + w]);
  else if (key === "0" || key === "Escape") look(null);
  else if (key === "[") look([Math.max(whole[0], r[0] - w / 4), Math.max(whole[0], r[0] - w / 4) + w]);
  else if (key === "]") look([Math.min(whole[1], r[1] + w / 4) - w, Math.min(whole[1], r[1] + w / 4)]);
  else return false;
  return true;
}

/* more is the table behind a figure, made when it is first opened. */
function more(title, make) {
  var d = el("details", {}, el("summary", { text: title })), done = false;
  d.addEventListener("toggle", function () {
    if (!d.open) return;
    if (done) d.lastChild.remove();
    done = true;
    d.append(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, make()));
  });
  return d;
}

function grid(head, rows) {
  var t = el("table", {}, el("thead", {}, el("tr", {})), el("tbody", {}));
  head.forEach(function (h) { t.tHead.rows[0].append(el("th", { text: h, scope: "col" })); });
  rows.forEach(function (r) {
    var tr = el("tr", {});
    r.forEach(function (c, i) { tr.append(i ? el("td", { text: c }) : el("th", { text: c, scope: "row" })); });
    t.tBodies[0].append(tr);
  });
  return t;
}

function seg(label, names, at, pick) {
  var s = el("div", { class: "seg", role: "group", "aria-label": label });
  names.forEach(function (n) {
    s.append(el("button", { type: "button", text: n, "aria-pressed": String(n === at), onclick: function () {
      Array.prototype.forEach.call(s.children, function (b) { b.setAttribute("aria-pressed", String(b.textContent === n)); });
      pick(n);
    } }));
  });
  return s;
}

function choose(label, names, pick) {
  var s = el("select", { onchange: function () { pick(+s.value); } });
  names.forEach(function (n, i) { s.append(el("option", { value: i, text: n })); });
  return el("label", {}, el("span", { text: label }), s);
}
