//go:build linux

package shim

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/internal/frames"
)

// ttySuffix names the socket beside a task's folder at which its terminal, or its
// standard input, is reached.
const ttySuffix = ".tty"

// How a task's standard input is reached.
const (
	InputFile = ""     // it is a file
	InputPipe = "pipe" // it comes from an attached client
	InputPty  = "pty"  // it is a terminal, and so is the output
)

// tty is a task's terminal, or the pipe to its standard input, and those who
// are attached to it.
type tty struct {
	pty     bool
	run     uint64   // no other run of the job has this number
	ours    *os.File // the terminal's other side, or the pipe's end to write to
	theirs  *os.File // the task's
	log     *os.File // where a terminal's output goes as well
	l       net.Listener
	done    chan struct{} // the terminal has no more output
	viewers sync.WaitGroup

	mu     sync.Mutex
	recent []byte // of the output, for those who come later
	shown  uint64 // bytes of output in all
	all    map[*viewer]bool
	taken  uint64
	ended  bool

	typing sync.Mutex // held by whoever feeds the pipe
}

// viewer is somebody who is attached.
type viewer struct {
	c   net.Conn
	out chan []byte
}

const (
	mostRecent = 64 << 10
	mostQueued = 256 // pieces of output; who is further behind must attach again
)

// listenTTY prepares a task's terminal or pipe: the socket by which it is reached.
func listenTTY(dir string, t *Task, start time.Time) (*tty, error) {
	y := &tty{pty: t.TTY == InputPty, run: uint64(start.UnixNano()), all: map[*viewer]bool{}, done: make(chan struct{})}
	var err error
	if y.l, err = listenIn(dir); err != nil {
		return nil, fmt.Errorf("the socket of the terminal: %w", err)
	}
	return y, nil
}

// open makes the terminal or pipe, with the rights of its user, and lets people in.
func (y *tty) open(l *logs) (err error) {
	if y == nil {
		return nil
	}
	if y.pty {
		if y.ours, y.theirs, err = openPty(); err != nil {
			return fmt.Errorf("no terminal: %w", err)
		}
		fd, err := unix.FcntlInt(l.out.Fd(), unix.F_DUPFD_CLOEXEC, 0) // the logs' own is closed when the task has begun
		if err != nil {
			return err
		}
		y.log = os.NewFile(uintptr(fd), "log")
	} else if y.theirs, y.ours, err = os.Pipe(); err != nil {
		return err
	}
	go y.accept()
	return nil
}

// listenIn listens at the socket beside a task's folder, whose path may be
// longer than that of a socket can be.
func listenIn(dir string) (net.Listener, error) {
	d, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	mask := syscall.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: through(d, filepath.Base(dir)+ttySuffix), Net: "unix"})
	syscall.Umask(mask)
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the way to it is closed by then, and may lead elsewhere
	return l, nil
}

// Dial connects to the terminal of the task with this folder.
func Dial(dir string) (net.Conn, error) {
	return dial(filepath.Dir(dir), filepath.Base(dir)+ttySuffix, os.Geteuid())
}

// dial connects to a socket, which must be answered by a process of the user.
func dial(dir, name string, uid int) (net.Conn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: through(d, name), Net: "unix"})
	if err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || credErr != nil || int(cred.Uid) != uid {
		_ = c.Close()
		return nil, fmt.Errorf("%s is not answered by user %d", filepath.Join(dir, name), uid)
	}
	return c, nil
}

func through(d *os.File, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(d.Fd())) + "/" + name
}

