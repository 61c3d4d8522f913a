package found

import "github.com/muster-gpu/muster/engine/job"

// mostSkipped bounds the numbers that a job which is found running may leave out.
const mostSkipped = 1 << 20

// Adopted says why a job that is found running cannot be taken over; "": it can.
func (b *Books) Adopted(r *job.Record) string {
	id := -1
	if r != nil && r.Spec != nil {
		id = int(r.Spec.ID)
	}
	switch {
	case id < 0 || id > len(b.Jobs())+mostSkipped || id < len(b.Jobs()) && b.Jobs()[id] != nil:
		return "it has no number of its own"
	case r.State != job.Starting && r.State != job.Running:
		return "it does not run"
	case !r.Independent():
		return "it is resized, moved, suspended, planned, elastic, of an array or beside another"
	case !r.Possible(b.World.Now):
		return "what it received is not possible"
	}
	queue, text := b.Admission.CheckSpec(r.Spec)
	if text != "" {
		return text
	}
	j := &job.State{Tenure: &job.Tenure{}, Spec: r.Spec, Facts: job.Facts{State: r.State}, Queue: int32(queue)}
	return b.checkPlace(j, r.Spec, r.Allocs)
}
