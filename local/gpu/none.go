//go:build !cgo || !linux || nonvml

package gpu

import "errors"

// Open would find this machine's GPUs: this program was built without cgo,
// which NVIDIA's library needs.
func Open() (Source, error) {
	return nil, errors.New("this program was built without NVML (it needs cgo on Linux)")
}
