package requests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/unpack"
)

// Format is a format of recorded requests.
type Format struct {
	Name  string
	About string
	// detect reports whether a file's first line is of this format.
	detect func(first []byte) bool
	// begin prepares for the rows after the first line, which it is given; a header is not a row.
	begin func(first []byte) (row rowReader, header bool, err error)
}

// rowReader reads a line without its end. The time counts from any origin.
type rowReader func(line []byte, r *row) error

// row is a recorded request.
type row struct {
	at      int64 // nanoseconds
	service []byte
	prompt  int64
	output  int64
	failed  bool // it was never answered
}

// Formats lists the formats that are recognised.
func Formats() []Format {
	return []Format{
		{"azure", "Azure's LLM inference traces: TIMESTAMP,ContextTokens,GeneratedTokens",
			hasColumns("timestamp", "contexttokens", "generatedtokens"), azure},
		{"burstgpt", "BurstGPT: Timestamp,Model,Request tokens,Response tokens,…",
			hasColumns("timestamp", "model", "request tokens", "response tokens"), burstGPT},
		{"mooncake", "Mooncake's JSON lines: timestamp, input_length, output_length", isMooncake, mooncake},
		{"csv", "plain columns arrival_s and, if you like, service,prompt_tokens,output_tokens",
			hasColumns("arrival_s"), plainCSV},
	}
}

// Options say how recorded requests are replayed.
type Options struct {
	Format  string       // name from Formats; "": found out from the first line
	Service string       // only requests of this name, where the file has names; "": all
	Speed   float64      // arrivals come this much faster; 0: 1
	From    cluster.Time // of the first request of the file
	Limit   int64        // number of requests; 0: all
}

// File is a stream of recorded requests.
type File struct {
	Format  string
	Skipped int64 // rows that were never answered; they have no length to replay

	name    string
	o       Options
	number  int32
	in      *bufio.Reader
	close   func()
	read    rowReader
	line    int
	pending []byte // the first line, if it is a request
	origin  int64
	begun   bool
	last    int64
	sent    int64
	named   func(service []byte) // is called for each request; nil: nothing is
}

// Open opens a file of requests, compressed (.gz, .zst) or not; service is the number that its requests get.
func Open(path string, o Options, service int32) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := Read(path, f, o, service)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	free := s.close
	s.close = func() {
		free()
		_ = f.Close() // it was only read
	}
	return s, nil
}

// Read is Open for the content of a file of this name.
func Read(name string, r io.Reader, o Options, service int32) (*File, error) {
	plain, done, err := unpack.Reader(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &File{name: name, o: o, number: service, in: bufio.NewReaderSize(plain, 1<<16), close: done}
	if err := f.start(); err != nil {
		done()
		return nil, err
	}
	return f, nil
}

func (f *File) start() error {
	if f.o.Speed == 0 {
		f.o.Speed = 1
	}
	if !(f.o.Speed > 0 && f.o.Speed <= 1e6) || f.o.From < 0 || f.o.Limit < 0 {
		return fmt.Errorf("%s: speed must be above 0 and at most 1e6, from and limit 0 or more", f.name)
	}
	first, err := f.next()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: is empty; requests need at least one line", f.name)
	}
	if err != nil {
		return err
	}
	first = bytes.Clone(bytes.TrimPrefix(first, []byte("\ufeff")))
	for _, k := range Formats() {
		if f.o.Format != k.Name && (f.o.Format != "" || !k.detect(first)) {
			continue
		}
		read, header, err := k.begin(first)
		if err != nil {
			return fmt.Errorf("%s:1: %w", f.name, err)
		}
		f.Format, f.read = k.Name, read
		if !header {
			f.pending = first
		}
		return nil
	}
	if f.o.Format != "" {
		return cluster.Unknown("format of requests", f.o.Format, Names())
	}
	return fmt.Errorf("%s:1: no known format of requests begins with %.80q; name the format (one of %s)", f.name, first,
		strings.Join(Names(), ", "))
}

// Close closes the file; Next does it at the end.
func (f *File) Close() {
	if f.close != nil {
		f.close()
		f.close = nil
	}
}

// next reads a line that is not empty, without its end.
func (f *File) next() ([]byte, error) {
	if f.pending != nil {
		line := f.pending
		f.pending = nil
		return line, nil
	}
	for {
		line, err := f.in.ReadSlice('\n')
		if len(line) == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				return nil, io.EOF
			}
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		f.line++
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("%s:%d: the line is longer than %d bytes", f.name, f.line, f.in.Size())
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			return line, nil
		}
	}
}

