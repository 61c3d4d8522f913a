// Package batch has the rules by which an idle replica takes its next batch from the requests that wait: the same in
// the simulator and in the gateway. A rule is a file and a line in the list.
package batch

import (
	"cmp"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
)

// Setting is what a rule may know of the replica that it serves.
type Setting struct {
	Max       int                     // requests in a batch
	Delay     time.Duration           // how long the first request may wait for others
	Preferred []int                   // sizes that are sent at once, rising
	Goal      time.Duration           // from a request's arrival to its answer
	Takes     func(int) time.Duration // how long a batch of a size is expected to take
}

// halved is the largest batch that takes at most half of the goal: a request that just missed a batch waits for it,
// and is computed in the next. 1 if there is none.
func (s *Setting) halved() int {
	size := 1
	for b := 2; b <= s.Max; b++ {
		if 2*s.Takes(b) <= s.Goal {
			size = b
		}
	}
	return size
}

// Choice is what an idle replica does next: it drops requests from the front of the queue, then computes the first
// that are left. If it computes none, it waits until a request arrives, or until Again.
type Choice struct {
	Drop, Send int
	Again      cluster.Time // cluster.Never: only a request changes anything
}

// Rule decides about batches of one replica.
type Rule interface {
	// Next chooses for an idle replica; at least one request waits.
	Next(q *Queue, now cluster.Time) Choice
	// Done reports how long a batch took.
	Done(size int, took time.Duration)
}

// kind is a rule that can be selected by name.
type kind struct {
	knobs.Kind
	new func(s Setting, k *knobs.Set) (Rule, error)
}

func kinds() []kind { return []kind{windowKind, fixedKind, clipperKind, tritonKind, nexusKind} }

// Default is the rule of services that name none.
const Default = "window"

// List lists the rules.
func List() (list []knobs.Kind) {
	for _, k := range kinds() {
		list = append(list, k.Kind)
	}
	return list
}

// New makes a rule of a name with its knobs, "clipper:step=2"; "" is the default.
func New(text string, s Setting) (Rule, error) {
	i, k, err := knobs.Choose("batching rule", cmp.Or(text, Default), List())
	if err != nil {
		return nil, err
	}
	return kinds()[i].new(s, k)
}

// Queue is the requests that wait, by arrival: a ring.
type Queue struct {
	ring  []Item
	first int
	n     int
}

// Item is a request that waits.
type Item struct {
	At             cluster.Time // of its arrival
	Prompt, Output int32        // tokens; 0: it is not for a language model
	Ballot         int32        // by which several variants answer it together
}

// Len is how many requests wait.
func (q *Queue) Len() int { return q.n }

// At returns the i-th request, from the front.
func (q *Queue) At(i int) *Item { return &q.ring[(q.first+i)&(len(q.ring)-1)] }

// Push adds a request at the end.
func (q *Queue) Push(it Item) {
	if q.n == len(q.ring) {
		next := make([]Item, max(64, 2*len(q.ring)))
		for i := range q.n {
			next[i] = *q.At(i)
		}
		q.ring, q.first = next, 0
	}
	q.n++
	*q.At(q.n - 1) = it
}

// Pop removes n requests from the front.
func (q *Queue) Pop(n int) { q.first, q.n = (q.first+n)&(len(q.ring)-1), q.n-n }
