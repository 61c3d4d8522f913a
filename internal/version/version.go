// Package version says which version of Muster a program is, and from which source it was built.
package version

import (
	"runtime"
	"runtime/debug"
)

// Release is the version that CHANGELOG.md begins with.
const Release = "0.1.0"

// Info is what a program knows of its own build.
type Info struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`  // twelve digits; empty: the build did not record it
	Changed bool   `json:"changed,omitempty"` // built from a working tree that differs from the commit
	Go      string `json:"go"`
	System  string `json:"system"` // linux/amd64
}

// Read returns what this program was built from.
func Read() Info {
	v := Info{Version: Release, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			v.Changed = s.Value == "true"
		}
	}
	return v
}

// String is one line, such as "0.1.0, commit 2ad91d61b0c4, go1.26.8, linux/amd64".
func (v Info) String() string {
	text := v.Version
	if v.Commit != "" {
		text += ", commit " + v.Commit
	}
	if v.Changed {
		text += " with changes"
	}
	return text + ", " + v.Go + ", " + v.System
}

// Build identifies the source of a build: programs that belong together have the same.
func Build() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return Release + " " + b.Main.Version
	}
	return Release
}