// Next returns the next request; arrivals count from the first row, which comes at Options.From.
func (f *File) Next(r *Request) error {
	for {
		if f.o.Limit > 0 && f.sent == f.o.Limit {
			f.Close()
			return io.EOF
		}
		line, err := f.next()
		if err != nil {
			f.Close()
			return err
		}
		var got row
		if err := f.read(line, &got); err != nil {
			return fmt.Errorf("%s:%d: %w", f.name, f.line, err)
		}
		if !f.begun {
			f.begun, f.origin, f.last = true, got.at, got.at
		}
		if got.at < f.last {
			return fmt.Errorf("%s:%d: it comes %s before the request above it; sort the file by time", f.name, f.line,
				time.Duration(f.last-got.at))
		}
		f.last = got.at
		if got.failed {
			f.Skipped++
			continue
		}
		if f.o.Service != "" && string(got.service) != f.o.Service {
			continue
		}
		if f.named != nil {
			f.named(got.service)
		}
		since := got.at - f.origin
		if f.o.Speed != 1 {
			since = int64(float64(since) / f.o.Speed)
		}
		*r = Request{At: f.o.From.Add(time.Duration(since)), Service: f.number, Prompt: int32(got.prompt),
			Output: int32(got.output)}
		f.sent++
		return nil
	}
}

// hasColumns detects a header line with all these columns.
func hasColumns(want ...string) func([]byte) bool {
	return func(first []byte) bool {
		have := header(first)
		for _, w := range want {
			if _, ok := have[w]; !ok {
				return false
			}
		}
		return true
	}
}

// header returns the number of each column, by its name in lower case.
func header(first []byte) map[string]int {
	have := map[string]int{}
	for i, name := range strings.Split(string(first), ",") {
		have[strings.ToLower(strings.Trim(strings.TrimSpace(name), `"`))] = i
	}
	return have
}

// column is where a value stands in a line; -1: nowhere.
func column(have map[string]int, name string) int {
	if i, ok := have[name]; ok {
		return i
	}
	return -1
}

// split cuts a line of CSV without quoted commas; it overwrites fields.
func split(line []byte, fields [][]byte) [][]byte {
	fields = fields[:0]
	for {
		i := bytes.IndexByte(line, ',')
		if i < 0 {
			return append(fields, bytes.TrimSpace(line))
		}
		fields = append(fields, bytes.TrimSpace(line[:i]))
		line = line[i+1:]
	}
}

// columnsReader reads rows of CSV whose header has a column for time and perhaps others.
func columnsReader(first []byte, at, service, prompt, output string, instant func([]byte) (int64, error),
	unanswered bool) (rowReader, bool, error) {
	have := header(first)
	a, s, p, o := column(have, at), column(have, service), column(have, prompt), column(have, output)
	var fields [][]byte
	if a < 0 {
		return nil, false, fmt.Errorf("there is no column %s", at)
	}
	return func(line []byte, r *row) (err error) {
		fields = split(line, fields)
		if len(fields) != len(have) {
			return fmt.Errorf("%d values in a line, %d columns in the header", len(fields), len(have))
		}
		if r.at, err = instant(fields[a]); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if s >= 0 {
			r.service = fields[s]
		}
		if p >= 0 {
			if r.prompt, err = tokens(fields[p], 0); err != nil {
				return fmt.Errorf("%s: %w", prompt, err)
			}
		}
		if o >= 0 {
			if r.output, err = tokens(fields[o], 0); err != nil {
				return fmt.Errorf("%s: %w", output, err)
			}
			r.failed = unanswered && r.output == 0
		}
		return nil
	}, true, nil
}

func azure(first []byte) (rowReader, bool, error) {
	return columnsReader(first, "timestamp", "", "contexttokens", "generatedtokens", new(timestamps).read, true)
}

func burstGPT(first []byte) (rowReader, bool, error) {
	return columnsReader(first, "timestamp", "model", "request tokens", "response tokens", seconds, true)
}

