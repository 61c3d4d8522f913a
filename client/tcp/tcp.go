// Package tcp reaches servers over TCP, with TLS or, on this machine, without. Programs that import it support
// MUSTER_HOST and muster login; without it a program is smaller and starts sooner.
package tcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/muster-gpu/muster/client"
)

func init() { client.RegisterTCP(New) }

// New returns a client of a server over TCP.
func New(l client.Login) *client.Client {
	u, err := url.Parse(l.Host)
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		err = errors.New("write http://HOST:PORT or https://HOST:PORT")
	}
	if err != nil {
		return client.Failed(fmt.Errorf("the server's address %q: %w", l.Host, err))
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && l.Token != "" && u.Hostname() != "localhost" &&
		(ip == nil || !ip.IsLoopback()) &&
		os.Getenv("MUSTER_INSECURE") == "" {
		return client.Failed(
			fmt.Errorf("%s: a token is not sent unencrypted over a network; use https, or set MUSTER_INSECURE=1",
				l.Host))
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	if t.TLSClientConfig, err = config(&l); err != nil {
		return client.Failed(err)
	}
	c := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	base := strings.TrimRight(l.Host, "/")
	return client.New(&transport{c, base}, base, l)
}

// transport carries requests over TCP.
type transport struct {
	http *http.Client
	base string
}

// Exchange sends a request and returns the answer.
func (t *transport) Exchange(ctx context.Context, r *client.Request) (*client.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, t.base+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(r.Header); i += 2 {
		req.Header.Set(r.Header[i], r.Header[i+1])
	}
	resp, err := t.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return nil, &client.DialError{Err: op.Err}
		}
		return nil, err
	}
	return &client.Response{Status: resp.StatusCode, Reason: resp.Status, Body: resp.Body}, nil
}

// errFingerprint is returned for a server with another certificate.
var errFingerprint = errors.New("the server's certificate is not the one that muster login was told to trust")

// config sets which certificates are trusted.
func config(l *client.Login) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if l.CA != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM([]byte(l.CA)) {
			return nil, errors.New("the saved login holds no readable certificate of an authority")
		}
	}
	if l.Fingerprint == "" {
		return cfg, nil
	}
	want, err := client.ParseFingerprint(l.Fingerprint)
	if err != nil {
		return nil, err
	}
	cfg.InsecureSkipVerify = true // instead, the certificate must be exactly this one
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		have := sha256.Sum256(s.PeerCertificates[0].Raw)
		if subtle.ConstantTimeCompare(have[:], want) != 1 {
			return errFingerprint
		}
		return nil
	}
	return cfg, nil
}
