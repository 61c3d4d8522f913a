package shared

// Must returns v, for what cannot fail in a test's set-up: made of constants, or of files of the repository.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
