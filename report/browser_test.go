package report

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/browser"
)

func TestMain(m *testing.M) {
	code := m.Run()
	browser.Close()
	os.Exit(code)
}

// pageView is a report in a browser.
type pageView struct{ *browser.Browser }

// same reports whether an expression's value is unchanged by an action.
func (b *pageView) same(expr string, act func()) bool {
	before := b.JS(expr)
	act()
	b.Settle()
	return before == b.JS(expr)
}

// writePage writes a page to a file and returns its address.
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

// inked counts the canvases that have pixels of a strong colour, and all canvases.
const inked = `(() => { let n = 0, all = 0; document.querySelectorAll(".plot canvas").forEach(c => { if (!c.clientWidth) return; all++;
	const m = document.createElement("canvas"); m.width = c.width; m.height = c.height;
	const x = m.getContext("2d", {willReadFrequently: true}); x.drawImage(c, 0, 0);
	const d = x.getImageData(0, 0, c.width, c.height).data; let k = 0;
	for (let i = 0; i < d.length; i += 4) if (d[i+3] > 200 && Math.max(d[i], d[i+1], d[i+2]) - Math.min(d[i], d[i+1], d[i+2]) > 40) k++;
	if (k > 100) n++; }); return n + "/" + all })()`

func TestPageInBrowser(t *testing.T) {
	b := &pageView{browser.Open(t)}
	runs, sums := fixtures()
	b.Look(1280, 900, "light")
	b.Do(chromedp.Navigate(writePage(t, "Made up "+hostile, runs, sums)))
	b.Settle()
	if got := b.JS(inked); got != "9/9" {
		t.Errorf("canvases drawn: %s, want 9/9 (use, two of the queue, two distributions, queues, two of the fragmentation, Gantt)", got)
	}
	if got := b.JS(`window.hacked + " " + document.querySelectorAll("img").length`); got != "undefined 0" {
		t.Errorf("a name became markup: %s", got)
	}
	if got := b.JS(`document.querySelector("h1").textContent`); got != "Made up "+hostile {
		t.Errorf("title reads %q", got)
	}
	b.Shoot("light")
	t.Run("toggle", b.toggles)
	t.Run("sort", b.sorts)
	t.Run("zoom", b.zooms)
	t.Run("gantt", b.gantt)
	t.Run("queues", b.queues)
	t.Run("tables", b.tables)
	t.Run("dark", b.darkens)
	t.Run("sizes", b.sizes)
	b.Clean("file://", "data:")
}

func (b *pageView) toggles(t *testing.T) {
	before := b.JS(useImage)
	if b.same(useImage, func() { b.Do(chromedp.Click(chromedp.CSS("#policies .chip"))) }) {
		t.Error("switching a policy off leaves the plot as it was")
	}
	b.Do(chromedp.Click(chromedp.CSS("#policies .chip")), chromedp.MouseEvent(chromedp.MouseMoved, 5, 400))
	b.Settle()
	if b.JS(useImage) != before {
		t.Error("switching it on again does not bring the plot back")
	}
	if b.same(useImage, func() {
		b.JS(`document.querySelector("#policies input").focus()`)
		b.Do(chromedp.KeyEvent(" "))
	}) {
		t.Error("the space bar does not switch a policy")
	}
	b.Do(chromedp.KeyEvent(" "))
	b.Settle()
}

func (b *pageView) sorts(t *testing.T) {
	const names = `[...document.querySelectorAll("#summary tbody th")].map(e => e.textContent).join()`
	if got := b.JS(names); got != "fifo,sjf,largest(knob=2)" {
		t.Fatalf("rows %s", got)
	}
	_, sums := fixtures()
	slices.SortFunc(sums, func(a, b Summary) int { return cmp.Compare(a.JCT.Mean, b.JCT.Mean) })
	b.Do(chromedp.Click(chromedp.CSS(`#summary thead button[data-col="0"]`)))
	if got, want := b.JS(names), labels(sums); got != strings.Join(want, ",") {
		t.Errorf("sorted by mean completion time: %s, want %v", got, want)
	}
	b.Do(chromedp.Click(chromedp.CSS(`#summary thead button[data-col="0"]`)))
	slices.Reverse(sums)
	if got, want := b.JS(names), labels(sums); got != strings.Join(want, ",") {
		t.Errorf("sorted again: %s, want %v", got, want)
	}
	if got := b.JS(`document.querySelector("#summary [aria-sort]").getAttribute("aria-sort")`); got != "descending" {
		t.Errorf("aria-sort says %s", got)
	}
	if b.JS(`document.querySelectorAll("#summary td.best").length > 3`) != "true" {
		t.Error("the best values are not marked")
	}
}

