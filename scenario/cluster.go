package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/perf"
)

// nodesArg is the short form of a cluster line: a number of equal nodes.
type nodesArg struct {
	nodes, gpus, racks, fabrics, islands int
	model, name, rack, fabric, nvlink    string
	mig                                  string
	cpu                                  cluster.Milli
	ram                                  cluster.MiB
	bad                                  uint64
}

const maxNodes = 1 << 16

var clusterKeys = []key[nodesArg]{
	whole("nodes", 1, maxNodes, func(a *nodesArg) *int { return &a.nodes }),
	whole("gpus", 0, cluster.MaxGPUsPerNode, func(a *nodesArg) *int { return &a.gpus }),
	text("model", func(a *nodesArg) *string { return &a.model }),
	cores("cpu", func(a *nodesArg) *cluster.Milli { return &a.cpu }),
	memory("ram", func(a *nodesArg) *cluster.MiB { return &a.ram }),
	whole("racks", 1, maxNodes, func(a *nodesArg) *int { return &a.racks }),
	whole("fabrics", 1, maxNodes, func(a *nodesArg) *int { return &a.fabrics }),
	whole("islands", 1, cluster.MaxGPUsPerNode, func(a *nodesArg) *int { return &a.islands }),
	text("rack", func(a *nodesArg) *string { return &a.rack }),
	text("fabric", func(a *nodesArg) *string { return &a.fabric }),
	text("nvlink", func(a *nodesArg) *string { return &a.nvlink }),
	text("name", func(a *nodesArg) *string { return &a.name }),
	text("mig", func(a *nodesArg) *string { return &a.mig }),
	{name: "bad", set: func(a *nodesArg, v string) (err error) { a.bad, err = parseDevices(v); return err }},
}

// generic is the model of nodes that name none.
const generic = "GPU-80GB"

func (p *parser) cluster(args []string) error {
	if len(args) == 1 && args[0] == "yaml" {
		return p.clusterYAML()
	}
	a := nodesArg{nodes: 1, gpus: 8, model: generic, name: "n"}
	if err := apply(&a, clusterKeys, args); err != nil {
		return err
	}
	if a.racks > a.nodes || a.fabrics > a.nodes || a.racks > 0 && a.rack != "" || a.fabrics > 0 && a.fabric != "" {
		return errors.New("racks and fabrics divide this line's nodes: at most one per node, and not together with rack= or fabric=")
	}
	s := &p.set.spec
	if len(s.Nodes)+a.nodes > maxNodes {
		return fmt.Errorf("more than %d nodes", maxNodes)
	}
	if a.model == generic &&
		!slices.ContainsFunc(s.Models, func(m cluster.GPUModel) bool { return m.Name == generic }) {
		s.Models = append(s.Models, cluster.GPUModel{Name: generic, Memory: 80 << 10, NVLink: true, NVSwitch: true})
	}
	m, ok := s.Model(a.model)
	if !ok {
		var have []string
		for _, m := range cluster.Models() {
			have = append(have, m.Name)
		}
		return cluster.Unknown("GPU model", a.model, have)
	}
	for i := range a.nodes {
		n := cluster.Node{Name: a.name + strconv.Itoa(len(s.Nodes)+1), Model: m.Name, GPUs: a.gpus, CPU: a.cpu,
			RAM:     a.ram,
			Islands: a.islands, NVLink: a.nvlink, Rack: a.rack, Fabric: a.fabric, Bad: a.bad, MIG: a.mig}
		if _, _, err := n.Geometry(&m); err != nil {
			return fmt.Errorf("mig=: %w", err)
		}
		if a.racks > 0 {
			n.Rack = "r" + strconv.Itoa(p.set.racks+1+i*a.racks/a.nodes)
		}
		if a.fabrics > 0 {
			n.Fabric = "f" + strconv.Itoa(p.set.fabrics+1+i*a.fabrics/a.nodes)
		}
		s.Nodes = append(s.Nodes, n)
	}
	p.set.racks += a.racks
	p.set.fabrics += a.fabrics
	return nil
}

