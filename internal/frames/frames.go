// Package frames is the protocol between a task's terminal, or its standard input, and an attached client. The
// shim speaks it on a socket in the task's folder, the daemon passes it on unread, and the command line speaks
// it at the other end.
package frames

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Kind is the kind of a frame.
type Kind byte

// The kinds of frames.
const (
	Data   Kind = iota // input to the task, output from it
	Size               // of the window: rows and columns, two bytes each
	End                // no more input: the task's standard input, if it is a pipe, is closed
	Taken              // from the shim: total of input bytes taken, eight bytes
	Screen             // from the shim, first: it is a terminal; run, first byte of output shown, eight bytes each
)

// Most is the length of the longest frame.
const Most = 64 << 10

// Write writes a frame in one piece.
func Write(w io.Writer, k Kind, data []byte) error {
	if len(data) > Most {
		return fmt.Errorf("a frame of %d bytes: %d are allowed", len(data), Most)
	}
	b := make([]byte, 0, 5+len(data))
	b = append(b, byte(k))
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	_, err := w.Write(append(b, data...))
	return err
}

// Read reads a frame into buf, which must hold Most bytes.
func Read(r io.Reader, buf []byte) (Kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > Most || int(n) > len(buf) {
		return 0, nil, fmt.Errorf("a frame of %d bytes: %d are allowed", n, Most)
	}
	_, err := io.ReadFull(r, buf[:n])
	return Kind(head[0]), buf[:n], err
}

// WriteSize writes the size of the window.
func WriteSize(w io.Writer, rows, columns int) error {
	b := binary.BigEndian.AppendUint16(nil, uint16(rows))
	return Write(w, Size, binary.BigEndian.AppendUint16(b, uint16(columns)))
}

// ReadSize reads what WriteSize wrote.
func ReadSize(b []byte) (rows, columns uint16, ok bool) {
	if len(b) != 4 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), true
}

// WriteCount writes a frame that holds a number of bytes.
func WriteCount(w io.Writer, k Kind, n uint64) error {
	return Write(w, k, binary.BigEndian.AppendUint64(nil, n))
}

// WriteScreen writes which run of the task is shown, and from which byte of its output on.
func WriteScreen(w io.Writer, run, from uint64) error {
	return Write(w, Screen, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, run), from))
}

// ReadScreen reads what WriteScreen wrote.
func ReadScreen(b []byte) (run, from uint64, ok bool) {
	if len(b) != 16 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), true
}

// ReadCount reads what WriteCount wrote.
func ReadCount(b []byte) (n uint64, ok bool) {
	if len(b) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}
