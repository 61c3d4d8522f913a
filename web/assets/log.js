// A job's output as it grows. It is always shown as text. It is polled instead of being followed, because a
// browser has only six connections for all windows together.
import { alive, el, fill, session } from "./lib.js";

const every = 700; // milliseconds
const most = 400_000; // characters kept on the page
const tail = 200_000; // bytes of the first request

export function follow(box, j) {
  const pre = el("pre", { class: "code log", tabindex: 0, role: "log", "aria-labelledby": "log-title", "aria-live": "off", hidden: true });
  const note = el("span", { class: "sub" });
  const tasks = Math.max(1, j.submission.tasks || 0);
  const task = el("select", { id: "task" }, Array.from({ length: Math.min(tasks, 64) }, (_, i) => el("option", { value: i, text: `task ${i}` })));
  const stream = el("select", { id: "stream" }, el("option", { value: "out", text: "output" }), el("option", { value: "err", text: "errors" }));
  const down = el("a", { text: "whole file", download: "" });
  box.append(el("section", { "aria-labelledby": "log-title" }, el("h2", { id: "log-title", text: "Output" }),
    el("div", { class: "tools" }, tasks > 1 ? el("label", null, el("span", { class: "hidden", text: "Task" }), task) : null,
      el("label", { hidden: !j.stderr }, el("span", { class: "hidden", text: "Stream" }), stream), note, down), pre));
  let stop = new AbortController(), open = false, text = "", at = 0, job = j, ended = false, timer = 0;

  function put(more) {
    const near = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
    text = clean(text + more);
    if (text.length > most) text = text.slice(text.indexOf("\n", text.length - most) + 1);
    pre.textContent = text;
    pre.hidden = !text;
    if (near) pre.scrollTop = pre.scrollHeight;
  }

  async function read() {
    clearTimeout(timer);
    if (open || ended || document.hidden) return;
    open = true;
    const mine = stop = new AbortController(), more = alive(job.state);
    try {
      const q = new URLSearchParams({ stream: stream.value, task: task.value, from: String(at || -tail) });
      const r = await fetch(`/v1/jobs/${job.id}/log?${q}`, { signal: mine.signal, credentials: "same-origin" });
      if (!r.ok) throw new Error((await r.text()).slice(0, 200));
      const from = Number(r.headers.get("X-Muster-Log-From") || 0), bytes = r.body.getReader(), words = new TextDecoder();
      let skip = !at && from > 0;
      at ||= from;
      if (skip) fill(note, "the end of a long output");
      for (;;) {
        const { done, value } = await bytes.read();
        if (done) break;
        at += value.length;
        let piece = words.decode(value, { stream: true });
        if (skip) {
          piece = piece.slice(piece.indexOf("\n") + 1);
          skip = false;
        }
        put(piece);
      }
      if (!more) ended = true;
      if (!text) fill(note, alive(job.state) ? (job.started ? "nothing yet" : "it has not run yet") : "it wrote nothing");
      else if (note.textContent.match(/nothing|not run/)) fill(note);
    } catch (e) {
      if (!mine.signal.aborted) fill(note, `the output cannot be read: ${e.message}`);
    }
    if (mine.signal.aborted) return;
    open = false;
    if (more && job.state !== "pending") timer = setTimeout(read, every);
  }
  const seen = () => { if (!document.hidden) read(); };
  document.addEventListener("visibilitychange", seen);
  function again() {
    stop.abort();
    [open, ended, text, at] = [false, false, "", 0];
    pre.textContent = "";
    pre.hidden = true;
    link();
    read();
  }
  function link() { down.href = `/v1/jobs/${job.id}/log?stream=${stream.value}&task=${task.value}`; }
  task.addEventListener("change", again);
  stream.addEventListener("change", again);
  link();
  read();
  return {
    changed(next) { // a new run appends to the log or starts a new one; an ended one may have more to read
      const other = next.restarts !== job.restarts && next.submission.truncate;
      stream.parentElement.hidden = !next.stderr;
      job = next;
      if (other) again(); else read();
    },
    stop() { clearTimeout(timer); document.removeEventListener("visibilitychange", seen); stop.abort(); },
  };
}

/* clean makes terminal output readable: without colours, and of an overwritten line
   only the last text. */
function clean(text) {
  text = text.replace(/\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]/g, "").replace(/\r\n/g, "\n");
  return text.replace(/[^\n]*\r(?=[^\n])/g, "");
}
