package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// Every program that builds engines from rules reads the files of policies and placers in this way.
func init() { policy.ReadFile, place.ReadFile = ReadFile, ReadFile }

// mostBytes bounds a file that a policy or a placer reads.
const mostBytes = 16 << 20

// held are the contents that are held at present, the latest last.
var held struct {
	sync.Mutex
	list []*Files
}

// Files are the contents of the files that a policy and a placer name, held until they are released: whatever
// happens to the files meanwhile, and however slow reading them is, an engine that is built under their names
// does not wait for a file.
type Files struct{ content map[string][]byte }

// Hold reads the files that a policy and a placer name. Readers in this process get these contents until
// Release. It may block on the files, so the caller must not hold a lock.
func Hold(policyText, placerText string) (*Files, error) {
	f := &Files{map[string][]byte{}}
	for _, name := range slices.Concat(policy.Files(policyText), place.Files(placerText)) {
		text, err := readRegular(name)
		if err != nil {
			return nil, err
		}
		f.content[name] = text
	}
	held.Lock()
	defer held.Unlock()
	held.list = append(held.list, f)
	return f, nil
}

// Release ends a Hold; on nil it does nothing.
func (f *Files) Release() {
	held.Lock()
	defer held.Unlock()
	held.list = slices.DeleteFunc(held.list, func(h *Files) bool { return h == f })
}

// ReadFile reads a file that a policy or a placer names: a regular one of at most 16 MiB, or its held contents.
func ReadFile(name string) ([]byte, error) {
	held.Lock()
	for _, f := range slices.Backward(held.list) {
		if text, ok := f.content[name]; ok {
			held.Unlock()
			return text, nil
		}
	}
	held.Unlock()
	return readRegular(name)
}

// readRegular reads a regular file. It does not open pipes and devices, because that may block for ever.
func readRegular(name string) ([]byte, error) {
	check := func(i os.FileInfo, err error) error {
		switch {
		case err != nil:
			return err
		case i.IsDir():
			return fmt.Errorf("%s is a directory, want a file", name)
		case !i.Mode().IsRegular():
			return fmt.Errorf("%s is a pipe, a socket or a device: only a regular file is read", name)
		case i.Size() > mostBytes:
			return tooLarge(name)
		}
		return nil
	}
	if err := check(os.Stat(name)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a pipe in between
	if err != nil {
		return nil, err
	}
	if err := check(f.Stat()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	text, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err == nil && len(text) > mostBytes {
		err = tooLarge(name)
	}
	return text, errors.Join(err, f.Close())
}

func tooLarge(name string) error {
	return fmt.Errorf("%s is larger than %d MiB, the most that is read for a policy or a placer", name, mostBytes>>20)
}
