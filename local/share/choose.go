package share

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// Choose decides which way a job shares the GPUs of a machine; the text says what is enforced. On simulated GPUs
// nothing is.
func Choose(machine *cluster.Spec, simulated bool, s *ask.Submission, spec *cluster.Job) (text string, err error) {
	w := machine.Ways(nil)
	for i := range spec.Tasks {
		r := &spec.Tasks[i].Request
		if r.GPUs == 0 && r.Memory > 0 && w.Model.Memory > 0 { // so much memory of a GPU, and as much of the rest
			r.GPUs, r.Share = 1, (r.Memory*cluster.Whole+w.Model.Memory-1)/w.Model.Memory
			if r.Share >= cluster.Whole {
				r.Share = 0
			}
		}
		*r, text = w.Choose(*r, spec.Isolation, s.Prompt)
		if no := r.Unshareable(w.Sharing); no != "" {
			return "", &ask.FieldError{Field: "gpus", Text: no}
		}
	}
	if strings.Contains(text, "enforced: ") && simulated {
		text += " (on a real one: nothing is enforced on a simulated GPU)"
	}
	return text, nil
}

// NoInstance says why a job cannot have the instances that it asks for; "": it can.
func NoInstance(machine *cluster.Spec, spec *cluster.Job) string {
	w := machine.Ways(nil)
	for i := range spec.Tasks {
		r := &spec.Tasks[i].Request
		if r.Profile == "" {
			continue
		}
		if p, ok := w.Model.Profile(r.Profile); ok && slices.Contains(w.Profiles, p.Name) {
			continue
		}
		have := "none"
		if len(w.Profiles) > 0 {
			have = strings.Join(w.Profiles, ", ")
		}
		return fmt.Sprintf("no GPU has a %s instance, and none is made: sharing.mig is %s; there are: %s", r.Profile,
			machine.MIG, have)
	}
	return ""
}

// MemoryOf is what the tasks of each set may use of each GPU that they share, in MiB, where
// nothing enforces it: what they asked for, else their share's part of it (Ways.Choose), also for
// jobs of versions that did not choose it. 0: whatever is there, or nothing but the job could use it.
func MemoryOf(machine *cluster.Spec, spec *cluster.Job) (list []int64) {
	model, _ := machine.Model(machine.Nodes[0].Model)
	for i := range spec.Tasks {
		r, may := &spec.Tasks[i].Request, int64(0)
		if r.Fractional() && r.Profile == "" && (machine.Sharing != cluster.MPS || !model.MPSLimits()) {
			may = cmp.Or(r.Memory, model.Memory*r.Share/cluster.Whole)
		}
		list = append(list, may)
	}
	return list
}

// UnderMPS reports whether a device is a share that MPS enforces.
func UnderMPS(machine *cluster.Spec, d *show.Device) bool {
	return machine.Sharing == cluster.MPS && d.Share > 0 && d.Profile == ""
}
