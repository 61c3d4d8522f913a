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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/config"
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
	fl.StringVar(&f.listen, "listen", "",
		"TCP address for the dashboard and for callers elsewhere, or none (default 127.0.0.1:8765, or the next free port)")
	fl.StringVar(&f.cert, "tls-cert", "", "file with the certificate for TLS")
	fl.StringVar(&f.key, "tls-key", "", "file with its key")
	fl.BoolVar(&f.selfSigned, "tls-self-signed", false,
		"TLS with a certificate made by the daemon; clients know it by its fingerprint")
	fl.BoolVar(&f.insecure, "insecure", false, "listen to others without TLS: tokens and output can be read on the way")
	fl.StringSliceVar(&f.hosts, "host", nil,
		"names that the server answers to, besides addresses, localhost and this machine's")
}

const (
	noListener  = "none"
	defaultPort = 8765
	portsTried  = 100
)

// hostNames are the host names that the server answers to.
func hostNames(conf *config.Serve) []string {
	names := append([]string(nil), conf.Hosts...)
	if host, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(host, ".")
		names = append(names, host, short)
	}
	if host, _, err := net.SplitHostPort(conf.Listen); err == nil && host != "" && net.ParseIP(host) == nil {
		names = append(names, host)
	}
	for i := range names {
		names[i] = strings.ToLower(strings.TrimSuffix(names[i], "."))
	}
	return names
}

// checkListen says what is wrong with where the daemon is to listen.
func checkListen(conf *config.Serve) error {
	switch {
	case (conf.Cert == "") != (conf.Key == ""):
		return errors.New("--tls-cert and --tls-key: give both or neither")
	case conf.Cert != "" && conf.SelfSigned:
		return errors.New("--tls-self-signed: a certificate is given already (--tls-cert)")
	case conf.Listen == "" || conf.Listen == noListener:
		return nil
	}
	host, port, err := net.SplitHostPort(conf.Listen)
	if err != nil || port == "" {
		return fmt.Errorf("listen: %s: write ADDRESS:PORT, such as 127.0.0.1:8765 or 0.0.0.0:8765, or none",
			conf.Listen)
	}
	ip := net.ParseIP(host)
	if local := host == "localhost" ||
		ip != nil && ip.IsLoopback(); !local && conf.Cert == "" && !conf.SelfSigned && !conf.Insecure {
		return fmt.Errorf("listen: %s: others could read along without TLS; give --tls-cert and --tls-key, or --tls-self-signed, or --insecure (tls and insecure in the file)", conf.Listen)
	}
	return nil
}

// door is an open TCP listener; nil inside: there is none.
type door struct {
	l    net.Listener
	cert atomic.Pointer[tls.Config] // with the certificate in use; nil: no TLS
}

// openDoor listens where the configuration says.
func openDoor(ctx context.Context, conf *config.Serve, now time.Time) (*door, error) {
	d := &door{}
	if conf.Listen == noListener {
		return d, nil
	}
	cert, err := loadTLS(conf, hostNames(conf), now)
	if err != nil {
		return nil, err
	}
	d.cert.Store(cert)
	var lc net.ListenConfig
	if conf.Listen != "" {
		if d.l, err = lc.Listen(ctx, "tcp", conf.Listen); err != nil {
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

// loadTLS reads the certificate; nil: there is to be none.
func loadTLS(conf *config.Serve, names []string, now time.Time) (*tls.Config, error) {
	switch {
	case conf.Cert != "":
		cert, err := server.LoadTLS(conf.Cert, conf.Key)
		if err != nil {
			err = config.At(fmt.Errorf("%s and %s: %w", conf.Cert, conf.Key, err), "tls")
		}
		return cert, err
	case conf.SelfSigned:
		return server.SelfSigned(filepath.Join(conf.State, "tls"), names, now)
	}
	return nil, nil
}

// load reads the certificate again; nil: there is none to be read.
func (d *door) load(conf *config.Serve, now time.Time) (*tls.Config, error) {
	if d.l == nil || d.cert.Load() == nil {
		return nil, nil
	}
	return loadTLS(conf, hostNames(conf), now)
}

// use lets new connections have a certificate that was read again.
func (d *door) use(cert *tls.Config) {
	if cert != nil {
		d.cert.Store(cert)
	}
}

func (d *door) serve(ctx context.Context, s *server.Server) error {
	if d.l == nil {
		return nil
	}
	if d.cert.Load() == nil {
		return s.ServeTCP(ctx, d.l, nil)
	}
	return s.ServeTCP(ctx, d.l,
		&tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return d.cert.Load(), nil
		}})
}

// log says where the daemon listens.
func (d *door) log(log *slog.Logger) {
	if d.l == nil {
		return
	}
	cert := d.cert.Load()
	switch {
	case cert != nil:
		log.Info("listening", "address", d.l.Addr().String(), "tls", true, "fingerprint", server.Fingerprint(cert))
	default:
		log.Info("listening", "address", d.l.Addr().String(), "tls", false)
	}
	if tcp, ok := d.l.Addr().(*net.TCPAddr); ok && cert == nil && !tcp.IP.IsLoopback() {
		log.Warn("listening without TLS: tokens and output can be read on the way")
	}
}
