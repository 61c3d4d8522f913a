package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

// sinfo's formats, verbatim.
const (
	sinfoDefault  = "%#P %.5a %.10l %.6D %.6t %N"
	sinfoLong     = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
	sinfoNodes    = "%#N %.6D %.#P %6t"
	sinfoNodeLong = "%#N %.6D %.#P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
	sinfoSummary  = "%#P %.5a %.10l %.16F %N"
	sinfoReasons  = "%20E %9u %19H %N"
	sinfoWhyLong  = "%20E %12U %19H %6t %N"
)

var sinfoOptions = []option{
	{name: "all", short: 'a'},
	{name: "exact", short: 'e'},
	{name: "format", short: 'o', arg: needs},
	{name: "Format", short: 'O', arg: needs},
	{name: "help"},
	{name: "hide"},
	{name: "iterate", short: 'i', arg: needs, use: refused, note: "watch -n SECONDS sinfo does it"},
	{name: "json"},
	{name: "list-reasons", short: 'R'},
	{name: "long", short: 'l'},
	{name: "Node", short: 'N'},
	{name: "nodes", short: 'n', arg: needs},
	{name: "noheader", short: 'h'},
	{name: "partition", short: 'p', arg: needs},
	{name: "sort", short: 'S', arg: needs, use: warned,
		note: "the order is that of the partitions; sort(1) knows others"},
	{name: "states", short: 't', arg: needs},
	{name: "summarize", short: 's'},
	{name: "usage"},
	{name: "verbose", short: 'v'},
	{name: "version", short: 'V'},
	{name: "yaml", use: refused, note: "--json says the same"},
}

// nodeState is a node's state in Slurm's terms, with its use.
type nodeState struct {
	api.Node
	state, short string
	cpus         int64
	ram          cluster.MiB
	reason       string
}

// nodeRow is a line of sinfo: nodes of one partition in one state.
type nodeRow struct {
	part  *api.Partition
	nodes []*nodeState
}

// describe computes what is in use on a node.
func (v *view) describe(n api.Node) *nodeState {
	s := &nodeState{Node: n, state: "idle", short: "idle", reason: "none"}
	busy := 0
	for _, g := range n.GPUs {
		if g.Free < 1000 {
			busy++
		}
	}
	running := false
	for i := range v.jobs {
		if j := &v.jobs[i]; j.Node == n.Name &&
			(stateOf(j).code == "R" || stateOf(j).code == "CF" || stateOf(j).code == "CG" || stateOf(j).code == "S") {
			running = true
			s.cpus += cpus(j)
			s.ram += memory(j)
		}
	}
	full := len(n.GPUs) > 0 && busy == len(n.GPUs) || n.CPU > 0 && s.cpus*1000 >= n.CPU
	switch {
	case n.State == "down":
		s.state, s.short, s.reason = "down", "down", "down"
	case n.State == "draining" && running:
		s.state, s.short, s.reason = "draining", "drng", "draining"
	case n.State == "draining":
		s.state, s.short, s.reason = "drained", "drain", "draining"
	case full:
		s.state, s.short = "allocated", "alloc"
	case running || busy > 0:
		s.state, s.short = "mixed", "mix"
	}
	return s
}

// nodeRows groups nodes by partition and state; each: one line per node.
func (v *view) nodeRows(l *listing, each, noStates bool) []nodeRow {
	all := make([]*nodeState, len(v.nodes))
	for i, n := range v.nodes {
		all[i] = v.describe(n)
	}
	var out []nodeRow
	for i := range v.parts {
		p := &v.parts[i]
		if len(l.parts) > 0 && !slices.Contains(l.parts, p.Name) {
			continue
		}
		from := len(out)
		for _, n := range all {
			if !slices.Contains(p.Nodes, n.Name) || len(l.nodes) > 0 && !slices.Contains(l.nodes, n.Name) ||
				len(l.states) > 0 && !slices.Contains(l.states, n.state) && !slices.Contains(l.states, n.short) {
				continue
			}
			k := slices.IndexFunc(out[from:], func(r nodeRow) bool {
				return !each && (noStates || r.nodes[0].state == n.state)
			})
			if k >= 0 {
				out[from+k].nodes = append(out[from+k].nodes, n)
			} else {
				out = append(out, nodeRow{p, []*nodeState{n}})
			}
		}
		if len(out) == from && !each {
			out = append(out, nodeRow{part: p})
		}
	}
	if each {
		slices.SortStableFunc(out, func(a, b nodeRow) int { return cmp.Compare(a.nodes[0].Name, b.nodes[0].Name) })
	}
	return out
}

func (c *command) sinfo() (int, error) {
	l, rest, done, err := c.nodeListing()
	if done || err != nil {
		return 0, err
	}
	if len(rest) > 0 {
		return 1, says("Unrecognized option: %s", rest[0])
	}
	jobs, err := c.svc.Jobs()
	v, err := c.view(jobs, err)
	if err != nil {
		return 1, err
	}
	if l.set.has("json") {
		return 0, c.json("nodes", nodesJSON(v))
	}
	why := l.set.has("list-reasons")
	rows := v.nodeRows(&l, l.set.has("Node"), l.set.has("summarize"))
	if why {
		rows = v.reasonRows(&l)
	}
	t, err := c.sinfoTable(&l.set)
	if err != nil {
		return 1, err
	}
	return 0, printListing(c, &l.set, t, v, rows)
}

