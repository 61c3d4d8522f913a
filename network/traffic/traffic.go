// Package traffic decides how the traffic of running jobs is treated: by which path it goes, in which class, and when
// its iterations begin. Each published system is one file, registered in one list.
package traffic

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
)

// Job is a running job, as policies see it.
type Job struct {
	ID      cluster.JobID
	GPUs    int64         // that it holds
	Compute time.Duration // of an iteration
	Release time.Duration // from the beginning of an iteration until it may transmit
	Began   time.Duration // when its iterations began
	Varies  bool          // it is a real one, whose iterations were measured and do not all take as long
	Slots   Slots         // how far its iterations begin in slots
	Demand  network.Demand
	Now     cluster.Treatment // as it is treated now

	plain []network.Bytes // what it puts on links if switches choose its paths; nil: not known yet
}

// Slots is how far a job's iterations begin in the slots that it is given.
type Slots uint8

// How far slots are kept.
const (
	SlotsKept    Slots = iota // its iterations begin in them
	SlotsOffered              // it can be told of them; it has not said yet that they do
	SlotsLate                 // it can be told of them, and says that they do not
	SlotsUntold               // it cannot be told of them
)

// NewJob describes a job that began at a time; what counts is where in an iteration that is.
func NewJob(links network.Links, id cluster.JobID, gpus int64, t cluster.Traffic, d network.Demand, began time.Duration,
	now cluster.Treatment) Job {
	j := Job{ID: id, GPUs: gpus, Compute: t.Compute, Demand: d, Now: now,
		Release: t.Compute - t.Compute*time.Duration(min(max(0, t.Overlap), cluster.Whole))/time.Duration(
			cluster.Whole), plain: d.On(&cluster.Treatment{})}
	send := network.Alone(links, j.plain)
	j.Began = began % max(1, loneOf(&j, send).iteration())
	return j
}

// On lists the links that the job's traffic passes under a treatment, and the bytes on each, by link. The list must not
// be written.
func (j *Job) On(t *cluster.Treatment) []network.Bytes {
	if j.plain != nil && len(t.Path) == 0 && t.Spread <= 1 {
		return j.plain
	}
	return j.Demand.On(t)
}

// As is the job for the flow model, under a treatment.
func (j *Job) As(t *cluster.Treatment) flow.Job { return j.Along(j.On(t), t) }

// Along is the job for the flow model, under a treatment of which is known what it puts on links.
func (j *Job) Along(on []network.Bytes, t *cluster.Treatment) flow.Job {
	one := flow.Job{Compute: j.Compute, Release: j.Release, On: on, Class: t.Class, First: j.Began, Shift: t.Shift,
		Period: t.Period}
	if j.Slots == SlotsUntold {
		one.Shift, one.Period = 0, 0
	}
	return one
}

// Fabric is what policies know of the network.
type Fabric struct {
	network.Links
	Classes int // that switches keep apart; 0 or 1: none
}

// Uneven implements network.Unequal.
func (f Fabric) Uneven() cluster.Uneven { return network.UnevenOf(f.Links) }

// Policy gives each of the running jobs its treatment. It sees jobs in the order of their numbers.
type Policy interface {
	Name() string
	Treat(f Fabric, jobs []Job) []cluster.Treatment
}

// Info describes a policy that can be selected by name.
type Info struct {
	Name, About, Source string
	New                 func() Policy
	With                func(knobs string) (Policy, error) // nil: it has no knobs
}

var list = []Info{
	{Name: "none", About: "switches choose paths by their hash of addresses; nothing goes first", Source: "the usual",
		New: func() Policy { return none{} }},
	{Name: "ecmp", About: "each pair of ranks uses 4 connections, which the switches' hash spreads",
		Source: "NCCL_IB_QPS_PER_CONNECTION", New: func() Policy { return ecmp{} }},
	{Name: "sincronia", About: "classes by the order of coflows: what an iteration transmits is one",
		Source: "Sincronia, SIGCOMM'18", New: func() Policy { return sincronia{} }},
	{Name: "cassini", About: "jobs that share a link are shifted in time, so that they transmit in turn, unless they " +
		"are slower so (hold=all: even then, as published)", Source: "CASSINI, NSDI'24",
		New: func() Policy { return &cassini{} }, With: newCassini},
	{Name: "crux", About: "paths and classes by GPU intensity: computing per time on the network",
		Source: "Crux, SIGCOMM'24", New: func() Policy { return NewCrux(Published) }},
	{Name: "muster", About: "plays what the others would do on a model of the network, takes the best, and improves it",
		Source: "Muster", New: func() Policy { return newMuster() }},
}

// List returns every policy.
func List() []Info { return slices.Clone(list) }

// Names are the names of the policies.
func Names() (names []string) {
	for _, k := range list {
		names = append(names, k.Name)
	}
	return names
}

// New returns the policy of a name, with knobs after a colon.
func New(text string) (Policy, error) {
	name, knobs, with := strings.Cut(text, ":")
	i := slices.IndexFunc(list, func(k Info) bool { return k.Name == name })
	switch {
	case i < 0:
		return nil, cluster.Unknown("traffic policy", name, Names())
	case !with:
		return list[i].New(), nil
	case list[i].With == nil:
		return nil, fmt.Errorf("traffic policy %s has no knobs; got %q", name, knobs)
	default:
		return list[i].With(knobs)
	}
}

// none leaves all to the network: the switches' hash of addresses chooses paths, and nothing goes first.
type none struct{}

func (none) Name() string { return "none" }

func (none) Treat(_ Fabric, jobs []Job) []cluster.Treatment {
	return make([]cluster.Treatment, len(jobs))
}

// ecmp lets each pair of ranks use several connections, so that the switches' hash spreads its traffic over as many
// paths (NCCL_IB_QPS_PER_CONNECTION).
type ecmp struct{}

const connections = 4

func (ecmp) Name() string { return "ecmp" }

func (ecmp) Treat(_ Fabric, jobs []Job) []cluster.Treatment {
	ts := make([]cluster.Treatment, len(jobs))
	for i := range jobs {
		if jobs[i].Demand.Choices() > 0 {
			ts[i].Spread = connections
		}
	}
	return ts
}

// loads are what each job puts on links under its treatment.
func loads(jobs []Job, ts []cluster.Treatment) [][]network.Bytes {
	list := make([][]network.Bytes, len(jobs))
	for i := range jobs {
		list[i] = jobs[i].On(&ts[i])
	}
	return list
}

// upTo are the numbers below n.
func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// pick are the elements of a list at some indexes.
func pick[T any](list []T, at []int) []T {
	some := make([]T, len(at))
	for i, k := range at {
		some[i] = list[k]
	}
	return some
}
