//go:build linux

package local

import (
	"os"
	"testing"
	"time"

	"github.com/muster-gpu/muster/local/shim"
)

// shimWord makes the test binary a shim: tests run real processes under it.
const shimWord = "__shim"

// TestMain is a shim if it is started as one, or ends what tests leave behind.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == shimWord {
		os.Exit(shim.Main(os.Args[2], time.Now))
	}
	if len(os.Args) == 3 && os.Args[1] == reapWord {
		os.Exit(reap(os.Args[2]))
	}
	if err := ownFolder(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
