package shared

import "os"

// Soak chooses between what every run of the tests tries and what make soak does, which sets MUSTER_SOAK.
func Soak[T any](few, all T) T {
	if os.Getenv("MUSTER_SOAK") != "" {
		return all
	}
	return few
}
