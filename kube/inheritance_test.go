package kube

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/perf"
)

// saver is a best-effort pod of an owner, which saves its work each second.
func saver(name string, of []metav1.OwnerReference) *v1.Pod {
	p := controlplane.Pod(name, 4, map[string]string{LabelTier: "best-effort", "!" + AnnotationSaves: "1s"})
	p.OwnerReferences = of
	return p
}

// record is what the engine knows of a pod's gang; nil: nothing.
func (b *bench) record(d *Driver, name string) (r *engine.JobRecord) {
	b.Helper()
	b.look(d, func() {
		for _, g := range d.gangs {
			if g.Name == "default/"+name && g.Spec != nil {
				r = d.eng.Record(g.Job)
			}
		}
	})
	return r
}

// preempted lets a-1 run for three seconds and a critical pod take its GPUs; it returns
// when a-1 is gone.
func (b *bench) preempted() (of []metav1.OwnerReference) {
	b.Helper()
	b.nodes(4, "n1")
	of = b.trainer("trainer")
	b.create(saver("a-1", of))
	b.wait("a-1 runs", func() bool { p := b.pod("a-1"); return p.Status.Phase == v1.PodRunning })
	from := time.Now()
	b.wait("it has run for a while", func() bool { return time.Since(from) > 3*time.Second })
	b.create(controlplane.Pod("big", 4, map[string]string{LabelTier: "critical"}))
	b.wait("a-1 has gone", func() bool {
		return !slices.ContainsFunc(b.pods(), func(p v1.Pod) bool { return p.Name == "a-1" })
	})
	return of
}

// A pod that is made in place of one that was preempted goes on as that: with what it received and saved,
// and in its turn, under this scheduler and the next ones.
func testGoesOn(b *bench) {
	d, stop := b.schedule()
	defer stop()
	var created time.Time
	of := b.preempted()
	b.look(d, func() {
		if list := d.inheritances.Kept(); len(list) == 1 {
			created = time.Unix(0, int64(list[0].Submit))
		}
	})
	if created.IsZero() {
		b.Fatal("nothing is remembered of a-1")
	}
	b.create(controlplane.Pod("other", 4, map[string]string{LabelTier: "best-effort"}))
	b.wait("other waits", func() bool { return b.record(d, "other") != nil })
	b.wait("a-2 is made later", func() bool {
		return time.Since(b.pod("other").CreationTimestamp.Time) > 2*time.Second
	})
	b.create(saver("a-2", of))
	b.wait("a-2 waits", func() bool { return b.record(d, "a-2") != nil })
	first := b.record(d, "a-2")
	switch ran := first.Ran; {
	case ran < 3*time.Second || first.Attained < 4*2900 || first.Weighted != first.Attained || first.Preemptions != 1:
		b.Errorf("it received %v, %d in %v and was preempted %d times", ran, first.Attained, first.Ran,
			first.Preemptions)
	case first.Done < 2*time.Second || first.Done > ran || first.Done%time.Second != 0 || first.Saved != first.Done:
		b.Errorf("of %v it saved %v (%v)", ran, first.Done, first.Saved)
	case !time.Unix(0, int64(first.Spec.Submit)).Equal(created) ||
		first.Spec.Submit >= b.record(d, "other").Spec.Submit:
		b.Errorf("it was submitted at %v", first.Spec.Submit)
	}
	b.wait("a-2 carries it", func() bool { return b.pod("a-2").Annotations[AnnotationBefore] != "" })
	stop()

	d, stop = b.schedule() // what waits
	defer stop()
	b.wait("it is there again", func() bool { return b.record(d, "a-2") != nil })
	if r := b.record(d, "a-2"); r.Attained != first.Attained || r.Done != first.Done || r.Preemptions != 1 {
		b.Errorf("the next scheduler has %+v", r)
	} else if at := r.Spec.Submit; time.Unix(0, int64(at)).Before(b.pod("a-2").CreationTimestamp.Time) {
		b.Errorf("the pod is believed that it is older than its owner, which cannot be read: %v", at)
	}
	b.gone(b.pod("big"))
	b.gone(b.pod("other"))
	b.wait("a-2 runs", func() bool { return len(b.whereabouts("a-2")) == 1 })
	stop()

	d, stop = b.schedule() // what runs
	defer stop()
	b.wait("it is there still", func() bool { return b.record(d, "a-2") != nil })
	r := b.record(d, "a-2")
	if r.State != engine.Running || r.Attained != first.Attained || r.Ran != first.Ran || r.Preemptions != 1 ||
		r.FirstStart >= r.Started {
		b.Errorf("the scheduler after that has %+v, the first had %d in %v", r, first.Attained, first.Ran)
	}
	b.gone(b.pod("a-2"))
	b.create(saver("a-3", of)) // nothing made a-2 leave
	b.wait("a-3 runs", func() bool { return len(b.whereabouts("a-3")) == 1 })
	if r = b.record(d, "a-3"); r.Attained > first.Attained/2 || r.Preemptions != 0 {
		b.Errorf("one that was deleted leaves %+v", r)
	}
}

