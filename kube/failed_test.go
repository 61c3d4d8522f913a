package kube

import (
	"errors"
	"log/slog"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/journal"
)

// poisoned fails inside the step in which a certain gang is submitted.
type poisoned struct{}

func (poisoned) Record(b *engine.Batch, _ *engine.Decision) error {
	for i := range b.Events {
		if spec := b.Events[i].Spec; spec != nil && strings.Contains(spec.Name, "poison") {
			panic("poisoned")
		}
	}
	return nil
}

func (poisoned) Close() error { return nil }

// The scheduler fails inside at one gang of many, each time it decides on it. The one that begins again finds out which
// gang that is, sets it aside, says so, and schedules all others.
func testFailed(b *bench) {
	b.eights("n1", "n2")
	for _, name := range []string{"a", "b", "poison", "x", "y"} {
		b.create(controlplane.Gang(name, 2, 1, nil)...)
	}
	var failures *Failures
	for n := range 2 {
		opt := testOptions(b.c, slog.New(slog.NewTextHandler(b.log, nil)))
		opt.Failures = failures
		opt.Journal = func(journal.Header) (Recorder, error) { return poisoned{}, nil }
		err := New(opt).Run(b.ctx)
		var failure *Failure
		if !errors.As(err, &failure) {
			b.Fatalf("scheduler %d ended with %v", n+1, err)
		}
		after, useful := failures.After(failure)
		if !useful {
			b.Fatalf("scheduler %d failed at %v: going on is said to be of no use", n+1, failure.Culprits)
		}
		failures = &after
	}
	if len(failures.Culprits) != 1 || !strings.Contains(failures.Culprits[0].Name, "poison") {
		b.Fatalf("set aside: %+v", failures.Culprits)
	}
	_, stop := b.schedule(func(o *Options) {
		o.Failures = failures
		o.Journal = func(journal.Header) (Recorder, error) { return poisoned{}, nil }
	})
	defer stop()
	b.wait("all others run", func() bool { return b.holding("a")+b.holding("b")+b.holding("x")+b.holding("y") == 8 })
	b.wait("the gang says why it does not", func() bool {
		return strings.Contains(condition(b.pod("poison-0")).Message, "the scheduler failed at it: poisoned")
	})
	b.wait("there is an event", func() bool {
		list, err := b.c.CoreV1().Events("default").List(b.ctx, metav1.ListOptions{FieldSelector: "reason=SetAside"})
		return err == nil && len(list.Items) > 0 && strings.HasPrefix(list.Items[0].InvolvedObject.Name, "poison-")
	})
	b.gone(b.pod("poison-0"))
	b.gone(b.pod("poison-1"))
	b.create(controlplane.Gang("later", 2, 1, nil)...)
	b.wait("a later gang runs", func() bool { return b.holding("later") == 2 })
}
