package show

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/muster-gpu/muster/ask"
)

// Row is a line of a list of jobs: a job, or waiting elements of an array with the same reason.
type Row struct {
	Job      *Job  // the first of them
	Elements []int // their indices, if there are several
}

// Fold puts the waiting elements of an array that share a reason into one row, at the place of the first.
func Fold(list []Job) (rows []Row) {
	type key struct {
		array  int
		reason string
	}
	at := map[key]int{} // rows of the elements with the same reason
	for i := range list {
		j := &list[i]
		k := key{j.Array, j.Reason}
		if n, ok := at[k]; ok && folds(j) {
			rows[n].Elements = append(rows[n].Elements, j.Index)
			continue
		}
		if folds(j) {
			at[k] = len(rows)
		}
		rows = append(rows, Row{Job: j, Elements: []int{j.Index}})
	}
	return rows
}

func folds(j *Job) bool { return j.Array != 0 && j.State == StatePending }

// ID names a row: a job's number, or that of an array with its waiting elements, 12_[3-9].
func (r *Row) ID() string {
	if len(r.Elements) < 2 {
		return strconv.Itoa(r.Job.ID)
	}
	slices.Sort(r.Elements)
	return fmt.Sprintf("%d_[%s]", r.Job.Array, ask.Ranges(r.Elements))
}
