//go:build linux

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/muster-gpu/muster/api"
)

// fakeTop is a daemon with a world of its own.
type fakeTop struct {
	nodes []api.Node
	jobs  []api.Job
	acts  []string
	err   error
}

func (f *fakeTop) fetch() ([]api.Node, []api.Job, error) { return f.nodes, f.jobs, f.err }

func (f *fakeTop) why(id int) (api.Why, error) {
	for _, j := range f.jobs {
		if j.ID == id {
			return api.Why{Job: j, Blockers: []string{"needs 9 GPUs"}}, nil
		}
	}
	return api.Why{}, errors.New("no such job")
}

func (f *fakeTop) act(id int, verb string) error {
	f.acts = append(f.acts, fmt.Sprint(verb, id))
	return f.err
}

func someTop() *fakeTop {
	f := &fakeTop{nodes: []api.Node{{Name: "here", State: "up"}}}
	for i := range 8 {
		f.nodes[0].GPUs = append(f.nodes[0].GPUs,
			api.GPU{Index: i, Model: "H100-80GB", Memory: 81920, Healthy: true, Free: 1000, Simulated: true})
	}
	f.nodes[0].GPUs[0].Free, f.nodes[0].GPUs[0].Jobs = 0, []int{1}
	f.nodes[0].GPUs[7].Healthy, f.nodes[0].GPUs[7].Fault = false, "fell off the bus"
	for i := 1; i <= 40; i++ {
		j := api.Job{ID: i, User: "ann", State: api.StatePending, Reason: "needs 9 GPUs",
			Submission: api.Submission{Name: fmt.Sprintf("job-%d", i), GPUs: i % 9}}
		if i == 1 {
			j.State, j.Devices, j.Progress = api.StateRunning, []api.Device{{Index: 0}},
				&api.Progress{Step: 50, Steps: 200}
		}
		if i == 2 {
			j.User, j.Submission.Name = "bob", "evil\x1b[2J\n"
		}
		f.jobs = append(f.jobs, j)
	}
	return f
}

// press sends keys, and what follows at once from them.
func press(t *testing.T, m *topModel, keys ...string) {
	t.Helper()
	for _, k := range keys {
		msg := tea.KeyPressMsg{Text: k, Code: []rune(k)[0]}
		switch k {
		case "enter":
			msg = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			msg = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "down":
			msg = tea.KeyPressMsg{Code: tea.KeyDown}
		case "end":
			msg = tea.KeyPressMsg{Code: tea.KeyEnd}
		}
		_, cmd := m.Update(msg)
		if cmd == nil {
			continue
		}
		switch next := cmd().(type) {
		case topWhy, topActed:
			m.Update(next)
		}
	}
}

func shownTop(t *testing.T, m *topModel) string {
	t.Helper()
	lines := m.lines()
	if len(lines) != m.height {
		t.Errorf("%d lines on a terminal of %d", len(lines), m.height)
	}
	for _, l := range lines {
		if w := ansi.StringWidth(l); w > m.width {
			t.Errorf("%d columns on a terminal of %d: %q", w, m.width, l)
		}
	}
	return ansi.Strip(m.View().Content)
}

func TestTopFitsAndTells(t *testing.T) {
	src := someTop()
	m := newTopModel(src)
	for _, size := range [][2]int{{80, 24}, {81, 25}, {132, 50}, {300, 100}} {
		m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		m.Update(m.fetch())
		text := shownTop(t, m)
		for _, want := range []string{"8 GPUs (simulated): 1 in use, 7 free", "1 jobs run, 39 wait", "1 bad",
			"########## 100%", "GPU 0", "25% of 200", "fell off the bus", "q leave"} {
			if !strings.Contains(text, want) &&
				!(size[0] < 100 && (want == "25% of 200" || want == "fell off the bus")) {
				t.Errorf("%dx%d: %q is missing in\n%s", size[0], size[1], want, text)
			}
		}
		if strings.Contains(m.View().Content, "\x1b[2J") || !strings.Contains(text, `evil\x1b[2J\n`) {
			t.Errorf("a job's name moves the terminal:\n%q", text)
		}
	}
	m.Update(tea.WindowSizeMsg{Width: 60, Height: 20})
	if text := m.View().Content; !strings.Contains(text, "needs 80 columns and 24 rows; here are 60 and 20") {
		t.Errorf("too small a terminal is told %q", text)
	}
}

// What is free and of use is said as muster nodes says it; nothing where it is not known.
func TestTopLeft(t *testing.T) {
	f, usable := someTop(), int64(2500)
	m := newTopModel(f)
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	m.Update(m.fetch())
	if text := shownTop(t, m); strings.Contains(text, "usable") {
		t.Errorf("it is not known what is usable:\n%s", text)
	}
	f.nodes[0].Usable = &usable
	m.Update(m.fetch())
	if text := shownTop(t, m); !strings.Contains(text, "6 GPUs free, 2.5 usable by the tasks submitted last\n") {
		t.Errorf("what is usable is missing in\n%s", text)
	}
}

