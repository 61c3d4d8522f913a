/* What became of services' requests, one row for each service under each policy. */

function serviceRows() {
  var sec = $("services"), rows = [];
  if (!runs.some(function (r) { return r.services; })) { sec.hidden = true; return; }
  var costs = runs.some(function (r) { return (r.services || []).some(function (s) { return s.gpu_hours && Math.abs(s.cost / s.gpu_hours - 1) > 1e-6; }); });
  function ms(s) { return s ? num(1000 * s) + " ms" : ""; }
  runs.forEach(function (r) {
    (r.services || []).forEach(function (s) {
      var lost = s.dropped + s.refused + s.failed;
      var cells = [r.label, num(s.requests), (100 * s.attainment).toFixed(2) + " %", ms(s.p50_s), ms(s.p99_s), ms(s.ttft_p99_s), ms(s.tpot_p99_s), num(lost), num(s.gpu_hours), num(s.requests_per_gpu_hour), s.peak_replicas];
      if (costs) cells.push(num(s.requests_per_cost || 0));
      rows.push(el("tr", {}, el("th", { scope: "row", text: s.service }), cells.map(function (c) { return el("td", { text: c }); })));
    });
  });
  var heads = ["service", "policy", "requests", "in time", "p50", "p99", "first token p99", "token p99", "lost", "GPU-hours", "per GPU-hour", "most replicas"];
  if (costs) heads.push("per cost");
  sec.append(el("p", { class: "lead", text: "The figures above are of jobs alone; the curves of GPUs count what services hold as well, each as a queue of its own." }));
  sec.append(el("div", { class: "scroll" }, el("table", { class: "services" }, el("caption", { class: "vh", text: "Services" }),
    el("thead", {}, el("tr", {}, heads.map(function (h) { return el("th", { scope: "col", text: h }); }))), el("tbody", {}, rows))));
}