// at returns the window position of a relative point in an element.
func (b *pageView) at(t *testing.T, sel string, x, y float64) (float64, float64) {
	t.Helper()
	var px, py float64
	got := b.JS(fmt.Sprintf(`(e => { e.scrollIntoView({block: "center", behavior: "instant"}); const r = e.getBoundingClientRect(); return (r.left + %g * r.width) + " " + (r.top + %g * r.height) })(document.querySelector(%q))`, x, y, sel))
	if _, err := fmt.Sscan(got, &px, &py); err != nil {
		t.Fatal(err, got)
	}
	return px, py
}

func (b *pageView) zooms(t *testing.T) {
	const queue = `document.querySelector("#queue canvas").toDataURL()`
	if b.same(queue, func() {
		x, y := b.at(t, "#use .u-over", .3, .5)
		x2, _ := b.at(t, "#use .u-over", .5, .5)
		b.Do(chromedp.DragAndDropXY(x, y, x2, y))
	}) {
		t.Error("dragging over one plot does not zoom another")
	}
	if got := b.JS(`document.querySelector("#rangetext").textContent`); !strings.Contains(got, " to ") {
		t.Fatalf("the range reads %q", got)
	}
	x, y := b.at(t, "#use .u-over", .4, .5)
	b.Do(chromedp.MouseEvent(chromedp.MouseMoved, x, y))
	if got := b.JS(`document.querySelector("#use .tip").textContent`); !strings.Contains(got, "fifo") {
		t.Errorf("the cursor reads %q", got)
	}
	b.Shoot("zoomed")
	b.Do(chromedp.Click(chromedp.CSS("#reset")))
	b.Settle()
	if got := b.JS(`document.querySelector("#rangetext").textContent`); got != "" {
		t.Errorf("after reset the range reads %q", got)
	}
	b.Do(chromedp.Focus(chromedp.CSS("#use .plot")), chromedp.KeyEvent("+"))
	b.Settle()
	if got := b.JS(`document.querySelector("#rangetext").textContent`); !strings.Contains(got, " to ") {
		t.Error("plus does not zoom")
	}
	b.Do(chromedp.KeyEvent("0"), chromedp.Focus(chromedp.CSS("#use .plot")))
	b.Do(chromedp.KeyEvent(kb.ArrowRight))
	if got := b.JS(`document.querySelector("#use [aria-live]").textContent`); !strings.Contains(got,
		"fifo, allocated ") {
		t.Errorf("the arrow key reads %q", got)
	}
	if b.JS(`document.querySelector("#use .tip").hidden`) != "false" {
		t.Error("no values at the cursor")
	}
	b.JS(`document.activeElement.blur()`)
}

func (b *pageView) gantt(t *testing.T) {
	x, y := b.at(t, "#gantt canvas", .6, .2)
	b.Do(chromedp.MouseEvent(chromedp.MouseMoved, x, y))
	tip := b.JS(`document.querySelector("#gantt .tip").hidden + " " + document.querySelector("#gantt .tip").textContent`)
	for _, want := range []string{"false", "train-", "queue", "from", "waited"} {
		if !strings.Contains(tip, want) {
			t.Errorf("the tooltip of a bar lacks %q: %s", want, tip)
		}
	}
	b.Shoot("gantt-tooltip")
	if b.same(`document.querySelector("#gantt canvas").toDataURL()`, func() {
		b.JS(`(s => { s.value = "1"; s.dispatchEvent(new Event("change")); return 1 })(document.querySelector("#gantt select"))`)
	}) {
		t.Error("another policy has the same strips")
	}
}

