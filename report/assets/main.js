/* The chips, the theme, and the order of things. */

function chip(name, mark, on, pick) {
  var box = el("input", { type: "checkbox", checked: on, onchange: function () { c.classList.toggle("off", !box.checked); pick(box.checked); } });
  var c = el("label", { class: on ? "chip" : "chip off", title: name }, box, mark, el("span", { text: name }));
  return c;
}

function policies() {
  var bar = $("policies");
  function draw() {
    bar.textContent = "";
    runs.forEach(function (r, i) {
      if (!listed(i)) return;
      var c = chip(r.label, swatch(i), state.on[i], function (on) { state.on[i] = on; state.focus = -1; tell("toggled"); });
      c.addEventListener("mouseenter", function () { state.focus = state.on[i] ? i : -1; tell("focused"); });
      c.addEventListener("mouseleave", function () { state.focus = -1; tell("focused"); });
      bar.append(c);
    });
    if (D.picks) bar.append(allButton());
    if (runs.length > 2 && !state.few) {
      [["all", true], ["none", false]].forEach(function (p) {
        bar.append(el("button", { type: "button", class: "small", text: p[0], "aria-label": "Show " + p[0] + " policies", onclick: function () { state.on.fill(p[1]); draw(); tell("toggled"); } }));
      });
    }
  }
  parts.push({ draw: draw });
}

function theme() {
  var media = matchMedia("(prefers-color-scheme: dark)"), picked = null, root = document.documentElement, button = $("theme");
  function set() {
    var d = picked === null ? media.matches : picked;
    root.dataset.theme = d ? "dark" : "light";
    button.textContent = d ? "Light" : "Dark";
  }
  media.addEventListener("change", function () { set(); tell("draw"); });
  button.addEventListener("click", function () { picked = !dark(); set(); tell("draw"); });
  set();
}

theme();
header();
policies();
glance();
summary();
if (runs.length) {
  usePlot();
  queuePlots();
  distPlots();
  queuePanels();
  linkBars();
  serviceRows();
  fragPlot();
  gantt();
}
footer();
$("reset").addEventListener("click", function () { look(null); });
tell("draw");