func plainCSV(first []byte) (rowReader, bool, error) {
	for name := range header(first) {
		if known := []string{"arrival_s", "service", "prompt_tokens", "output_tokens"}; !contains(known, name) {
			return nil, false, cluster.Unknown("column", name, known)
		}
	}
	return columnsReader(first, "arrival_s", "service", "prompt_tokens", "output_tokens", seconds, false)
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

func isMooncake(first []byte) bool {
	return bytes.HasPrefix(first, []byte("{")) && bytes.Contains(first, []byte(`"input_length"`)) &&
		bytes.Contains(first, []byte(`"timestamp"`))
}

// mooncake reads {"timestamp": ms, "input_length": N, "output_length": N, "hash_ids": […]}. The hashes of the prompts'
// blocks are the longest part of a line and are not read.
func mooncake([]byte) (rowReader, bool, error) {
	return func(line []byte, r *row) error {
		ms, err := jsonNumber(line, `"timestamp"`)
		if err != nil {
			return err
		}
		if r.prompt, err = jsonTokens(line, `"input_length"`); err != nil {
			return err
		}
		if r.output, err = jsonTokens(line, `"output_length"`); err != nil {
			return err
		}
		at, err := strconv.ParseFloat(string(ms), 64)
		if err != nil || !(at >= 0 && at <= mostSeconds*1e3) {
			return fmt.Errorf("timestamp: %.40q is not a number of milliseconds", ms)
		}
		r.at, r.failed = int64(at*1e6), r.output == 0
		return nil
	}, false, nil
}

// jsonNumber returns the number after a key of an object without nested objects.
func jsonNumber(line []byte, key string) ([]byte, error) {
	_, rest, ok := bytes.Cut(line, []byte(key))
	if ok {
		rest = bytes.TrimLeft(rest, " \t")
		rest, ok = bytes.CutPrefix(rest, []byte(":"))
	}
	if !ok {
		return nil, fmt.Errorf("there is no %s", key)
	}
	rest = bytes.TrimLeft(rest, " \t")
	n := 0
	for n < len(rest) && strings.IndexByte("+-.0123456789eE", rest[n]) >= 0 {
		n++
	}
	return rest[:n], nil
}

func jsonTokens(line []byte, key string) (int64, error) {
	text, err := jsonNumber(line, key)
	if err != nil {
		return 0, err
	}
	n, err := tokens(text, 0)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	return n, nil
}

const mostSeconds = 1e9 // of a time stamp: beyond every Unix time until 2001, and 31 years of a trace

// tokens reads a count.
func tokens(text []byte, least int64) (int64, error) {
	n := int64(0)
	for _, c := range text {
		if c < '0' || c > '9' || n > mostTokens {
			n = -1
			break
		}
		n = n*10 + int64(c-'0')
	}
	if len(text) == 0 || n < least || n > mostTokens {
		return 0, fmt.Errorf("%.40q is not a number of tokens from %d to %d", text, least, mostTokens)
	}
	return n, nil
}

// seconds reads seconds as nanoseconds.
func seconds(text []byte) (int64, error) {
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(v >= 0 && v <= 10*mostSeconds) {
		return 0, fmt.Errorf("%.40q is not a number of seconds", text)
	}
	whole := int64(v)
	return whole*int64(time.Second) + int64((v-float64(whole))*float64(time.Second)), nil
}

// timestamps reads 2023-11-16 18:15:46.6805900, with or without a zone. It remembers the last minute: nearly all rows
// are in the same as the row above.
type timestamps struct {
	minute string // with the colon after it
	at     int64
}

func (s *timestamps) read(text []byte) (int64, error) {
	const upTo = len("2023-11-16 18:15:")
	if len(text) > upTo && s.minute == string(text[:upTo]) {
		if ns, ok := secondsOf(text[upTo:]); ok {
			return s.at + ns, nil
		}
	}
	at, err := timestamp(text)
	if err == nil && len(text) > upTo {
		if ns, ok := secondsOf(text[upTo:]); ok {
			s.minute, s.at = string(text[:upTo]), at-ns
		}
	}
	return at, err
}

// secondsOf reads seconds from 00 to 59 with up to nine digits of a fraction, and nothing after them.
func secondsOf(text []byte) (ns int64, ok bool) {
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	if len(text) < 2 || len(text) > 12 || !digit(text[0]) || !digit(text[1]) || text[0] > '5' ||
		len(text) > 2 && text[2] != '.' || len(text) == 3 {
		return 0, false
	}
	ns = int64(text[0]-'0')*10 + int64(text[1]-'0')
	for i := range 9 {
		ns *= 10
		if i+3 < len(text) {
			if !digit(text[i+3]) {
				return 0, false
			}
			ns += int64(text[i+3] - '0')
		}
	}
	return ns, true
}

func timestamp(text []byte) (int64, error) {
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", time.RFC3339} {
		if t, err := time.Parse(layout, string(text)); err == nil && t.Year() > 1970 && t.Year() < 2200 {
			return t.UnixNano(), nil
		}
	}
	return 0, fmt.Errorf("%.40q is not a time such as 2023-11-16 18:15:46.6805900", text)
}
