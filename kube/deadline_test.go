package kube

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/books"
	"github.com/muster-gpu/muster/show"
)

// deadlines lets a scheduler promise them, where gangs that leave save their work.
func deadlines(policy string) func(*Options) {
	return func(o *Options) {
		o.Rules.Policy = policy
		o.Rules.Stop = &engine.DefaultStop
	}
}

// Of two gangs with deadlines for the same GPUs one is promised its, the other is not; both
// are told, by condition, by event and by muster why. The second runs when the first is over.
func testDeadline(b *bench) {
	for _, policy := range []string{"elasticflow", "chronus"} {
		b.sub(policy, func(b *bench) {
			b.nodes(8, "n1")
			d, stop := b.schedule(deadlines(policy))
			defer stop()
			says := func(by string) map[string]string {
				return map[string]string{"!" + AnnotationDeadline: by, "!" + AnnotationRunTime: "1h",
					"!test.muster.sh/run": "1h"}
			}
			b.create(controlplane.Gang("first", 2, 4, says("90m"))...)
			b.promised("first", "True", "DeadlineAccepted",
				"its deadline is accepted ("+
					b.pod("first-0").CreationTimestamp.Add(90*time.Minute).UTC().Format(time.RFC3339)+")")
			b.runs("first-0", "first-1")
			at := time.Now().Add(95 * time.Minute).UTC().Format(time.RFC3339)
			b.create(controlplane.Gang("second", 2, 4, says(at))...)
			b.promised("second", "False", "DeadlineCannotBePromised",
				"its deadline cannot be promised ("+at+"); it runs when it can")
			b.says("second-1", "its deadline cannot be promised")
			b.wait("muster why says so", func() bool { return b.whyOf(d, "default/second").Job.Promise == "declined" })
			for name, want := range map[string]string{"default/first": "its deadline is accepted",
				"default/second": "its deadline cannot be promised"} {
				if w := b.whyOf(d, name); !strings.Contains(w.Text, want) || w.Job.Submission.Deadline == nil {
					b.Errorf("why of %s: %q, deadline %v", name, w.Text, w.Job.Submission.Deadline)
				}
			}
			b.create(controlplane.Pod("bad", 1, map[string]string{"!" + AnnotationDeadline: "soon"}))
			b.says("bad", `annotation muster.sh/deadline of pod bad: "soon" is neither a time such as`)
		})
	}
}

// promised waits until all pods of a gang of two have a condition, and the first an event.
func (b *bench) promised(gang string, status v1.ConditionStatus, reason, text string) {
	b.Helper()
	for _, name := range []string{gang + "-0", gang + "-1"} {
		b.wait(name+" knows of its deadline", func() bool {
			return slices.ContainsFunc(b.pod(name).Status.Conditions, func(c v1.PodCondition) bool {
				return c.Type == books.ConditionDeadline && c.Status == status && c.Message == text
			})
		})
	}
	b.wait("an event says so, too", func() bool {
		list, err := b.c.CoreV1().Events("default").List(b.ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e v1.Event) bool {
			return e.Reason == reason && e.InvolvedObject.Name == gang+"-0" && e.Message == text
		})
	})
}

// whyOf is what muster why says of a job, by name.
func (b *bench) whyOf(d *Driver, name string) (w show.Why) {
	b.Helper()
	jobs, err := d.View().Jobs(b.ctx, ask.Filter{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range jobs {
		if jobs[i].Submission.Name == name {
			if w, err = (d.View()).Why(b.ctx, jobs[i].ID); err != nil {
				b.Fatal(err)
			}
		}
	}
	return w
}

// A gang keeps its deadline where the engine begins again; edf puts those first that are due
// first.
func TestDeadlineOrder(t *testing.T) {
	gang := func(name, by string) *v1.Pod {
		return controlplane.Pod(name, 8, map[string]string{"!" + AnnotationDeadline: by})
	}
	d, _ := still(t, 1, gang("blocker", "1h"), gang("late", "5h"), gang("soon", "2h"))
	d.opt.Rules.Policy = "edf"
	d.stale = "the policy is another"
	steps(t, d)
	line := d.eng.Line(2)
	if len(line) != 2 || d.byID[line[0].Job].Name != "default/soon" {
		t.Fatalf("in line: %v", line)
	}
	at := d.byID[line[0].Job].Spec.Deadline
	d.stale = "again"
	if steps(t, d); d.byID[d.eng.Line(1)[0].Job].Spec.Deadline != at ||
		at != cluster.Time(time.Date(2026, 3, 1, 13, 59, 0, 0, time.UTC).UnixNano()) {
		t.Errorf("due at %d", at)
	}
}
