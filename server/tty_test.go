package server

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
)

// What a task says last reaches the caller although the caller types on when the task takes no more.
func TestTypedAfterTheEnd(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	task, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ended, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	last := bytes.Repeat([]byte("last words "), 8000)
	go func() {
		_, _ = ended.Write(last)
		_ = ended.Close()
	}()
	caller, ours := net.Pipe() // it holds nothing: what is not read is still to come
	over := make(chan struct{})
	go func() {
		defer close(over)
		join(context.Background(), ours, ours, task)
	}()
	first := make([]byte, 1)
	if _, err := io.ReadFull(caller, first); err != nil {
		t.Fatal(err)
	}
	go func() {
		for err := error(nil); err == nil; {
			_, err = caller.Write([]byte("typed on"))
		}
	}()
	rest, err := io.ReadAll(caller)
	if got := append(first, rest...); err != nil || !bytes.Equal(got, last) {
		t.Errorf("%d bytes of %d came: %v", len(got), len(last), err)
	}
	<-over
}
