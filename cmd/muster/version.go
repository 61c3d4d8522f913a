package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/client"
)

// versionInfo is what muster version says.
type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Changed bool   `json:"changed,omitempty"` // built from a working tree that differs from the commit
	Go      string `json:"go"`
	System  string `json:"system"`
	Service string `json:"service,omitempty"` // the version of the service that answers; empty: none does
}

// version is that of the module this program was built from.
func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "unknown"
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Show which version this is, and which one the service is", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := builtFrom()
			var info struct {
				Version string `json:"version"`
			}
			if err := client.Connect().Do(c.Context(), http.MethodGet, "/v1/info", nil, &info); err == nil {
				v.Service = info.Version
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(v)
			}
			text := fmt.Sprintf("muster %s, %s, %s", v.Version, v.Go, v.System)
			if v.Commit != "" {
				text += ", commit " + v.Commit
			}
			if v.Changed {
				text += " with changes"
			}
			if v.Service != "" {
				text += "\nservice " + v.Service
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

// builtFrom is what the build noted of its source.
func builtFrom() versionInfo {
	v := versionInfo{Version: version(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
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
