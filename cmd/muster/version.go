package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/internal/version"
)

// versionInfo is what muster version says.
type versionInfo struct {
	version.Info
	Service string `json:"service,omitempty"` // the version of the service that answers; empty: none does
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Show which version this is, and which one the service is", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := versionInfo{Info: version.Read()}
			var info struct {
				Version string `json:"version"`
			}
			if err := client.Connect().Do(c.Context(), http.MethodGet, "/v1/info", nil, &info); err == nil {
				v.Service = info.Version
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(v)
			}
			text := "muster " + v.Info.String()
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
