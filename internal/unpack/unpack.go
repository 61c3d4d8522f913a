// Package unpack reads compressed files as they are.
package unpack

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	gzipMagic  = "\x1f\x8b"
	zstdMagic  = "\x28\xb5\x2f\xfd"
	zstdMemory = 512 << 20 // maximum memory of a zstd frame, bytes
)

// Reader returns the plain content of r, which is gzip, zstd or not compressed, and what frees its resources. The
// first bytes tell which, so a wrong file name does no harm.
func Reader(r io.Reader) (io.Reader, func(), error) {
	in := bufio.NewReader(r)
	nothing := func() {}
	magic, _ := in.Peek(4)
	switch {
	case strings.HasPrefix(string(magic), gzipMagic):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, fmt.Errorf("not a readable gzip file: %w", err)
		}
		return z, nothing, nil
	case string(magic) == zstdMagic:
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(zstdMemory))
		if err != nil {
			return nil, nil, fmt.Errorf("not a readable zstd file: %w", err)
		}
		return z, z.Close, nil
	}
	return in, nothing, nil
}
