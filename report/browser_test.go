package report

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/muster-gpu/muster/cluster"
)

const chromium = "/usr/bin/chromium"

// browser is a page under test, with what it complained of.
type browser struct {
	t    *testing.T
	ctx  context.Context
	mu   sync.Mutex
	bad  []string
	asks []string // addresses asked for
}

func open(t *testing.T) *browser {
	t.Helper()
	if _, err := os.Stat(chromium); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no browser: %v (scripts/install-test-deps.sh installs it)", err)
		}
		t.Skip("SKIP-BROWSER: " + chromium + " is not installed; scripts/install-test-deps.sh installs it")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.NoFirstRun, chromedp.WindowSize(1280, 900))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	b := &browser{t: t, ctx: ctx}
	b.do() // the browser lives as long as the context of the first call
	b.ctx, stop = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(stop)
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		t.Fatal(err)
	}
	tell(b, network.Enable, network.EnableParams{})
	tell(b, log.Enable, cdp.Empty{})
	return b
}

// tell sends a command of the protocol.
func tell[P any](b *browser, c cdp.Command[P, cdp.Empty], p P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, c, p); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) heard(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *runtime.EventConsoleAPICalled:
		if k := string(e.Type); k == "error" || k == "warning" || k == "assert" {
			b.bad = append(b.bad, fmt.Sprintf("console %s: %v", e.Type, e.Args))
		}
	case *runtime.EventExceptionThrown:
		d := e.ExceptionDetails
		b.bad = append(b.bad, d.Text)
		if d.Exception != nil {
			b.bad = append(b.bad, d.Exception.Description)
		}
	case *log.EventEntryAdded:
		b.bad = append(b.bad, e.Entry.Text)
	case *network.EventRequestWillBeSent:
		b.asks = append(b.asks, e.Request.URL)
	}
}

func (b *browser) do(a ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, a...); err != nil {
		b.t.Fatal(err)
	}
}

// js evaluates an expression to a string.
func (b *browser) js(expr string) string {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expr+")"))
	if err != nil {
		b.t.Fatalf("%v in %s", err, expr)
	}
	return out
}

// settle lets animation frames and observers pass.
func (b *browser) settle() { b.do(chromedp.Sleep(250 * time.Millisecond)) }

func (b *browser) look(width, height int64, scheme string) {
	b.t.Helper()
	tell(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500})
	tell(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.settle()
}

func (b *browser) shoot(name string) {
	dir := os.Getenv("MUSTER_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// same tells whether an expression's value changes through an action.
func (b *browser) same(expr string, act func()) bool {
	before := b.js(expr)
	act()
	b.settle()
	return before == b.js(expr)
}

func (b *browser) clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.bad {
		b.t.Errorf("the page complains: %s", s)
	}
	for _, u := range b.asks {
		if !strings.HasPrefix(u, "file://") && !strings.HasPrefix(u, "data:") {
			b.t.Errorf("the page asks for %s", u)
		}
	}
}

// writePage puts a page into a file and returns its address.
func writePage(t *testing.T, title string, runs []Run, sums []Summary) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := WriteHTML(f, title, runs, sums); err != nil {
		t.Fatal(err)
	}
	return "file://" + name
}

const useImage = `document.querySelector("#use canvas").toDataURL()`

// inked counts the canvases that have pixels of a strong colour, and all.
const inked = `(() => { let n = 0, all = 0; document.querySelectorAll(".plot canvas").forEach(c => { if (!c.clientWidth) return; all++;
	const m = document.createElement("canvas"); m.width = c.width; m.height = c.height;
	const x = m.getContext("2d", {willReadFrequently: true}); x.drawImage(c, 0, 0);
	const d = x.getImageData(0, 0, c.width, c.height).data; let k = 0;
	for (let i = 0; i < d.length; i += 4) if (d[i+3] > 200 && Math.max(d[i], d[i+1], d[i+2]) - Math.min(d[i], d[i+1], d[i+2]) > 40) k++;
	if (k > 100) n++; }); return n + "/" + all })()`

func TestPageInBrowser(t *testing.T) {
	b := open(t)
	runs, sums := fixtures()
	b.look(1280, 900, "light")
	b.do(chromedp.Navigate(writePage(t, "Made up "+hostile, runs, sums)))
	b.settle()
	if got := b.js(inked); got != "8/8" {
		t.Errorf("canvases drawn: %s, want 8/8 (use, two of the queue, two distributions, queues, fragmentation, Gantt)", got)
	}
	if got := b.js(`window.hacked + " " + document.querySelectorAll("img").length`); got != "undefined 0" {
		t.Errorf("a name became markup: %s", got)
	}
	if got := b.js(`document.querySelector("h1").textContent`); got != "Made up "+hostile {
		t.Errorf("title reads %q", got)
	}
	b.shoot("light")
	t.Run("toggle", b.toggles)
	t.Run("sort", b.sorts)
	t.Run("zoom", b.zooms)
	t.Run("gantt", b.gantt)
	t.Run("queues", b.queues)
	t.Run("tables", b.tables)
	t.Run("dark", b.darkens)
	t.Run("sizes", b.sizes)
	b.clean()
}

