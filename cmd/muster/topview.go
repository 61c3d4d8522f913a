//go:build linux

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/plain"
	"github.com/muster-gpu/muster/show"
)

// How muster top looks. What matters is said in words as well as in colour;
// where there are no colours, bold and reversed are left.
var (
	topHead   = lipgloss.NewStyle().Bold(true)
	topChosen = lipgloss.NewStyle().Reverse(true)
	topFaint  = lipgloss.NewStyle().Faint(true)
	topBad    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	topGood   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	topWait   = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
)

// topSmallest is the smallest terminal that it works on.
const (
	topColumns = 80
	topRows    = 24
)

// View draws all of it.
func (m *topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen, v.WindowTitle = true, "muster top"
	return v
}

// lines are exactly as many as the terminal has, none wider than it.
func (m *topModel) lines() []string {
	if m.width < topColumns || m.height < topRows {
		return []string{fmt.Sprintf("muster top needs %d columns and %d rows; here are %d and %d (q leaves)",
			topColumns, topRows, m.width, m.height)}
	}
	lines := []string{m.summary()}
	if text := show.LeftText(m.nodes); text != "" {
		lines = append(lines, "            "+text)
	}
	lines = append(append(lines, m.gpuLines()...), "")
	room := m.height - len(lines) - 1
	if m.detail != nil {
		lines = append(lines, m.detailLines(room)...)
	} else {
		lines = append(lines, m.jobLines(room)...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:m.height-1], m.footer())
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "…")
	}
	return lines
}

func (m *topModel) summary() string {
	var total, busy, bad, running, waiting int
	simulated := ""
	for _, n := range m.nodes {
		for _, g := range n.GPUs {
			total++
			if len(g.Jobs) > 0 {
				busy++
			}
			if !g.Healthy {
				bad++
			}
			if g.Simulated {
				simulated = " (simulated)"
			}
		}
	}
	for i := range m.all {
		if m.all[i].State == api.StatePending {
			waiting++
		} else {
			running++
		}
	}
	text := fmt.Sprintf("%d GPUs%s: %d in use, %d free  %d jobs run, %d wait", total, simulated, busy, total-busy,
		running, waiting)
	if bad > 0 {
		text += "  " + topBad.Render(fmt.Sprintf("%d bad", bad))
	}
	return topHead.Render("muster top") + "  " + text
}

// gpuLines show a line per GPU, those that there is room for.
func (m *topModel) gpuLines() []string {
	if len(m.nodes) > 1 {
		return m.nodeLines()
	}
	lines := []string{topHead.Render(pad("GPU", 4) + pad("MODEL", 16) + pad("HELD", 17) + pad("USED", 6) +
		pad("MEMORY", 16) + pad("POWER", 6) + pad("TEMP", 5) + "JOBS")}
	most, more := max(4, m.height/3), 0
	for _, n := range m.nodes {
		for i := range n.GPUs {
			if len(lines) > most {
				more++
				continue
			}
			lines = append(lines, gpuLine(&n.GPUs[i]))
		}
		if n.State != "up" {
			lines[0] = topHead.Render(pad("GPU", 4)+pad("MODEL", 16)) +
				topWait.Render("the node is "+n.State+": "+plain.Text(n.Reason))
		}
	}
	if more > 0 {
		lines = append(lines, topFaint.Render(fmt.Sprintf("... and %d more (muster nodes)", more)))
	}
	return lines
}

// nodeLines show a line per node of a cluster, those that there is room for, those
// with something wrong first.
func (m *topModel) nodeLines() []string {
	lines := []string{topHead.Render(pad("NODE", 25) + pad("MODEL", 16) + pad("GPUS", 5) + pad("FREE", 5) +
		pad("STATE", 9) + "JOBS")}
	order := slices.Clone(m.nodes)
	slices.SortStableFunc(order, func(a, b api.Node) int { return nodeRank(&a) - nodeRank(&b) })
	most := min(max(4, m.height/3), len(order))
	for i := range order[:most] {
		n := &order[i]
		sum := show.SumOf(n)
		line := pad(plain.Text(n.Name), 25) + pad(plain.Text(sum.Model), 16) + pad(strconv.Itoa(len(n.GPUs)), 5) +
			pad(fmt.Sprintf("%g", float64(sum.Free)/1000), 5) + pad(n.State, 9) + strings.Join(jobTexts(sum.Jobs), ",")
		if n.State != "up" {
			line = topWait.Render(line + "  " + plain.Text(n.Reason))
		}
		lines = append(lines, line)
	}
	if more := len(order) - most; more > 0 {
		lines = append(lines, topFaint.Render(fmt.Sprintf("... and %d more (muster nodes)", more)))
	}
	return lines
}

func nodeRank(n *api.Node) int {
	switch {
	case n.State != "up":
		return 0
	case len(n.GPUs) > 0:
		return 1
	}
	return 2
}

func gpuLine(g *api.GPU) string {
	held := int(cluster.Whole-g.Free) / 10
	bar := strings.Repeat("#", held/10) + strings.Repeat(".", 10-held/10)
	used, memory, power, heat := "-", fmt.Sprintf("- / %.0f GiB", float64(g.Memory)/1024), "-", "-"
	if g.Utilisation != nil {
		used = fmt.Sprintf("%.0f%%", *g.Utilisation)
	}
	if g.MemoryUsed != nil {
		memory = fmt.Sprintf("%.1f / %.0f GiB", float64(*g.MemoryUsed)/1024, float64(g.Memory)/1024)
	}
	if g.Power != nil {
		power = fmt.Sprintf("%.0f W", *g.Power)
	}
	if g.Temperature != nil {
		heat = fmt.Sprintf("%.0f C", *g.Temperature)
	}
	var jobs []string
	for _, id := range g.Jobs {
		jobs = append(jobs, strconv.Itoa(id))
	}
	line := pad(strconv.Itoa(g.Index), 4) + pad(g.Model, 16) + pad(fmt.Sprintf("%s %3d%%", bar, held), 17) +
		pad(used, 6) + pad(memory, 16) +
		pad(power, 6) + pad(heat, 5) + strings.Join(jobs, ",")
	if !g.Healthy {
		line += " " + topBad.Render(strings.TrimSuffix("unhealthy: "+plain.Text(g.Fault), ": "))
	}
	return line
}