// Of a cluster, a line stands for a node; those on which nothing starts come first.
func TestTopNodes(t *testing.T) {
	f := someTop()
	f.nodes = append(f.nodes,
		api.Node{Name: "there", State: "draining", Reason: "cordoned",
			GPUs: []api.GPU{{Model: "H100-80GB", Healthy: true, Jobs: []int{7}}}})
	m := newTopModel(f)
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 24})
	m.Update(topLooked{nodes: f.nodes, jobs: f.jobs})
	text := ansi.Strip(strings.Join(m.lines(), "\n"))
	there, here := strings.Index(text, "there"),
		strings.Index(text, "here                     H100-80GB       8    7    up       1")
	if there < 0 || here < there || !strings.Contains(text, "draining 7  cordoned") {
		t.Errorf("it shows\n%s", text)
	}
}

func TestTopKeys(t *testing.T) {
	src := someTop()
	m := newTopModel(src)
	m.Update(m.fetch())
	press(t, m, "down", "enter")
	if text := shownTop(t, m); !strings.Contains(text, "job 2: evil") || !strings.Contains(text, "needs 9 GPUs") {
		t.Errorf("the details of job 2 are\n%s", text)
	}
	press(t, m, "esc", "c")
	if text := shownTop(t, m); !strings.Contains(text, "cancel job 2") {
		t.Errorf("nobody asks:\n%s", text)
	}
	press(t, m, "n", "c", "y", "h", "y")
	if got := strings.Join(src.acts, " "); got != "cancel2 hold2" {
		t.Errorf("done: %q", got)
	}
	press(t, m, "end")
	if text := shownTop(t, m); !strings.Contains(text, "job-40") {
		t.Errorf("the last job is not shown:\n%s", text)
	}
	src.jobs = src.jobs[:39] // job 40 ends: the last one there is becomes the chosen one
	m.Update(m.fetch())
	if j := m.chosen(); j == nil || j.ID != 39 {
		t.Errorf("chosen: %v", j)
	}
	press(t, m, "/", "b", "o", "b", "enter")
	if len(m.jobs) != 1 || m.chosen().ID != 2 {
		t.Errorf("the filter leaves %d jobs", len(m.jobs))
	}
	press(t, m, "esc", "s", "s", "s", "s", "S") // by GPUs, the most first
	if m.jobs[0].Submission.GPUs != 8 || m.chosen().ID != 2 {
		t.Errorf("sorted by GPUs: first job %d with %d, chosen %d", m.jobs[0].ID, m.jobs[0].Submission.GPUs,
			m.chosen().ID)
	}
	src.err = errors.New("no daemon")
	m.Update(m.fetch())
	if text := shownTop(t, m); !strings.Contains(text, "no news: no daemon") || !strings.Contains(text, "evil") {
		t.Errorf("without a daemon:\n%s", text)
	}
	if _, cmd := m.Update(tea.KeyPressMsg{Text: "q", Code: 'q'}); cmd == nil {
		t.Error("q does not leave")
	}
}

// A burst of changes makes one fetch now and one later, not one each.
func TestTopLooksOnce(t *testing.T) {
	m := newTopModel(someTop())
	m.Update(m.fetch())
	m.Update(topRested{})
	fetches := 0
	for range 100 {
		if _, cmd := m.Update(topChanged{}); cmd != nil {
			fetches++
		}
	}
	m.Update(m.fetch())
	if _, cmd := m.Update(topRested{}); cmd != nil {
		fetches++
	}
	if fetches != 2 {
		t.Errorf("100 changes made %d fetches, not 2", fetches)
	}
}

var coloured = regexp.MustCompile(`\x1b\[[0-9;]*[34][0-7]m`)

// The real program on a real terminal, with a real daemon.
func TestTopOnTerminal(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "2xH100-80GB")
	d.env = []string{"NO_COLOR=1"}
	s := d.sit("top")
	s.see("2 GPUs (simulated): 0 in use, 2 free")
	d.must("submit", "--gpus", "1", "--name", "at-once", "--", "sleep", "1000")
	s.see("at-once")
	s.see("running")
	s.write("c")
	s.see("cancel job 1 (at-once)?")
	s.write("y")
	d.eventually("the cancellation", func() bool {
		return strings.Contains(d.must("show", "1"), `"state": "cancelled"`)
	})
	d.kill()
	s.see("no news")
	d.start()
	d.must("submit", "--gpus", "1", "--name", "later-on", "--", "sleep", "1000")
	s.see("later-on")
	s.write("q")
	if code := s.leaves(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if c := coloured.FindString(s.text.String()); c != "" {
		t.Errorf("coloured with NO_COLOR: %q", c)
	}
	s.see("\x1b[?1049l") // it left the other screen
	out, code := d.try("top")
	if code != exitUsage {
		t.Errorf("without a terminal: exit code %d", code)
	}
	d.want(out, "needs a terminal", "muster queue")
}
