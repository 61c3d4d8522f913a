package shared

import (
	"os"
	"strconv"
	"testing"
)

// soak is set by make soak: to how much is tried of what is random.
const soak = "MUSTER_SOAK"

// Soak chooses between what every run of the tests tries and what make soak does.
func Soak[T any](few, all T) T {
	if os.Getenv(soak) != "" {
		return all
	}
	return few
}

// Soaking is how much make soak tries, which is few in every other run of the tests.
func Soaking(t testing.TB, few int) int {
	t.Helper()
	text := os.Getenv(soak)
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%q is no number", soak, text)
	}
	return n
}
