package setaside

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Failure is that a scheduler failed inside while it decided, which leaves its state of no use. The scheduler that
// comes next goes on from what the cluster says, with what it is to know of Failures.
type Failure struct {
	Cause    any
	Culprits []Culprit // gangs that were submitted in the step that failed
}

// Culprit is a gang that a scheduler failed at.
type Culprit struct {
	Pod  string `json:"pod"` // UID of the first of its pods
	Name string `json:"name"`
	Text string `json:"text"` // how the scheduler failed
}

// Error says how the scheduler failed.
func (f *Failure) Error() string {
	return fmt.Sprintf("the scheduler failed while it decided: %v", f.Cause)
}

// mostCulprits is how many gangs are set aside because schedulers failed at them. With more, it is something else.
const mostCulprits = 8

// Failures are what the schedulers before this one failed at.
type Failures struct {
	// Culprits are set aside. Each is surely one: from the first failure on gangs are submitted one at a time.
	Culprits []Culprit `json:"culprits,omitempty"`
	// Blameless counts failures in a row in which no single gang was submitted.
	Blameless int `json:"blameless,omitempty"`
}

// After are the failures that the next scheduler has to know; false: going on is of no use.
func (f *Failures) After(next *Failure) (Failures, bool) {
	if f != nil && len(next.Culprits) == 1 {
		list := append(slices.Clone(f.Culprits), next.Culprits[0])
		return Failures{Culprits: list}, len(list) <= mostCulprits
	}
	after := Failures{Blameless: 1}
	if f != nil {
		after = Failures{Culprits: f.Culprits, Blameless: f.Blameless + 1}
	}
	return after, after.Blameless <= 2
}

// Blame is why a gang with these pods is set aside, because an earlier scheduler failed at it; "": none did.
func (f *Failures) Blame(pods []*v1.Pod) string {
	if f == nil {
		return ""
	}
	for _, p := range pods {
		for _, c := range f.Culprits {
			if c.Pod == string(p.UID) {
				return "the scheduler failed at it: " + c.Text
			}
		}
	}
	return ""
}
