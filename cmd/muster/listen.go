//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/server"
)

// listenFlags say where the daemon listens besides its socket.
type listenFlags struct {
	listen     string // "": the default, none: nowhere
	cert, key  string
	selfSigned bool
	insecure   bool
	hosts      []string
}

func (f *listenFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.listen, "listen", "", "TCP address for the dashboard and for callers elsewhere, or none (default 127.0.0.1:8765, or the next free port)")
	fl.StringVar(&f.cert, "tls-cert", "", "file with the certificate for TLS")
	fl.StringVar(&f.key, "tls-key", "", "file with its key")
	fl.BoolVar(&f.selfSigned, "tls-self-signed", false, "TLS with a certificate made by the daemon; clients know it by its fingerprint")
	fl.BoolVar(&f.insecure, "insecure", false, "listen to others without TLS: tokens and output can be read on the way")
	fl.StringSliceVar(&f.hosts, "host", nil, "names that the server answers to, besides addresses, localhost and this machine's")
}

const (
	noListener  = "none"
	defaultPort = 8765
	portsTried  = 100
)

// names are the host names that the server answers to.
func (f *listenFlags) names() []string {
	names := append([]string(nil), f.hosts...)
	if host, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(host, ".")
		names = append(names, host, short)
	}
	if host, _, err := net.SplitHostPort(f.listen); err == nil && host != "" && net.ParseIP(host) == nil {
		names = append(names, host)
	}
	for i := range names {
		names[i] = strings.ToLower(strings.TrimSuffix(names[i], "."))
	}
	return names
}

// check says what is wrong with the flags.
func (f *listenFlags) check() error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return errors.New("--tls-cert and --tls-key: give both or neither")
	case f.cert != "" && f.selfSigned:
		return errors.New("--tls-self-signed: a certificate is given already (--tls-cert)")
	case f.listen == "" || f.listen == noListener:
		return nil
	}
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil || port == "" {
		return fmt.Errorf("--listen %s: write ADDRESS:PORT, such as 127.0.0.1:8765 or 0.0.0.0:8765, or none", f.listen)
	}
	ip := net.ParseIP(host)
	if local := host == "localhost" || ip != nil && ip.IsLoopback(); !local && f.cert == "" && !f.selfSigned && !f.insecure {
		return fmt.Errorf("--listen %s: others could read along without TLS; give --tls-cert and --tls-key, or --tls-self-signed, or --insecure", f.listen)
	}
	return nil
}

// door is an open TCP listener; nil inside: there is none.
type door struct {
	l        net.Listener
	tls      *tls.Config
	insecure bool
}

func (f *listenFlags) open(ctx context.Context, state string, now time.Time) (*door, error) {
	d := &door{insecure: f.insecure}
	if f.listen == noListener {
		return d, nil
	}
	var err error
	switch {
	case f.cert != "":
		d.tls, err = server.LoadTLS(f.cert, f.key)
	case f.selfSigned:
		d.tls, err = server.SelfSigned(filepath.Join(state, "tls"), f.names(), now)
	}
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	if f.listen != "" {
		if d.l, err = lc.Listen(ctx, "tcp", f.listen); err != nil {
			return nil, fmt.Errorf("--listen: %w", err)
		}
		return d, nil
	}
	for port := defaultPort; port < defaultPort+portsTried; port++ {
		d.l, err = lc.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return d, err
}

func (d *door) serve(ctx context.Context, s *server.Server) error {
	if d.l == nil {
		return nil
	}
	return s.ServeTCP(ctx, d.l, d.tls)
}

// tell says where the daemon listens.
func (d *door) tell(log *slog.Logger) {
	switch {
	case d.l == nil:
		return
	case d.tls != nil:
		log.Info("listening", "address", d.l.Addr().String(), "tls", true, "fingerprint", server.Fingerprint(d.tls))
	default:
		log.Info("listening", "address", d.l.Addr().String(), "tls", false)
	}
	if tcp, ok := d.l.Addr().(*net.TCPAddr); ok && d.tls == nil && !tcp.IP.IsLoopback() {
		log.Warn("listening without TLS: tokens and output can be read on the way")
	}
}
