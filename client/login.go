package client

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Login is how to reach a server over TCP, as saved by muster login.
type Login struct {
	Host        string `json:"host"`                  // URL
	Token       string `json:"token,omitempty"`       //
	Fingerprint string `json:"fingerprint,omitempty"` // of its certificate, SHA-256 in hexadecimal
	CA          string `json:"ca,omitempty"`          // certificates that vouch for it, PEM; the system's if empty
}

// LoginFile is where a login is saved.
func LoginFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "muster", "login.json"), nil
}

// Save writes a login, readable by this user only.
func (l *Login) Save() (string, error) {
	path, err := LoginFile()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "login") // 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return path, nil
}

// Saved reads the saved login; nil: there is none.
func Saved() (*Login, error) {
	path, err := LoginFile()
	if err != nil {
		return nil, nil // without a home folder there is none
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l := &Login{}
	if err := json.Unmarshal(text, l); err != nil {
		return nil, fmt.Errorf("%s: %w (muster login writes another)", path, err)
	}
	return l, nil
}

// ErrNoTCP is the error of programs that talk only to daemons of their own machine, for any other server.
var ErrNoTCP = errors.New("this program does not speak TCP")

// overTCP makes a client of a server over TCP, in programs that speak it.
var overTCP func(Login) *Client

// RegisterTCP registers the client for servers over TCP.
func RegisterTCP(dial func(Login) *Client) { overTCP = dial }

func tcp(l Login) *Client {
	if overTCP == nil {
		return Failed(ErrNoTCP)
	}
	return overTCP(l)
}

// Connect returns a client of the user's server: MUSTER_HOST (with MUSTER_TOKEN), MUSTER_SOCKET, the saved
// login, or else the daemon of this machine. Errors in these are returned by the client's calls.
func Connect() *Client {
	if host := os.Getenv("MUSTER_HOST"); host != "" {
		l := Login{Host: host}
		if saved, err := Saved(); err == nil && saved != nil && saved.Host == host {
			l = *saved
		}
		if token := os.Getenv("MUSTER_TOKEN"); token != "" {
			l.Token = token
		}
		return tcp(l)
	}
	if os.Getenv("MUSTER_SOCKET") == "" {
		switch saved, err := Saved(); {
		case err != nil:
			return Failed(err)
		case saved != nil:
			return tcp(*saved)
		}
	}
	return Unix(Socket())
}

// ParseFingerprint reads a SHA-256 in hexadecimal, with colons or without.
func ParseFingerprint(text string) ([]byte, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.ToLower(text), ":", ""))
	if err != nil || len(b) != 32 {
		return nil, fmt.Errorf("fingerprint %q: write the SHA-256 of the certificate, 64 hexadecimal digits", text)
	}
	return b, nil
}

// explain names the server that refused a token.
func (c *Client) explain(e *Error) error {
	if e.Status == unauthorized && c.token != "" {
		return fmt.Errorf("%s: %w", c.name, e)
	}
	return e
}

// Do makes a request and reads the answer into out, if that is not nil.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	return c.do(ctx, method, path, in, out)
}

// URL is the address of a server over TCP; "" for a socket.
func (c *Client) URL() string {
	if c.socket {
		return ""
	}
	return c.base
}

// Journal opens a segment of the journal; 0 is the last, 1 the first.
func (c *Client) Journal(ctx context.Context, segment int) (io.ReadCloser, error) {
	resp, err := c.open(ctx, get, "/v1/journal?segment="+strconv.Itoa(segment), nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
