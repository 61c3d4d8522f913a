//go:build linux

package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// press presses the button that says a text.
func (b *board) press(text string) {
	b.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll("main button, dialog[open] button")].find(e => e.textContent === %q && !e.disabled)`, text)
	b.Await("the button "+text, find)
	b.JS(find + `.focus()`)
	b.Do(chromedp.KeyEvent(kb.Enter))
}

// A running job is suspended, resumed and requeued from its page; what the
// daemon refuses is said in its words.
func TestDashboardSuspend(t *testing.T) {
	t.Parallel()
	b := openBoard(t, "1xH100-80GB")
	b.must("submit", "--gpus", "1", "--time", "10m", "--name", "worker", "--", "sh", "-c",
		"trap 'exit 0' USR1; while :; do sleep 0.2; done")
	b.visit("/jobs/1")
	b.press("Suspend")
	b.press("Suspend it")
	b.Await("suspended", has(".head .state", "suspended"))
	b.want(b.must("show", "1"), `"state": "suspended"`)
	b.press("Resume")
	b.Await("running again", has(".head .state", "running"))
	b.press("Requeue")
	b.press("Requeue it")
	b.Await("its second start", has(".facts2", "Restarts"))
	b.Await("running once more", has(".head .state", "running"))
	b.want(b.text(".moments"), "suspended")
	b.press("Suspend") // and meanwhile somebody else does
	b.must("suspend", "1")
	b.press("Suspend it")
	b.Await("why not", has("[role=alert]", "only a running job can be suspended"))
	b.Forgive() // the browser notes the 409
	b.must("cancel", "1")
	b.Await("cancelled", has(".head .state", "cancelled"))
	b.Await("no buttons any more", `!document.querySelector("main .acts button")`)
	b.Clean(b.base, "data:")
}

// An operator drains the node from the overview, with a reason, and takes it
// back; a GPU that fails says why. A lost connection is said, once.
func TestDashboardDrain(t *testing.T) {
	t.Parallel()
	b := openBoard(t, "2xH100-80GB")
	b.press("Drain this node")
	b.Await("the question, with a field for the reason",
		`document.querySelector("#ask").open && document.activeElement.matches("#ask-field input")`)
	b.Do(chromedp.KeyEvent("new cooling"), chromedp.KeyEvent(kb.Enter))
	b.Await("drained", has(".head .note", "It takes no more jobs.")+` && `+has(".head .note", "new cooling"))
	b.want(b.must("nodes"), "new cooling")
	b.want(b.must("submit", "--gpus", "1", "--name", "later", "--", "sleep", "300"), "waiting")
	b.Await("a job that waits", has(".slim td", "later"))
	b.Shoot("drained")
	b.press("Take jobs again")
	b.Await("it runs", has(".gpu", "later"))
	b.fault("1 fell off the bus\n")
	b.Await("what is wrong with a GPU", has(".gpu.sick .fault", "fell off the bus"))
	b.Shoot("sick")
	b.Clean(b.base, "data:")

	b.kill()
	b.Await("what is wrong",
		`document.querySelector("#live.off") && document.querySelector("#said.bad")?.textContent.includes("does not answer")`)
	b.want(b.text("#live"), "not connected")
	b.Forgive() // the browser logs an error for each request without an answer
}

// The history is filtered, searched and paged; what is chosen is in the
// address, so that it can be passed on.
func TestDashboardHistory(t *testing.T) {
	t.Parallel()
	b := openBoard(t, "2xH100-80GB")
	b.must("submit", "--gpus", "1", "--time", "10m", "--name", "bad-one", "--", "sh", "-c", "exit 7")
	b.must("submit", "--gpus", "0", "--name", "sweep", "--array", "0-59", "--", "true")
	all := []string{"wait"}
	for id := 2; id <= 61; id++ {
		all = append(all, strconv.Itoa(id))
	}
	b.must(all...)
	if _, code := b.try("wait", "1"); code != 7 {
		t.Errorf("the failed job: exit code %d", code)
	}
	b.must("submit", "--gpus", "1", "--time", "10m", "--name", "runs-on", "--", "sleep", "300")
	b.untilSays("61", "history", "--json")
	b.visit("/jobs")
	b.Do(chromedp.KeyEvent("g"), chromedp.KeyEvent("h"))
	b.Await("a page of what is over",
		`location.pathname === "/history" && document.querySelectorAll(".past tbody tr").length === 50`)
	if b.JS(has(".past td", "runs-on")) == "true" {
		t.Error("a job that runs is in the history")
	}
	b.Await("all of them are over", `document.querySelector(".pages a")`)
	b.Do(chromedp.Click(chromedp.CSS(".pages a")))
	b.Await("the rest", has(".past td", "bad-one"))
	b.want(b.text(".past"), "exit code 7")
	b.load("/history?state=failed,timeout,lost&days=1&search=bad")
	b.Await("a kept view", `document.querySelectorAll(".past tbody tr").length === 1 && `+has(".past td", "bad-one")+
		` && document.getElementById("state").value === "failed,timeout,lost" && document.getElementById("days").value === "1"`)
	b.JS(`(e => { e.value = "completed"; e.dispatchEvent(new Event("change", {bubbles: true})); return 1 })(document.getElementById("state"))`)
	b.Await("another choice, in the address and said",
		has(".past td", "No job matches")+
			` && location.search.includes("state=completed") && document.querySelector("[role=status].hidden").textContent === "no jobs"`)
	b.Shoot("history")
	b.Clean(b.base, "data:")
}

// Ten thousand waiting jobs are no more work for the page than fifty.
func TestDashboardManyJobs(t *testing.T) {
	t.Parallel()
	b := openBoard(t, "1xH100-80GB")
	b.must("submit", "--gpus", "1", "--name", "holder", "--", "sleep", "600")
	b.must("submit", "--gpus", "1", "--time", "1h", "--name", "many", "--array", "0-9999", "--", "true")
	b.visit("/")
	b.Await("the overview counts them",
		has(".figures", "10000 jobs")+
			` || document.querySelector(".figures").innerText.replace(/\D+/g, " ").includes("10000")`)
	b.visit("/jobs")
	b.Await("a page of them", `document.querySelectorAll(".jobs tbody tr").length === 50`)
	b.Do(chromedp.Click(chromedp.CSS(".pages a")))
	b.Await("the next one",
		`document.querySelectorAll(".jobs tbody tr").length === 50 && location.search.includes("before=")`)
	b.JS(`(e => { e.value = "holder"; e.dispatchEvent(new Event("input", {bubbles: true})); return 1 })(document.getElementById("search"))`)
	b.Await("one among them", `document.querySelectorAll(".jobs tbody tr").length === 1`)
	b.visit("/usage")
	b.Await("the report", has(".usage th", "all")+` || document.querySelectorAll(".usage tbody tr").length > 0`)
	b.Clean(b.base, "data:")
}

// Whoever is not the owner of a job, nor an operator, sees it without buttons,
// without what it runs and without its output, and cannot drain the node.
func TestDashboardOthers(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	d := startDaemon(t, "1xH100-80GB")
	d.must("submit", "--gpus", "1", "--time", "10m", "--name", "not-yours", "--", "sh", "-c",
		"echo hush-hush; sleep 300")
	link, err := d.others()("nobody", "dashboard", "--no-open")
	if err != nil {
		t.Fatalf("%v\n%s", err, link)
	}
	b := signInBy(t, d, strings.TrimSpace(link))
	b.Await("the job on its GPU", has(".gpu", "not-yours"))
	b.visit("/jobs/1")
	b.Await("what everybody sees", has("h1", "not-yours")+` && `+has(".facts2", "Time limit"))
	if got := b.JS(`document.querySelectorAll("main button").length + " " + document.body.innerText.includes("hush")`); got != "0 false" {
		t.Errorf("buttons, and what it runs: %s", got)
	}
	b.visit("/")
	b.Await("the overview", has(".gpu", "not-yours"))
	if got := b.JS(`document.querySelectorAll("main button").length`); got != "0" {
		t.Errorf("somebody who may not drain the node has %s buttons for it", got)
	}
	b.Clean(b.base, "data:")
}
