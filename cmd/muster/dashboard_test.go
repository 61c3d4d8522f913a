//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/muster-gpu/muster/internal/browser"
)

// board is the dashboard of a real daemon in a real browser.
type board struct {
	*browser.Browser
	*daemon
	base string
}

// openBoard signs a browser in, as a user does: with the link of muster dashboard.
func openBoard(t *testing.T, gpus string) *board {
	t.Helper()
	return signIn(t, startDaemon(t, gpus))
}

func signIn(t *testing.T, d *daemon) *board {
	t.Helper()
	return signInBy(t, d, strings.TrimSpace(d.must("dashboard", "--no-open")))
}

func signInBy(t *testing.T, d *daemon, link string) *board {
	t.Helper()
	b := &board{Browser: browser.Open(t), daemon: d}
	b.base = link[:strings.Index(link, "/login")]
	b.Look(1280, 900, "light")
	b.Do(chromedp.Navigate(link))
	b.Await("the overview after signing in", `document.querySelector("h1")?.textContent === "Overview"`)
	b.Await("the live stream", `document.querySelector("#live.on")`)
	return b
}

// visit goes to another page as links do, which costs a tenth of what it costs to load one.
func (b *board) visit(path string) {
	b.t.Helper()
	b.JS(fmt.Sprintf(`(a => { a.href = %q; a.dataset.link = ""; document.body.append(a); a.click(); a.remove(); return 1 })(document.createElement("a"))`, path))
	b.arrives(path)
}

// load opens an address as one that was kept is opened.
func (b *board) load(path string) {
	b.t.Helper()
	b.Do(chromedp.Navigate(b.base + path))
	b.arrives(path)
}

func (b *board) arrives(path string) {
	b.t.Helper()
	b.Await(path, `document.querySelector("#live.on") && document.querySelector("h1")`)
}

// text is what an element says.
func (b *board) text(sel string) string {
	b.t.Helper()
	return b.JS(fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => e.innerText).join("|")`, sel))
}

func has(sel, text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => e.textContent.includes(%q))`, sel, text)
}

// Jobs appear while one looks: on the GPUs, in the queue, in the line, and
// leave again.
func TestDashboardLive(t *testing.T) {
	t.Parallel()
	b := openBoard(t, "4xH100-80GB")
	b.Await("four idle GPUs", `document.querySelectorAll(".gpu.idle").length === 4`)
	b.want(b.text(".head .note"), "Simulated GPUs")
	b.must("submit", "--gpus", "3", "--time", "10m", "--name", "train-vit", "--", "sleep", "300")
	b.must("submit", "--gpus", "2", "--time", "5m", "--name", "blocked", "--", "sleep", "300")
	b.must("submit", "--gpus", "0.5", "--time", "5m", "--name", "half", "--", "sleep", "300")
	b.Await("the job on its GPUs",
		`document.querySelectorAll(".gpu:not(.idle)").length >= 3 && `+has(".gpu", "train-vit"))
	b.Await("who is next", has(".slim td", "blocked"))
	b.Await("a share of a GPU", has(".gpu .by", "0.5 GPU"))
	b.want(b.text(".figures"), "GPUs held\n3.5 of 4", "not measured")
	b.Await("the plot", `document.querySelector(".canvas canvas") && document.querySelector(".canvas").getAttribute("aria-label").includes("of 4 GPUs are held")`)
	b.Await("what is free over time", `[...document.querySelectorAll(".legend")].some(e => e.textContent.includes("GPUs free") && e.textContent.includes("of them usable")) &&
		/[0-9.]+ are free, [0-9.]+ of them usable by the tasks submitted last/.test(document.querySelector(".canvas").getAttribute("aria-label"))`)
	b.Await("what is free and of use", has(".left", "0.5 GPUs free, ")+` && `+has(".left", "are fragments"))
	b.Shoot("overview-small")
	b.visit("/jobs/3")
	b.Await("who enforces its share", has(".facts2", "declared only: neither memory nor compute is enforced"))
	b.visit("/")
	b.must("cancel", "1")
	b.Await("the next job", `!`+has(".gpu", "train-vit")+` && `+has(".gpu", "blocked"))
	b.Clean(b.base, "data:")
}

