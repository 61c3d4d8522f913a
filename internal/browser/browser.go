// Package browser drives a real browser in tests: it opens pages, reads them as a person would, and keeps their
// errors and warnings.
package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
)

// chromium lists the programs that can be the browser, best first: the one that has no windows takes half the
// processor time.
var chromium = []string{"/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium"}

// program is the first of them that is installed; "": none is.
func program() string {
	for _, path := range chromium {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// Browser is a page with storage and cookies of its own, of the one browser that the tests of a program share. To start
// a browser takes longer than most tests need it, and to open a page takes as long as to load it five times, so a test
// has the page of one that is over.
type Browser struct {
	t    *testing.T
	page context.Context // as long as the page
	ctx  context.Context // as long as the test
	stop func()          // closes the page
	mu   sync.Mutex
	bad  []string
	asks []string
}

// places are for as many tests as have a page at once; the others wait.
var places = make(chan struct{}, 4)

// left are the pages of tests that are over.
var left struct {
	sync.Mutex
	pages []*Browser
}

// end ends the browser, if it was started.
var end = func() {}

// Close ends the browser, if there is one. TestMain calls it after the tests.
func Close() { end() }

// running is the browser, which starts when it is asked for first.
var running = sync.OnceValues(func() (context.Context, error) {
	dir, err := os.MkdirTemp("", "muster-browser")
	if err != nil {
		return nil, err
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program()),
		chromedp.UserDataDir(dir), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.NoFirstRun, chromedp.WindowSize(1280, 900),
		// No processes but those that pages need: none kept for the next page, or for the one before.
		chromedp.Flag("disable-features",
			"Translate,BackForwardCache,MediaRouter,OptimizationHints,SpareRendererForSitePerProcess"),
		chromedp.Flag("disable-site-isolation-trials", true), chromedp.Flag("renderer-process-limit", "1"))
	allocator, release := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, stop := chromedp.NewContext(allocator)
	end = func() {
		stop()
		release()
		_ = os.RemoveAll(dir)
	}
	return ctx, chromedp.Do(ctx) // it lives as long as the context of the first call
})

// Open gives a test a page until it ends.
func Open(t *testing.T) *Browser {
	t.Helper()
	if program() == "" {
		const none = "Chromium is not installed; scripts/install-test-deps.sh installs it"
		if os.Getenv("CI") == "true" {
			t.Fatal(none)
		}
		t.Skip("SKIP-BROWSER: " + none)
	}
	places <- struct{}{}
	t.Cleanup(func() { <-places })
	b := fromLeft()
	if b == nil {
		b = open(t)
	}
	b.t = t
	t.Cleanup(func() { b.leave(t.Failed()) })
	ctx, stop := context.WithTimeout(b.page, 10*time.Minute)
	t.Cleanup(stop)
	b.ctx = ctx
	return b
}

// open opens a page.
func open(t *testing.T) *Browser {
	t.Helper()
	ctx, err := running()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := chromedp.NewContext(ctx, chromedp.WithNewBrowserContext())
	b := &Browser{t: t, page: ctx, ctx: ctx, stop: stop}
	b.Do() // the page lives as long as the context of the first call
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		t.Fatal(err)
	}
	tell(b, network.Enable, network.EnableParams{})
	tell(b, log.Enable, cdp.Empty{})
	return b
}

// fromLeft takes a page of a test that is over; nil: there is none.
func fromLeft() *Browser {
	left.Lock()
	defer left.Unlock()
	n := len(left.pages)
	if n == 0 {
		return nil
	}
	b := left.pages[n-1]
	left.pages = left.pages[:n-1]
	return b
}

// leave ends what a test does with its page, and keeps the page for another test, unless the test has failed: what is
// on its page is not known.
func (b *Browser) leave(failed bool) {
	if failed || b.forget() != nil {
		b.stop()
		return
	}
	left.Lock()
	defer left.Unlock()
	left.pages = append(left.pages, b)
}

// forget makes a page as good as new.
func (b *Browser) forget() error {
	const choices = `try { localStorage.clear(); sessionStorage.clear() } catch {}`
	if _, err := chromedp.Run(b.page, chromedp.Evaluate[any](choices)); err != nil {
		return err
	}
	if err := chromedp.Do(b.page, chromedp.Navigate("about:blank")); err != nil {
		return err
	}
	if _, err := chromedp.Call(b.page, network.ClearBrowserCookies, cdp.Empty{}); err != nil {
		return err
	}
	if _, err := chromedp.Call(b.page, emulation.ClearDeviceMetricsOverride, cdp.Empty{}); err != nil {
		return err
	}
	_, err := chromedp.Call(b.page, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad, b.asks = nil, nil
	return err
}

// tell sends a command of the protocol.
func tell[P any](b *Browser, c cdp.Command[P, cdp.Empty], p P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, c, p); err != nil {
		b.t.Fatal(err)
	}
}

func (b *Browser) heard(ev any) {
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
		b.bad = append(b.bad, e.Entry.Text+" "+e.Entry.URL)
	case *network.EventRequestWillBeSent:
		b.asks = append(b.asks, e.Request.URL)
	}
}

// Do carries out actions.
func (b *Browser) Do(a ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, a...); err != nil {
		b.t.Fatal(err)
	}
}

// JS evaluates an expression to a string.
func (b *Browser) JS(expr string) string {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expr+")"))
	if err != nil {
		b.t.Fatalf("%v in %s", err, expr)
	}
	return out
}

// Await waits until an expression is true, at most two minutes, as a busy machine may take.
func (b *Browser) Await(what, expr string) {
	b.t.Helper()
	for range 1200 {
		out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String(!!("+expr+"))"))
		if err == nil && out == "true" {
			return
		}
		if err != nil && !strings.Contains(err.Error(), "Inspected target navigated") { // else it is loading
			b.t.Fatalf("%v in %s", err, expr)
		}
		b.Do(chromedp.Sleep(100 * time.Millisecond))
	}
	b.t.Fatalf("%s: %s does not become true; the page reads\n%s", what, expr, b.JS("document.body.innerText"))
}

// Settle lets animation frames and observers pass.
func (b *Browser) Settle() { b.Do(chromedp.Sleep(250 * time.Millisecond)) }

// Look sets the size of the window and the system's light or dark scheme.
func (b *Browser) Look(width, height int64, scheme string) {
	b.t.Helper()
	tell(b, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1,
			Mobile: width < 500})
	tell(b, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.Settle()
}

// Shoot saves a screenshot in the folder that MUSTER_SCREENSHOTS names.
func (b *Browser) Shoot(name string) {
	b.t.Helper()
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

// In reports failures to a sub-test.
func (b *Browser) In(t *testing.T) { b.t = t }

// Forgive discards the errors so far, which the test has caused on purpose.
func (b *Browser) Forgive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad = nil
}

// Clean fails if the page reported errors, or sent requests to addresses that do not begin with one of the given
// texts.
func (b *Browser) Clean(own ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.bad {
		b.t.Errorf("the page complains: %s", s)
	}
asks:
	for _, u := range b.asks {
		for _, o := range own {
			if strings.HasPrefix(u, o) {
				continue asks
			}
		}
		b.t.Errorf("the page asks for %s", u)
	}
	b.bad, b.asks = nil, nil
}
