package shared

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Reads reads the files of a folder that other programs will read for a test: go test caches a result as long as
// the files that the test itself read are unchanged, which does not cover programs that it builds, or a chart.
func Reads(t testing.TB, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (path != dir && strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata"):
			return filepath.SkipDir
		case e.Type().IsRegular() &&
			(filepath.Ext(path) == ".go" || filepath.Ext(path) == ".mod" ||
				strings.Contains(path, "deploy"+string(filepath.Separator))):
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