// A job's page says why it waits, lets it be held, released and cancelled, and
// shows its output while it is written. Links that jobs use are in a table, and what a job loses on them is on its
// page.
func TestDashboardJob(t *testing.T) {
	t.Parallel()
	d, _ := configured(t, "2xH100-80GB", "traffic: crux\n"+narrow)
	b := signIn(t, d)
	b.must("submit", "--gpus", "2", "--time", "10m", "--name", "first", "-o", "first.out", "--", "sh", "-c",
		`printf 'loss \033[31m0.5\033[0m\n'; printf '10%%\r20%%\r30%%\n'; echo '<b>bold</b>'; echo '{"step": 40, "steps": 200, "samples_per_s": 12.5}' > $MUSTER_PROGRESS; while ! [ -e go ]; do sleep 0.2; done; echo last; exit 3`)
	b.must("submit", "--gpus", "1", "--time", "10m", "--name", "second", "--", "sleep", "300")
	b.visit("/jobs/1")
	b.Await("its output, readable", has(".log", "loss 0.5\n30%\n<b>bold</b>\n"))
	b.Await("its progress", has(".prog .pct", "20%"))
	b.want(b.text("main"), "step 40 of 200", "12.5 samples/s", "What happened")
	if got := b.JS(`document.querySelectorAll("main b, main img").length`); got != "0" {
		t.Errorf("output became markup: %s", got)
	}
	b.Shoot("job-running")
	b.visit("/jobs/2")
	b.Await("why it waits", has(".why", "needs 1 GPU"))
	b.want(b.text(".why"), "job 1 first: 2 GPUs")
	b.want(b.text(".lead"), "number 1 in the line", "expected to start")
	b.Shoot("job-waiting")
	b.Do(chromedp.Click(chromedp.CSS(".acts button:first-child")))
	b.Await("held", has(".head .state", "held"))
	b.want(b.must("show", "2"), `"code": "JobHeldUser"`)
	b.Do(chromedp.Click(chromedp.CSS(".acts button:first-child")))
	b.Await("released", has(".head .state", "waiting"))
	b.visit("/jobs/1")
	b.Await("its output again", has(".log", "loss"))
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.Await("the end of its output, live", has(".log", "last"))
	b.Await("its end", has(".head .state", "failed")+` && `+has(".lead", "exit code 3"))
	b.visit("/jobs/2")
	b.Await("it runs", has(".head .state", "running"))
	b.JS(`document.querySelector(".acts .danger").focus()`)
	b.Do(chromedp.KeyEvent(kb.Enter))
	b.Await("a question first", `document.querySelector("#ask").open`)
	b.Do(chromedp.KeyEvent(kb.Escape))
	b.Await("which can be left",
		`!document.querySelector("#ask").open && document.activeElement.classList.contains("danger")`)
	b.want(b.must("show", "2"), `"state": "running"`)
	b.Do(chromedp.KeyEvent(kb.Enter))
	b.Await("the question again, on the harmless answer",
		`document.querySelector("#ask").open && document.activeElement.id === "ask-no"`)
	b.Do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.Await("cancelled", has(".head .state", "cancelled"))
	b.want(b.must("show", "2"), `"state": "cancelled"`)
	b.network()
	b.Clean(b.base, "data:")
	b.visit("/jobs/99")
	b.Await("no such job", has("[role=alert]", "no such job"))
}

// network submits three jobs whose traffic does not fit on a link, and looks at what is said of it.
func (b *board) network() {
	b.t.Helper()
	b.visit("/")
	if b.JS(`document.getElementById("s-network").checkVisibility()`) != "false" {
		b.t.Error("there is a table of links that nothing uses")
	}
	for i, name := range []string{"third", "fourth", "fifth"} {
		b.must("submit", b.reduces(name, "exec sleep 1000", 150*time.Millisecond, 2, "h1", "h3"))
		b.eventually(name+" transmits", func() bool { return b.networkOf(3+i).Traffic != "" })
	}
	const row = `document.querySelector("section[aria-labelledby=s-network] tbody tr")`
	b.Await("the busiest link", row+`?.textContent.includes("left>right")`)
	b.Await("its load", `/[89][0-9]\.[0-9] %|100.0 %/.test(`+row+`.textContent)`)
	b.want(b.text("section[aria-labelledby=s-network] tbody tr:first-child"), "0.20 Gbit/s")
	slow := 3
	for b.networkOf(slow).Takes == b.networkOf(slow).Alone {
		if slow++; slow > 5 {
			b.t.Fatal("no job is slower than alone")
		}
	}
	n := b.networkOf(slow)
	b.visit(fmt.Sprint("/jobs/", slow))
	b.Await("what it transmits", has(".facts2 dd", n.Traffic+" ("+n.Source+")"))
	b.Await("its class, and what it loses to which job, where",
		has(".facts2 dd", fmt.Sprintf("class %d; ", n.Class))+` && `+
			has(".facts2 dd", fmt.Sprintf("because of job %d (left>right)", n.Loses[0].Job)))
	for id := 3; id <= 5; id++ {
		b.must("cancel", fmt.Sprint(id))
	}
}

