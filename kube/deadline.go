package kube

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
)

// ConditionDeadline is the condition of a pod whose gang states a deadline: True, if the policy accepted it, False, if
// it cannot be promised; not there: there is no answer.
const ConditionDeadline v1.PodConditionType = Prefix + "DeadlineAccepted"

// answers are the policy's answers in the words of the interface.
var answers = map[engine.DeadlineAnswer]string{engine.DeadlineAccepted: "accepted", engine.DeadlineDeclined: "declined"}

// tellDeadlines writes to the pods of gangs with deadlines what the policy says of them, if
// that is news to them. An event says so once for a gang.
func (d *Driver) tellDeadlines() {
	if d.opt.Tell == nil {
		return
	}
	for _, g := range d.gangs {
		a := g.Answer(d.eng)
		if a == engine.DeadlineUnanswered {
			continue
		}
		pods := slices.DeleteFunc(g.Sorted(), func(p *gang.Pod) bool {
			return p.Over() || p.Obj.DeletionTimestamp != nil
		})
		to := gang.UIDs(pods)
		if len(pods) == 0 || a == g.Pledge.Answer && slices.Equal(to, g.Pledge.Knows) || d.notices.Full(len(pods)) {
			continue
		}
		g.Pledge = gang.Pledge{Answer: a, Knows: to}
		c := v1.PodCondition{Type: ConditionDeadline, Status: v1.ConditionTrue, Reason: "Accepted",
			LastTransitionTime: metav1.NewTime(time.Unix(0, int64(d.now))),
			Message: fmt.Sprintf("%s (%s)", a,
				time.Unix(0, int64(g.Spec.Deadline)).UTC().Format(time.RFC3339))}
		if a == engine.DeadlineDeclined {
			c.Status, c.Reason = v1.ConditionFalse, "CannotBePromised"
			c.Message += "; it runs when it can"
		}
		first := pods[0].Obj
		if i := slices.IndexFunc(first.Status.Conditions, func(o v1.PodCondition) bool {
			return o.Type == c.Type
		}); i < 0 || first.Status.Conditions[i].Message != c.Message {
			kind := v1.EventTypeNormal
			if c.Status == v1.ConditionFalse {
				kind = v1.EventTypeWarning
			}
			d.notices.Event(first, kind, "Deadline"+c.Reason, c.Message)
		}
		for _, p := range pods {
			d.notices.Condition(p.Obj, c)
		}
	}
}
