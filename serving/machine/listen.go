//go:build linux

package machine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// errSilent says that nothing listens at a port.
var errSilent = errors.New("nothing listens at its port yet")

// listens reports as an error that at a port of this machine no process of a user listens.
func listens(uid, port int) error {
	found := false
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // a machine without IPv6
		}
		if err != nil {
			return err
		}
		in := bufio.NewScanner(f)
		for in.Scan() {
			owner, ok := listener(in.Text(), port)
			if !ok {
				continue
			}
			if owner != uid {
				_ = f.Close() // it was only read
				return fmt.Errorf("at port %d listens a process of user %d, who does not own the service", port, owner)
			}
			found = true
		}
		if err := errors.Join(in.Err(), f.Close()); err != nil {
			return err
		}
	}
	if !found {
		return errSilent
	}
	return nil
}

// listener returns the user whose process listens at a port, as a line of /proc/net/tcp has it (proc(5)): number, local
// address, remote address, state, queues, timer, retransmissions, user.
func listener(line string, port int) (uid int, ok bool) {
	const listening = "0A"
	f := strings.Fields(line)
	if len(f) < 8 || f[3] != listening {
		return 0, false
	}
	_, at, _ := strings.Cut(f[1], ":")
	n, err := strconv.ParseInt(at, 16, 32)
	if err != nil || int(n) != port {
		return 0, false
	}
	uid, err = strconv.Atoi(f[7])
	return uid, err == nil
}