// The form submits what it says, and errors come to their fields.
func TestDashboardSubmit(t *testing.T) {
	t.Parallel()
	b := openBoard(t, "2xH100-80GB")
	b.visit("/submit")
	set := func(id, v string) {
		b.JS(fmt.Sprintf(`(e => { e.value = %q; e.dispatchEvent(new Event("input", {bubbles: true})); return 1 })(document.getElementById(%q))`, v, id))
	}
	send := func() { b.Do(chromedp.Click(chromedp.CSS("form.submit .primary"))) }
	send()
	b.Await("nothing to run", has("#f-script-wrong", "Nothing to run"))
	if got := b.JS(`document.activeElement.id`); got != "f-script" {
		t.Errorf("the focus is on %q, not on the wrong field", got)
	}
	set("f-script", "echo hello from $MUSTER_JOB_ID")
	set("f-gpus", "1.5")
	set("f-limit", "soon")
	send()
	b.Await("errors at their fields", has("#f-gpus-wrong", "whole number")+` && `+has("#f-limit-wrong", "soon"))
	b.Shoot("submit-wrong")
	set("f-gpus", "9")
	set("f-limit", "5m")
	send()
	b.Await("what the server says", has(".submit", "9 GPUs"))
	b.Forgive() // the browser notes the 422
	set("f-gpus", "0.5")
	set("f-name", "hello")
	set("f-dir", b.dir)
	set("f-env", "A=1")
	send()
	b.Await("the job's page", `location.pathname === "/jobs/1"`)
	b.Await("its output", has(".log", "hello from 1"))
	b.want(b.must("show", "1"), `"name": "hello"`, `"share": 500`, `"limit": "5m"`, `"script": "#!/bin/sh`)
	b.Clean(b.base, "data:")
}

// The list is filtered, searched and paged; everything is reached by keys.
func TestDashboardList(t *testing.T) {
	t.Parallel()
	b := openBoard(t, "1xH100-80GB")
	b.must("submit", "--gpus", "1", "--time", "10m", "--name", "holder", "--", "sleep", "300")
	b.must("submit", "--gpus", "1", "--time", "10m", "--name", "sweep", "--array", "0-59", "--", "true")
	b.visit("/jobs")
	b.Await("a page of jobs", `document.querySelectorAll(".jobs tbody tr").length === 50`)
	b.want(b.text(".pages"), "Earlier")
	b.Do(chromedp.Click(chromedp.CSS(".pages a")))
	b.Await("the next page", `document.querySelectorAll(".jobs tbody tr").length === 11 && `+has(".jobs td", "holder"))
	b.Do(chromedp.KeyEvent("/"))
	b.Settle()
	b.Do(chromedp.KeyEvent("hold"))
	b.Await("what is searched",
		`document.querySelectorAll(".jobs tbody tr").length === 1 && location.search.includes("hold")`)
	b.load("/jobs?search=hold") // a page of its own: no field has the focus, and nothing that was typed is on its way
	b.Await("the same again",
		`document.querySelectorAll(".jobs tbody tr").length === 1 && document.activeElement.id !== "search"`)
	b.Settle()
	b.Do(chromedp.KeyEvent("j"), chromedp.KeyEvent(kb.Enter))
	b.Await("the job by keys", `location.pathname === "/jobs/1"`)
	b.Do(chromedp.KeyEvent("g"), chromedp.KeyEvent("o"))
	b.Await("the overview by keys", `location.pathname === "/"`)
	if got := b.JS(`document.activeElement.id`); got != "main" {
		t.Errorf("after going elsewhere the focus is on %q, not on the page", got)
	}
	b.Do(chromedp.KeyEvent("?"))
	b.Await("the list of keys", `document.querySelector("#help").open`)
	b.Do(chromedp.KeyEvent(kb.Escape))
	b.Await("it closes", `!document.querySelector("#help").open`)
	b.JS(`history.back()`)
	b.Await("back to the job", `location.pathname === "/jobs/1" && `+has("h1", "holder"))
	for range 12 { // whatever is reached by Tab is seen to be
		b.Do(chromedp.KeyEvent(kb.Tab))
		if got := b.JS(`(e => e === document.body || e.id === "main" || getComputedStyle(e).outlineStyle !== "none" || e.className === "skip")(document.activeElement)`); got != "true" {
			t.Errorf("no focus is seen on %s", b.JS(`document.activeElement.outerHTML.slice(0, 200)`))
		}
	}
	b.Clean(b.base, "data:")
}

