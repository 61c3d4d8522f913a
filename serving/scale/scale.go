// Package scale has the policies that decide how many replicas of which variant a service runs: the same in the
// simulator, on a machine and on Kubernetes. A policy is a file and a line in the list.
package scale

import (
	"cmp"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
	"github.com/muster-gpu/muster/service"
)

// View is what a policy is shown of a service.
type View struct {
	Now     cluster.Time
	Period  time.Duration // since the last decision
	Service *service.Service
	Arrived int64         // requests of the period
	Waiting int           // requests now
	Busy    time.Duration // that replicas computed in the period, all together
	Ready   []int         // replicas that answer, by variant
	Coming  []int         // replicas that were asked for and do not answer yet, by variant
	Missed  float64       // requests of the period that were not answered in time
	Latency time.Duration // of the goal's percentile of the period; 0: nothing was answered
	Easy    bool          // the goal's percentile was at most 0.8 of what is promised
	GPUs    []string      // models of the cluster
	Prompt  float64       // tokens of the period's prompts and answers, in the mean; the last known if there were none
	Output  float64
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

// Batcher is a policy that goes with a batching rule, which services that name none get.
type Batcher interface{ Batching() string }

// kind is a policy that can be selected by name.
type kind struct {
	knobs.Kind
	new func(k *knobs.Set) (Policy, error)
}

func kinds() []kind {
	return []kind{musterKind, hpaKind, staticKind, clipperKind, tritonKind, markKind, infaasKind}
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