// openPty makes a terminal of 24 rows and 80 columns.
func openPty() (ours, theirs *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	ours = os.NewFile(uintptr(fd), "/dev/ptmx")
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err == nil {
		theirs, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = ours.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// attributes are those of a process on the terminal: it leads a session of its
// own, and with it a process group as any task does.
func (y *tty) attributes() *syscall.SysProcAttr {
	if y == nil || !y.pty {
		return &syscall.SysProcAttr{Setpgid: true}
	}
	return &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
}

// started closes the task's end on our side and begins to read its output.
func (y *tty) started() {
	if y == nil {
		return
	}
	_ = y.theirs.Close()
	if !y.pty {
		close(y.done)
		return
	}
	go func() {
		defer close(y.done)
		buf := make([]byte, 32<<10)
		for {
			n, err := y.ours.Read(buf)
			if n > 0 {
				_, _ = y.log.Write(buf[:n]) // a full disk costs output, never the task
				y.show(append([]byte(nil), buf[:n]...))
			}
			if err != nil { // EIO: nobody has the terminal any more
				return
			}
		}
	}()
}

// show gives output to everybody who is attached.
func (y *tty) show(b []byte) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.shown += uint64(len(b))
	y.recent = append(y.recent, b...)
	if n := len(y.recent) - mostRecent; n > 0 {
		y.recent = append([]byte(nil), y.recent[n:]...)
	}
	for v := range y.all {
		select {
		case v.out <- b:
		default: // too slow: it must not hold up the task
			_ = v.c.Close()
		}
	}
}

// finish is called when the task has ended: what it said last is shown, and
// everybody let go.
func (y *tty) finish(now func() time.Time) {
	if y == nil {
		return
	}
	_ = y.l.Close()
	if y.pty {
		_ = y.ours.SetReadDeadline(now().Add(lastWords))
	}
	<-y.done
	y.mu.Lock()
	y.ended = true
	for v := range y.all {
		_ = v.c.SetDeadline(now().Add(lastWords))
		close(v.out)
	}
	clear(y.all)
	y.mu.Unlock()
	y.viewers.Wait()
	if y.pty {
		_ = y.log.Close()
	}
	_ = y.ours.Close()
}

func (y *tty) accept() {
	for {
		c, err := y.l.Accept()
		if err != nil {
			return
		}
		v := &viewer{c: c, out: make(chan []byte, mostQueued)}
		y.mu.Lock()
		if y.ended {
			y.mu.Unlock()
			_ = c.Close()
			continue
		}
		if !y.pty { // a pipe is fed by one; the last to come is who is still there
			for old := range y.all {
				_ = old.c.Close()
			}
		}
		y.all[v] = true
		first, from := append([]byte(nil), y.recent...), y.shown-uint64(len(y.recent))
		y.viewers.Add(1)
		y.mu.Unlock()
		go y.serve(v, first, from)
	}
}

// serve writes to a viewer; what it types is read beside that.
func (y *tty) serve(v *viewer, first []byte, from uint64) {
	defer y.viewers.Done()
	if y.pty {
		go y.typed(v)
		err := frames.WriteScreen(v.c, y.run, from)
		for b := first; err == nil; {
			for ; len(b) > 0 && err == nil; b = b[min(len(b), frames.Most):] {
				err = frames.Write(v.c, frames.Data, b[:min(len(b), frames.Most)])
			}
			var more bool
			if b, more = <-v.out; !more {
				break
			}
		}
		y.leave(v)
		return
	}
	go y.feed(v)
	<-v.out // it is closed at the end, or when the viewer leaves
	_ = v.c.Close()
}

// leave forgets a viewer.
func (y *tty) leave(v *viewer) {
	_ = v.c.Close()
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.all[v] {
		delete(y.all, v)
		close(v.out)
	}
}

// typed passes on what a viewer types.
func (y *tty) typed(v *viewer) {
	defer y.leave(v)
	buf := make([]byte, frames.Most)
	for {
		k, b, err := frames.Read(v.c, buf)
		if err != nil {
			return
		}
		switch k {
		case frames.Data:
			_, _ = y.ours.Write(b) // the task may be over: the viewer stays for what it said last
		case frames.Size:
			if rows, columns, ok := frames.ReadSize(b); ok {
				setSize(y.ours, rows, columns)
			}
		}
	}
}

func setSize(f *os.File, rows, columns uint16) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // a terminal that is gone has no size
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

// feed passes input on to the task's pipe and says how much was taken, so that
// after the daemon's death nothing is missing and nothing comes twice.
func (y *tty) feed(v *viewer) {
	defer y.leave(v)
	y.typing.Lock()
	defer y.typing.Unlock()
	buf := make([]byte, frames.Most)
	for {
		if err := frames.WriteCount(v.c, frames.Taken, y.taken); err != nil {
			return
		}
		k, b, err := frames.Read(v.c, buf)
		if err != nil {
			return
		}
		switch k {
		case frames.Data:
			if _, err := y.ours.Write(b); err != nil {
				_, _ = io.Copy(io.Discard, v.c) // the task reads no more: that is its business
				return
			}
			y.taken += uint64(len(b))
		case frames.End:
			_ = y.ours.Close()
		}
	}
}
