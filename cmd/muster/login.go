package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/client/tcp"
)

func newToken() *cobra.Command {
	c := &cobra.Command{Use: "token", Short: "Tokens let people and programs in who are not at this machine's socket"}
	c.AddCommand(newTokenCreate(), newTokenList(), newTokenRevoke())
	return c
}

func newTokenCreate() *cobra.Command {
	var want api.NewToken
	var span string
	var asJSON bool
	c := &cobra.Command{
		Use: "create", Short: "Make a token; it is shown once", Args: cobra.NoArgs,
		Example: "  muster token create --name ci --for 30d\n  muster token create --user ann --role operator",
		RunE: func(c *cobra.Command, _ []string) error {
			if span != "" {
				if err := want.For.UnmarshalText([]byte(span)); err != nil {
					return usage(fmt.Errorf("--for: %w", err))
				}
			}
			var k api.Token
			if err := client.Connect().Do(c.Context(), http.MethodPost, "/v1/tokens", &want, &k); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(&k)
			}
			fmt.Fprintf(c.ErrOrStderr(), "token %d of %s, role %s, valid until %s; it is not shown again:\n", k.ID,
				k.User, k.Role, expiry(&k))
			_, err := fmt.Fprintln(c.OutOrStdout(), k.Token)
			return err
		},
	}
	c.Flags().StringVar(&want.Name, "name", "", "what it is for")
	c.Flags().StringVar(&want.User, "user", "", "whose jobs it may touch; mine if not given")
	c.Flags().StringVar(&want.Role, "role", "", "user, operator or admin; user if not given")
	c.Flags().StringVar(&span, "for", "", "how long it is valid, such as 30d; 90 days if not given")
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func expiry(k *api.Token) string {
	if k.Expires == nil {
		return "revoked"
	}
	return k.Expires.Local().Format("2006-01-02 15:04")
}

func newTokenList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Short: "List tokens: mine, or all for an admin", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var list []api.Token
			if err := client.Connect().Do(c.Context(), http.MethodGet, "/v1/tokens", nil, &list); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(list)
			}
			t := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "TOKEN\tNAME\tUSER\tROLE\tMADE\tUNTIL")
			for i := range list {
				k := &list[i]
				fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Name, k.User, k.Role,
					k.Created.Local().Format("2006-01-02 15:04"), expiry(k))
			}
			return t.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

func newTokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke TOKEN...", Short: "Revoke tokens, by their numbers", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			for _, a := range args {
				id, err := strconv.ParseInt(a, 10, 64)
				if err != nil || id < 1 {
					return usage(fmt.Errorf("%q is not the number of a token; muster token list shows them", a))
				}
				if err := client.Connect().Do(c.Context(), http.MethodDelete, "/v1/tokens/"+a, nil, nil); err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "token %d: revoked\n", id)
			}
			return nil
		},
	}
}

func newLogin() *cobra.Command {
	var l client.Login
	var ca string
	c := &cobra.Command{
		Use: "login URL", Short: "Remember a server elsewhere, and the token for it", Args: cobra.ExactArgs(1),
		Long: "The token is read from MUSTER_TOKEN or from standard input, never from the command line, where others could see it.\n" +
			"It is saved for this user's eyes only; muster logout forgets it.",
		Example: "  muster login https://gpu1.example:8765 --fingerprint 1f0c…",
		RunE: func(c *cobra.Command, args []string) error {
			l.Host = strings.TrimRight(args[0], "/")
			if ca != "" {
				text, err := os.ReadFile(ca)
				if err != nil {
					return err
				}
				l.CA = string(text)
			}
			if l.Token = os.Getenv("MUSTER_TOKEN"); l.Token == "" {
				fmt.Fprint(c.ErrOrStderr(), "Token: ")
				line, err := bufio.NewReader(io.LimitReader(c.InOrStdin(), 4096)).ReadString('\n')
				if err != nil && !errors.Is(err, io.EOF) {
					return err
				}
				l.Token = strings.TrimSpace(line)
			}
			var me api.Me
			if err := tcp.New(l).Do(c.Context(), http.MethodGet, "/v1/me", nil, &me); err != nil {
				return err
			}
			path, err := l.Save()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s, role %s; saved in %s\n", l.Host, me.User, me.Role, path)
			return err
		},
	}
	c.Flags().StringVar(&l.Fingerprint, "fingerprint", "",
		"trust exactly the certificate with this SHA-256 (a self-made one)")
	c.Flags().StringVar(&ca, "ca", "", "file with the certificates of the authority that vouches for the server")
	return c
}

func newLogout() *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "Forget the saved server and token", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			path, err := client.LoginFile()
			if err != nil {
				return err
			}
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return nil
		},
	}
}

func newDashboard() *cobra.Command {
	var quiet bool
	c := &cobra.Command{
		Annotations: onCluster,
		Use:         "dashboard", Short: "Open the dashboard in a browser: a link that works once, for two minutes",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if kubeCluster.given() {
				return kubeCluster.dashboard(c, quiet)
			}
			var link struct {
				URL  string `json:"url"`
				Path string `json:"path"`
			}
			cl := client.Connect()
			if err := cl.Do(c.Context(), http.MethodPost, "/v1/dashboard", nil, &link); err != nil {
				return err
			}
			if base := cl.URL(); base != "" {
				link.URL = base + link.Path
			}
			if _, err := fmt.Fprintln(c.OutOrStdout(), link.URL); err != nil {
				return err
			}
			if quiet || os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
				return nil
			}
			return openBrowser(c.Context(), link.URL)
		},
	}
	c.Flags().BoolVar(&quiet, "no-open", false, "only print the link")
	return c
}

// openBrowser opens a link where there is a desktop. The link goes through a
// file of the user's: everybody can see the arguments of a program.
func openBrowser(ctx context.Context, link string) error {
	opener, err := exec.LookPath("xdg-open")
	if err != nil {
		return nil // no desktop: the link was printed
	}
	f, err := os.CreateTemp("", "muster-*.html") // 0600
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0; url=%s\">\n",
		html.EscapeString(link))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return exec.CommandContext(ctx, opener, f.Name()).Run()
}
