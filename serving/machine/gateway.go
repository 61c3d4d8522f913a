//go:build linux

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/muster-gpu/muster/gateway"
)

// Gateway is the gateway of a folder: a file says which replicas there are, and at a socket it says what became of
// requests.
type Gateway struct {
	dir    string
	client *http.Client
}

// NewGateway makes the gateway of a folder, which is made if it is not there.
func NewGateway(dir string) (*Gateway, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, gateway.CountsSocket)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Gateway{dir, &http.Client{Transport: &http.Transport{DialContext: dial}}}, nil
}

// wakeWithin is how long the gateway waits for a request that needs a first replica before it answers.
const wakeWithin = "1s"

// Counts asks the gateway what became of requests.
func (g *Gateway) Counts(ctx context.Context) (*gateway.Report, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway/counts?wake="+wakeWithin, nil)
	if err != nil {
		return nil, err
	}
	resp, err := g.client.Do(req)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("no gateway runs: muster-gateway --dir %s starts one", g.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("the gateway: %w", err)
	}
	defer resp.Body.Close()
	var r gateway.Report
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return nil, fmt.Errorf("the gateway's counts: %w", err)
	}
	return &r, nil
}

// Former reads what was last written; nil: nothing.
func (g *Gateway) Former() (*gateway.Config, error) {
	c, err := gateway.Load(filepath.Join(g.dir, gateway.RoutesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return c, err
}

// Write tells the gateway which replicas there are.
func (g *Gateway) Write(c *gateway.Config) error {
	data, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err
	}
	path := filepath.Join(g.dir, gateway.RoutesFile)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
