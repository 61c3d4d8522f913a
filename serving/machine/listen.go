//go:build linux

package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/serving/control"
)

// errSilent says that nothing listens at a port.
var errSilent = errors.New("nothing listens at its port yet")

// listens reports as an error that at a port of this machine no process of a user listens.
func listens(uid, port int) error {
	owners, err := listeners(port)
	if err != nil {
		return fmt.Errorf("which processes listen at port %d: %w", port, err)
	}
	for _, owner := range owners {
		if owner != uid {
			return fmt.Errorf("%w: %d, of user %d, who does not own the service", control.ErrTaken, port, owner)
		}
	}
	if len(owners) == 0 {
		return errSilent
	}
	return nil
}

// Sizes and places in a request for TCP sockets and in the answer (struct inet_diag_req_v2 and inet_diag_msg of
// linux/inet_diag.h).
const (
	requestSize = 56
	portAt      = 8 // in a request, in the network's order
	ownerAt     = 64
	answerSize  = 72
)

// tcpListen is the state of a socket that listens (net/tcp_states.h).
const tcpListen = 10

// listeners are the users whose processes listen at a port (sock_diag(7)). The kernel is asked for sockets that
// listen alone: /proc/net/tcp walks over a table of all connections, milliseconds for each probe of each replica.
func listeners(port int) (owners []int, err error) {
	c, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		ask := make([]byte, requestSize)
		ask[0], ask[1] = family, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(ask[4:], 1<<tcpListen)
		binary.BigEndian.PutUint16(ask[portAt:], uint16(port))
		answers, err := c.Execute(netlink.Message{Data: ask,
			Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | netlink.Dump}})
		if family == unix.AF_INET6 && errors.Is(err, syscall.ENOENT) {
			continue // a machine without IPv6
		}
		if err != nil {
			return nil, err
		}
		for _, a := range answers {
			if len(a.Data) < answerSize {
				return nil, fmt.Errorf("the kernel's answer has %d bytes, not %d", len(a.Data), answerSize)
			}
			owners = append(owners, int(binary.NativeEndian.Uint32(a.Data[ownerAt:])))
		}
	}
	return owners, nil
}
