//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/internal/plain"
)

func newTop() *cobra.Command {
	return &cobra.Command{
		Annotations: onCluster,
		Use:         "top", Short: "Watch GPUs and jobs on the whole terminal", Args: cobra.NoArgs,
		Long: "Shows the GPUs and the jobs that run and wait, as they change.\n\n" +
			"Up and down (or j and k) choose a job, Enter shows all about it. s sorts by the next column, S the other way\n" +
			"round; / filters by number, name, user, queue or state, Esc shows all again. c cancels the chosen job, h holds it,\n" +
			"r releases it, each after y; q leaves. NO_COLOR turns the colours off.",
		RunE: func(c *cobra.Command, _ []string) error {
			if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
				return usage(errors.New(
					"muster top needs a terminal; muster nodes and muster queue print the same once"))
			}
			ctx, cancel := context.WithCancel(c.Context())
			defer cancel()
			cl := client.Connect()
			if _, err := cl.Nodes(ctx); err != nil {
				return err
			}
			p := tea.NewProgram(newTopModel(&daemonTop{ctx, cl}), tea.WithContext(ctx))
			// the next fetch says why there are none
			go func() { _ = cl.Changes(ctx, func() { p.Send(topChanged{}) }) }()
			_, err := p.Run()
			if errors.Is(err, tea.ErrInterrupted) || errors.Is(err, tea.ErrProgramKilled) && c.Context().Err() != nil {
				return nil
			}
			return err
		},
	}
}

// topSource is where muster top fetches what it shows, and what it acts on.
type topSource interface {
	fetch() (nodes []api.Node, jobs []api.Job, err error)
	why(id int) (api.Why, error)
	act(id int, verb string) error
}

type daemonTop struct {
	ctx context.Context
	cl  *client.Client
}

func (d *daemonTop) fetch() ([]api.Node, []api.Job, error) {
	nodes, err := d.cl.Nodes(d.ctx)
	if err != nil {
		return nil, nil, err
	}
	jobs, err := d.cl.List(d.ctx, url.Values{"state": {"active"}, "brief": {"true"}})
	return nodes, jobs, err
}

func (d *daemonTop) why(id int) (api.Why, error) { return d.cl.Why(d.ctx, id) }

func (d *daemonTop) act(id int, verb string) error {
	_, err := d.cl.Act(d.ctx, id, verb)
	return err
}

// How often it fetches: at once when something changed, but not more often than
// the one, and for what is only measured not less often than the other.
// After a fetch that took long, of ten thousand jobs, say, it rests longer: so
// many times what the fetch took.
const (
	topSoonest = 200 * time.Millisecond
	topLatest  = 2 * time.Second
	topShare   = 9
)

// What happens to muster top, besides keys.
type (
	topChanged struct{} // the daemon says so
	topTick    struct{} // time for a fetch anyway
	topRested  struct{} // long enough since the last fetch
	topLooked  struct {
		nodes []api.Node
		jobs  []api.Job
		took  time.Duration
		err   error
	}
	topWhy struct {
		why api.Why
		err error
	}
	topActed struct {
		text string
		err  error
	}
)

// topModel is what muster top shows.
type topModel struct {
	src            topSource
	nodes          []api.Node
	all, jobs      []api.Job // all of them; those that are shown, in order
	width, height  int
	id, at, first  int // the job chosen, its row, the first row shown
	sort           int
	down           bool
	filter         textinput.Model
	typing         bool
	fetching, late bool // a fetch is under way, or just was; something changed since
	detail         *api.Why
	ask            *topAsk
	note           string
	lost           error // the last fetch failed
}

// topAsk is a question that waits for y.
type topAsk struct {
	verb, name string
	id         int
}

// topSorts are the columns to sort by, in turn.
var topSorts = []string{"job", "name", "user", "queue", "gpus", "state", "time"}

func newTopModel(src topSource) *topModel {
	f := textinput.New()
	f.Prompt = "filter: "
	return &topModel{src: src, width: 80, height: 24, filter: f, fetching: true}
}

// Init fetches for the first time.
func (m *topModel) Init() tea.Cmd { return tea.Batch(m.fetch, m.tick()) }

func (m *topModel) fetch() tea.Msg {
	took := wallClock()
	nodes, jobs, err := m.src.fetch()
	return topLooked{nodes, jobs, took(), err}
}

func (m *topModel) tick() tea.Cmd {
	return tea.Tick(topLatest, func(time.Time) tea.Msg { return topTick{} })
}