// Every page, in every look: no sideways scrolling, names for all controls,
// enough contrast, one h1, landmarks.
func TestDashboardLooks(t *testing.T) {
	t.Parallel()
	b := openBoard(t, "4xH100-80GB")
	b.must("submit", "--gpus", "1", "--time", "10m", "--name",
		"a-rather-long-name-of-a-job-that-does-not-end-"+strings.Repeat("x", 60), "--", "sleep", "300")
	b.must("submit", "--gpus", "4", "--time", "10m", "--name", "big", "--", "sleep", "300")
	b.must("submit", "--gpus", "0.25", "--time", "10m", "--", "sh", "-c", "echo x; exit 1")
	for _, path := range []string{"/", "/jobs?state=", "/jobs/1", "/jobs/2", "/submit", "/services", "/usage?by=job",
		"/history"} {
		b.Look(1280, 900, "light")
		b.load(path)
		b.Settle()
		b.Settle()
		for _, scheme := range []string{"light", "dark"} {
			for _, w := range []int64{360, 800, 1280} {
				b.Look(w, 800, scheme)
				if got := b.JS(`document.documentElement.scrollWidth`); got != strconv.Itoa(int(w)) {
					t.Errorf("%s, %d wide: the page is %s wide and scrolls sideways", path, w, got)
				}
				if got := b.JS(unnamed); got != "" {
					t.Errorf("%s: without a name: %s", path, got)
				}
				if got := b.JS(faint); got != "" {
					t.Errorf("%s, %s, %d wide: too little contrast: %s", path, scheme, w, got)
				}
				b.Shoot(fmt.Sprintf("look-%s-%s-%d",
					strings.Trim(strings.NewReplacer("/", "-", "?", "-", "=", "").Replace(path), "-"), scheme, w))
			}
		}
	}
	b.Look(1280, 900, "light")
	const back = `getComputedStyle(document.body).backgroundColor`
	light := b.JS(back)
	b.Do(chromedp.Click(chromedp.CSS("#theme")))
	b.Await("dark by the button", back+` !== "`+light+`"`)
	b.load("/jobs")
	if b.JS(back) == light {
		t.Error("the choice of dark is forgotten")
	}
	b.Clean(b.base, "data:")
}

// unnamed lists controls without a name, tables without a caption, fields
// without a label, and what a page must have once.
const unnamed = `(() => { const bad = [], seen = e => e.checkVisibility();
const label = e => (e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") || "").split(" ").map(i => document.getElementById(i)?.textContent || "").join("") ||
	[...(e.labels || [])].map(l => l.textContent).join("") || (e.matches("input, select, textarea") ? "" : e.textContent)).trim();
for (const e of document.querySelectorAll("a, button, input, select, textarea, [role=progressbar], [role=img], [role=log], [role=region], nav, dialog")) if (seen(e) && !label(e)) bad.push(e.outerHTML.slice(0, 120));
for (const e of document.querySelectorAll("table")) if (seen(e) && !e.caption) bad.push("table without a caption");
for (const e of document.querySelectorAll("section")) if (seen(e) && !label(e)) bad.push("section " + e.outerHTML.slice(0, 80));
for (const [s, n] of [["h1", 1], ["main", 1], ["header", 1], ["[aria-current=page]", location.pathname.startsWith("/jobs") ? 1 : 1]]) if (document.querySelectorAll(s).length !== n) bad.push(document.querySelectorAll(s).length + " " + s);
const ids = [...document.querySelectorAll("[id]")].map(e => e.id); for (const i of ids) if (ids.indexOf(i) !== ids.lastIndexOf(i)) bad.push("id twice: " + i);
let last = 0; for (const h of document.querySelectorAll("main h1, main h2, main h3")) { const n = +h.tagName[1]; if (n > last + 1) bad.push("heading skips: " + h.textContent); last = n; }
if (document.documentElement.lang !== "en") bad.push("no language");
return [...new Set(bad)].join("\n") })()`

// faint lists texts whose contrast with what is behind them is below 4.5.
const faint = `(() => { const bad = new Set(), parse = c => { const m = c.match(/[\d.]+/g).map(Number); return c.startsWith("color(") ? [...m.slice(0, 3).map(v => v * 255), m[3] ?? 1] : [m[0], m[1], m[2], m[3] ?? 1] };
const lum = c => { const f = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; return .2126 * f(c[0]) + .7152 * f(c[1]) + .0722 * f(c[2]) };
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); for (let n; n = walk.nextNode();) { const e = n.parentElement;
	if (!n.data.trim() || !e.checkVisibility({opacityProperty: true, visibilityProperty: true}) || e.closest(".hidden, .skip, option, [disabled], .said, script, noscript")) continue;
	let back = [255, 255, 255, 0]; for (let p = e; p; p = p.parentElement) { const c = parse(getComputedStyle(p).backgroundColor); if (c[3] > .99) { back = c; break } }
	const a = lum(parse(getComputedStyle(e).color)), b = lum(back), r = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
	if (r < 4.5) bad.add(r.toFixed(1) + " " + e.tagName + "." + e.className + " " + n.data.trim().slice(0, 30)) }
return [...bad].join("\n") })()`

