package scenario

import (
	"errors"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// scripted is an event line with unresolved names of jobs and queues.
type scripted struct {
	line  int
	at    cluster.Time
	event engine.Event
	job   string         // of cancel, hold, release, reshape
	queue *cluster.Queue // changed settings
	node  *cluster.Node  // as it is from then on
	spec  []string       // what of a job's spec is another
	lends *cluster.Lender
}

// takes reads the arguments of an event; nil: it takes none.
type takes func(p *parser, s *scripted, args []string) error

// happening is a kind of event.
type happening struct {
	name   string
	target string // kind of the second word: node, job, queue or service
	event  engine.Event
	takes  takes
}

var happenings = []happening{
	{name: "node-down", target: "node", event: engine.Event{Type: engine.NodeDown}},
	{name: "node-up", target: "node", event: engine.Event{Type: engine.NodeUp}},
	{name: "node-resize", target: "node", event: engine.Event{Type: engine.NodeResized}, takes: (*parser).nodeArgs},
	{name: "node-change", target: "node", event: engine.Event{Type: engine.NodeChanged}, takes: (*parser).nodeArgs},
	{name: "drain", target: "node", event: engine.Event{Type: engine.NodeDrained}},
	{name: "undrain", target: "node", event: engine.Event{Type: engine.NodeDrained, Undo: true}},
	{name: "gpu-bad", target: "node", event: engine.Event{Type: engine.GPUBad}, takes: (*parser).gpuArgs},
	{name: "gpu-good", target: "node", event: engine.Event{Type: engine.GPUBad, Undo: true}, takes: (*parser).gpuArgs},
	{name: "cancel", target: "job", event: engine.Event{Type: engine.Cancelled}},
	{name: "hold", target: "job", event: engine.Event{Type: engine.Held}},
	{name: "release", target: "job", event: engine.Event{Type: engine.Held, Undo: true}},
	{name: "reshape", target: "job", event: engine.Event{Type: engine.JobReshaped}, takes: (*parser).reshapeArgs},
	{name: "update", target: "job", event: engine.Event{Type: engine.Updated}, takes: (*parser).updateArgs},
	{name: "queue", target: "queue", event: engine.Event{Type: engine.QueueChanged}, takes: (*parser).queueArgs},
	{name: "lend", target: "service", event: engine.Event{Type: engine.LendersChanged}, takes: (*parser).lendArgs},
}

// event reads `event TIME WHAT TARGET arguments`.
func (p *parser) event(args []string) error {
	if len(args) < 3 {
		return errors.New("write event TIME WHAT TARGET, for example event 20m drain n1")
	}
	at, err := parseTime(args[0])
	if err != nil {
		return err
	}
	var have []string
	for _, h := range happenings {
		if h.name == args[1] {
			return p.happen(at, h, args[2], args[3:])
		}
		have = append(have, h.name)
	}
	return cluster.Unknown("event", args[1], have)
}

func (p *parser) happen(at cluster.Time, h happening, target string, args []string) error {
	s := scripted{line: p.line, at: at, event: h.event}
	switch h.target {
	case "job":
		s.job = target
		if _, err := p.set.lookup(target); err != nil {
			return err
		}
	case "node":
		n, err := p.set.node(target)
		if err != nil {
			return err
		}
		s.event.Node = n.Name
	case "queue":
		q, err := p.set.queueAt(target)
		if err != nil {
			return err
		}
		s.queue = &q
	case "service":
		s.lends = &cluster.Lender{Service: target, Replica: &cluster.Job{Name: target, Tier: cluster.Critical,
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}}
	}
	if h.takes == nil && len(args) > 0 {
		return fmt.Errorf("%s takes no arguments; got %q", h.name, args[0])
	}
	if h.takes != nil {
		if err := h.takes(p, &s, args); err != nil {
			return err
		}
	}
	p.set.events = append(p.set.events, s)
	return nil
}

// queueArgs reads a queue's new settings.
func (p *parser) queueArgs(s *scripted, args []string) error { return apply(s.queue, queueKeys, args) }

// lenderKeys are what a service lends; its replicas are jobs of one task.
var lenderKeys = []key[cluster.Lender]{
	whole("replicas", 0, maxJobs, func(l *cluster.Lender) *int { return &l.Replicas }),
	whole("gpus", 1, cluster.MaxGPUsPerNode, func(l *cluster.Lender) *int { return &l.Replica.Tasks[0].Request.GPUs }),
	text("profile", func(l *cluster.Lender) *string { return &l.Replica.Tasks[0].Request.Profile }),
	words("type", func(l *cluster.Lender) *[]string { return &l.Replica.GPUTypes }),
	words("partition", func(l *cluster.Lender) *[]string { return &l.Replica.Partitions }),
	toggle("servers", func(l *cluster.Lender) *bool { return &l.Servers }),
}

// lendArgs reads what a service lends.
func (p *parser) lendArgs(s *scripted, args []string) error { return apply(s.lends, lenderKeys, args) }

// gpuArgs reads which GPUs of a node it is about.
func (p *parser) gpuArgs(s *scripted, args []string) error {
	gpu := ""
	if err := apply(&gpu, []key[string]{text("gpu", func(s *string) *string { return s })}, args); err != nil {
		return err
	}
	mask, err := parseDevices(gpu)
	if err != nil || mask == 0 {
		return errors.New("say which: gpu=3 or gpu=0-3")
	}
	s.event.GPUs = mask
	return nil
}

// reshapeArgs reads of which node a job loses its tasks.
func (p *parser) reshapeArgs(s *scripted, args []string) error {
	name := ""
	if err := apply(&name, []key[string]{text("without", func(s *string) *string { return s })}, args); err != nil {
		return err
	}
	if name == "" {
		return errors.New("say where it loses its tasks: without=n2")
	}
	n, err := p.set.node(name)
	if err == nil {
		s.event.Node = n.Name
	}
	return err
}

// updateKeys are what of a job's spec can change.
var updateKeys = slices.DeleteFunc(slices.Clone(jobKeys), func(k key[draft]) bool {
	return !slices.Contains([]string{"priority", "tier", "estimate", "limit", "checkpoint", "nockpt", "norequeue",
		"nopreempt", "pernode", "onnode", "name"}, k.name)
})

// updateArgs reads what of a job's spec is another.
func (p *parser) updateArgs(s *scripted, args []string) error {
	if len(args) == 0 {
		return errors.New("say what is another: priority=5 or norequeue")
	}
	s.spec = args
	return apply(&draft{}, updateKeys, args)
}

// updated is a job's spec after an event.
func (ev *scripted) updated(spec *cluster.Job) (*cluster.Job, error) {
	d := draft{entry: trace.Entry{Job: *spec}}
	err := apply(&d, updateKeys, ev.spec)
	return &d.entry.Job, err
}

// nodeKeys are what of a node can change.
var nodeKeys = []key[cluster.Node]{
	cores("cpu", func(n *cluster.Node) *cluster.Milli { return &n.CPU }),
	memory("ram", func(n *cluster.Node) *cluster.MiB { return &n.RAM }),
	whole("gpus", 0, cluster.MaxGPUsPerNode, func(n *cluster.Node) *int { return &n.GPUs }),
	whole("islands", 1, cluster.MaxGPUsPerNode, func(n *cluster.Node) *int { return &n.Islands }),
	text("mig", func(n *cluster.Node) *string { return &n.MIG }),
	text("rack", func(n *cluster.Node) *string { return &n.Rack }),
	text("fabric", func(n *cluster.Node) *string { return &n.Fabric }),
	text("nvlink", func(n *cluster.Node) *string { return &n.NVLink }),
}

// nodeArgs reads what a node is from now on; what is not named stays as the previous events left it.
func (p *parser) nodeArgs(s *scripted, args []string) error {
	n := p.set.nodeAt(s.event.Node)
	keys := nodeKeys
	if s.event.Type == engine.NodeResized {
		keys = nodeKeys[:2]
	}
	if len(args) == 0 {
		return errors.New("say what is another: cpu=8 ram=64GiB")
	}
	if err := apply(&n, keys, args); err != nil {
		return err
	}
	m, _ := p.set.spec.Model(n.Model)
	if _, _, err := n.Geometry(&m); err != nil {
		return fmt.Errorf("mig=: %w", err)
	}
	s.node = &n
	if s.event.Type == engine.NodeResized {
		s.event.Size = &engine.NodeSize{CPU: n.CPU, RAM: n.RAM}
	} else {
		s.event.Spare = &n
	}
	return nil
}

// nodeAt returns a node as the previous events left it.
func (s *setup) nodeAt(name string) cluster.Node {
	for i := len(s.events) - 1; i >= 0; i-- {
		if n := s.events[i].node; n != nil && n.Name == name {
			return *n
		}
	}
	i := slices.IndexFunc(s.spec.Nodes, func(n cluster.Node) bool { return n.Name == name })
	return s.spec.Nodes[i]
}

// queueAt returns a queue's settings after the previous events.
func (s *setup) queueAt(name string) (cluster.Queue, error) {
	for i := len(s.events) - 1; i >= 0; i-- {
		if q := s.events[i].queue; q != nil && q.Name == name {
			return *q, nil
		}
	}
	var have []string
	for i := range s.spec.Queues {
		if s.spec.Queues[i].Name == name {
			return s.spec.Queues[i], nil
		}
		have = append(have, s.spec.Queues[i].Name)
	}
	if have == nil {
		return cluster.Queue{}, fmt.Errorf("queue %q does not exist: no queue is described", name)
	}
	return cluster.Queue{}, cluster.Unknown("queue", name, have)
}

func (s *setup) node(name string) (*cluster.Node, error) {
	var have []string
	for i := range s.spec.Nodes {
		if s.spec.Nodes[i].Name == name {
			return &s.spec.Nodes[i], nil
		}
		have = append(have, s.spec.Nodes[i].Name)
	}
	if len(have) > 30 {
		have = append(have[:30], "...")
	}
	return nil, cluster.Unknown("node", name, have)
}

// script resolves the event lines for a run; ids are its job numbers, jobs what the scheduler is told of them.
func (s *setup) script(ids []cluster.JobID, jobs []trace.Entry) []sim.Scripted {
	var out []sim.Scripted
	specs := make([]*cluster.Job, len(jobs))
	for i := range jobs {
		specs[i] = &jobs[i].Job
	}
	queues := slices.Clone(s.spec.Queues)
	var lenders []cluster.Lender
	events := slices.Clone(s.events)
	slices.SortStableFunc(events, func(a, b scripted) int { return int(min(1, max(-1, a.at-b.at))) })
	for _, ev := range events {
		switch {
		case ev.job != "":
			named, err := s.lookup(ev.job)
			if err != nil {
				panic("scenario: a job that was found is lost: " + err.Error())
			}
			for _, i := range named {
				e := ev.event
				e.Job = ids[i]
				if e.Type == engine.Updated {
					if e.Spec, err = ev.updated(specs[e.Job]); err != nil {
						panic("scenario: arguments that were read are wrong: " + err.Error())
					}
					specs[e.Job] = e.Spec
				}
				out = append(out, sim.Scripted{At: ev.at, Event: e})
			}
		case ev.queue != nil:
			for i := range queues {
				if queues[i].Name == ev.queue.Name {
					queues[i] = *ev.queue
				}
			}
			e := ev.event
			e.Queues = slices.Clone(queues)
			out = append(out, sim.Scripted{At: ev.at, Event: e})
		case ev.lends != nil:
			lenders = slices.DeleteFunc(slices.Clone(lenders), func(l cluster.Lender) bool {
				return l.Service == ev.lends.Service
			})
			if ev.lends.Replicas > 0 {
				lenders = append(lenders, *ev.lends)
			}
			e := ev.event
			e.Lenders = lenders
			out = append(out, sim.Scripted{At: ev.at, Event: e})
		default:
			out = append(out, sim.Scripted{At: ev.at, Event: ev.event})
		}
	}
	return out
}
