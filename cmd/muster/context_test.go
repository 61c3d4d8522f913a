package main

import (
	"context"
	"strings"
	"testing"
)

// What works on a machine only says, asked for a cluster, what to do instead.
func TestOnCluster(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"the policy of a cluster is in the configuration of muster kube", []string{"policy", "set", "las"}},
		{"the policy of a cluster is in the configuration of muster kube", []string{"tune"}},
		{"trials are submitted to muster serve", []string{"search", "list"}},
		{"kubectl changes what is there", []string{"cancel", "7"}},
	} {
		_, _, err := muster(t, context.Background(), append([]string{"--context", "somewhere"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "against a cluster work queue, why, show") {
			t.Errorf("%v: %v", c.args, err)
		}
	}
}