// nodeListing reads sinfo's options; its states are those of nodes.
func (c *command) nodeListing() (l listing, rest []string, done bool, err error) {
	if l.set, rest, done, err = c.begin(sinfoOptions, "sinfo [OPTIONS]"); done {
		return l, nil, true, err
	}
	if l.set.has("partition") {
		l.parts = strings.Split(l.set.get("partition"), ",")
	}
	if l.nodes, err = ExpandHosts(l.set.get("nodes")); err != nil {
		return l, nil, true, err
	}
	known := []string{"down", "idle", "alloc", "allocated", "mix", "mixed", "drain", "drained", "draining", "drng",
		"completing", "reserved", "maint",
		"unknown", "fail", "planned", "future", "power_down", "powered_down", "no_respond"}
	if l.set.has("states") && l.set.get("states") != "all" {
		for _, s := range strings.Split(strings.ToLower(l.set.get("states")), ",") {
			if !slices.Contains(known, s) {
				return l, nil, true, says("Bad state string: %w", cluster.Unknown("state", s, known))
			}
			if l.states = append(l.states, s); s == "drain" {
				l.states = append(l.states, "draining") // both kinds
			}
		}
	}
	return l, rest, false, nil
}

// reasonRows are the nodes that are down or draining, each once.
func (v *view) reasonRows(l *listing) []nodeRow {
	var out []nodeRow
	for _, r := range v.nodeRows(l, true, false) {
		n := r.nodes[0]
		if n.reason != "none" && !slices.ContainsFunc(out, func(o nodeRow) bool { return o.nodes[0].Name == n.Name }) {
			out = append(out, r)
		}
	}
	return out
}

func (c *command) sinfoTable(s *settings) (table[nodeRow], error) {
	format := sinfoDefault
	env, hasEnv := lookupEnv(c.env, "SINFO_FORMAT")
	long := s.has("long")
	switch {
	case s.has("Format"):
		return parseLongFormat(s.get("Format"), nodeFields())
	case s.has("format"):
		format = s.get("format")
	case s.has("list-reasons") && long:
		format = sinfoWhyLong
	case s.has("list-reasons"):
		format = sinfoReasons
	case s.has("summarize"):
		format = sinfoSummary
	case s.has("Node") && long:
		format = sinfoNodeLong
	case s.has("Node"):
		format = sinfoNodes
	case long:
		format = sinfoLong
	case hasEnv:
		format = env
	}
	return parseFormat(format, nodeFields())
}

// counts are numbers of nodes as in allocated/idle/other/total.
func (r nodeRow) counts() (alloc, idle, other int) {
	for _, n := range r.nodes {
		switch n.state {
		case "allocated", "mixed":
			alloc++
		case "idle":
			idle++
		default:
			other++
		}
	}
	return alloc, idle, other
}

func (r nodeRow) cpuCounts() string {
	var alloc, idle, other int64
	for _, n := range r.nodes {
		alloc += n.cpus
		if n.State == "up" {
			idle += max(n.CPU/1000-n.cpus, 0)
		} else {
			other += max(n.CPU/1000-n.cpus, 0)
		}
	}
	return fmt.Sprintf("%d/%d/%d/%d", alloc, idle, other, alloc+idle+other)
}

func (r nodeRow) names() []string {
	out := make([]string, len(r.nodes))
	for i, n := range r.nodes {
		out[i] = n.Name
	}
	return out
}

// first shows a value of the first node; the nodes of a row are mostly equal.
func first(get func(n *nodeState) string) func(*view, nodeRow) string {
	return func(_ *view, r nodeRow) string {
		if len(r.nodes) == 0 {
			return "0"
		}
		return get(r.nodes[0])
	}
}

func nodeText(s string) func(*view, nodeRow) string { return func(*view, nodeRow) string { return s } }

// nodeGres is what a node has, in the form of sinfo -o %G.
func nodeGres(n *nodeState) string {
	var kinds []string
	count := map[string]int{}
	for _, g := range n.GPUs {
		m := strings.ReplaceAll(g.Model, " ", "_")
		if count[m] == 0 {
			kinds = append(kinds, m)
		}
		count[m]++
	}
	var out []string
	for _, k := range kinds {
		out = append(out, fmt.Sprintf("gpu:%s:%d", k, count[k]))
	}
	return orNull(strings.Join(out, ","))
}

func starred(p *api.Partition) string {
	if p.Default {
		return p.Name + "*"
	}
	return p.Name
}

func stateText(short bool) func(*view, nodeRow) string {
	return func(_ *view, r nodeRow) string {
		switch {
		case len(r.nodes) == 0:
			return "n/a"
		case short:
			return r.nodes[0].short
		}
		return r.nodes[0].state
	}
}

