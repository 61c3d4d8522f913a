package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// FindJob finds a job by its number, or by its name if it is the only one of
// that name that is not over, or the last that was.
func (c *Client) FindJob(ctx context.Context, text string) (int, error) {
	if id, err := strconv.Atoi(text); err == nil && id > 0 {
		return id, nil
	}
	for _, states := range []string{"active", ""} {
		list, err := c.List(ctx, map[string][]string{"name": {text}, "state": {states}, "brief": {"true"}})
		if err != nil {
			return 0, err
		}
		if len(list) > 1 && states != "" {
			var which []string
			for i := range list[:min(len(list), 5)] {
				which = append(which, fmt.Sprintf("%d (%s, %s)", list[i].ID, list[i].Submission.Name, list[i].State))
			}
			return 0, fmt.Errorf("%d jobs are called %s: give a number, such as %s", len(list), text,
				strings.Join(which, ", "))
		}
		if len(list) > 0 {
			return list[0].ID, nil
		}
	}
	return 0, fmt.Errorf("no job is called %s, nor is that a number; muster queue lists them", text)
}

// FindJobs finds jobs by their numbers or names.
func (c *Client) FindJobs(ctx context.Context, args []string) (ids []int, err error) {
	for _, a := range args {
		id, err := c.FindJob(ctx, a)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// ElementsOf puts in the place of an array's number those of its elements that are in a state. The number is
// that of the first element, too, which alone would be taken for the whole.
func (c *Client) ElementsOf(ctx context.Context, ids []int, state string) (list []int, err error) {
	for _, id := range ids {
		j, err := c.Job(ctx, id)
		if err != nil {
			return nil, err
		}
		if j.Array != id {
			list = append(list, id)
			continue
		}
		jobs, err := c.List(ctx, map[string][]string{"state": {state}, "brief": {"true"}})
		if err != nil {
			return nil, err
		}
		before := len(list)
		for i := range jobs {
			if jobs[i].Array == id {
				list = append(list, jobs[i].ID)
			}
		}
		if len(list) == before {
			return nil, fmt.Errorf("no element of array %d is %s", id, state)
		}
		slices.Sort(list[before:])
	}
	return list, nil
}
