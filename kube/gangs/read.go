package gangs

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// numberOf reads a whole number of an object; without one, what else it is.
func numberOf(m map[string]any, otherwise int, path ...string) int {
	v, ok, err := unstructured.NestedFieldNoCopy(m, path...)
	if !ok || err != nil {
		return otherwise
	}
	switch v := v.(type) {
	case int64:
		return int(v)
	case float64:
		return int(v)
	}
	return otherwise
}

// textOf reads a text of an object; "": it has none.
func textOf(m map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(m, path...)
	return s
}

// flagOf reads a truth value of an object; false if it has none.
func flagOf(m map[string]any, path ...string) bool {
	b, _, _ := unstructured.NestedBool(m, path...)
	return b
}

// listOf reads the objects of a list.
func listOf(m map[string]any, path ...string) (all []map[string]any) {
	v, _, _ := unstructured.NestedFieldNoCopy(m, path...)
	items, _ := v.([]any)
	for _, e := range items {
		if e, ok := e.(map[string]any); ok {
			all = append(all, e)
		}
	}
	return all
}

// mapOf reads an object inside an object; nil: there is none.
func mapOf(m map[string]any, path ...string) map[string]any {
	v, _, _ := unstructured.NestedFieldNoCopy(m, path...)
	o, _ := v.(map[string]any)
	return o
}
