package mig

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
)

// Of two nodes that may be changed, the one that suits a gang is, into what the gang asks for.
func TestAsk(t *testing.T) {
	r := newRoom(t)
	now := cluster.Time(time.Unix(1_800_000_000, 0).UnixNano())
	spec := cluster.Spec{}
	order := []string{"a", "b"}
	for _, name := range order {
		obj, n := nodeOf(nil, nil), &Node{}
		obj.Name = name
		r.See(n, n.AsPartitioned(obj), false)
		spec.Nodes = append(spec.Nodes, cluster.Node{Name: name, Model: "H100-80GB", GPUs: 2, CPU: 1000, RAM: 1000})
	}
	cfg, err := (&config.Rules{Spec: spec, Policy: "fifo", Placer: "best-fit", Backfill: "skip"}).Config()
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	can := r.Candidates(now, order, func(string) bool { return true }, func(string) int { return 0 })
	job := &cluster.Job{Tasks: []cluster.TaskSet{{Count: 14, Request: cluster.Request{GPUs: 1, Profile: "1g.10gb"}}}}
	left := int64(Work)
	wants := []Waiter{{Job: job, Suits: func(obj *v1.Node) bool { return obj.Name == "b" }}}
	q, names := r.Ask(wants, &World{Eng: e, Spec: spec}, order, can, &left)
	plan := q.Choose()
	if len(plan) != 1 || names[plan[0].Node] != "b" || can[1].Configs[plan[0].Way] != "all-1g.10gb" {
		t.Errorf("%+v of %v", plan, names)
	}
	if note := r.NoteFor(can[1], plan[0].Way); note.Config != "all-1g.10gb" || note.From != "all-disabled" ||
		note.GPUs != 2 || left == Work {
		t.Errorf("%+v, %d left", note, left)
	}
}