// Update takes in what happened.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case topTick:
		return m, tea.Batch(m.again(), m.tick())
	case topChanged:
		return m, m.again()
	case topLooked:
		if m.lost = msg.err; msg.err == nil {
			m.nodes, m.all = msg.nodes, msg.jobs
			m.arrange()
		}
		return m, tea.Tick(max(topSoonest, topShare*msg.took), func(time.Time) tea.Msg { return topRested{} })
	case topRested:
		if m.fetching = false; m.late {
			m.late = false
			return m, m.again()
		}
	case topWhy:
		if m.detail != nil {
			if msg.err != nil {
				m.detail, m.note = nil, msg.err.Error()
			} else {
				m.detail = &msg.why
			}
		}
	case topActed:
		if m.note = msg.text; msg.err != nil {
			m.note = msg.err.Error()
		}
		return m, m.again()
	}
	return m, nil
}

// again fetches once more, or as soon as that is due.
func (m *topModel) again() tea.Cmd {
	if m.fetching {
		m.late = true
		return nil
	}
	m.fetching = true
	if m.detail != nil {
		return tea.Batch(m.fetch, m.askWhy(m.detail.Job.ID))
	}
	return m.fetch
}

func (m *topModel) askWhy(id int) tea.Cmd {
	return func() tea.Msg {
		w, err := m.src.why(id)
		return topWhy{w, err}
	}
}

// key obeys a key.
func (m *topModel) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case m.ask != nil:
		ask := m.ask
		m.ask, m.note = nil, ""
		if name != "y" {
			return nil
		}
		return func() tea.Msg {
			return topActed{fmt.Sprintf("job %d: %s", ask.id, ask.verb), m.src.act(ask.id, ask.verb)}
		}
	case m.typing:
		return m.typeFilter(k)
	}
	m.note = ""
	switch name {
	case "q":
		return tea.Quit
	case "esc":
		if m.detail == nil {
			m.filter.SetValue("")
			m.arrange()
		}
		m.detail = nil
	case "enter":
		if j := m.chosen(); j != nil && m.detail == nil {
			m.detail = &api.Why{Job: *j}
			return m.askWhy(j.ID)
		}
		m.detail = nil
	case "/":
		m.detail, m.typing = nil, true
		return m.filter.Focus()
	case "s":
		m.sort = (m.sort + 1) % len(topSorts)
		m.arrange()
	case "S":
		m.down = !m.down
		m.arrange()
	case "c", "h", "r":
		if j := m.chosen(); j != nil {
			m.ask = &topAsk{map[string]string{"c": "cancel", "h": "hold", "r": "release"}[name],
				plain.Text(j.Submission.Name), j.ID}
		}
	default:
		m.move(name)
	}
	return nil
}

func (m *topModel) typeFilter(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "enter":
		m.typing = false
		m.filter.Blur()
		return nil
	case "esc":
		m.typing = false
		m.filter.Blur()
		m.filter.SetValue("")
		m.arrange()
		return nil
	}
	var cmd tea.Cmd
	m.filter, cmd = m.filter.Update(k)
	m.arrange()
	return cmd
}

// move chooses another job.
func (m *topModel) move(key string) {
	step, ok := map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -10, "pgdown": 10, "home": -1 << 30,
		"end": 1 << 30, "g": -1 << 30, "G": 1 << 30}[key]
	if !ok || len(m.jobs) == 0 || m.detail != nil {
		return
	}
	m.at = min(max(0, m.at+step), len(m.jobs)-1)
	m.id = m.jobs[m.at].ID
}

func (m *topModel) chosen() *api.Job {
	if m.at >= len(m.jobs) {
		return nil
	}
	return &m.jobs[m.at]
}

// arrange filters and sorts; the same job stays chosen where it can.
func (m *topModel) arrange() {
	m.jobs = m.jobs[:0:0]
	want := strings.ToLower(strings.TrimSpace(m.filter.Value()))
	for i := range m.all {
		if j := &m.all[i]; want == "" ||
			strings.Contains(strings.ToLower(
				strings.Join([]string{strconv.Itoa(j.ID), j.Submission.Name, j.User, j.Submission.Queue, j.State},
					"\n")), want) {
			m.jobs = append(m.jobs, *j)
		}
	}
	if cols, err := chosen(topSorts[m.sort]); err == nil { // they are all known
		orderJobs(m.jobs, func(a, b *api.Job) int {
			n := cols[0].compare(a, b)
			if m.down {
				n = -n
			}
			return cmp.Or(n, a.ID-b.ID)
		})
	}
	if i := slices.IndexFunc(m.jobs, func(j api.Job) bool { return j.ID == m.id }); i >= 0 {
		m.at = i
	} else if m.at = max(0, min(m.at, len(m.jobs)-1)); len(m.jobs) > 0 {
		m.id = m.jobs[m.at].ID
	}
}
