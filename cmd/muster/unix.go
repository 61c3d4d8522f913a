//go:build linux

package main

import "golang.org/x/sys/unix"

// plainUmask makes folders that others may pass through what they are meant to
// be, however strict the shell was that the daemon was started from.
func plainUmask() { unix.Umask(0o022) }

// umask is this process's file mode mask.
func umask() int {
	old := unix.Umask(0o077)
	unix.Umask(old)
	return old
}
