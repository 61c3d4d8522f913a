//go:build linux

package shim

import (
	"embed"
	"fmt"
	"hash/fnv"
	"io/fs"
)

// Verb is the word that makes a program a shim; the task's folder follows.
const Verb = "__shim"

// BuildVerb makes muster-shim print Build and end.
const BuildVerb = "--build"

//go:embed *.go
var source embed.FS

// Build distinguishes one state of this package's source from another. A daemon uses
// the small program beside it only if both were made from the same: what they
// write for each other must not be guessed.
func Build() string {
	h := fnv.New64a()
	_ = fs.WalkDir(source, ".", func(path string, d fs.DirEntry, err error) error { // what is embedded can be read
		if err != nil || d.IsDir() {
			return err
		}
		text, err := source.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
		return err
	})
	return fmt.Sprintf("%016x", h.Sum64())
}
