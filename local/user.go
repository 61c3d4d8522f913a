//go:build linux

package local

import (
	"path/filepath"

	"github.com/muster-gpu/muster/local/account"
)

// inDir makes a path absolute.
func inDir(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// User is who submitted a job: the job runs as this user.
type User = account.User