// What was there before the other had to leave, or has another owner, inherits nothing, and
// what cannot be read is nothing.
func testGoesOnOnly(b *bench) {
	d, stop := b.schedule()
	defer stop()
	of := b.preempted()
	b.create(saver("b-1", b.trainer("another")))
	forged := saver("c-1", b.trainer("third"))
	forged.Annotations = maps.Clone(forged.Annotations)
	forged.Annotations[AnnotationBefore] = `{"attained":-5,"submit":1}`
	b.create(forged)
	huge := saver("d-1", b.trainer("fourth"))
	huge.Annotations = maps.Clone(huge.Annotations)
	huge.Annotations[AnnotationBefore] = `{"attained":9223372036854775807,"service":9223372036854775807,"ran":1000000000,"preemptions":2147483647,"submit":1}`
	b.create(huge)
	b.wait("they wait", func() bool {
		return b.record(d, "b-1") != nil && b.record(d, "c-1") != nil && b.record(d, "d-1") != nil
	})
	for _, name := range []string{"b-1", "c-1", "d-1"} {
		if r := b.record(d, name); r.Attained != 0 || r.Preemptions != 0 || r.Spec.Submit < 1e18 {
			b.Errorf("%s inherited %+v", name, r)
		}
	}
	b.create(saver("a-2", of))
	b.wait("a-2 waits", func() bool { return b.record(d, "a-2") != nil })
	if r := b.record(d, "a-2"); r.Preemptions != 1 {
		b.Errorf("a-2 has %+v", r)
	}
	b.gone(b.pod("a-2"))
	b.create(saver("a-3", of)) // a-2 never started: its inheritance is the next one's
	b.wait("a-3 waits", func() bool { return b.record(d, "a-3") != nil })
	if r := b.record(d, "a-3"); r.Preemptions != 1 || r.Attained == 0 {
		b.Errorf("a-3 has %+v", r)
	}
	b.create(saver("a-4", of))
	b.wait("a-4 waits", func() bool { return b.record(d, "a-4") != nil })
	if r := b.record(d, "a-4"); r.Preemptions != 0 {
		b.Errorf("two inherited what one had: %+v", r)
	}
}

// Under las two that both have had their first level do not change places without end: the one that
// was preempted comes back with what it has had.
func testGoesOnLevels(b *bench) {
	d, stop := b.schedule(func(o *Options) { o.Rules.Policy = "las:thresholds=8/1000000" })
	defer stop()
	b.nodes(4, "n1")
	of := b.trainer("trainer")
	b.create(saver("a-1", of))
	b.wait("a-1 has had its first level", func() bool {
		r := b.record(d, "a-1")
		return r != nil && r.State == engine.Running && time.Since(time.Unix(0, int64(r.Started))) > 3*time.Second
	})
	b.create(saver("b-1", b.trainer("another")))
	b.wait("b-1 has its place", func() bool { return len(b.whereabouts("b-1")) == 1 })
	b.create(saver("a-2", of))
	b.wait("b-1 has had its first level, too", func() bool {
		r := b.record(d, "b-1")
		return r != nil && r.State == engine.Running && time.Since(time.Unix(0, int64(r.Started))) > 6*time.Second
	})
	if on := b.whereabouts("a-2"); len(on) > 0 || len(b.whereabouts("b-1")) != 1 {
		b.Errorf("they changed places again: a-2 is on %v", on)
	}
}

// Pods are told how often to save, by what is known when they are bound: what they state, else what loses least where
// they were preempted before, else what standard jobs are promised.
func testSaveEvery(b *bench) {
	_, stop := b.schedule(func(o *Options) { o.Saving = &perf.Saving{Max: time.Hour} })
	defer stop()
	of := b.preempted()
	b.wait("big was told", func() bool { return b.pod("big").Annotations[AnnotationEvery] == "3600" })
	b.gone(b.pod("big"))
	unsaid := saver("a-2", of)
	delete(unsaid.Annotations, AnnotationSaves)
	b.create(unsaid)
	b.wait("a-2 runs", func() bool { return len(b.whereabouts("a-2")) == 1 })
	one, err := strconv.Atoi(b.pod("a-2").Annotations[AnnotationEvery])
	if want := perf.Daly(30*time.Second, perf.Unlost); err != nil || math.Abs(float64(one)-want.Seconds()) > 1 {
		b.Errorf("one preemption in a day: told to save every %d s, not %v (%v)", one, want, err)
	}
	b.gone(b.pod("a-2"))
	b.create(saver("a-3", of))
	b.wait("a-3 runs", func() bool { return len(b.whereabouts("a-3")) == 1 })
	if got := b.pod("a-3").Annotations[AnnotationEvery]; got != "1" {
		b.Errorf("it states a second, and is told %q", got)
	}
}

// TestGoesOn plays gangs that are preempted and made again on one real API server.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sub("successors", testGoesOn)
	b.sub("others", testGoesOnOnly)
	b.sub("levels", testGoesOnLevels)
	b.sub("saving", testSaveEvery)
}
