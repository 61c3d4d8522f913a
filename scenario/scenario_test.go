package scenario

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// Run `go test ./scenario -rewrite` to replace the expected outputs by the actual ones. Read the
// diff: accept only what you can explain.
var rewrite = flag.Bool("rewrite", false,
	"rewrite the expected outputs of testdata/*.scn; accept only what you can explain")

func scenarios(t testing.TB) []string {
	var files []string
	for _, pattern := range []string{"testdata/*.scn", "testdata/known/*.scn"} {
		f, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f...)
	}
	return files
}

func TestScenarios(t *testing.T) {
	for _, path := range scenarios(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			res, err := Run(context.Background(), path, text, Options{Rewrite: *rewrite})
			if err != nil {
				t.Fatal(err)
			}
			if !res.OK() {
				t.Errorf("%s\n%s", res.About, res.String())
			}
			if res.Changed {
				if err := os.WriteFile(path, res.Text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
