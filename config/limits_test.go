package config

import (
	"strings"
	"testing"
)

// Limits are read with their units, the defaults depend on the kind of daemon, and errors name their line.
func TestLimits(t *testing.T) {
	c, err := ReadServe("x",
		strings.NewReader("queues: [{name: a}]\nlimits: {jobs: unlimited, comment: 2KiB, streams: 7}\nurgent: {queues: [a]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := ForUsers
	want.Jobs, want.Comment, want.Streams = 0, 2048, 7
	if got := c.LimitsFor(true); got != want {
		t.Errorf("limits %+v, not %+v", got, want)
	}
	if got := c.LimitsFor(false); got.Env != ForOne.Env || got.Streams != 7 {
		t.Errorf("limits of a daemon of one user: %+v", got)
	}
	if !c.Urgency.Restricts(true) || c.Urgency.Restricts(false) {
		t.Error("urgent jobs need a right where there are several users, and only there")
	}
	for text, want := range map[string]string{
		"limits: {jobs: 0}":                           "x:1:",
		"limits: {jobs: 1.5}":                         "whole number",
		"limits: {comment: 3GB}":                      "number of bytes",
		"limits: {comments: 3}":                       "comment",
		"urgent: {who: nobody}":                       "everybody",
		"urgent: {queues: [x]}":                       "queue",
		"urgent: {who: everybody, queues: [default]}": "already",
	} {
		if _, err := ReadServe("x", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, without %q", text, err, want)
		}
	}
}
