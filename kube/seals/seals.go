// Package seals signs what the scheduler writes to pods for programs that can check it and must not be able to write
// it: by the key of the scheduler's authority, whose certificate is public.
package seals

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/kube/terms"
)

// digest is of a text on a pod: a copy on another pod does not hold.
func digest(uid types.UID, annotation, text string) []byte {
	h := sha256.New()
	for _, part := range []string{"muster: for agents", string(uid), annotation, text} {
		_, _ = h.Write([]byte(part)) // a hash's Write never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum(nil)
}

// Sign is the seal of a text on a pod.
func Sign(key *ecdsa.PrivateKey, uid types.UID, annotation, text string) (string, error) {
	seal, err := ecdsa.SignASN1(rand.Reader, key, digest(uid, annotation, text))
	return base64.StdEncoding.EncodeToString(seal), err
}

// Holds reports whether the owner of the authority wrote the annotation to this pod.
func Holds(authority *x509.Certificate, obj *v1.Pod, annotation string) bool {
	key, ok := authority.PublicKey.(*ecdsa.PublicKey)
	seal, err := base64.StdEncoding.DecodeString(obj.Annotations[annotation+terms.SealSuffix])
	return ok && err == nil && ecdsa.VerifyASN1(key, digest(obj.UID, annotation, obj.Annotations[annotation]), seal)
}

// Read reads an authority's certificate (PEM).
func Read(bundle []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(bundle)
	if block == nil {
		return nil, errors.New("there is no certificate (PEM)")
	}
	return x509.ParseCertificate(block.Bytes)
}
