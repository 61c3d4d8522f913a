/* The busiest links of the network, as bars, for one policy at a time. */

function linkBars() {
  var sec = $("links"), run = 0, box = el("div", { class: "scroll" });
  if (!runs.some(function (r) { return r.links; })) { sec.hidden = true; return; }
  function rate(bits) {
    var units = ["bps", "kbps", "Mbps", "Gbps", "Tbps"], k = 0;
    while (bits >= 1000 && k < units.length - 1) { bits /= 1000; k++; }
    return num(bits) + " " + units[k];
  }
  function draw() {
    var rows = (runs[run].links || []).slice(0, 24).map(function (l) {
      var fill = el("span", {}), bar = el("span", { class: "linkbar" }, fill);
      fill.style.width = (100 * Math.min(1, l.load)).toFixed(1) + "%";
      return el("tr", {}, el("th", { scope: "row", text: l.name }), el("td", { text: rate(l.rate) }), el("td", { text: (100 * l.load).toFixed(1) + " %" }), el("td", {}, bar));
    });
    box.textContent = "";
    box.append(el("table", { class: "links" }, el("caption", { class: "vh", text: "The busiest links" }),
      el("thead", {}, el("tr", {}, ["link", "rate", "mean load", ""].map(function (h) { return el("th", { scope: "col", text: h }); }))), el("tbody", {}, rows)));
  }
  sec.append(el("p", { class: "lead", text: "The busiest directions of links over the whole run, as parts of their rates." }));
  if (runs.length > 1) sec.append(el("div", { class: "tools" }, choose("policy", runs.map(function (r) { return r.label; }), function (i) { run = i; draw(); })));
  sec.append(box);
  parts.push({ draw: draw });
}
