// Package shared finds the recorded traces that tests use if they exist next to the repository. They are not
// part of it: where they are missing, the test is skipped with a message; in CI it fails.
package shared

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// Unzip opens a compressed file under ../shared until the end of the test.
func Unzip(t testing.TB, rel string) io.Reader {
	t.Helper()
	f, err := os.Open(Path(t, rel))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// Path returns the path of a file under ../shared, relative to the repository.
func Path(t testing.TB, rel string) string {
	t.Helper()
	p := filepath.Join(root(), "..", "shared", filepath.FromSlash(rel))
	if _, err := os.Stat(p); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("SKIP-SHARED: %s is missing, and CI may not skip", rel)
		}
		t.Skipf("SKIP-SHARED: %s is not there; recorded traces are not part of the repository", rel)
	}
	return p
}
