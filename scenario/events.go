package scenario

import (
	"errors"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/sim"
)

// scripted is an event line with unresolved names of jobs and queues.
type scripted struct {
	line  int
	at    cluster.Time
	event engine.Event
	job   string         // of cancel, hold, release
	queue *cluster.Queue // changed settings
}

// happening is a kind of event.
type happening struct {
	name   string
	target string // kind of the second word: node, job or queue
	event  engine.Event
}

var happenings = []happening{
	{"node-down", "node", engine.Event{Type: engine.NodeDown}},
	{"node-up", "node", engine.Event{Type: engine.NodeUp}},
	{"drain", "node", engine.Event{Type: engine.NodeDrained}},
	{"undrain", "node", engine.Event{Type: engine.NodeDrained, Undo: true}},
	{"gpu-bad", "node", engine.Event{Type: engine.GPUBad}},
	{"gpu-good", "node", engine.Event{Type: engine.GPUBad, Undo: true}},
	{"cancel", "job", engine.Event{Type: engine.Cancelled}},
	{"hold", "job", engine.Event{Type: engine.Held}},
	{"release", "job", engine.Event{Type: engine.Held, Undo: true}},
	{"queue", "queue", engine.Event{Type: engine.QueueChanged}},
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
	case "queue":
		q, err := p.set.queueAt(target)
		if err != nil {
			return err
		}
		if err := apply(&q, queueKeys, args); err != nil {
			return err
		}
		s.queue = &q
	case "node":
		n, err := p.set.node(target)
		if err != nil {
			return err
		}
		s.event.Node = n.Name
	}
	if h.event.Type == engine.GPUBad {
		gpu := ""
		if err := apply(&gpu, []key[string]{text("gpu", func(s *string) *string { return s })}, args); err != nil {
			return err
		}
		mask, err := parseDevices(gpu)
		if err != nil || mask == 0 {
			return errors.New("say which: gpu=3 or gpu=0-3")
		}
		s.event.GPUs = mask
	} else if h.target != "queue" && len(args) > 0 {
		return fmt.Errorf("%s takes no arguments; got %q", h.name, args[0])
	}
	p.set.events = append(p.set.events, s)
	return nil
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

// script resolves the event lines for a run; ids are its job numbers.
func (s *setup) script(ids []cluster.JobID) []sim.Scripted {
	var out []sim.Scripted
	queues := slices.Clone(s.spec.Queues)
	events := slices.Clone(s.events)
	slices.SortStableFunc(events, func(a, b scripted) int { return int(min(1, max(-1, a.at-b.at))) })
	for _, ev := range events {
		switch {
		case ev.job != "":
			jobs, err := s.lookup(ev.job)
			if err != nil {
				panic("scenario: a job that was found is lost: " + err.Error())
			}
			for _, i := range jobs {
				e := ev.event
				e.Job = ids[i]
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
		default:
			out = append(out, sim.Scripted{At: ev.at, Event: ev.event})
		}
	}
	return out
}