// Without a session a page says how to get one, and nothing else.
func TestDashboardSignIn(t *testing.T) {
	t.Parallel()
	b := &board{Browser: browser.Open(t), daemon: startDaemon(t, "1xH100-80GB")}
	b.must("submit", "--gpus", "1", "--name", "secret-work", "--", "sleep", "300")
	link := strings.TrimSpace(b.must("dashboard", "--no-open"))
	b.base = link[:strings.Index(link, "/login")]
	b.Do(chromedp.Navigate(b.base + "/jobs"))
	b.Await("how to sign in", has("main", "muster dashboard"))
	if b.JS(has("body", "secret-work")) == "true" {
		t.Error("a page without a session shows a job")
	}
	if out, err := exec.Command("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}",
		b.base+"/v1/overview").CombinedOutput(); string(out) != "401" {
		t.Errorf("the overview without a session: %s %v", out, err)
	}
}

// The overview opens with how full the machine is and what waits, then who runs and who is next; on phones
// the tables fit, whatever queues are called.
func TestDashboardPhone(t *testing.T) {
	t.Parallel()
	d := withConfig(t, "4xH100-80GB",
		"queues:\n  - {name: research-and-development-of-vision, guarantee: 1.5, limit: 3.5, children: [{name: self-supervised-pretraining, guarantee: 0.5}, {name: evaluation_of_checkpoints}]}\n"+
			"  - {name: operations, guarantee: 1}\n")
	d.start()
	b := signIn(t, d)
	b.must("submit", "--queue", "self-supervised-pretraining", "--gpus", "2", "--time", "10m", "--name", "vit", "--",
		"sleep", "300")
	b.must("submit", "--queue", "operations", "--gpus", "4", "--time", "10m", "--name", "next-one", "--", "sleep",
		"300")
	b.Await("who runs and who waits",
		has(".slim td", "vit")+` && `+has(".slim td", "next-one")+` && `+has(".queues td", "borrowed"))
	b.Await("that it starts by the limit of who runs", has(".slim td", "by "))
	const order = `[...document.querySelectorAll("main .figures dt, main h2, main .acts button")].filter(e => e.checkVisibility()).map(e => e.textContent).join()`
	if got, want := b.JS(order),
		"GPUs held,Utilisation,Waiting,Running,Running,Next in line,GPUs,The last hour,Queues,Drain this node"; got != want {
		t.Errorf("the overview has %s, want %s", got, want)
	}
	if b.JS(has(".figures", "Fragmentation")) == "true" {
		t.Error("the overview opens with fragmentation")
	}
	for _, w := range []int64{320, 360, 390, 400, 768} {
		b.Look(w, 800, "light")
		b.Settle()
		if got := b.JS(`document.documentElement.scrollWidth`); got != strconv.Itoa(int(w)) {
			t.Errorf("%d wide: the page is %s wide and scrolls sideways: %s", w, got,
				b.JS(`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + "." + e.className).join()`))
		}
		if got := b.JS(clipped); got != "" {
			t.Errorf("%d wide: cut off: %s", w, got)
		}
		if got := b.JS(`(e => [...e.querySelectorAll("td:not(.wide)")].filter(x => x.checkVisibility()).length)(document.querySelector(".queues tbody tr"))`); got < "5" {
			t.Errorf("%d wide: %s figures of a queue are left", w, got)
		}
		b.Shoot(fmt.Sprintf("phone-%d", w))
	}
	b.Clean(b.base, "data:")
}

// clipped lists cells that reach beyond the window, or whose text beyond themselves.
const clipped = `[...document.querySelectorAll("main th, main td")].filter(e => e.checkVisibility() && !e.closest(".hidden") && getComputedStyle(e.closest("thead") || e).position !== "absolute").filter(e => {
	const r = document.createRange(); r.selectNodeContents(e);
	return e.getBoundingClientRect().right > innerWidth + .5 || r.getBoundingClientRect().right > e.getBoundingClientRect().right + .5;
}).map(e => e.textContent).join("|")`
