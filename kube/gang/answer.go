package gang

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// Pledge is what the pods of a gang were told of its deadline.
type Pledge struct {
	Answer engine.DeadlineAnswer
	Knows  []types.UID // pods that were told
}

// Answer is what the policy says of a gang's deadline; unanswered, if it has none.
func (g *Gang) Answer(e *engine.Engine) engine.DeadlineAnswer {
	if g.Job == cluster.NoJob || g.Spec == nil || g.Spec.Deadline == 0 {
		return engine.DeadlineUnanswered
	}
	return e.DeadlineAnswer(g.Job)
}

// WithAnswer adds to a text what the policy says of a gang's deadline, if it does not say
// so already.
func (g *Gang) WithAnswer(e *engine.Engine, text string) string {
	if a := g.Answer(e); a != engine.DeadlineUnanswered && !strings.Contains(text, a.String()) {
		return strings.TrimPrefix(text+"; "+a.String(), "; ")
	}
	return text
}