// clusterYAML reads the following indented lines as a cluster file.
func (p *parser) clusterYAML() error {
	if len(p.set.spec.Nodes) > 0 {
		return errors.New("a cluster is already described: write `clear` before another one")
	}
	body := p.indented()
	if body == "" {
		return errors.New("cluster yaml: indented lines with a cluster file must follow")
	}
	spec, err := config.Read(p.name, strings.NewReader(body))
	if err != nil {
		return trimFile(p.name, err)
	}
	queues := p.set.spec.Queues
	p.set.spec = *spec
	p.set.spec.Queues = append(p.set.spec.Queues, queues...)
	return nil
}

// indented takes the following indented lines. It prepends empty lines so that a reader's line
// numbers are those of this file.
func (p *parser) indented() string {
	from := p.at
	for p.at < len(p.lines) &&
		(strings.TrimSpace(p.lines[p.at]) == "" || strings.ContainsRune(" \t", rune(p.lines[p.at][0]))) {
		p.at++
	}
	for p.at > from && strings.TrimSpace(p.lines[p.at-1]) == "" {
		p.at--
	}
	if p.at == from {
		return ""
	}
	return strings.Repeat("\n", from) + strings.Join(p.lines[from:p.at], "\n") + "\n"
}

// perf reads a performance table, like --perf.
func (p *parser) perf(args []string) (err error) {
	p.set.perf, err = p.table("perf", args)
	return err
}

// believed reads the table that the scheduler uses instead of the true one.
func (p *parser) believed(args []string) (err error) {
	p.set.belief, err = p.table("believed", args)
	return err
}

func (p *parser) table(what string, args []string) (*perf.Table, error) {
	if len(args) > 0 {
		return nil, fmt.Errorf("%s takes no arguments; indented lines with a performance table follow", what)
	}
	body := p.indented()
	if body == "" {
		return nil, fmt.Errorf("%s: indented lines with a performance table must follow", what)
	}
	t, err := config.ReadPerf(p.name, []byte(body))
	if err != nil {
		return nil, trimFile(p.name, err)
	}
	return t, nil
}

// trimFile removes the file name from an error that will get it again.
func trimFile(name string, err error) error {
	if rest, ok := strings.CutPrefix(err.Error(), name+": "); ok {
		return errors.New(rest)
	}
	return err
}

var queueKeys = []key[cluster.Queue]{
	text("parent", func(q *cluster.Queue) *string { return &q.Parent }),
	amount("guarantee", func(q *cluster.Queue) *cluster.Milli { return &q.Guarantee }),
	amount("limit", func(q *cluster.Queue) *cluster.Milli { return &q.Limit }),
	amount("lend", func(q *cluster.Queue) *cluster.Milli { return &q.Lend }),
	amount("reserve", func(q *cluster.Queue) *cluster.Milli { return &q.Reserve }),
	{name: "weight", set: func(q *cluster.Queue, v string) error {
		w, err := strconv.ParseFloat(v, 64)
		if err != nil || !(w > 0) || w > 1e6 {
			return fmt.Errorf("%q is not a weight above 0", v)
		}
		q.Weight = int64(w * 1000)
		return nil
	}},
	amount("user_gpus", func(q *cluster.Queue) *cluster.Milli { return &q.UserGPUs }),
	whole("user_jobs", 0, 1<<30, func(q *cluster.Queue) *int { return &q.UserJobs }),
	whole("max_jobs", 0, 1<<30, func(q *cluster.Queue) *int { return &q.MaxJobs }),
	long("budget", func(q *cluster.Queue) *int64 { return &q.Budget }),
	span("period", func(q *cluster.Queue) *duration { return &q.Period }),
	long("priority", func(q *cluster.Queue) *int64 { return &q.Priority }),
	long("shares", func(q *cluster.Queue) *int64 { return &q.Shares }),
	toggle("no_reclaim", func(q *cluster.Queue) *bool { return &q.NoReclaim }),
}

// queue adds a queue: `queue a guarantee=4 limit=8`.
func (p *parser) queue(args []string) error {
	if len(args) == 0 || strings.Contains(args[0], "=") {
		return errors.New("a queue's name must follow")
	}
	for i := range p.set.spec.Queues {
		if p.set.spec.Queues[i].Name == args[0] {
			return fmt.Errorf("queue %q already exists", args[0])
		}
	}
	q := cluster.Queue{Name: args[0], Limit: cluster.Unlimited, Lend: cluster.Unlimited}
	if err := apply(&q, queueKeys, args[1:]); err != nil {
		return err
	}
	p.set.spec.Queues = append(p.set.spec.Queues, q)
	return nil
}
