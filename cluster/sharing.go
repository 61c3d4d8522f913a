package cluster

import (
	"fmt"
	"slices"
)

// Sharing is how the shares of one GPU are handed out on a cluster.
type Sharing uint8

// The ways. Under MPS the shares of one GPU are of one user: its server takes the
// clients of one at a time (NVIDIA's MPS documentation).
const (
	TimeSlicing Sharing = iota // the GPU takes turns between processes; shares are declared only
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

// MIGWay says who partitions a cluster's GPUs into MIG instances.
type MIGWay uint8

// Who does. Under DynamicMIG any GPU of a node without a geometry of its own is cut when a
// job asks for a slice, and whole again when one needs it whole.
const (
	StaticMIG    MIGWay = iota // somebody else: instances are handed out as they are
	InstancesMIG               // GPUs in MIG mode get instances as jobs ask for them; the others are whole
	DynamicMIG                 // ... and GPUs are put into MIG mode, and out of it
)

// MIGWays are their names, in their order.
var MIGWays = []string{"static", "instances", "dynamic"}

func (w MIGWay) String() string { return MIGWays[w] }

// Isolation is what a job needs to be kept apart from others on its GPUs.
type Isolation uint8

// The needs, each with those before it.
const (
	Open      Isolation = iota // nothing
	OwnMemory                  // nobody can take its memory
	Full                       // neither memory nor compute, nor does another's fault hit it
)

var isolations = []string{"none", "memory", "full"}

func (i Isolation) String() string { return isolations[i] }

// ParseIsolation reads what a job needs; "" is none.
func ParseIsolation(text string) (Isolation, error) {
	if i := slices.Index(isolations, text); i >= 0 {
		return Isolation(i), nil
	}
	if text == "" {
		return Open, nil
	}
	return 0, fmt.Errorf("%q is not an isolation: none, memory, full", text)
}

// Ways is what a machine offers to jobs that share its GPUs, all of one model.
type Ways struct {
	Sharing  Sharing
	Model    GPUModel
	Profiles []string // of MIG instances that there are or can be made
}

// Ways returns what the cluster offers to jobs that take any of these GPU models (none:
// any of the cluster's; MatchModel). Of several models it is what that with the least memory offers,
// so that a share's part of it is there on each of them. Profiles are those of its
// instances that are there, or of all that can be made where nodes have them made as needed.
func (s *Spec) Ways(types []string) Ways {
	w := Ways{Sharing: s.Sharing}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		m, ok := s.Model(n.Model)
		if !ok || n.GPUs == 0 || len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return MatchModel(n.Model, t) }) {
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
		return // whoever reads the cluster says so
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

// Choose returns what a task gets that asks for r: its share of a GPU as it is, a MIG
// instance, or whole GPUs, whichever is the least that keeps apart what is wanted;
// and why, in words ("": it asked for whole GPUs or none). prompt says that the job
// cannot wait while others have their turns. A share without a memory of its own gets its
// part of the GPU's: MPS keeps it to that, and without MPS it is found when it uses more.
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

// Unshareable says why no task can have such shares where GPUs are shared that way, and what to
// ask for instead; "": it can. Under MPS a process is a client of one server, in the folder that it is told of
// (CUDA_MPS_PIPE_DIRECTORY), and each GPU with shares has a server of its own, for one user at a time: one server for
// several GPUs would keep every other user's shares off all of them.
func (r Request) Unshareable(how Sharing) string {
	if how != MPS || !r.Fractional() || r.Profile != "" || r.GPUs < 2 {
		return ""
	}
	return fmt.Sprintf("shares of %d GPUs: under MPS each GPU has a server of its own, and a task is a client of one; ask for whole GPUs, or for %d tasks with a share of one GPU each", r.GPUs, r.GPUs)
}

// least is the smallest profile with such a part of the GPU's compute and of its slices of memory, which
// come to a little less than that part of its memory, and with as much memory as is asked for; nil: there is none.
func (w *Ways) least(share Milli, memory MiB) (best *SliceProfile) {
	for i := range w.Model.Profiles {
		p := &w.Model.Profiles[i]
		if Milli(p.Compute)*Whole < share*Milli(w.Model.Compute) || Milli(p.Slots)*Whole < share*Milli(w.Model.MemSlots) || p.Memory < memory || !slices.Contains(w.Profiles, p.Name) {
			continue
		}
		if best == nil || p.Compute < best.Compute || p.Compute == best.Compute && p.Memory < best.Memory {
			best = p
		}
	}
	return best
}