// nodeFields are sinfo's fields by letter and by name.
var nodeFields = sync.OnceValue(func() []field[nodeRow] {
	return []field[nodeRow]{
		{'a', "available", "AVAIL", "", nodeText("up")},
		{'A', "nodeai", "NODES(A/I)", "", func(_ *view, r nodeRow) string {
			a, i, _ := r.counts()
			return fmt.Sprintf("%d/%d", a, i)
		}},
		{'b', "features_act", "ACTIVE_FEATURES", "", nodeText("(null)")},
		{'B', "maxcpuspernode", "MAX_CPUS_PER_NODE", "", nodeText("UNLIMITED")},
		{'c', "cpus", "CPUS", "", first(func(n *nodeState) string { return strconv.FormatInt(n.CPU/1000, 10) })},
		{'C', "cpusstate", "CPUS(A/I/O/T)", "", func(_ *view, r nodeRow) string { return r.cpuCounts() }},
		{'d', "disk", "TMP_DISK", "", nodeText("0")},
		{'D', "nodes", "NODES", "", func(_ *view, r nodeRow) string { return strconv.Itoa(len(r.nodes)) }},
		{'e', "freemem", "FREE_MEM", "",
			first(func(n *nodeState) string { return strconv.FormatInt(max(n.RAM-n.ram, 0), 10) })},
		{'E', "reason", "REASON", "", first(func(n *nodeState) string { return n.reason })},
		{'f', "features", "AVAIL_FEATURES", "", nodeText("(null)")},
		{'F', "nodeaiot", "NODES(A/I/O/T)", "", func(_ *view, r nodeRow) string {
			a, i, o := r.counts()
			return fmt.Sprintf("%d/%d/%d/%d", a, i, o, len(r.nodes))
		}},
		{'g', "groups", "GROUPS", "", nodeText("all")},
		{'G', "gres", "GRES", "", first(nodeGres)},
		{'h', "oversubscribe", "OVERSUBSCRIBE", "", nodeText("NO")},
		{'H', "timestamp", "TIMESTAMP", "", nodeText("Unknown")},
		{'l', "time", "TIMELIMIT", "", func(_ *view, r nodeRow) string {
			if r.part.MaxTime == 0 {
				return "infinite"
			}
			return clockText(time.Duration(r.part.MaxTime))
		}},
		{'L', "defaulttime", "DEFAULTTIME", "", func(_ *view, r nodeRow) string {
			if r.part.DefaultTime == 0 {
				return "n/a"
			}
			return clockText(time.Duration(r.part.DefaultTime))
		}},
		{'m', "memory", "MEMORY", "", first(func(n *nodeState) string { return strconv.FormatInt(n.RAM, 10) })},
		{'n', "nodehost", "HOSTNAMES", "", first(func(n *nodeState) string { return n.Name })},
		{'N', "nodelist", "NODELIST", "", func(_ *view, r nodeRow) string { return CompressHosts(r.names()) }},
		{'o', "nodeaddr", "NODE_ADDR", "", first(func(n *nodeState) string { return n.Name })},
		{'p', "prioritytier", "PRIO_TIER", "", func(_ *view, r nodeRow) string {
			return strconv.FormatInt(max(r.part.PriorityTier, 1), 10)
		}},
		{'P', "partition", "PARTITION", "", func(_ *view, r nodeRow) string { return starred(r.part) }},
		{'r', "root", "ROOT", "", nodeText("no")},
		{'R', "partitionname", "PARTITION", "", func(_ *view, r nodeRow) string { return r.part.Name }},
		{'s', "size", "JOB_SIZE", "", nodeText("1-infinite")},
		{'t', "statecompact", "STATE", "", stateText(true)},
		{'T', "statelong", "STATE", "", stateText(false)},
		{'u', "user", "USER", "", nodeText("Unknown")},
		{'U', "userlong", "USER", "", nodeText("Unknown")},
		{'v', "version", "VERSION", "", nodeText("muster")},
		{'w', "weight", "WEIGHT", "", nodeText("1")},
		{'X', "sockets", "SOCKETS", "", nodeText("1")},
		{'Y', "cores", "CORES", "", first(func(n *nodeState) string { return strconv.FormatInt(n.CPU/1000, 10) })},
		{'Z', "threads", "THREADS", "", nodeText("1")},
		{'z', "socketcorethread", "S:C:T", "",
			first(func(n *nodeState) string { return fmt.Sprintf("1:%d:1", n.CPU/1000) })},
		{0, "gresused", "GRES_USED", "", first(gresUsed)},
	}
})

func gresUsed(n *nodeState) string {
	var held []int
	for _, g := range n.GPUs {
		if g.Free < 1000 {
			held = append(held, g.Index)
		}
	}
	if len(held) == 0 {
		return "gpu:0(IDX:N/A)"
	}
	return fmt.Sprintf("gpu:%d(IDX:%s)", len(held), ask.Ranges(held))
}

// printListing prints a table as squeue and sinfo do: with --long it is dated.
func printListing[T any](c *command, s *settings, t table[T], v *view, rows []T) error {
	header := !s.has("noheader")
	if header && s.has("long") {
		c.printf("%s\n", v.now.Local().Format(time.ANSIC))
	}
	return t.print(c.out, v, rows, header)
}
