package fit

import (
	"cmp"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// NoIndex is the index of a pod that has none.
const NoIndex = 1 << 30

// Index is a pod's completion index.
func Index(obj *v1.Pod) int {
	n, err := strconv.Atoi(obj.Annotations["batch.kubernetes.io/job-completion-index"])
	if err != nil {
		return NoIndex
	}
	return n
}

// Order compares the pods of a gang: by completion index, then by name.
func Order(a, b *v1.Pod) int {
	return cmp.Or(cmp.Compare(Index(a), Index(b)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}
