package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// KubeQueue is the content of a Queue object of a Kubernetes cluster.
type KubeQueue struct {
	cluster.Queue
	Namespaces []string       // namespaces whose pods it accepts, "team-*" too; none: all, or those of the parent
	Tiers      []cluster.Tier // tiers that it accepts; none: all, or those of the parent
}

// kubeQueueSpec is the spec of the object, with the keys of a configuration file in Kubernetes' spelling.
type kubeQueueSpec struct {
	Parent     string            `json:"parent"`
	Guarantee  float64           `json:"guarantee"`
	Limit      *float64          `json:"limit"`
	Lend       *float64          `json:"lend"`
	Weight     float64           `json:"weight"`
	Reserve    float64           `json:"reserve"`
	NoReclaim  bool              `json:"noReclaim"`
	UserGPUs   float64           `json:"userGPUs"`
	MaxJobs    int               `json:"maxJobs"`
	UserJobs   int               `json:"userJobs"`
	Budget     int64             `json:"budget"`
	Period     Duration          `json:"period"`
	Shares     int64             `json:"shares"`
	Priority   int64             `json:"priority"`
	Tiers      []string          `json:"tiers"`
	Namespaces []string          `json:"namespaces"`
	Windows    []kubeQueueWindow `json:"windows"`
}

type kubeQueueWindow struct {
	Days      []Days   `json:"days"`
	From      Clock    `json:"from"`
	To        Clock    `json:"to"`
	Guarantee *float64 `json:"guarantee"`
	Limit     *float64 `json:"limit"`
}

// ReadKubeQueue reads the spec of a Queue object, as JSON. The API server has checked most of it; an invalid
// value that it let through is an error that names the field.
func ReadKubeQueue(name string, spec []byte) (*KubeQueue, error) {
	var f kubeQueueSpec
	dec := json.NewDecoder(bytes.NewReader(spec))
	dec.DisallowUnknownFields() // a field of a later version: refused rather than ignored
	if err := dec.Decode(&f); err != nil {
		return nil, fmt.Errorf("spec: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	q := &KubeQueue{Namespaces: f.Namespaces,
		Queue: cluster.Queue{Name: name, Parent: f.Parent, NoReclaim: f.NoReclaim, MaxJobs: f.MaxJobs,
			UserJobs: f.UserJobs, Budget: f.Budget, Period: time.Duration(f.Period), Shares: f.Shares,
			Priority: f.Priority,
			Weight:   int64(math.Round(f.Weight * 1000))}}
	for _, a := range []struct {
		field string
		from  *float64
		to    *cluster.Milli
	}{{"spec.guarantee", &f.Guarantee, &q.Guarantee}, {"spec.reserve", &f.Reserve, &q.Reserve},
		{"spec.userGPUs", &f.UserGPUs, &q.UserGPUs},
		{"spec.limit", f.Limit, &q.Limit}, {"spec.lend", f.Lend, &q.Lend}} {
		if err := gpusOf(a.field, a.from, a.to); err != nil {
			return nil, err
		}
	}
	if !(f.Weight >= 0) || f.Weight > 1e6 || tooFine(f.Weight) {
		return nil, fmt.Errorf("spec.weight: %g; 0, or between 0.001 and 1e6, are possible", f.Weight)
	}
	for i := range f.Windows {
		w, err := f.Windows[i].window()
		if err != nil {
			return nil, fmt.Errorf("spec.windows[%d].%w", i, err)
		}
		q.Windows = append(q.Windows, w)
	}
	for _, t := range f.Tiers {
		tier, err := cluster.ParseTier(t)
		if err != nil {
			return nil, fmt.Errorf("spec.tiers: %w", err)
		}
		q.Tiers = append(q.Tiers, tier)
	}
	for _, n := range q.Namespaces {
		if _, err := path.Match(n, ""); err != nil || n == "" {
			return nil, fmt.Errorf("spec.namespaces: %q is neither a namespace nor a pattern such as team-*", n)
		}
	}
	return q, nil
}

// gpusOf reads a number of GPUs; nil: unlimited.
func gpusOf(field string, from *float64, to *cluster.Milli) error {
	*to = cluster.Unlimited
	if from == nil {
		return nil
	}
	if !(*from >= 0) || *from > 1e9 || tooFine(*from) {
		return fmt.Errorf("%s: %g is not a number of GPUs (0, or between 0.001 and 1e9)", field, *from)
	}
	*to = cluster.Milli(math.Round(*from * 1000))
	return nil
}

func (f *kubeQueueWindow) window() (cluster.Window, error) {
	w := cluster.Window{From: time.Duration(f.From), To: time.Duration(f.To)}
	for _, d := range f.Days {
		w.Days |= uint8(d)
	}
	if err := gpusOf("guarantee", f.Guarantee, &w.Guarantee); err != nil {
		return w, err
	}
	return w, gpusOf("limit", f.Limit, &w.Limit)
}

// Takes reports whether the queue itself accepts a namespace's pods; said: whether it states namespaces at all.
func (q *KubeQueue) Takes(namespace string) (takes, said bool) {
	for _, n := range q.Namespaces {
		if ok, err := path.Match(n, namespace); err == nil && ok {
			return true, true
		}
	}
	return false, len(q.Namespaces) > 0
}