func (b *pageView) queues(t *testing.T) {
	const image = `document.querySelector("#shares canvas").toDataURL()`
	for _, mode := range []string{"Stacked", "Lines"} {
		b.JS(`[...document.querySelectorAll("#shares .seg button")].find(e => e.textContent === "` + mode +
			`").click()`)
		b.Settle()
		if b.same(image, func() {
			b.JS(`(s => { s.value = s.value === "2" ? "0" : "2"; s.dispatchEvent(new Event("change")); return 1 })(document.querySelector("#shares select"))`)
		}) {
			t.Errorf("%s: another policy has the same shares", mode)
		}
	}
	b.JS(`[...document.querySelectorAll("#shares .seg button")].find(e => e.textContent === "Each queue").click()`)
	if got := b.JS(`document.querySelectorAll("#shares .panel svg path").length + " " + document.querySelectorAll("#shares .panel svg line").length`); got != "4 2" {
		t.Errorf("panels have %s paths and guarantees, want 4 2", got)
	}
	b.JS(`[...document.querySelectorAll("#shares .seg button")].find(e => e.textContent === "Lines").click()`)
}

func (b *pageView) tables(t *testing.T) {
	b.JS(`document.querySelectorAll("details").forEach(d => { d.open = true })`)
	b.Settle()
	got := b.JS(`[...document.querySelectorAll("details table")].every(t => t.tBodies[0].rows.length > 1) + " " + document.querySelectorAll("details table").length`)
	if got != "true 10" {
		t.Errorf("tables behind the figures: %s, want all of 10 filled", got)
	}
	b.JS(`document.querySelectorAll("details").forEach(d => { d.open = false })`)
}

func (b *pageView) darkens(t *testing.T) {
	const back = `getComputedStyle(document.body).backgroundColor`
	light, image := b.JS(back), b.JS(useImage)
	b.Look(1280, 900, "dark")
	if b.JS(back) == light || b.JS(useImage) == image {
		t.Error("a dark screen changes nothing")
	}
	if got := b.JS(inked); got != "9/9" {
		t.Errorf("dark: canvases drawn %s", got)
	}
	b.Shoot("dark")
	b.Do(chromedp.Click(chromedp.CSS("#theme")))
	b.Settle()
	if b.JS(back) != light {
		t.Error("the button does not bring light back")
	}
	b.Look(1280, 900, "light")
}

func (b *pageView) sizes(t *testing.T) {
	for _, w := range []int64{320, 390, 768, 1600} {
		b.Look(w, 900, "light")
		if got := b.JS(`document.documentElement.scrollWidth`); got != strconv.Itoa(int(w)) {
			t.Errorf("%d wide: the page is %s wide and scrolls sideways", w, got)
		}
		if got := b.JS(inked); got != "9/9" {
			t.Errorf("%d wide: canvases drawn %s", w, got)
		}
		b.Shoot(fmt.Sprintf("wide-%d", w))
	}
}

// TestOddPages tests pages with missing or much data.
func TestOddPages(t *testing.T) {
	b := &pageView{browser.Open(t)}
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
		{"one dated run", []Run{dated}, sums[:1], "9/9"},
		{"twenty", many, figures, "9/9"},
	} {
		b.In(t)
		b.Look(360, 740, "light")
		b.Do(chromedp.Navigate(writePage(t, c.name, c.runs, c.sums)))
		b.Settle()
		if got := b.JS(inked); got != c.want {
			t.Errorf("%s: canvases drawn %s, want %s", c.name, got, c.want)
		}
		if got := b.JS(`document.documentElement.scrollWidth`); got != "360" {
			t.Errorf("%s: the page is %s wide on a phone of 360", c.name, got)
		}
		b.JS(`document.querySelectorAll("details").forEach(d => { d.open = true })`)
		b.Settle()
		b.Shoot("odd-" + strings.ReplaceAll(c.name, " ", "-"))
	}
	b.Clean("file://", "data:")
}

