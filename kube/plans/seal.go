package plans

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/kube/terms"
)

// Everyone that may edit a pod may write annotations to it, so what Muster writes there for its successor bears a seal:
// a code by a key that no tenant can read, over the pod's UID and the text. A copy on another pod does not hold.

// Key makes and checks seals; an empty one makes none, and then none is asked for.
type Key []byte

// Seal is the code of a text on a pod.
func (k Key) Seal(uid types.UID, annotation, text string) string {
	h := hmac.New(sha256.New, k)
	for _, part := range []string{string(uid), annotation, text} {
		_, _ = h.Write([]byte(part)) // a hash's Write never fails
		_, _ = h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Write adds an annotation and its seal to those that are written to a pod.
func (k Key) Write(notes map[string]string, uid types.UID, annotation, text string) {
	notes[annotation] = text
	if len(k) > 0 {
		notes[annotation+terms.SealSuffix] = k.Seal(uid, annotation, text)
	}
}

// Holds reports whether a scheduler with this key wrote the annotation to this pod.
func (k Key) Holds(obj *v1.Pod, annotation string) bool {
	if len(k) == 0 {
		return true
	}
	return hmac.Equal([]byte(obj.Annotations[annotation+terms.SealSuffix]),
		[]byte(k.Seal(obj.UID, annotation, obj.Annotations[annotation])))
}
