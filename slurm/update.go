package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

// update changes a job or a node: scontrol update jobid=12 timelimit=2:00:00.
func (c *command) update(args []string) (int, error) {
	pairs := map[string]string{}
	var keys []string
	for _, a := range args {
		k, v, ok := strings.Cut(a, "=")
		if !ok {
			return 1, fmt.Errorf("invalid update: %q is not FIELD=VALUE", a)
		}
		if k = strings.ToLower(k); strings.HasSuffix(k, "+") || strings.HasSuffix(k, "-") {
			return 1, fmt.Errorf("invalid update: %s=: write the new value, not a difference", k)
		}
		if _, twice := pairs[k]; !twice {
			keys = append(keys, k)
		}
		pairs[k] = v
	}
	if node, ok := pairs["nodename"]; ok {
		return c.updateNode(node, pairs, keys)
	}
	id, ok := pairs["jobid"]
	if !ok {
		if id, ok = pairs["job"]; !ok {
			return 1, says("No valid entity in update command: it begins with jobid=JOB or nodename=NODE")
		}
	}
	var u api.Update
	for _, k := range keys {
		if k == "jobid" || k == "job" {
			continue
		}
		if err := c.change(&u, k, pairs[k]); err != nil {
			return 1, err
		}
	}
	jobs, err := c.named(id)
	if err != nil {
		return 1, fmt.Errorf("%w for job %s", err, id)
	}
	code := 0
	for _, j := range jobs {
		if stateOf(&j).over {
			code = 1
			c.errorf("Job has already finished for job %s\n", (&row{Job: &j}).idText())
		} else if err = c.svc.Update(j.ID, &u); err != nil {
			code = 1
			c.errorf("%v for job %s\n", err, (&row{Job: &j}).idText())
		}
	}
	return code, nil
}

var updatable = []string{"account", "arraytaskthrottle", "comment", "deadline", "dependency", "eligibletime", "jobname",
	"name", "nice", "partition", "priority", "qos",
	"requeue", "reservationname", "starttime", "timelimit"}

// change translates one field.
func (c *command) change(u *api.Update, field, text string) error {
	switch field {
	case "account":
		u.Queue = &text
	case "comment":
		u.Comment = &text
	case "jobname", "name":
		u.Name = &text
	case "reservationname", "reservation":
		u.Reservation = &text
	case "partition":
		parts := strings.Split(text, ",")
		u.Partitions = &parts
	case "qos":
		if !slices.Contains(tiers, text) {
			return says("QOS: %w", cluster.Unknown("tier", text, tiers))
		}
		u.Tier = &text
	case "timelimit":
		d, err := ParseTime(text)
		if err != nil {
			return says("TimeLimit: %w", err)
		}
		u.Limit = (*api.Duration)(&d)
	case "starttime", "eligibletime", "deadline":
		t, err := ParseWhen(text, c.svc.Now())
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		if u.Begin = &t; field == "deadline" {
			u.Begin, u.Deadline = nil, &t
		}
	case "dependency":
		after, anyOf := []api.After{}, false
		if text != "" {
			var err error
			if after, anyOf, err = Dependencies(text, c.recent, c.svc.Job); err != nil {
				return err
			}
		}
		u.After, u.AnyOf = &after, &anyOf
	default:
		return changeNumber(u, field, text)
	}
	return nil
}

func changeNumber(u *api.Update, field, text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	bad := fmt.Errorf("%s=%s: not a number that can be", field, text)
	switch field {
	case "priority", "nice":
		if err != nil || n > 1<<32 || n < -(1<<32) {
			return bad
		}
		if field == "nice" {
			n = -n
		}
		u.Priority = &n
	case "arraytaskthrottle":
		if err != nil || n < 0 || n > ask.MaxArrayIndex {
			return bad
		}
		limit := int(n)
		u.Cap = &limit
	case "requeue":
		if err != nil || n < 0 || n > 1 {
			return bad
		}
		no := n == 0
		u.NoRequeue = &no
	default:
		return fmt.Errorf("this field cannot be changed: %w", cluster.Unknown("field", field, updatable))
	}
	return nil
}

// updateNode drains a machine or returns it to service.
func (c *command) updateNode(names string, pairs map[string]string, keys []string) (int, error) {
	for _, k := range keys {
		if k != "nodename" && k != "state" && k != "reason" {
			return 1, fmt.Errorf("this field cannot be changed: %w",
				cluster.Unknown("field", k, []string{"state", "reason"}))
		}
	}
	state, ok := map[string]string{"drain": "draining", "down": "down", "resume": "up", "undrain": "up",
		"idle": "up"}[strings.ToLower(pairs["state"])]
	if !ok {
		return 1, fmt.Errorf("state=%s: write drain, resume or down", pairs["state"])
	}
	if state != "up" && pairs["reason"] == "" {
		return 1, says("You must specify a reason when DRAINING a node")
	}
	hosts, err := ExpandHosts(names)
	if err != nil {
		return 1, err
	}
	for _, h := range hosts {
		if err := c.svc.SetNode(h, state, pairs["reason"]); err != nil {
			return 1, fmt.Errorf("%w: node %s", err, h)
		}
	}
	return 0, nil
}
