// Before anything is painted: light or dark, by the reader's choice or the system's setting.
(function () {
  "use strict";
  var wish = null, system = matchMedia("(prefers-color-scheme: dark)");
  try { wish = localStorage.getItem("muster-theme"); } catch (e) { /* private mode: the system's */ }
  function apply() {
    document.documentElement.dataset.theme = wish || (system.matches ? "dark" : "light");
    document.documentElement.dataset.wish = wish || "auto";
    document.dispatchEvent(new Event("theme"));
  }
  window.musterTheme = function (next) {
    wish = next === "auto" ? null : next;
    try { wish ? localStorage.setItem("muster-theme", wish) : localStorage.removeItem("muster-theme"); } catch (e) { /* not kept */ }
    apply();
  };
  system.addEventListener("change", apply);
  apply();
})();
