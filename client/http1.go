package client

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// mostHeaders bounds the header lines of an answer; a line fits into the reader's buffer.
const mostHeaders = 100

var errNotHTTP = errors.New("the server does not speak HTTP/1.1")

// readResponse reads the head of an answer (RFC 9112) and returns it with a reader of its body.
func readResponse(in *bufio.Reader) (*Response, io.Reader, error) {
	for {
		r, err := readStatus(in)
		if err != nil {
			return nil, nil, err
		}
		body, err := readHeaders(in, r)
		if err != nil {
			return nil, nil, err
		}
		if r.Status >= 200 || r.Status == switchingProtocols {
			return r, body, nil
		}
	}
}

func readStatus(in *bufio.Reader) (*Response, error) {
	line, err := readLine(in)
	if err != nil {
		return nil, err
	}
	version, rest, _ := strings.Cut(line, " ")
	code, reason, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if !strings.HasPrefix(version, "HTTP/1.") || err != nil || len(code) != 3 || status < 100 {
		return nil, fmt.Errorf("%w: it begins with %.80q", errNotHTTP, line)
	}
	return &Response{Status: status, Reason: code + " " + reason}, nil
}

// readHeaders reads the header lines, of which only those that determine the length of the body matter here.
func readHeaders(in *bufio.Reader, r *Response) (io.Reader, error) {
	length, pieces := int64(-1), false
	for n := 0; ; n++ {
		line, err := readLine(in)
		if err != nil {
			return nil, err
		}
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		switch {
		case !ok || name == "" || n == mostHeaders:
			return nil, fmt.Errorf("%w: header line %d is %.80q", errNotHTTP, n+1, line)
		case strings.EqualFold(name, "Content-Length"):
			v, err := strconv.ParseUint(value, 10, 63)
			if err != nil || length >= 0 && int64(v) != length {
				return nil, fmt.Errorf("%w: Content-Length is %.80q", errNotHTTP, value)
			}
			length = int64(v)
		case strings.EqualFold(name, "Transfer-Encoding"):
			if !strings.EqualFold(value, "chunked") {
				return nil, fmt.Errorf("%w: Transfer-Encoding is %.80q", errNotHTTP, value)
			}
			pieces = true
		}
	}
	switch {
	case r.Status == switchingProtocols:
		return in, nil
	case r.Status < 200 || r.Status == noContent:
		return strings.NewReader(""), nil
	case pieces:
		return &chunks{in: in}, nil
	case length >= 0:
		return &sized{in, length}, nil
	}
	return in, nil
}

// readLine reads a line without its end.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	switch {
	case err == io.EOF:
		return "", io.ErrUnexpectedEOF
	case err == bufio.ErrBufferFull:
		return "", fmt.Errorf("%w: a line is longer than %d bytes", errNotHTTP, in.Size())
	case err != nil:
		return "", err
	}
	return strings.TrimSuffix(string(line[:len(line)-1]), "\r"), nil
}

// sized is a body of known length.
type sized struct {
	in   io.Reader
	left int64
}

// Read reads the rest of the body.
func (s *sized) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n, err := s.in.Read(b[:min(int64(len(b)), s.left)])
	s.left -= int64(n)
	if err == io.EOF && s.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// chunks is a chunked body, in which each piece is preceded by its length.
type chunks struct {
	in    *bufio.Reader
	left  int64 // of the present one
	begun bool
	err   error // its final error
}

// Read reads from the present piece, or waits for the next one.
func (c *chunks) Read(b []byte) (int, error) {
	if c.err != nil || len(b) == 0 {
		return 0, c.err
	}
	if c.left == 0 {
		if c.err = c.next(); c.err != nil {
			return 0, c.err
		}
	}
	n, err := c.in.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	c.err = err
	return n, err
}

// next reads the length of the next piece; io.EOF: there is none.
func (c *chunks) next() error {
	if c.begun {
		if line, err := readLine(c.in); err != nil || line != "" {
			return cmpErr(err, fmt.Errorf("%w: a piece is longer than it says", errNotHTTP))
		}
	}
	c.begun = true
	line, err := readLine(c.in)
	if err != nil {
		return err
	}
	digits, _, _ := strings.Cut(line, ";")
	n, err := strconv.ParseUint(strings.TrimRight(digits, " \t"), 16, 62)
	if err != nil {
		return fmt.Errorf("%w: the length of a piece is %.80q", errNotHTTP, line)
	}
	if c.left = int64(n); n > 0 {
		return nil
	}
	for range mostHeaders { // of the trailer
		if line, err = readLine(c.in); err != nil || line == "" {
			return cmpErr(err, io.EOF)
		}
	}
	return fmt.Errorf("%w: the trailer does not end", errNotHTTP)
}

// cmpErr is the first of two errors that is not nil.
func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}