// The page draws links by their load, and has a row for each service under each policy.
func TestLinksAndServices(t *testing.T) {
	var runs []Run
	var sums []Summary
	for i, policy := range []string{"fifo with hpa", "fifo with muster"} {
		r := fixture(policy, func(a, b *cluster.Job) bool { return a.Submit < b.Submit })
		r.Links = []LinkLoad{{Name: "leaf-0 up", Rate: 400e9, Load: 0.75}, {Name: hostile, Rate: 25e9, Load: 0.1}}
		r.Services = []Service{{Service: hostile, Requests: 1234, Attainment: 0.9876, P99: 0.0469,
			GPUHours: float64(4 - i), PerHour: 500, Cost: 2, PerCost: 617}}
		runs, sums = append(runs, r), append(sums, r.Summarise())
	}
	b := &pageView{browser.Open(t)}
	b.Look(1280, 900, "light")
	b.Do(chromedp.Navigate(writePage(t, "links and services", runs, sums)))
	b.Settle()
	for expr, want := range map[string]string{
		`[...document.querySelectorAll("#links tbody tr")].map(r => r.cells[2].textContent).join()`:                                    "75.0 %,10.0 %",
		`document.querySelector("#links .linkbar span").style.width`:                                                                   "75%",
		`[...document.querySelectorAll("#services tbody tr")].map(r => r.cells[1].textContent + r.cells[3].textContent).join()`:        "fifo with hpa98.76 %,fifo with muster98.76 %",
		`[...document.querySelectorAll("#services tbody tr")].map(r => r.cells[9].textContent + " " + r.cells[12].textContent).join()`: "4 617,3 617",
		`document.querySelector("#services tbody th").textContent === document.querySelectorAll("#links tbody th")[1].textContent`:     "true",
		`window.hacked === undefined`: "true",
	} {
		if got := b.JS(expr); got != want {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}

// TestFewFirst: a page of many policies opens with five, gives the reasons, and shows the others
// after a click.
func TestFewFirst(t *testing.T) {
	b := &pageView{browser.Open(t)}
	runs, _ := fixtures()
	var many []Run
	var sums []Summary
	for i := range 12 {
		r := runs[i%3]
		r.Policy = fmt.Sprintf("policy-%d", i)
		if i == 7 {
			r.Policy = "multifactor:age=0"
		}
		if i == 9 {
			r.Policy = "fifo"
		}
		many, sums = append(many, r), append(sums, r.Summarise())
		sums[i].JCT.Mean += float64(i) // so that one is best
	}
	b.Look(360, 740, "light")
	b.Do(chromedp.Navigate(writePage(t, "Many", many, sums)))
	b.Settle()
	const lines = `[...document.querySelectorAll(".picks li")].map(e => e.textContent).join("\n")`
	opens := b.JS(lines)
	for _, want := range []string{"best by job completion time, mean",
		"multifactor:age=0what muster serve runs by default", "fifothe baseline"} {
		if !strings.Contains(opens, want) {
			t.Errorf("%q is missing in the reasons:\n%s", want, opens)
		}
	}
	const shown = `[document.querySelectorAll(".picks li").length, document.querySelectorAll("#summary tbody tr").length, document.querySelectorAll("#policies .chip").length,
		document.querySelectorAll(".glance .bars")[0].querySelectorAll(".n").length].join()`
	if got := b.JS(shown); got != "5,5,5,5" {
		t.Errorf("reasons, rows, chips and bars: %s, want 5 each", got)
	}
	b.Shoot("few-first")
	if b.same(useImage, func() { b.Do(chromedp.Click(chromedp.CSS(".opening button.all"))) }) {
		t.Error("the plots show no more policies than before")
	}
	if got := b.JS(shown); got != "5,12,12,12" {
		t.Errorf("after a click: %s, want all 12", got)
	}
	if got := b.JS(`document.documentElement.scrollWidth`); got != "360" {
		t.Errorf("the page is %s wide on a phone of 360", got)
	}
	b.Do(chromedp.Click(chromedp.CSS("#policies button.all")))
	b.Settle()
	if got := b.JS(shown); got != "5,5,5,5" {
		t.Errorf("after another: %s", got)
	}
	b.Clean("file://", "data:")
}
