package load

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

// Access is how a Prometheus server is asked: by a bearer token, or a user and its password, all in files of Muster's
// own; none: anonymously.
type Access struct {
	TokenFile          string
	User, PasswordFile string
	CAFile             string // authorities in PEM; "": those of the system
}

// errSecret is all that tenants hear of a file that is gone.
var errSecret = errors.New("Prometheus: the file with Muster's secret cannot be read")

const mostSecret = 64 << 10 // bytes

func secret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostSecret))
	if text = bytes.TrimSpace(text); err == nil && len(text) == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	return string(text), err
}

// transport sends what authenticates to a host, and to no other to which that redirects.
func (a Access) transport(host string) (http.RoundTripper, error) {
	for _, path := range []string{a.TokenFile, a.PasswordFile} {
		if path == "" {
			continue
		}
		if _, err := secret(path); err != nil {
			return nil, err
		}
	}
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if a.CAFile != "" {
		pem, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", a.CAFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return authenticated{a, host, t}, nil
}

// authenticated adds what authenticates to each request. Files are read each time: tokens are renewed in place.
type authenticated struct {
	Access
	host string
	next http.RoundTripper
}

// RoundTrip sends a request.
func (a authenticated) RoundTrip(r *http.Request) (*http.Response, error) {
	path := a.TokenFile
	if path == "" {
		path = a.PasswordFile
	}
	if path != "" && r.URL.Host == a.host {
		text, err := secret(path)
		if err != nil {
			return nil, errSecret
		}
		if r = r.Clone(r.Context()); a.TokenFile != "" {
			r.Header.Set("Authorization", "Bearer "+text)
		} else {
			r.SetBasicAuth(a.User, text)
		}
	}
	return a.next.RoundTrip(r)
}
