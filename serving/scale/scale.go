// Package scale has the policies that decide how many replicas of which variant a service runs: the same in the
// simulator, on a machine and on Kubernetes. A policy is a file and a line in the list.
package scale

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
	"github.com/muster-gpu/muster/service"
)

// View is what a policy is shown of a service.
type View struct {
	Now     cluster.Time
	Epoch   int64         // Unix seconds of time 0
	Period  time.Duration // since the last decision
	Service *service.Service
	Arrived int64         // requests of the period
	Waiting int           // requests now
	Busy    time.Duration // that replicas computed in the period, all together
	Ready   []int         // replicas that answer, by variant
	Coming  []int         // replicas that were asked for and do not answer yet, by variant
	Have    []Replica     // all of these
	Missed  float64       // requests of the period that were not answered in time
	Latency time.Duration // of the goal's percentile of the period; 0: nothing was answered
	Easy    bool          // the goal's percentile was at most 0.8 of what is promised
	GPUs    []GPUs        // of the cluster
	Fixed   bool          // nothing can give a replica another size than its variant says
	Prompt  float64       // tokens of the period's prompts and answers, in the mean; the last known if there were none
	Output  float64
	Memory  float64 // part of their memory for keys and values that replicas use now, in the mean of those that say it
	Tell    int     // replicas that say it

	sizing bool  // the policy chooses the sizes that services leave open
	most   []int // replicas that have or may get GPUs, by variant; nil: no variant lacks any
}

// GPUs is how many GPUs of a model there are.
type GPUs struct {
	Model  string
	Number int
	Server int // on a server that has any; 0: unknown
}

// Kind is what equal replicas of a service have in common.
type Kind struct {
	Variant int
	Share   cluster.Milli // of a GPU; Whole: all, or several
}

// Want is how many replicas of a kind should run.
type Want struct {
	Kind
	Replicas int
}

// Rate is the requests per second of the period.
func (v *View) Rate() float64 {
	if v.Period <= 0 {
		return 0
	}
	return float64(v.Arrived) / v.Period.Seconds()
}

// Replicas is how many there are of all variants, with those that are coming.
func (v *View) Replicas() (n int) {
	for i := range v.Ready {
		n += v.Ready[i] + v.Coming[i]
	}
	return n
}

// Policy decides for one service. It may remember.
type Policy interface {
	// Decide returns the number of replicas of each variant that should run from now on.
	Decide(v *View) []int
}

// Planner is a policy that decides for all services that name it together, and how large a part of a GPU each of their
// replicas has.
type Planner interface {
	Policy
	// Plan returns by service what should run from now on.
	Plan(views []*View) [][]Want
	// First is the kind of a service's replicas until anything is known of its requests.
	First(s *service.Service) Kind
	// Check reports as an error why replicas of a service cannot be of different sizes.
	Check(s *service.Service) error
}

// Decide asks a policy what should run of services: of all those that share a planner, of one if it is no planner.
func Decide(p Policy, views []*View) (list [][]Want) {
	shown := make([]*View, len(views))
	for i, v := range views {
		shown[i] = v.stable()
	}
	list = decide(p, shown)
	for i, v := range views {
		list[i] = v.withCanary(list[i])
	}
	return list
}

func decide(p Policy, views []*View) (list [][]Want) {
	if p, ok := p.(Planner); ok {
		return p.Plan(views)
	}
	for _, v := range views {
		sized, sizes := p.(sizing)
		switch bounds := v.Service.Replicas; {
		case v.Period == 0 && len(v.Have) > 0 && len(v.Have) >= bounds.Min && len(v.Have) <= bounds.Max:
			list = append(list, v.found())
		case sizes:
			list = append(list, sized.size(v))
		default:
			list = append(list, Wants(v.Service, p.Decide(v)))
		}
	}
	return list
}

// found are the replicas that a controller finds when it begins: they stay until rates are known.
func (v *View) found() (list []Want) {
	for _, r := range v.Have {
		list = with(list, Want{r.Kind, 1})
	}
	return list
}

