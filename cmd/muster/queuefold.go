package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/api"
)

// row is a line of muster queue: a job, or the waiting elements of an array that wait for the same.
type row struct {
	job      *api.Job // the first of them
	elements []int    // their indices, if there are several
}

// foldArrays puts the waiting elements of an array that share a reason into one row, at the place of the first.
func foldArrays(list []api.Job) (rows []row) {
	type key struct {
		array  int
		reason string
	}
	at := map[key]int{} // the row of what waits alike
	for i := range list {
		j := &list[i]
		k := key{j.Array, j.Reason}
		if n, ok := at[k]; ok && folds(j) {
			rows[n].elements = append(rows[n].elements, j.Index)
			continue
		}
		if folds(j) {
			at[k] = len(rows)
		}
		rows = append(rows, row{job: j, elements: []int{j.Index}})
	}
	return rows
}

func folds(j *api.Job) bool { return j.Array != 0 && j.State == api.StatePending }

// id is how a row is named: a job's number, or that of an array with its waiting elements, 12_[3-9].
func (r *row) id() string {
	if len(r.elements) < 2 {
		return strconv.Itoa(r.job.ID)
	}
	return fmt.Sprintf("%d_[%s]", r.job.Array, ranges(r.elements))
}

// ranges writes numbers as 0-4,7; it orders them.
func ranges(list []int) string {
	slices.Sort(list)
	var parts []string
	for i := 0; i < len(list); {
		end := i
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		if end == i {
			parts = append(parts, strconv.Itoa(list[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[end]))
		}
		i = end + 1
	}
	return strings.Join(parts, ",")
}
