//go:build linux

package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

// Live is a job that is not over, when the rules change.
type Live struct {
	Spec    *cluster.Job
	Waits   bool
	Refused bool // under the new rules
}

// AllStay says why rules cannot count while the jobs are what they are: no job that was accepted is lost to a change of
// the rules.
func AllStay(partitions []cluster.Partition, jobs []Live) error {
	lost := map[string][]string{}
	for _, j := range jobs {
		number := fmt.Sprint(j.Spec.ID)
		for _, p := range j.Spec.Partitions {
			if !slices.ContainsFunc(partitions, func(q cluster.Partition) bool { return q.Name == p }) {
				lost["partition "+p] = append(lost["partition "+p], number)
			}
		}
		if j.Refused {
			name := "queue " + j.Spec.Queue
			if j.Spec.Queue == "" {
				name = "queue default"
			}
			lost[name] = append(lost[name], number)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(lost)) {
		return fmt.Errorf("%s would be gone, and jobs wait there (%s): move them (muster update JOB --queue NAME) or cancel them first, or keep it with limit: 0",
			what, fewOf(lost[what]))
	}
	return nil
}

// Closing names the queues that there are not any more while jobs of theirs hold devices.
func Closing(queues []cluster.Queue, jobs []Live) (notes []string) {
	if len(queues) == 0 {
		return nil
	}
	gone := map[string][]string{}
	for _, j := range jobs {
		name := j.Spec.Queue
		if !j.Waits && !slices.ContainsFunc(queues, func(q cluster.Queue) bool { return q.Name == name }) {
			gone[name] = append(gone[name], fmt.Sprint(j.Spec.ID))
		}
	}
	for _, q := range slices.Sorted(maps.Keys(gone)) {
		notes = append(notes,
			fmt.Sprintf("queue %q is gone: it is closed, owed nothing and takes no job, until its jobs that run have ended (%s)", q, fewOf(gone[q])))
	}
	return notes
}

// fewOf names jobs, the first few of many.
func fewOf(ids []string) string {
	text := strings.Join(ids[:min(len(ids), 10)], ", ")
	if len(ids) > 10 {
		text += fmt.Sprintf(" and %d more", len(ids)-10)
	}
	return text
}
