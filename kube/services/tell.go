package services

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/kube/patch"
)

// status is what people are told of a service, in its annotation.
type status struct {
	State   string    `json:"state"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
	Figures *figures  `json:"figures,omitempty"`
	// Measured are the profiles that are measured, by variant, for the scheduler after this one.
	Measured map[string][]timed `json:"measured,omitempty"`
}

// States of a service.
const (
	scaling    = "Scaling"
	holding    = "Held"       // a person has set its replicas a moment ago
	paused     = "Paused"     // a person has set its replicas out of bounds
	blind      = "Blind"      // what it has to do is not known
	refused    = "Refused"    // another scales it, or it is incomplete
	unreadable = "Unreadable" // the annotation
)

// adopts reports whether Muster has set the replicas of a service that is in this state.
func (s status) adopts() bool {
	return s.State == scaling || s.State == holding || s.State == paused || s.State == blind
}

// recorded is the status that the object has.
func (s *running) recorded() (st status) {
	if json.Unmarshal([]byte(s.object.Annotations[AnnotationStatus]), &st) != nil {
		return status{}
	}
	return st
}

// tell says how a service is, if that is new. Kinds whose status has nothing but fields of its own get an event only:
// the right to annotate them would be one to change what they run.
func (r *Room) tell(ctx context.Context, s *running, st status) {
	const longest = 1000
	if len(st.Message) > longest {
		st.Message = st.Message[:longest] + " ..."
	}
	same := func(was status) bool { return was.State == st.State && was.Message == st.Message }
	now, old, o := r.opt.Now(), s.recorded(), s.object
	news := !same(s.said) && !same(old)
	figured := o.kind.annotated() && st.adopts() && now.Sub(s.figured) >= figuresEvery*r.opt.Period
	if s.said = st; !news && !figured {
		return
	}
	if st.Since = old.Since; news {
		st.Since = now.UTC().Truncate(time.Second)
	}
	if st.adopts() {
		st.Figures, s.figured = &s.figures, now
	}
	st.Measured = s.measured()
	if o.kind.annotated() {
		var sub []string
		if !o.kind.patched {
			sub = []string{"status"}
		}
		change := patch.JSON(map[string]any{"metadata": map[string]any{"uid": o.UID,
			"annotations": map[string]any{AnnotationStatus: string(patch.JSON(st))}}})
		if _, err := r.opt.Dynamic.Resource(o.resource()).Namespace(o.Namespace).Patch(ctx, o.Name,
			types.MergePatchType, change, metav1.PatchOptions{FieldManager: manager}, sub...); err != nil {
			s.said = status{} // once more
			r.opt.Log.Warn("services: the status cannot be written", "service", o.String(), "error", err)
			return
		}
	}
	if !news {
		return
	}
	kind := v1.EventTypeWarning
	if st.State == scaling || st.State == holding {
		kind = v1.EventTypeNormal
	}
	if st.State != scaling || st.Message != "" || old.State != "" {
		r.notices.Event(o.reference(), kind, "Service"+st.State, join(st.State, st.Message))
	}
	r.opt.Log.Info("services", "service", o.String(), "state", st.State, "message", st.Message)
}

// figuresEvery is in how many periods the annotation has new figures.
const figuresEvery = 4

// annotated reports whether the status of such objects is in their annotation.
func (k *kind) annotated() bool { return k.told || k.patched }

// tries is how often replicas are set, where others write the object at the same time.
const tries = 4

// scale sets the replicas of a variant, if they are still as they were seen.
func (r *Room) scale(ctx context.Context, s *running, i, from, to int, why string) {
	o := s.parts[i]
	if r.opt.Crash != nil {
		r.opt.Crash("services-scaling")
	}
	set := r.setScale
	if o.part != nil {
		set = r.setRay
	}
	changed, err := set(ctx, o, from, to)
	if err != nil {
		r.opt.Log.Warn("services: replicas cannot be set", "object", o.String(), "error", err)
		r.notices.Event(o.reference(), v1.EventTypeWarning, "ServiceNotScaled", err.Error())
		return
	}
	if !changed {
		return // they were set by another a moment ago, which the next round sees
	}
	s.left[o.UID] = to
	r.opt.Log.Info("services: scaled", "object", o.String(), "from", from, "to", to, "because", why)
	r.notices.Event(o.reference(), v1.EventTypeNormal, "ServiceScaled",
		fmt.Sprintf("%d to %d replicas: %s", from, to, why))
}

// setScale sets replicas by the scale subresource; changed: they were still as they were seen.
func (r *Room) setScale(ctx context.Context, o *object, from, to int) (changed bool, err error) {
	at := r.opt.Dynamic.Resource(o.resource()).Namespace(o.Namespace)
	for range tries {
		now, err := at.Get(ctx, o.Name, metav1.GetOptions{}, "scale")
		if err != nil {
			return false, err
		}
		if n, _, _ := unstructured.NestedInt64(now.Object, "spec", "replicas"); int(n) != from {
			return false, nil
		}
		change := patch.JSON(map[string]any{"metadata": map[string]any{"resourceVersion": now.GetResourceVersion()},
			"spec": map[string]any{"replicas": to}})
		_, err = at.Patch(ctx, o.Name, types.MergePatchType, change, metav1.PatchOptions{FieldManager: manager},
			"scale")
		if !apierrors.IsConflict(err) {
			return err == nil, err
		}
	}
	return false, nil
}
