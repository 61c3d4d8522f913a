package client

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"

	"github.com/muster-gpu/muster/internal/frames"
)

// shut is a connection whose other side reads no more, while what it said last is still on its way.
type shut struct{ net.Conn }

func (*shut) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// What a task says last is shown although the user types on when the task takes no more.
func TestTypedAfterTheEnd(t *testing.T) {
	ours, task := net.Pipe()
	typed := make(chan []byte)
	var out bytes.Buffer
	s := &screen{typed: typed, out: &out}
	over := make(chan error)
	go func() { over <- s.tie(context.Background(), &shut{ours}) }()
	if err := frames.WriteScreen(task, 1, 0); err != nil {
		t.Fatal(err)
	}
	typed <- []byte("x")
	err := frames.Write(task, frames.Data, []byte("the end"))
	if err != nil {
		t.Fatal(err)
	}
	_ = task.Close()
	if err := <-over; err != nil || out.String() != "the end" {
		t.Errorf("%q is shown: %v", &out, err)
	}
}
