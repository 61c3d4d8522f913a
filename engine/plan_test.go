package engine_test

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/policy"
)

// scatter is a policy that plans as if by chance: ranks, idle jobs, GPU models
// and sizes are functions of a job's number and of the time of the plan. Its
// memory counts plans, and how often a job was planned.
type scatter struct {
	name  string
	round time.Duration
	gated bool
	packs bool // puts jobs beside others
	cuts  bool // has jobs run on instances
	only  bool // ... and says nothing of jobs that suit no GPU which could be divided
	parts bool // has jobs run in partitions
}

// newPolicy makes a policy by name, those of the tests among them.
func newPolicy(name string) (sched.Policy, error) {
	switch name {
	case "scatter":
		return &scatter{name: name}, nil
	case "scatter:round":
		return &scatter{name: name, round: time.Minute}, nil
	case "scatter:gated":
		return &scatter{name: name, round: 45 * time.Second, gated: true}, nil
	case "scatter:packs":
		return &scatter{name: name, packs: true}, nil
	case "scatter:slices":
		return &scatter{name: name, cuts: true}, nil
	case "scatter:divides":
		return &scatter{name: name, cuts: true, gated: true, only: true}, nil
	case "scatter:parts":
		return &scatter{name: name, parts: true}, nil
	case "scatter:some":
		return &some{scatter{name: name}}, nil
	}
	return policy.New(name)
}

// some is a scatter whose plans are about few of the jobs that wait. Others are
// never to have nothing: they would wait for ever for a plan.
type some struct{ scatter }

func chosen(id cluster.JobID) bool { return id%3 == 0 }

func (s *some) Chooses(spec *cluster.Job) bool { return chosen(spec.ID) }

func (s *some) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	p := s.scatter.Plan(v, jobs)
	for i, j := range jobs {
		p.Targets[i].Idle = p.Targets[i].Idle && chosen(j.Spec().ID)
	}
	return p
}

func (s *scatter) Name() string { return s.name }

func (s *scatter) Traits() sched.Traits {
	return sched.Traits{Preempts: true, Backfill: engine.Skip, Round: s.round, Gated: s.gated, Divides: s.cuts,
		OnlyDivides: s.only, Anywhere: !s.cuts}
}

func (s *scatter) Key(_ sched.View, j sched.JobView) engine.Key {
	if t := j.Target(); t != nil {
		return engine.Key{t.Rank, -int64(len(t.Memo))}
	}
	return engine.Key{9}
}

func (s *scatter) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	n := int64(1)
	if m := v.Memo(); m != nil {
		n += m[0]
	}
	p := sched.Plan{Next: cluster.Never, Memo: []int64{n}}
	if n%3 == 0 {
		p.Next = v.Now().Add(time.Duration(7+n%50) * time.Second)
	}
	kinds := v.Kinds()
	for _, j := range jobs {
		t := chanceTarget(j.Spec().ID, v.Now())
		if s.cuts {
			t.Slice = chanceSlice(&t)
		}
		if s.parts {
			t.Partition = chancePartition(&t)
		}
		if k := len(kinds); k > 0 && t.Tasks%3 == 0 {
			t.GPU = kinds[t.Tasks%k].GPU
		}
		if _, least, most := j.Tasks(); least < most {
			t.Tasks = least + t.Tasks%(most-least+1)
		} else {
			t.Tasks = 0
		}
		t.Memo = []int64{n}
		if s.packs {
			h := uint64(t.Rank)*7 + uint64(j.Spec().ID)*0x9e3779b97f4a7c15 + uint64(v.Now())
			if h ^= h >> 31; h%3 > 0 {
				t.Beside, t.Idle, t.GPU = 1+int32(jobs[h>>8%uint64(len(jobs))].Spec().ID), false, ""
			}
			t.Alone, t.Move = h>>4%5 == 0, h>>12%3 == 0
		}
		p.Targets = append(p.Targets, t)
	}
	return p
}

// chanceTarget draws a target; Tasks is any number.
func chanceTarget(id cluster.JobID, at cluster.Time) engine.Target {
	h := (uint64(id)*0x9e3779b97f4a7c15 ^ uint64(at)/uint64(time.Second)) * 0xbf58476d1ce4e5b9
	h ^= h >> 29
	return engine.Target{Rank: int64(h % 4), Idle: h>>8%8 == 0, Tasks: int(h >> 16 % 97), Least: int(h >> 24 % 3)}
}

// chancePartition draws a partition for a target; some exist nowhere.
func chancePartition(t *engine.Target) string {
	return []string{"", "p1", "p2", "p3"}[(uint64(t.Rank)*31+uint64(t.Tasks))*0x9e3779b97f4a7c15>>60%4]
}

// chanceSlice draws an instance for a target; where there is no such node, GPU or
// instance, it is none.
func chanceSlice(t *engine.Target) *engine.Slice {
	h := uint64(t.Rank)<<40 ^ uint64(t.Tasks)*0x9e3779b97f4a7c15 ^ uint64(t.Least)<<50
	h ^= h >> 27
	if h%5 == 0 {
		return nil
	}
	return &engine.Slice{Node: int32(h >> 4 % 4), GPU: int(h >> 8 % 2),
		Profile: []string{"1g", "2g", "3g", "4g", "7g", "1g.20gb"}[h>>12%6], Start: int(h >> 16 % 7)}
}