func (b *browser) toggles(t *testing.T) {
	before := b.js(useImage)
	if b.same(useImage, func() { b.do(chromedp.Click(chromedp.CSS("#policies .chip"))) }) {
		t.Error("switching a policy off leaves the plot as it was")
	}
	b.do(chromedp.Click(chromedp.CSS("#policies .chip")), chromedp.MouseEvent(chromedp.MouseMoved, 5, 400))
	b.settle()
	if b.js(useImage) != before {
		t.Error("switching it on again does not bring the plot back")
	}
	if b.same(useImage, func() { b.js(`document.querySelector("#policies input").focus()`); b.do(chromedp.KeyEvent(" ")) }) {
		t.Error("the space bar does not switch a policy")
	}
	b.do(chromedp.KeyEvent(" "))
	b.settle()
}

func (b *browser) sorts(t *testing.T) {
	const names = `[...document.querySelectorAll("#summary tbody th")].map(e => e.textContent).join()`
	if got := b.js(names); got != "fifo,sjf,largest(knob=2)" {
		t.Fatalf("rows %s", got)
	}
	_, sums := fixtures()
	slices.SortFunc(sums, func(a, b Summary) int { return cmp.Compare(a.JCT.Mean, b.JCT.Mean) })
	b.do(chromedp.Click(chromedp.CSS(`#summary thead button[data-col="0"]`)))
	if got, want := b.js(names), labels(sums); got != strings.Join(want, ",") {
		t.Errorf("sorted by mean completion time: %s, want %v", got, want)
	}
	b.do(chromedp.Click(chromedp.CSS(`#summary thead button[data-col="0"]`)))
	slices.Reverse(sums)
	if got, want := b.js(names), labels(sums); got != strings.Join(want, ",") {
		t.Errorf("sorted again: %s, want %v", got, want)
	}
	if got := b.js(`document.querySelector("#summary [aria-sort]").getAttribute("aria-sort")`); got != "descending" {
		t.Errorf("aria-sort says %s", got)
	}
	if b.js(`document.querySelectorAll("#summary td.best").length > 3`) != "true" {
		t.Error("the best values are not marked")
	}
}

// at returns where in the window a share of an element's width and height is.
func (b *browser) at(sel string, x, y float64) (float64, float64) {
	b.t.Helper()
	var px, py float64
	got := b.js(fmt.Sprintf(`(e => { e.scrollIntoView({block: "center", behavior: "instant"}); const r = e.getBoundingClientRect(); return (r.left + %g * r.width) + " " + (r.top + %g * r.height) })(document.querySelector(%q))`, x, y, sel))
	if _, err := fmt.Sscan(got, &px, &py); err != nil {
		b.t.Fatal(err, got)
	}
	return px, py
}

func (b *browser) zooms(t *testing.T) {
	const queue = `document.querySelector("#queue canvas").toDataURL()`
	if b.same(queue, func() {
		x, y := b.at("#use .u-over", .3, .5)
		x2, _ := b.at("#use .u-over", .5, .5)
		b.do(chromedp.DragAndDropXY(x, y, x2, y))
	}) {
		t.Error("dragging over one plot does not zoom another")
	}
	if got := b.js(`document.querySelector("#rangetext").textContent`); !strings.Contains(got, " to ") {
		t.Fatalf("the range reads %q", got)
	}
	x, y := b.at("#use .u-over", .4, .5)
	b.do(chromedp.MouseEvent(chromedp.MouseMoved, x, y))
	if got := b.js(`document.querySelector("#use .tip").textContent`); !strings.Contains(got, "fifo") {
		t.Errorf("the cursor reads %q", got)
	}
	b.shoot("zoomed")
	b.do(chromedp.Click(chromedp.CSS("#reset")))
	b.settle()
	if got := b.js(`document.querySelector("#rangetext").textContent`); got != "" {
		t.Errorf("after reset the range reads %q", got)
	}
	b.do(chromedp.Focus(chromedp.CSS("#use .plot")), chromedp.KeyEvent("+"))
	b.settle()
	if got := b.js(`document.querySelector("#rangetext").textContent`); !strings.Contains(got, " to ") {
		t.Error("plus does not zoom")
	}
	b.do(chromedp.KeyEvent("0"), chromedp.Focus(chromedp.CSS("#use .plot")))
	b.do(chromedp.KeyEvent(kb.ArrowRight))
	if got := b.js(`document.querySelector("#use [aria-live]").textContent`); !strings.Contains(got, "fifo, allocated ") {
		t.Errorf("the arrow key reads %q", got)
	}
	if b.js(`document.querySelector("#use .tip").hidden`) != "false" {
		t.Error("no values at the cursor")
	}
	b.js(`document.activeElement.blur()`)
}

