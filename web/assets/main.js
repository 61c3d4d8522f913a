// The frame around the pages: addresses, the live stream, keys.
import { ask, el, fill, plain, session, say, tick, failure } from "./lib.js";
import { overview } from "./overview.js";
import { jobs, ended } from "./jobs.js";
import { job } from "./job.js";
import { submit } from "./submit.js";
import { services } from "./services.js";
import { usage } from "./usage.js";

const $ = (id) => document.getElementById(id);
const main = $("main");

const routes = [
  [/^\/$/, overview], [/^\/jobs$/, jobs], [/^\/jobs\/(\d+)$/, job], [/^\/submit$/, submit], [/^\/services$/, services], [/^\/usage$/, usage], [/^\/history$/, ended],
];

let page = null; // the present page: { title, changed(change), leave() }

/* go shows the page of an address. */
export function go(to, { replace = false, keepFocus = false } = {}) {
  const url = new URL(to, location.href);
  if (url.href !== location.href) history[replace ? "replaceState" : "pushState"](null, "", url);
  show(keepFocus);
}

function show(keepFocus) {
  page?.leave?.();
  page = null;
  const hit = routes.map(([r, make]) => [location.pathname.match(r), make]).find(([m]) => m && !(session.readonly && m[0] === "/submit"));
  for (const a of document.querySelectorAll("header nav a")) {
    const here = a.pathname === location.pathname || a.pathname === "/jobs" && location.pathname.startsWith("/jobs");
    if (here) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
  }
  if (!hit) {
    fill(main, el("h1", { text: "No such page" }), el("p", null, el("a", { href: "/", "data-link": true, text: "Overview" })));
    return;
  }
  const box = el("div", { class: "page" });
  main.replaceChildren(box);
  page = hit[1]({ box, args: hit[0].slice(1), query: new URLSearchParams(location.search), go, title });
  title(page.title);
  if (!keepFocus) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

function title(text) {
  document.title = plain(text).replace(/\s+/g, " ") + " – Muster";
}

/* ---- live: one stream for all pages ---- */

let stream = null, lost = false;

function state(cls, text) {
  $("live").className = "live " + cls;
  $("live").lastElementChild.textContent = text;
}

function listen() {
  stream?.close();
  stream = null;
  if (document.hidden) return; // a hidden window needs none of the browser's few connections
  stream = new EventSource("/v1/events");
  stream.addEventListener("open", () => {
    state("on", "live");
    if (lost) say("The daemon answers again.");
    lost = false;
  });
  stream.addEventListener("changed", (e) => page?.changed?.(JSON.parse(e.data)));
  stream.addEventListener("error", () => {
    state("off", "not connected");
    if (!lost && stream.readyState !== EventSource.CLOSED) say("The daemon does not answer: what is shown may be out of date. Trying again.", true);
    lost = true;
    if (stream.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(begin, 3000); // the browser has given up: the session may be over
    }
  });
}

document.addEventListener("visibilitychange", () => {
  if (session.user && !(stream && !document.hidden)) listen();
});
addEventListener("pagehide", () => stream?.close());
addEventListener("pageshow", (e) => { if (e.persisted) begin(); });

/* begin finds out who is signed in. */
async function begin() {
  let me;
  try {
    me = await ask("/v1/me");
  } catch (e) {
    if (e.status === 401 || e.status === 403) return signIn();
    state("off", "not connected");
    if (!page) fill(main, el("h1", { text: "Muster" }), failure(new Error("The daemon does not answer. Trying again every few seconds.")));
    setTimeout(begin, 3000);
    return;
  }
  const readonly = !!me.read_only; // a cluster, which is changed with Kubernetes' own tools
  Object.assign(session, { user: me.user, admin: !readonly && (!!me.admin || me.role === "operator"), csrf: me.csrf || "", readonly });
  document.documentElement.toggleAttribute("data-readonly", readonly);
  $("who").textContent = me.user + (me.role && me.role !== "user" ? ` (${me.role})` : "");
  if (!page) show(true);
  listen();
}

function signIn() {
  page?.leave?.();
  page = null;
  stream?.close();
  state("off", "signed out");
  title("Sign in");
  fill(main, el("h1", { text: "Sign in" }),
    el("p", null, "On the machine where Muster runs, enter"),
    el("pre", { class: "code", tabindex: 0, text: "muster dashboard" }),
    el("p", null, "and open the link that it prints. The link works once; afterwards this browser is known."));
}

/* ---- links, theme, keys ---- */

document.addEventListener("click", (e) => {
  const a = e.target.closest?.("a[data-link]");
  if (!a || e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  e.preventDefault();
  go(a.href);
});
addEventListener("popstate", () => show(false));

const themes = { auto: ["Auto", "as the system has them"], light: ["Light", "light"], dark: ["Dark", "dark"] };

function themed() {
  const [text, long] = themes[document.documentElement.dataset.wish] || themes.auto;
  $("theme").textContent = text;
  $("theme").setAttribute("aria-label", "Colours: " + long);
  page?.themed?.();
}
/* The other theme, then back to the system's. */
function nextTheme() {
  const d = document.documentElement.dataset;
  window.musterTheme(d.wish !== "auto" ? "auto" : d.theme === "dark" ? "light" : "dark");
}
document.addEventListener("theme", themed);
$("theme").addEventListener("click", nextTheme);
themed();

const keysOn = () => { try { return localStorage.getItem("muster-keys") !== "off"; } catch { return true; } };
$("keys-on").checked = keysOn();
$("keys-on").addEventListener("change", (e) => { try { localStorage.setItem("muster-keys", e.target.checked ? "on" : "off"); } catch { /* not kept */ } });
$("keys").addEventListener("click", () => $("help").showModal());

$("help-close").addEventListener("click", () => $("help").close());

let first = "", firstAt = 0;
document.addEventListener("keydown", (e) => {
  if (e.metaKey || e.ctrlKey || e.altKey || e.defaultPrevented || !keysOn()) return;
  if (e.target.closest("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
  const k = e.key, chord = first === "g" && e.timeStamp - firstAt < 1500;
  first = chord ? "" : k;
  firstAt = e.timeStamp;
  const to = chord && { o: "/", j: "/jobs", s: "/submit", h: "/history", v: "/services", u: "/usage" }[k];
  if (to) go(to);
  else if (k === "?") $("help").showModal();
  else if (k === "t") nextTheme();
  else if (k === "/") {
    if (!document.getElementById("search")) go("/jobs");
    setTimeout(() => document.getElementById("search")?.focus(), 0); // otherwise the key itself would be typed
  } else if (k === "j" || k === "k") {
    const links = [...document.querySelectorAll("main a.job")];
    const at = links.indexOf(document.activeElement);
    links[at < 0 ? 0 : Math.max(0, Math.min(links.length - 1, at + (k === "j" ? 1 : -1)))]?.focus();
  } else return;
  e.preventDefault();
});

setInterval(tick, 1000);
begin().catch((e) => say(e.message, true));
