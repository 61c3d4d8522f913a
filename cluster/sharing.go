package cluster

import (
	"fmt"
	"slices"
)

// Sharing is how the shares of a GPU are enforced on a cluster.
type Sharing uint8

// The ways of sharing. Under MPS the shares of one GPU belong to one user: its server accepts the
// clients of one user at a time (NVIDIA's MPS documentation).
const (
	TimeSlicing Sharing = iota // processes take turns on the GPU; shares are only declared
	MPS                        // a control daemon per GPU limits each client's memory and threads
)

var sharings = []string{"time-slicing", "mps"}

func (s Sharing) String() string { return sharings[s] }

// ParseSharing reads a way of sharing.
func ParseSharing(text string) (Sharing, error) {
	if i := slices.Index(sharings, text); i >= 0 {
		return Sharing(i), nil
	}
	return 0, fmt.Errorf("%q is not a way of sharing: time-slicing, mps", text)
}

// MIGWay says how a cluster's GPUs are partitioned into MIG instances.
type MIGWay uint8

// The ways. Under DynamicMIG any GPU of a node without a geometry of its own is partitioned when a
// job requests a slice, and made whole again when one needs it whole.
const (
	StaticMIG    MIGWay = iota // outside of Muster: existing instances are handed out
	InstancesMIG               // GPUs in MIG mode get instances on demand; the others are whole
	DynamicMIG                 // ... and GPUs enter and leave MIG mode
)

// MIGWays are the names of the ways, in order.
var MIGWays = []string{"static", "instances", "dynamic"}

func (w MIGWay) String() string { return MIGWays[w] }

// Isolation is the isolation that a job requires from others on its GPUs.
type Isolation uint8

// The levels of isolation, each including the previous ones.
const (
	Open      Isolation = iota // none
	OwnMemory                  // no other job can take its memory
	Full                       // memory, compute and faults of other jobs
)

var isolations = []string{"none", "memory", "full"}

func (i Isolation) String() string { return isolations[i] }

// ParseIsolation reads an isolation level; "" is none.
func ParseIsolation(text string) (Isolation, error) {
	if i := slices.Index(isolations, text); i >= 0 {
		return Isolation(i), nil
	}
	if text == "" {
		return Open, nil
	}
	return 0, fmt.Errorf("%q is not an isolation: none, memory, full", text)
}

// Ways is what a machine, with GPUs of one model, offers to jobs that share GPUs.
type Ways struct {
	Sharing  Sharing
	Model    GPUModel
	Profiles []string // profiles of MIG instances that exist or can be made
}

// Ways returns what the cluster offers to jobs that accept any of these GPU models (none: any of
// the cluster's; MatchModel). With several models it is the offer of the one with the least memory,
// so that a share's part of it is available on each of them. Profiles are those of existing
// instances, or of all that can be made on nodes with instances on demand.
func (s *Spec) Ways(types []string) Ways {
	w := Ways{Sharing: s.Sharing}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		m, ok := s.Model(n.Model)
		if !ok || n.GPUs == 0 ||
			len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return MatchModel(n.Model, t) }) {
			continue
		}
		if w.Model.Name == "" || m.Memory < w.Model.Memory {
			w.Model = m
		}
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Model == w.Model.Name && n.GPUs > 0 {
			w.offer(n)
		}
	}
	return w
}

// offer adds the profiles of a node's instances.
func (w *Ways) offer(n *Node) {
	geometry, fixed, err := n.Geometry(&w.Model)
	if err != nil {
		return // the reader of the cluster file reports it
	}
	if !fixed {
		geometry = [][]Instance{{{Profile: AsNeeded}}}
	}
	for _, list := range geometry {
		for _, in := range list {
			for i := range w.Model.Profiles {
				name := w.Model.Profiles[i].Name
				if (in.Profile == AsNeeded || in.Profile == name) && !slices.Contains(w.Profiles, name) {
					w.Profiles = append(w.Profiles, name)
				}
			}
		}
	}
}

// Choose returns what a task with request r gets: its share of a GPU, a MIG instance, or whole
// GPUs, the smallest that provides the isolation; and the reason in words ("": it requested whole
// GPUs or none). prompt says that the job cannot wait for other jobs' turns. A share without a
// memory size gets its part of the GPU's memory: MPS enforces it, and without MPS excess use is
// detected.
func (w *Ways) Choose(r Request, want Isolation, prompt bool) (Request, string) {
	switch {
	case r.GPUs == 0:
		return r, ""
	case r.Profile != "":
		return r, "a MIG instance: enforced: memory and compute by the GPU"
	case !r.Fractional():
		return r, ""
	}
	part := r
	if r.Memory == 0 {
		part.Memory = w.Model.Memory * r.Share / Whole
	}
	if w.Sharing == MPS && want == Open && !w.Model.MPSLimits() {
		return part, "a share: declared only: MPS enforces neither memory nor compute on GPUs before Volta"
	}
	if w.Sharing == MPS && want < Full && w.Model.MPSLimits() {
		return part, "a share: enforced: memory by MPS; compute by MPS"
	}
	why := fmt.Sprintf("isolation %s", want)
	if want == Open && prompt {
		why = "a job that cannot wait for turns"
	}
	if want == Open && !prompt {
		return part, "a share: declared only: neither memory nor compute is enforced"
	}
	if p := w.least(r.Share, r.Memory); p != nil && r.GPUs == 1 {
		r.Share, r.Memory, r.Profile = 0, 0, p.Name
		return r, fmt.Sprintf("%s, for %s: enforced: memory and compute by the GPU", p.Name, why)
	}
	r.Share = 0
	return r, fmt.Sprintf("a whole GPU, for %s: this machine has no way to keep it apart on a part of one", why)
}

// Parts reports whether a job that cannot wait for turns can have a part of a GPU.
func (w *Ways) Parts() bool {
	r, _ := w.Choose(Request{GPUs: 1, Share: Whole / 2}, Open, true)
	return r.Fractional() || r.Profile != ""
}

// Unshareable says why no task can have such shares with this way of sharing, and what to request
// instead; "": it can. Under MPS a process is a client of one server, in the folder given by
// CUDA_MPS_PIPE_DIRECTORY, and each GPU with shares has a server of its own, for one user at a
// time: one server for several GPUs would keep all other users' shares off them.
func (r Request) Unshareable(how Sharing) string {
	if how != MPS || !r.Fractional() || r.Profile != "" || r.GPUs < 2 {
		return ""
	}
	return fmt.Sprintf("shares of %d GPUs: under MPS each GPU has a server of its own, and a task is a client of one; ask for whole GPUs, or for %d tasks with a share of one GPU each", r.GPUs, r.GPUs)
}

// least is the smallest profile with at least the share's part of the GPU's compute slices and of
// its memory slices (which amount to slightly less than that part of its memory), and with at least
// the requested memory; nil: there is none.
func (w *Ways) least(share Milli, memory MiB) (best *SliceProfile) {
	for i := range w.Model.Profiles {
		p := &w.Model.Profiles[i]
		if Milli(p.Compute)*Whole < share*Milli(w.Model.Compute) ||
			Milli(p.Slots)*Whole < share*Milli(w.Model.MemSlots) || p.Memory < memory ||
			!slices.Contains(w.Profiles, p.Name) {
			continue
		}
		if best == nil || p.Compute < best.Compute || p.Compute == best.Compute && p.Memory < best.Memory {
			best = p
		}
	}
	return best
}
