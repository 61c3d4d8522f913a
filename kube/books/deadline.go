package books

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/terms"
)

// ConditionDeadline is the condition of a pod whose gang states a deadline: True, if the policy accepted it, False, if
// it cannot be promised; not there: there is no answer.
const ConditionDeadline v1.PodConditionType = terms.Prefix + "DeadlineAccepted"

// answers are the policy's answers in the words of the interface.
var answers = map[engine.DeadlineAnswer]string{engine.DeadlineAccepted: "accepted", engine.DeadlineDeclined: "declined"}

// Verdict is what the policy says of a gang's deadline, for its pods.
type Verdict struct {
	Pledge    gang.Pledge
	Pods      []*v1.Pod // at least one
	Condition v1.PodCondition
	Event     *gang.Notice // for the first of them; nil: it says so already
}

// Verdict is what the policy says of a gang's deadline, if that is news to its pods; nil: it is none.
func (s Scene) Verdict(g *gang.Gang) *Verdict {
	a := g.Answer(s.Engine)
	if a == engine.DeadlineUnanswered {
		return nil
	}
	pods := slices.DeleteFunc(g.Sorted(), func(p *gang.Pod) bool {
		return p.Over() || p.Obj.DeletionTimestamp != nil
	})
	v := &Verdict{Pledge: gang.Pledge{Answer: a, Knows: gang.UIDs(pods)}, Pods: gang.Objects(pods)}
	if len(pods) == 0 || a == g.Pledge.Answer && slices.Equal(v.Pledge.Knows, g.Pledge.Knows) {
		return nil
	}
	c := deadlineCondition(a, g.Spec.Deadline, s.Now)
	v.Condition = c
	said := func(o v1.PodCondition) bool { return o.Type == c.Type && o.Message == c.Message }
	if !slices.ContainsFunc(v.Pods[0].Status.Conditions, said) {
		v.Event = &gang.Notice{Kind: v1.EventTypeNormal, Reason: "Deadline" + c.Reason, Text: c.Message}
		if c.Status == v1.ConditionFalse {
			v.Event.Kind = v1.EventTypeWarning
		}
	}
	return v
}

// deadlineCondition says of a deadline whether it is accepted.
func deadlineCondition(a engine.DeadlineAnswer, deadline, now cluster.Time) v1.PodCondition {
	c := v1.PodCondition{Type: ConditionDeadline, Status: v1.ConditionTrue, Reason: "Accepted",
		LastTransitionTime: metav1.NewTime(time.Unix(0, int64(now))),
		Message:            fmt.Sprintf("%s (%s)", a, time.Unix(0, int64(deadline)).UTC().Format(time.RFC3339))}
	if a == engine.DeadlineDeclined {
		c.Status, c.Reason = v1.ConditionFalse, "CannotBePromised"
		c.Message += "; it runs when it can"
	}
	return c
}
