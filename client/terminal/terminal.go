//go:build linux

// Package terminal connects the caller's terminal with that of a job.
package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/muster-gpu/muster/client"
)

// detachKey is Ctrl-\, which detaches from a terminal without ending what runs there.
const detachKey = 0x1c

// ErrDetached means that the terminal was detached.
var ErrDetached = errors.New("detached")

// Use connects a terminal with a job's, until the job is over or the terminal is detached (ErrDetached; the way
// back is printed on errOut). Use always restores the terminal before it returns. watch: nothing that is typed
// reaches the job.
func Use(ctx context.Context, cl *client.Client, id int, in *os.File, out, errOut io.Writer, watch bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // the window was closed: the job continues
	defer signal.Stop(hangup)
	size := make(chan client.Window, 1)
	if fd := int(in.Fd()); term.IsTerminal(fd) {
		old, err := term.MakeRaw(fd)
		if err != nil {
			return fmt.Errorf("this terminal: %w", err)
		}
		defer func() { _ = term.Restore(fd, old) }()
		changed := make(chan os.Signal, 1)
		signal.Notify(changed, syscall.SIGWINCH)
		defer signal.Stop(changed)
		changed <- syscall.SIGWINCH // the present size
		go tellSize(ctx, fd, changed, size)
	}
	typed := make(chan []byte)
	go readKeys(ctx, in, typed, watch, func() { cancel(ErrDetached) })
	go func() {
		select {
		case <-hangup:
			cancel(ErrDetached)
		case <-ctx.Done():
		}
	}()
	err := cl.Screen(ctx, id, typed, size, out)
	if ctx.Err() == nil {
		return err
	}
	fmt.Fprintf(errOut, "\r\nmuster: job %d continues; muster attach %d comes back to it, muster cancel %d ends it\r\n",
		id, id, id)
	return ErrDetached
}

// tellSize passes on the size of the window whenever it changes.
func tellSize(ctx context.Context, fd int, changed <-chan os.Signal, size chan<- client.Window) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		if columns, rows, err := term.GetSize(fd); err == nil {
			select {
			case size <- client.Window{Rows: rows, Columns: columns}:
			case <-ctx.Done():
				return
			}
		}
	}
}

// readKeys passes on what is typed, up to the detach key.
func readKeys(ctx context.Context, in io.Reader, typed chan<- []byte, watch bool, leave func()) {
	for {
		b := make([]byte, 4096)
		n, err := in.Read(b)
		if err != nil {
			return // the output may still be of interest
		}
		for i, k := range b[:n] {
			if k == detachKey {
				n, err = i, io.EOF
				break
			}
		}
		if n > 0 && !watch {
			select {
			case typed <- b[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			leave()
			return
		}
	}
}