// None is that nothing should run of a service yet; what is added first is of the first kind.
func None(p Policy, s *service.Service) []Want {
	if p, ok := p.(Planner); ok {
		return []Want{{Kind: p.First(s)}}
	}
	return Wants(s, make([]int, len(s.Variants)))
}

// Wants are numbers of replicas by variant, whose shares are those that the variants say.
func Wants(s *service.Service, byVariant []int) []Want {
	list := make([]Want, len(byVariant))
	for i, n := range byVariant {
		list[i] = Want{Kind{i, s.Variants[i].Share()}, n}
	}
	return list
}

// byVariant counts replicas of all sizes.
func byVariant(s *service.Service, list []Want) []int {
	n := make([]int, len(s.Variants))
	for _, w := range list {
		n[w.Variant] += w.Replicas
	}
	return n
}

// Policies makes the policies of services, each with its text. Services with the same text of a planner share it.
func Policies(services []service.Service, texts []string) ([]Policy, error) {
	list := make([]Policy, len(texts))
	for i, text := range texts {
		p, err := New(text)
		if err == nil {
			err = Check(p, &services[i])
		}
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", services[i].Name, err)
		}
		if _, ok := p.(Planner); ok {
			if k := slices.Index(texts[:i], text); k >= 0 {
				p = list[k]
			}
		}
		list[i] = p
	}
	return list, nil
}

// Check reports as an error why a policy cannot decide for a service.
func Check(p Policy, s *service.Service) error {
	checker, checks := p.(interface {
		Check(s *service.Service) error
	})
	switch _, votes := p.(Ensembler); {
	case checks:
		err := checker.Check(s)
		switch {
		case err == nil && votes && s.Canary > 0:
			return errors.New("canary: where variants vote each answers all requests")
		case err != nil || votes: // several variants can be more accurate than each
			return err
		}
	case s.Phased():
		return errPhased
	}
	return s.Accurate()
}

var errPhased = errors.New("variants with phases need scaling: distserve")

// Elsewhere makes the policy of a service whose requests do not pass through Muster.
func Elsewhere(text string) (Policy, error) {
	p, err := New(text)
	if _, ok := p.(Ensembler); ok {
		return nil, fmt.Errorf("scaling: %s lets several variants answer each request, for which requests have to pass Muster's gateway", text)
	}
	return p, err
}

// Batcher is a policy that goes with a batching rule, which services that name none get.
type Batcher interface{ Batching() string }

// Says is how a policy came to its last decision, in words; "": it has nothing to say beyond what it decided.
func Says(p Policy) string {
	if p, ok := p.(interface{ Says() string }); ok {
		return p.Says()
	}
	return ""
}

// LendsServers reports whether services lend whole servers of these GPUs under a policy.
func LendsServers(p Policy, of []GPUs) bool {
	l, ok := p.(*lyra)
	return ok && l.unit == 0 && l.server(&View{GPUs: of}) > 1
}

// kind is a policy that can be selected by name.
type kind struct {
	knobs.Kind
	new func(k *knobs.Set) (Policy, error)
}

func kinds() []kind {
	return []kind{musterKind, hpaKind, staticKind, clipperKind, tritonKind, markKind, infaasKind,
		gpuletKind, inssKind, inssRLKind, nexusKind, cocktailKind, distserveKind, lyraKind}
}

// Default is the policy of services that name none.
const Default = "muster"

// List lists the policies.
func List() (list []knobs.Kind) {
	for _, k := range kinds() {
		list = append(list, k.Kind)
	}
	return list
}

// New makes a policy of a name with its knobs, "hpa:target=0.6"; "" is the default.
func New(text string) (Policy, error) {
	i, k, err := knobs.Choose("scaling policy", cmp.Or(text, Default), List())
	if err != nil {
		return nil, err
	}
	return kinds()[i].new(k)
}

// only returns a number of replicas of one variant and none of the others.
func only(v *View, variant, n int) []int {
	want := make([]int, len(v.Service.Variants))
	want[variant] = min(max(n, v.Service.Replicas.Min), v.Service.Replicas.Max)
	return want
}
