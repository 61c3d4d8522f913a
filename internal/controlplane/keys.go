package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// proxyName is the API server's name towards servers of aggregated APIs.
const proxyName = "front-proxy-client"

func (p *Plane) key() *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	return k
}

// pem writes a file and returns its content.
func (p *Plane) pem(name, kind string, der []byte, err error) []byte {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	p.file(name, text)
	return text
}

func lasting(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(0, 0),
		NotAfter:  time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), KeyUsage: x509.KeyUsageDigitalSignature}
}

// authority makes a certificate authority: NAME.crt.
func (p *Plane) authority(name string) (text []byte, ca *x509.Certificate, key *ecdsa.PrivateKey) {
	ca, key = lasting(1, "test-"+name), p.key()
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	return p.pem(name+".crt", "CERTIFICATE", der, err), ca, key
}

// signed makes a certificate and its key: NAME.crt, NAME.key.
func (p *Plane) signed(name string, c, ca *x509.Certificate, caKey *ecdsa.PrivateKey) {
	key := p.key()
	der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey)
	p.pem(name+".crt", "CERTIFICATE", der, err)
	der, err = x509.MarshalECPrivateKey(key)
	p.pem(name+".key", "EC PRIVATE KEY", der, err)
}

// keys creates the certificate authorities, the API server's certificates and the key that signs ServiceAccount
// tokens.
func (p *Plane) keys() {
	var ca *x509.Certificate
	p.ca, ca, p.caKey = p.authority("ca")
	api := lasting(2, "kube-apiserver")
	api.IPAddresses, api.DNSNames, api.ExtKeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"},
		[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	p.signed("api", api, ca, p.caKey)
	_, proxyCA, proxyKey := p.authority("proxy-ca")
	proxy := lasting(3, proxyName)
	proxy.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	p.signed("proxy", proxy, proxyCA, proxyKey)
	sa := p.key()
	der, err := x509.MarshalECPrivateKey(sa)
	p.pem("sa.key", "EC PRIVATE KEY", der, err)
	der, err = x509.MarshalPKIXPublicKey(&sa.PublicKey)
	p.pem("sa.pub", "PUBLIC KEY", der, err)
}

// User returns a kubeconfig of a user with a certificate.
func (p *Plane) User(name string, groups ...string) string {
	p.t.Helper()
	block, _ := pem.Decode(p.ca)
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		p.t.Fatal(err)
	}
	c := lasting(4, name)
	c.Subject.Organization, c.ExtKeyUsage = groups, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	p.signed("user-"+name, c, ca, p.caKey)
	return p.file("kubeconfig-"+name,
		p.kubeconfig(fmt.Sprintf("client-certificate: %q, client-key: %q", p.path("user-"+name+".crt"),
			p.path("user-"+name+".key"))))
}

// Bearer returns a kubeconfig of a user with a token.
func (p *Plane) Bearer(name, token string) string {
	p.t.Helper()
	return p.file("kubeconfig-"+name, p.KubeconfigFor(token))
}
