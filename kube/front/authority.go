package front

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/seals"
)

// mostNames bounds for how many names certificates are kept.
const mostNames = 16

// Authority vouches for whatever name the scheduler is called by: who trusts it does so because
// the scheduler wrote it, the bundle, into the APIService, or its sum to a pod.
type Authority struct {
	key   *ecdsa.PrivateKey
	cert  *x509.Certificate
	der   []byte
	now   time.Time
	mu    sync.Mutex
	known map[string]*tls.Certificate
}

// NewAuthority makes one that lives as long as this process: its key is never written anywhere.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "muster " + now.UTC().Format(time.RFC3339Nano)}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a := &Authority{key: key, cert: ca, now: now}
	if a.der, err = a.made(ca, &key.PublicKey); err != nil {
		return nil, err
	}
	return a.ready()
}

// ready reads what its own certificate says.
func (a *Authority) ready() (_ *Authority, err error) {
	a.known = map[string]*tls.Certificate{}
	a.cert, err = x509.ParseCertificate(a.der)
	return a, err
}

// made signs a certificate, for ten years.
func (a *Authority) made(t *x509.Certificate, public *ecdsa.PublicKey) ([]byte, error) {
	serial := make([]byte, 15)
	if _, err := rand.Read(serial); err != nil {
		return nil, err
	}
	t.SerialNumber = new(big.Int).SetBytes(serial)
	t.NotBefore, t.NotAfter = a.now.Add(-time.Hour), a.now.AddDate(10, 0, 0)
	return x509.CreateCertificate(rand.Reader, t, a.cert, public, a.key)
}

// Bundle is the authority's certificate (PEM).
func (a *Authority) Bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der})
}

// Sum is the SHA-256 of the authority's certificate, in hexadecimal digits: who knows it knows the
// authority in the chain that a connection shows.
func (a *Authority) Sum() string { return Sum(a.der) }

// Sum is the SHA-256 of a certificate, in hexadecimal digits.
func Sum(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// Seal is a key for seals that whoever keeps the authority's own key has, too, and nobody else.
func (a *Authority) Seal() []byte {
	h := hmac.New(sha256.New, a.key.D.Bytes())
	_, _ = h.Write([]byte("muster: what is written to pods"))
	return h.Sum(nil)
}

// Sign is the seal of an annotation that is written to a pod now, which everybody can check who knows the authority. It
// is later than the one that the pod has, also where the clock of the scheduler before was ahead.
func (a *Authority) Sign(obj *v1.Pod, annotation, text string, now time.Time) string {
	moment := now.UnixNano()
	if last, holds := seals.Holds(a.cert, obj, annotation); holds {
		moment = max(moment, last+1)
	}
	seal, err := seals.Sign(a.key, obj.UID, annotation, text, moment)
	if err != nil {
		return "" // holds nowhere
	}
	return seal
}

// Certificate makes the certificate for a connection (Certificate), and keeps it.
func (a *Authority) Certificate(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := cmp.Or(h.ServerName, addressOf(h.Conn))
	if c := a.known[name]; c != nil {
		return c, nil
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{Subject: pkix.Name{CommonName: "muster"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(name); ip != nil {
		t.IPAddresses = []net.IP{ip}
	} else {
		t.DNSNames = []string{name}
	}
	leaf, err := a.made(t, &own.PublicKey)
	if err != nil {
		return nil, err
	}
	if len(a.known) >= mostNames {
		clear(a.known)
	}
	a.known[name] = &tls.Certificate{Certificate: [][]byte{leaf, a.der}, PrivateKey: own}
	return a.known[name], nil
}

// addressOf is at which address a connection came that names nobody.
func addressOf(c net.Conn) string {
	if c == nil {
		return "localhost"
	}
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return "localhost"
	}
	return host
}

// KeptAuthority is the authority that a Secret keeps, so that all schedulers of a cluster have the same, and pods
// that were told of it know each of them. The first makes it.
func KeptAuthority(ctx context.Context, client kubeapi.Interface, namespace, name string, now time.Time) (*Authority,
	error) {
	secrets := client.CoreV1().Secrets(namespace)
	s, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fresh, failed := NewAuthority(now)
		if failed != nil {
			return nil, failed
		}
		key, failed := x509.MarshalECPrivateKey(fresh.key)
		if failed != nil {
			return nil, failed
		}
		s, err = secrets.Create(ctx,
			&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
				Labels: map[string]string{"app.kubernetes.io/managed-by": "muster"}}, Type: v1.SecretTypeTLS,
				Data: map[string][]byte{v1.TLSCertKey: fresh.Bundle(),
					v1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})}},
			metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // another scheduler was first
			s, err = secrets.Get(ctx, name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", namespace, name, err)
	}
	a, err := readAuthority(s.Data[v1.TLSCertKey], s.Data[v1.TLSPrivateKeyKey], now)
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w; without it, another is made", namespace, name, err)
	}
	return a, nil
}

// readAuthority reads what was written down of an authority.
func readAuthority(cert, key []byte, now time.Time) (*Authority, error) {
	c, _ := pem.Decode(cert)
	k, _ := pem.Decode(key)
	if c == nil || k == nil {
		return nil, errors.New("tls.crt and tls.key are no certificate and key (PEM)")
	}
	private, err := x509.ParseECPrivateKey(k.Bytes)
	if err != nil {
		return nil, fmt.Errorf("tls.key: %w", err)
	}
	a, err := (&Authority{key: private, der: c.Bytes, now: now}).ready()
	switch {
	case err != nil:
		return nil, fmt.Errorf("tls.crt: %w", err)
	case !private.PublicKey.Equal(a.cert.PublicKey):
		return nil, errors.New("tls.crt is not of the key tls.key")
	case !a.cert.IsCA || !now.Before(a.cert.NotAfter):
		return nil, fmt.Errorf("tls.crt is no authority's, or only until %s",
			a.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	return a, nil
}