// jobLines show the jobs around the one that is chosen.
func (m *topModel) jobLines(room int) []string {
	head := pad("JOB", 6) + pad("NAME", 14) + pad("USER", 9) + pad("QUEUE", 9) + pad("GPUS", 5) + pad("STATE", 10) +
		pad("TIME", 8) + "WHERE OR WHY"
	mark := "sorted by " + topSorts[m.sort]
	if m.down {
		mark += ", backwards"
	}
	if f := m.filter.Value(); f != "" {
		mark += fmt.Sprintf(", %d of %d match %q", len(m.jobs), len(m.all), f)
	}
	lines := []string{topFaint.Render(mark), topHead.Render(head)}
	if room -= len(lines); room < 1 {
		return lines
	}
	if len(m.jobs) == 0 {
		return append(lines, "no jobs")
	}
	m.first = max(0, min(m.first, len(m.jobs)-room))
	if m.at < m.first {
		m.first = m.at
	} else if m.at >= m.first+room {
		m.first = m.at - room + 1
	}
	for i := m.first; i < min(m.first+room, len(m.jobs)); i++ {
		lines = append(lines, m.jobLine(i))
	}
	return lines
}

func (m *topModel) jobLine(i int) string {
	j := &m.jobs[i]
	state := pad(j.State, 10)
	before := pad(strconv.Itoa(j.ID), 6) + pad(j.Submission.Name, 14) + pad(j.User, 9) + pad(j.Submission.Queue, 9) +
		pad(gpuCount(j), 5)
	after := pad(spanText(span(j)), 8) + plain.Text(topWhere(j))
	if i == m.at {
		return topChosen.Render(pad(before+state+after, m.width))
	}
	switch j.State {
	case api.StateRunning:
		state = topGood.Render(state)
	case api.StatePending:
		state = topWait.Render(state)
	case api.StateStopping:
		state = topBad.Render(state)
	}
	return before + state + after
}

// topWhere is where a job runs and how far it is, or why it waits.
func topWhere(j *api.Job) string {
	text := where(j)
	if p := j.Progress; p != nil && p.Steps > 0 && j.State != api.StatePending {
		text += fmt.Sprintf("  %.0f%% of %g steps", 100*min(1, p.Step/p.Steps), p.Steps)
	}
	return text
}

// idleText says what becomes of a job that does not use its GPUs; "": it does.
func idleText(j *api.Job) string {
	if j.Idle == nil {
		return ""
	}
	return j.Idle.Text
}

func (m *topModel) detailLines(room int) []string {
	j := &m.detail.Job
	s := &j.Submission
	command := strings.Join(s.Command, " ")
	if s.Script != "" {
		command = s.ScriptName
	}
	lines := []string{topHead.Render(fmt.Sprintf("job %d: %s", j.ID, plain.Text(s.Name)))}
	for _, f := range [][2]string{{"user", j.User}, {"queue", s.Queue}, {"state", j.State}, {"where", topWhere(j)},
		{"gpus", gpuCount(j)},
		{"tasks", strconv.Itoa(max(1, s.Tasks))}, {"command", command}, {"submitted", instant(&j.Submitted)},
		{"started", instant(j.Started)},
		{"waited", spanText(j.Waited)}, {"ran", spanText(j.Ran)}, {"limit", limitText(s.Limit)},
		{"restarts", strconv.Itoa(j.Restarts)},
		{"output", j.StdOut}, {"expected", expectedText(j)}, {"ends", instant(j.ExpectedEnd)}, {"idle", idleText(j)},
		{"saves", j.SavesNothing}} {
		if f[1] != "" {
			lines = append(lines, pad(f[0], 12)+plain.Text(f[1]))
		}
	}
	for _, list := range [][]string{m.detail.Blockers, m.detail.Holders, m.detail.Changes} {
		for _, t := range list {
			lines = append(lines, "  "+plain.Text(t))
		}
	}
	return lines[:min(len(lines), room)]
}

// footer is the last line: a question, the filter, what was said, or the keys.
func (m *topModel) footer() string {
	switch {
	case m.ask != nil:
		return topChosen.Render(
			fmt.Sprintf("%s job %d (%s)? y: yes, any other key: no", m.ask.verb, m.ask.id, m.ask.name))
	case m.typing:
		return m.filter.View()
	case m.lost != nil:
		return topBad.Render("no news: " + plain.Text(m.lost.Error()))
	case m.note != "":
		return plain.Text(m.note)
	case m.detail != nil:
		return topFaint.Render("Enter, Esc back  c cancel  h hold  r release  q leave")
	}
	return topFaint.Render("Enter details  s S sort  / filter  c cancel  h hold  r release  q leave")
}

// pad makes a text as wide as its column, with a space at its end.
func pad(s string, n int) string {
	s = ansi.Truncate(plain.Text(s), n-1, "…")
	return s + strings.Repeat(" ", max(0, n-ansi.StringWidth(s)))
}
