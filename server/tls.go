//go:build linux

package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// selfSignedFor is how long a certificate that the daemon makes is valid; renewBefore its end another is made.
const (
	selfSignedFor = 2 * 365 * 24 * time.Hour
	renewBefore   = 30 * 24 * time.Hour
)

// LoadTLS reads a certificate and its key.
func LoadTLS(cert, key string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// SelfSigned reads the certificate in a folder, or makes one for these names if there is none or it expires
// soon.
func SelfSigned(dir string, names []string, now time.Time) (*tls.Config, error) {
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cfg, err := LoadTLS(cert, key)
	if err == nil && now.Before(cfg.Certificates[0].Leaf.NotAfter.Add(-renewBefore)) {
		return cfg, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := makeCertificate(cert, key, names, now); err != nil {
		return nil, err
	}
	return LoadTLS(cert, key)
}

func makeCertificate(certFile, keyFile string, names []string, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t := &x509.Certificate{Subject: pkix.Name{CommonName: "muster serve"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(selfSignedFor), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if n != "" {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
		0o600); err != nil {
		return err
	}
	return os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

// Fingerprint is the SHA-256 of a certificate, by which a client recognises it (muster login --fingerprint).
func Fingerprint(cfg *tls.Config) string {
	sum := sha256.Sum256(cfg.Certificates[0].Certificate[0])
	return hex.EncodeToString(sum[:])
}