func (b *browser) gantt(t *testing.T) {
	x, y := b.at("#gantt canvas", .6, .2)
	b.do(chromedp.MouseEvent(chromedp.MouseMoved, x, y))
	tip := b.js(`document.querySelector("#gantt .tip").hidden + " " + document.querySelector("#gantt .tip").textContent`)
	for _, want := range []string{"false", "train-", "queue", "from", "waited"} {
		if !strings.Contains(tip, want) {
			t.Errorf("the tooltip of a bar lacks %q: %s", want, tip)
		}
	}
	b.shoot("gantt-tooltip")
	if b.same(`document.querySelector("#gantt canvas").toDataURL()`, func() {
		b.js(`(s => { s.value = "1"; s.dispatchEvent(new Event("change")); return 1 })(document.querySelector("#gantt select"))`)
	}) {
		t.Error("another policy has the same strips")
	}
}

func (b *browser) queues(t *testing.T) {
	const image = `document.querySelector("#shares canvas").toDataURL()`
	for _, mode := range []string{"Stacked", "Lines"} {
		b.js(`[...document.querySelectorAll("#shares .seg button")].find(e => e.textContent === "` + mode + `").click()`)
		b.settle()
		if b.same(image, func() {
			b.js(`(s => { s.value = s.value === "2" ? "0" : "2"; s.dispatchEvent(new Event("change")); return 1 })(document.querySelector("#shares select"))`)
		}) {
			t.Errorf("%s: another policy has the same shares", mode)
		}
	}
	b.js(`[...document.querySelectorAll("#shares .seg button")].find(e => e.textContent === "Each queue").click()`)
	if got := b.js(`document.querySelectorAll("#shares .panel svg path").length + " " + document.querySelectorAll("#shares .panel svg line").length`); got != "4 2" {
		t.Errorf("panels have %s paths and guarantees, want 4 2", got)
	}
	b.js(`[...document.querySelectorAll("#shares .seg button")].find(e => e.textContent === "Lines").click()`)
}

func (b *browser) tables(t *testing.T) {
	b.js(`document.querySelectorAll("details").forEach(d => { d.open = true })`)
	b.settle()
	got := b.js(`[...document.querySelectorAll("details table")].every(t => t.tBodies[0].rows.length > 1) + " " + document.querySelectorAll("details table").length`)
	if got != "true 9" {
		t.Errorf("tables behind the figures: %s, want all of 9 filled", got)
	}
	b.js(`document.querySelectorAll("details").forEach(d => { d.open = false })`)
}

func (b *browser) darkens(t *testing.T) {
	const back = `getComputedStyle(document.body).backgroundColor`
	light, image := b.js(back), b.js(useImage)
	b.look(1280, 900, "dark")
	if b.js(back) == light || b.js(useImage) == image {
		t.Error("a dark screen changes nothing")
	}
	if got := b.js(inked); got != "8/8" {
		t.Errorf("dark: canvases drawn %s", got)
	}
	b.shoot("dark")
	b.do(chromedp.Click(chromedp.CSS("#theme")))
	b.settle()
	if b.js(back) != light {
		t.Error("the button does not bring light back")
	}
	b.look(1280, 900, "light")
}

func (b *browser) sizes(t *testing.T) {
	for _, w := range []int64{320, 390, 768, 1600} {
		b.look(w, 900, "light")
		if got := b.js(`document.documentElement.scrollWidth`); got != strconv.Itoa(int(w)) {
			t.Errorf("%d wide: the page is %s wide and scrolls sideways", w, got)
		}
		if got := b.js(inked); got != "8/8" {
			t.Errorf("%d wide: canvases drawn %s", w, got)
		}
		b.shoot(fmt.Sprintf("wide-%d", w))
	}
}

// TestOddPages looks at pages that lack something, or have much.
func TestOddPages(t *testing.T) {
	b := open(t)
	runs, sums := fixtures()
	var many []Run
	for i := range 20 {
		r := runs[i%3]
		r.Policy = fmt.Sprintf("policy-%d(with=a-long-list,of=knobs)", i)
		many = append(many, r)
	}
	var figures []Summary
	for i := range many {
		figures = append(figures, many[i].Summarise())
	}
	none := Run{Policy: "idle", First: cluster.Never, Series: NewSeries()}
	dated := runs[0]
	dated.Epoch = 1506996060
	for _, c := range []struct {
		name string
		runs []Run
		sums []Summary
		want string // canvases drawn
	}{
		{"nothing", nil, nil, "0/0"},
		{"figures only", nil, sums, "0/0"},
		{"a run without jobs", []Run{none}, []Summary{none.Summarise()}, "0/0"},
		{"one dated run", []Run{dated}, sums[:1], "8/8"},
		{"twenty", many, figures, "8/8"},
	} {
		b.t = t
		b.look(360, 740, "light")
		b.do(chromedp.Navigate(writePage(t, c.name, c.runs, c.sums)))
		b.settle()
		if got := b.js(inked); got != c.want {
			t.Errorf("%s: canvases drawn %s, want %s", c.name, got, c.want)
		}
		if got := b.js(`document.documentElement.scrollWidth`); got != "360" {
			t.Errorf("%s: the page is %s wide on a phone of 360", c.name, got)
		}
		b.js(`document.querySelectorAll("details").forEach(d => { d.open = true })`)
		b.settle()
		b.shoot("odd-" + strings.ReplaceAll(c.name, " ", "-"))
	}
	b.clean()
}
