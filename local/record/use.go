//go:build linux

package record

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
)

// Use is what the tasks of a job used of the machine, all runs together.
type Use struct {
	CPU  time.Duration `json:"cpu,omitempty"`
	Peak int64         `json:"peak,omitempty"` // bytes of host memory, all tasks of a run
	// Lost is the GPU time, in whole GPUs, whose work runs that were stopped did
	// not save.
	Lost time.Duration `json:"lost,omitempty"`
	// Back is the GPU time, in whole GPUs, for which an elastic job held devices
	// that it was to give back: the engine counts what it is to hold.
	Back time.Duration `json:"back,omitempty"`
}

// Add books a run that is over.
func (u *Use) Add(tasks []*run.Task) {
	var peak int64
	for _, t := range tasks {
		u.CPU += t.Used.CPU
		peak += t.Used.Peak
	}
	u.Peak = max(u.Peak, peak)
}

// Lose books the work that a stopped run takes with it.
func (u *Use) Lose(rec *engine.JobRecord, now cluster.Time, kept time.Duration) {
	milli := Milli(rec.Allocs)
	if lost := rec.DoneAt(now) - kept; lost > 0 {
		u.Lost += time.Duration(float64(lost) * float64(milli) / float64(cluster.Whole))
	}
}

// Milli is what allocations hold of GPUs.
func Milli(allocs []engine.Alloc) (milli cluster.Milli) {
	for i := range allocs {
		milli += allocs[i].Milli()
	}
	return milli
}

// givenBack is what a job that shrinks still holds of what it gives back.
type givenBack struct {
	Since cluster.Time  `json:"since"`
	Milli cluster.Milli `json:"milli"`
}

func (b *givenBack) until(now cluster.Time) time.Duration {
	return time.Duration(float64(max(0, now.Sub(b.Since))) * float64(b.Milli) / float64(cluster.Whole))
}

// giveBack books, with its record, since when a job holds devices that it gives
// back, and what that came to when it has left them.
func (i *Info) giveBack(now cluster.Time) {
	milli := Milli(i.Record.Leaving)
	if i.Back != nil && i.Back.Milli == milli {
		return
	}
	if i.Back != nil {
		i.Use.Back += i.Back.until(now)
		i.Back = nil
	}
	if milli > 0 {
		i.Back = &givenBack{now, milli}
	}
}

// backHours is the GPU-hours of devices that were given back, until they were left.
func (i *Info) backHours(now cluster.Time) float64 {
	d := i.Use.Back
	if i.Back != nil {
		d += i.Back.until(now)
	}
	return d.Hours()
}
