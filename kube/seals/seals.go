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
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/kube/terms"
)

// digest is of a text on a pod, as of a moment: a copy on another pod does not hold, nor one with another moment.
func digest(uid types.UID, annotation, text, moment string) []byte {
	h := sha256.New()
	for _, part := range []string{"muster: for agents", string(uid), annotation, text, moment} {
		_, _ = h.Write([]byte(part)) // a hash's Write never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum(nil)
}

// between is what stands between the moment of a seal, in nanoseconds since 1970, and its signature.
const between = "."

// Sign is the seal of a text on a pod, as of a moment in nanoseconds since 1970.
func Sign(key *ecdsa.PrivateKey, uid types.UID, annotation, text string, moment int64) (string, error) {
	at := strconv.FormatInt(moment, 10)
	seal, err := ecdsa.SignASN1(rand.Reader, key, digest(uid, annotation, text, at))
	return at + between + base64.StdEncoding.EncodeToString(seal), err
}

// Holds reports whether the owner of the authority wrote the annotation to this pod, and as of which moment, in
// nanoseconds since 1970: of two that hold, the later one is what the owner says.
func Holds(authority *x509.Certificate, obj *v1.Pod, annotation string) (moment int64, holds bool) {
	at, code, _ := strings.Cut(obj.Annotations[annotation+terms.SealSuffix], between)
	key, known := authority.PublicKey.(*ecdsa.PublicKey)
	seal, err := base64.StdEncoding.DecodeString(code)
	moment, wrong := strconv.ParseInt(at, 10, 64)
	if !known || err != nil || wrong != nil || moment <= 0 ||
		!ecdsa.VerifyASN1(key, digest(obj.UID, annotation, obj.Annotations[annotation], at), seal) {
		return 0, false
	}
	return moment, true
}

// Read reads an authority's certificate (PEM).
func Read(bundle []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(bundle)
	if block == nil {
		return nil, errors.New("there is no certificate (PEM)")
	}
	return x509.ParseCertificate(block.Bytes)
}
