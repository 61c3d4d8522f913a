//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/local"
)

// crashVariable makes the daemon kill itself at a named point, the n-th time
// that it comes by: POINT or POINT:N (docs/design/reliability.md).
const crashVariable = "MUSTER_CRASH"

// crashPoint is what the variable asks for; nil: nothing.
func crashPoint() (func(string), error) {
	text := os.Getenv(crashVariable)
	if text == "" {
		return nil, nil
	}
	point, count, ok := strings.Cut(text, ":")
	n, err := strconv.Atoi(count)
	if !ok {
		n, err = 1, nil
	}
	if err != nil || n < 1 || !slices.Contains(local.CrashPoints, point) {
		return nil, fmt.Errorf("%s=%s: write POINT or POINT:N, with POINT one of %s", crashVariable, text,
			strings.Join(local.CrashPoints, ", "))
	}
	var left atomic.Int64
	left.Store(int64(n))
	return func(at string) {
		if at == point && left.Add(-1) == 0 {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {} // nothing more happens
		}
	}, nil
}
