//go:build linux

package shim

import (
	"net"
	"os"
	"path/filepath"
)

// Tasks that were begun before shims were root's have everything in their own
// folder, which belongs to the job's user. They run on after an upgrade; what is
// said of them is a claim.

// Legacy reports whether the task with this folder is one of those.
func Legacy(dir string) bool {
	_, err := os.Lstat(TaskFile(dir))
	if err == nil {
		return false
	}
	_, err = os.Lstat(filepath.Join(dir, "task.json"))
	return err == nil
}

// LegacyState reads what their shim, or anybody else of their user's, wrote.
func LegacyState(dir string) (*State, error) { return readState(filepath.Join(dir, "state.json")) }

// LegacyDial connects to their terminal; what answers must be the user's.
func LegacyDial(dir string, uid int) (net.Conn, error) { return dial(dir, "tty", uid) }
