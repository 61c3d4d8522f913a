//go:build linux

package main

import "golang.org/x/sys/unix"

// umask is this process's file mode mask.
func umask() int {
	old := unix.Umask(0o077)
	unix.Umask(old)
	return old
}
