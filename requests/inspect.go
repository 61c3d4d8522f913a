package requests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/unpack"
)

// Detect returns the name of the format of recorded requests that a file is in, by its first line; "": none.
func Detect(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	plain, done, err := unpack.Reader(f)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	defer done()
	head := make([]byte, 1<<16)
	n, err := io.ReadFull(plain, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	first, _, _ := bytes.Cut(bytes.TrimLeft(bytes.TrimPrefix(head[:n], []byte("\ufeff")), "\r\n"), []byte("\n"))
	for _, k := range Formats() {
		if k.detect(bytes.TrimRight(first, "\r")) {
			return k.Name, nil
		}
	}
	return "", nil
}

// Names are the names of the formats.
func Names() (names []string) {
	for _, k := range Formats() {
		names = append(names, k.Name)
	}
	return names
}

// Summary describes recorded requests.
type Summary struct {
	Name     string   `json:"name"`
	Format   string   `json:"format"`
	Requests int64    `json:"requests"`
	Skipped  int64    `json:"never_answered"`          // rows without an answer, which are left out
	Span     float64  `json:"span_s"`                  // seconds from the first request to the last
	Rate     float64  `json:"rate_per_s"`              // in the mean
	Minute   float64  `json:"busiest_minute"`          // requests per second of the minute that has the most; 0: shorter
	Second   int64    `json:"busiest_second"`          // requests of the second that has the most
	CV       float64  `json:"cv"`                      // coefficient of variation of the gaps
	Prompt   *Lengths `json:"prompt,omitempty"`        // nil: there are none
	Output   *Lengths `json:"output,omitempty"`        //
	Services []Named  `json:"services,omitempty"`      // the most requests first, at most mostNamed
	Others   int      `json:"more_services,omitempty"` // than these
}

// Lengths describes numbers of tokens.
type Lengths struct {
	Mean float64 `json:"mean"`
	P50  int     `json:"p50"`
	P90  int     `json:"p90"`
	P99  int     `json:"p99"`
	Max  int     `json:"max"`
}

// Named is a name that requests have in their file, with their number.
type Named struct {
	Name     string `json:"name"`
	Requests int64  `json:"requests"`
}

const (
	mostNamed   = 20      // services that a summary lists
	mostCounted = 100_000 // services that are told apart
)

// Inspect describes a file of requests. It reads them one by one: the memory that it takes does not depend on how
// many there are.
func Inspect(path string, o Options) (Summary, error) {
	s := Summary{Name: path}
	f, err := Open(path, o, 0)
	if err != nil {
		return s, err
	}
	defer f.Close()
	s.Format = f.Format
	names := map[string]int64{}
	f.named = func(name []byte) {
		if _, known := names[string(name)]; known || len(names) < mostCounted {
			names[string(name)]++
		}
	}
	var prompts, outputs counts
	var gaps moments
	seconds, minutes := peak{width: time.Second}, peak{width: time.Minute}
	first, last := cluster.Time(0), cluster.Time(0)
	var r Request
	for err = f.Next(&r); err == nil; err = f.Next(&r) {
		if s.Requests == 0 {
			first = r.At
		} else {
			gaps.add(r.At.Sub(last).Seconds())
		}
		last = r.At
		s.Requests++
		prompts.add(r.Prompt)
		outputs.add(r.Output)
		since := r.At.Sub(first)
		seconds.add(since)
		minutes.add(since)
	}
	if !errors.Is(err, io.EOF) {
		return s, err
	}
	s.Skipped, s.Span = f.Skipped, last.Sub(first).Seconds()
	if s.Span > 0 {
		s.Rate = float64(s.Requests-1) / s.Span
	}
	if s.Second = seconds.most; s.Span >= time.Minute.Seconds() {
		s.Minute = float64(minutes.most) / time.Minute.Seconds()
	}
	s.CV, s.Prompt, s.Output = gaps.cv(), prompts.lengths(), outputs.lengths()
	delete(names, "")
	for name, n := range names {
		s.Services = append(s.Services, Named{name, n})
	}
	slices.SortFunc(s.Services, func(a, b Named) int {
		if a.Requests != b.Requests {
			return int(b.Requests - a.Requests)
		}
		return bytes.Compare([]byte(a.Name), []byte(b.Name))
	})
	if len(s.Services) > mostNamed {
		s.Services, s.Others = s.Services[:mostNamed], len(s.Services)-mostNamed
	}
	return s, nil
}

// counts is how often each number of tokens was seen.
type counts []int64

func (c *counts) add(tokens int32) {
	if int(tokens) >= len(*c) {
		*c = append(*c, make([]int64, int(tokens)+1-len(*c))...)
	}
	(*c)[tokens]++
}

// lengths are the figures of what was counted; the quantile of n values is that at ⌊n·p⌋. nil: all are 0.
func (c counts) lengths() *Lengths {
	if len(c) <= 1 {
		return nil
	}
	n, sum := int64(0), 0.0
	for tokens, k := range c {
		n, sum = n+k, sum+float64(tokens)*float64(k)
	}
	quantile := func(p float64) int {
		left := int64(p * float64(n))
		for tokens, k := range c {
			if left -= k; left < 0 {
				return tokens
			}
		}
		return len(c) - 1
	}
	return &Lengths{Mean: sum / float64(n), P50: quantile(0.5), P90: quantile(0.9), P99: quantile(0.99),
		Max: len(c) - 1}
}

// moments is a running mean with the squares around it (Welford, 1962).
type moments struct{ n, mean, squares float64 }

func (m *moments) add(v float64) {
	m.n++
	d := v - m.mean
	m.mean += d / m.n
	m.squares += d * (v - m.mean)
}

func (m *moments) cv() float64 {
	if m.n == 0 || m.mean == 0 {
		return 0
	}
	return math.Sqrt(m.squares/m.n) / m.mean
}

// peak is the most requests in a slice of time.
type peak struct {
	width   time.Duration
	slice   int64
	n, most int64
}

func (p *peak) add(since time.Duration) {
	if slice := int64(since / p.width); slice != p.slice {
		p.slice, p.n = slice, 0
	}
	p.n++
	p.most = max(p.most, p.n)
}

// WriteText prints the summary for people.
func (s *Summary) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.f("%s (requests, %s): %d\n", s.Name, s.Format, s.Requests)
	if s.Skipped > 0 {
		p.f("left out    %d that were never answered\n", s.Skipped)
	}
	if s.Requests == 0 {
		return p.err
	}
	span := time.Duration(s.Span * 1e9)
	p.f("arrivals    over %s: %.4g a second in the mean", cluster.FormatDuration(span.Round(time.Second/10)), s.Rate)
	if s.Minute > 0 {
		p.f(", %.4g in the busiest minute", s.Minute)
	}
	p.f(", %d in the busiest second; gaps vary by a coefficient of %.2f\n", s.Second, s.CV)
	for _, l := range []struct {
		name string
		of   *Lengths
	}{{"prompts", s.Prompt}, {"answers", s.Output}} {
		if l.of != nil {
			p.f("%-11s %.0f tokens in the mean; p50 %d, p90 %d, p99 %d, at most %d\n", l.name, l.of.Mean, l.of.P50,
				l.of.P90, l.of.P99, l.of.Max)
		}
	}
	for i, n := range s.Services {
		name := "for"
		if i > 0 {
			name = ""
		}
		p.f("%-11s %-30q %d\n", name, n.Name, n.Requests)
	}
	if s.Others > 0 {
		p.f("%-11s and %d other names\n", "", s.Others)
	}
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
