package placement

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// CheckHeld checks that a job holds exactly what it asked for, where it may. keeps: or where it may have been when its
// node was larger; strays: or in another partition, where a plan may have had it run.
func CheckHeld(w *sched.World, j *job.State, keeps, strays bool) error {
	s, st := w.Shapes.At(j.Shape), w.Store
	tasks := make([]int, len(s.Sets))
	gpus := make([]int, len(s.Sets))
	on := map[int32]int{} // looked up only
	for i := range j.Allocs {
		a := &j.Allocs[i]
		if int(a.Node) >= len(st.Nodes()) || int(a.Set) >= len(s.Sets) || a.Tasks < 0 {
			return fmt.Errorf("holds %+v", *a)
		}
		if on[a.Node] += int(a.Tasks); on[a.Node] > s.Most.Each() {
			return fmt.Errorf("has %d tasks on node %d; at most %d may be on one", on[a.Node], a.Node, s.Most.Each())
		}
		r := &s.Sets[a.Set].Request
		n := bits.OnesCount64(a.GPUs)
		tasks[a.Set] += int(a.Tasks)
		gpus[a.Set] += n
		shared := r.Fractional() || r.Profile != ""
		switch {
		case !s.Suits[a.Set].Has(st.Nodes()[a.Node].Class()) && !(strays && suitsElsewhere(st, j, a.Node, r)) &&
			!(keeps && st.Nodes()[a.Node].SizeByEvent()):
			return fmt.Errorf("is on node %d, which does not suit it", a.Node)
		case a.CPU != r.CPU*int64(a.Tasks) || a.RAM != r.RAM*int64(a.Tasks):
			return fmt.Errorf("holds %d CPU and %d RAM for %d tasks of %+v", a.CPU, a.RAM, a.Tasks, *r)
		case w.Shapes.Get(j.Base).OnInstance(j.Allocs):
			if err := checkDivided(st, a, r); err != nil {
				return err
			}
		case shared && (n != 1 || a.Share <= 0), !shared && (a.Share != 0 || n != int(a.Tasks)*r.GPUs):
			return fmt.Errorf("holds %+v for %+v", *a, *r)
		case shared && r.Profile == "" && (int64(a.Share) != r.Share || a.Mem != r.Memory || a.Slots != 0):
			return fmt.Errorf("holds %+v for %+v", *a, *r)
		case r.Profile != "":
			if err := checkSlice(st, a, r); err != nil {
				return err
			}
		}
	}
	for i := range s.Sets {
		least, most := s.Sets[i].Count, s.Sets[i].Count
		if i == 0 {
			least, most = int(s.Min), int(s.Max)
			if int(j.Tasks) != tasks[0] {
				return fmt.Errorf("counts %d tasks and holds %d", j.Tasks, tasks[0])
			}
		}
		if tasks[i] < least || tasks[i] > most || gpus[i] != tasks[i]*s.Sets[i].Request.GPUs {
			return fmt.Errorf("set %d has %d tasks on %d GPUs, wants %d to %d tasks of %d", i, tasks[i], gpus[i], least,
				most, s.Sets[i].Request.GPUs)
		}
	}
	milli, devices := inventory.MilliIn(j.Allocs), s.Devices(int(j.Tasks))
	if j.Milli != milli || int(j.Devices) != devices {
		return fmt.Errorf("counts for %d milli-GPU on %d devices, holds %d on %d", j.Milli, j.Devices, milli, devices)
	}
	return checkSpan(st, j, s, keeps)
}

// checkSlice checks that a MIG slice is at a legal start.
func checkSlice(st *inventory.Store, a *inventory.Alloc, r *cluster.Request) error {
	model := st.Classes()[st.Nodes()[a.Node].Class()].Model()
	p, ok := model.Profile(r.Profile)
	if !ok {
		return fmt.Errorf("holds a %s of a %s", r.Profile, model.Name)
	}
	n, dev := &st.Nodes()[a.Node], bits.TrailingZeros64(a.GPUs)
	if n.Stays(dev) && !slices.ContainsFunc(n.Fixed().Instances()[dev], func(in inventory.Instance) bool {
		return in.Profile() == p.Name && in.Mask() == a.Slots
	}) {
		return fmt.Errorf("holds slots %08b of GPU %d for %s, where there is no such instance", a.Slots, dev, r.Profile)
	}
	for _, start := range p.Starts {
		if p.Mask(start) == a.Slots && int(a.Compute) == p.Compute {
			return nil
		}
	}
	return fmt.Errorf("holds slots %08b of a %s for %s", a.Slots, model.Name, r.Profile)
}

// checkDivided checks that an instance on which a plan has a job that asks for a
// whole GPU suits it.
func checkDivided(st *inventory.Store, a *inventory.Alloc, r *cluster.Request) error {
	model := st.Classes()[st.Nodes()[a.Node].Class()].Model()
	p, _, ok := model.Held(a.Slots, int(a.Compute), a.Media)
	if !ok || p.Memory < r.Memory || r.GPUs != 1 || a.Tasks != 1 {
		return fmt.Errorf("holds slots %08b of a %s for %+v", a.Slots, model.Name, *r)
	}
	instead := *r
	instead.Profile = p.Name
	return checkSlice(st, a, &instead)
}

// checkSpan checks that a gang's GPUs are of one model, and that it is within its domain; keeps: or that nodes of it
// are others now.
func checkSpan(st *inventory.Store, j *job.State, s *shape.Shape, keeps bool) error {
	model := ""
	for i := range j.Allocs {
		if a := &j.Allocs[i]; a.GPUs != 0 {
			m := st.Classes()[st.Nodes()[a.Node].Class()].Model().Name
			if model == "" {
				model = m
			}
			if m != model {
				return fmt.Errorf("its gang is on two GPU models, %s and %s", model, m)
			}
		}
	}
	if keeps && slices.ContainsFunc(j.Allocs, func(a inventory.Alloc) bool { return st.Nodes()[a.Node].Changed() }) {
		return nil
	}
	if l := s.Topo.Level; s.Topo.Required && l != cluster.LevelAny && !st.Together(j.Allocs, l) {
		return fmt.Errorf("must be within one %s and holds %+v", l, j.Allocs)
	}
	return nil
}

// suitsElsewhere reports whether but for its partition a node suits a job.
func suitsElsewhere(st *inventory.Store, j *job.State, node int32, r *cluster.Request) bool {
	c := &st.Classes()[st.Nodes()[node].Class()]
	return job.AcceptsGPU(j.Spec, c.Model().Name) && inventory.WhyNotClass(r, c) == ""
}
