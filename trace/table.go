package trace

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// table reads separated values. The accessors (str, num, dur, ...) take a
// column number from col; the first value that does not fit makes the row bad,
// and emit then reports it instead of adding the job. A column number of -1
// (an optional column that is absent) reads as zero.
type table struct {
	b      *Builder
	in     lines
	sep    byte
	quotes bool // fields may be quoted as in RFC 4180
	strict bool // every row must have as many fields as the header
	header []string
	fields [][]byte
	line   int
	reason string // why the current row is bad
	err    error
}

// maxJoin is the number of lines that a quoted field may span before its quote counts as a stray
// one.
const maxJoin = 100

// table reads the header line and checks for the required columns.
func (b *Builder) table(sep byte, need ...string) (*table, error) {
	t := &table{b: b, in: lines{in: b.in}, sep: sep, quotes: sep == ',', strict: true}
	line, _, err := t.in.next()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, b.fatal(1, "%s", readError(err))
	}
	seen := map[string]bool{}
	for _, f := range bytes.Split(line, []byte{sep}) {
		name := strings.ToValidUTF8(headerName(f), "\ufffd")
		if seen[name] && name != "" {
			return nil, b.fatal(1, "column %q occurs twice in the header", name)
		}
		seen[name] = true
		t.header = append(t.header, name)
	}
	for _, n := range need {
		if !seen[n] {
			return nil, b.fatal(1, "no column %q in the header %s; needed are %s", n, quote(line),
				strings.Join(need, ", "))
		}
	}
	return t, nil
}

// plain is a table without a header line; names serve in messages.
func (b *Builder) plain(sep byte, names ...string) *table {
	return &table{b: b, in: lines{in: b.in}, sep: sep, quotes: sep == ',', strict: true, header: names}
}

// col returns the number of a column, -1 if there is none.
func (t *table) col(name string) int {
	for i, h := range t.header {
		if h == name {
			return i
		}
	}
	return -1
}

// each adds an entry for each row; read fills it in and reports whether the row is a job at all.
func (t *table) each(read func(e *Entry) bool) error {
	var e Entry
	for t.next() {
		e = Entry{}
		if read(&e) && !t.emit(&e) {
			break
		}
	}
	return t.err
}

// next moves to the next row, past blank lines and past malformed rows that may be skipped. It
// returns false at the end, or on an error (in t.err).
func (t *table) next() bool {
	for t.err == nil {
		line, long, err := t.in.next()
		if errors.Is(err, io.EOF) {
			return false
		}
		t.line, t.reason = t.in.n, ""
		if err != nil {
			t.err = t.b.fatal(t.line, "%s", readError(err))
			return false
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		switch {
		case long:
			t.reason = fmt.Sprintf("the line is longer than %d MiB", maxLine>>20)
		case t.quotes && bytes.IndexByte(line, '"') >= 0:
			t.quoted(line)
		default:
			t.split(line)
		}
		if t.reason == "" && t.strict && len(t.fields) != len(t.header) {
			t.reason = fmt.Sprintf("has %d fields, must be %d: %s", len(t.fields), len(t.header),
				strings.Join(t.header, ","))
		}
		if t.reason == "" {
			return true
		}
		t.err = t.b.bad(t.line, t.reason)
	}
	return false
}

func (t *table) split(line []byte) {
	t.fields = t.fields[:0]
	for {
		i := bytes.IndexByte(line, t.sep)
		if i < 0 {
			break
		}
		t.fields = append(t.fields, line[:i])
		line = line[i+1:]
	}
	t.fields = append(t.fields, line)
}

// quoted passes a record with quotes to encoding/csv, joining lines while a quoted field is open.
// If it never closes, the lines after the first are given back: a stray quote costs one row.
func (t *table) quoted(first []byte) {
	rec := bytes.Clone(first)
	var extra [][]byte
	for {
		r := csv.NewReader(bytes.NewReader(rec))
		r.Comma, r.FieldsPerRecord = rune(t.sep), -1
		got, err := r.Read()
		if err == nil {
			t.fields = t.fields[:0]
			for _, f := range got {
				t.fields = append(t.fields, []byte(f))
			}
			return
		}
		// Only an open quote can be completed by more lines.
		if !errors.Is(err, csv.ErrQuote) || bytes.Count(rec, []byte(`"`))%2 == 0 || len(extra) == maxJoin {
			break
		}
		line, long, err := t.in.next()
		if err != nil || long {
			break
		}
		extra = append(extra, bytes.Clone(line))
		rec = append(append(rec, '\n'), line...)
	}
	t.in.undo = append(extra, t.in.undo...)
	t.in.n -= len(extra)
	t.reason = fmt.Sprintf(
		"a quoted field is malformed: %s; write \"...\" around the whole field and \"\" for a quote inside",
		quote(first))
}

// emit adds the job of the current row, or reports why the row is malformed. It returns false when
// reading must stop.
func (t *table) emit(e *Entry) bool {
	if t.reason != "" {
		t.err = t.b.bad(t.line, t.reason)
	} else {
		t.err = t.b.add(e, t.line)
	}
	return t.err == nil
}

// fail marks the row as malformed; the first reason counts.
func (t *table) fail(i int, want string) {
	if t.reason == "" {
		t.reason = fmt.Sprintf("%s %s: must be %s", t.header[i], quote(t.fields[i]), want)
	}
}

// raw returns the bytes of a field without surrounding blanks, valid until
// the next row.
func (t *table) raw(i int) []byte {
	if i < 0 || i >= len(t.fields) {
		return nil
	}
	return bytes.TrimSpace(t.fields[i])
}

// str returns a field as an interned string.
func (t *table) str(i int) string { return t.b.text(t.raw(i)) }

// num reads a whole number from lo to hi. "8.0" counts as 8, because pandas
// writes whole numbers that way.
func (t *table) num(i int, lo, hi int64) int64 {
	if i < 0 {
		return 0
	}
	f := t.raw(i)
	if k := len(f) - 2; k > 0 && f[k] == '.' && f[k+1] == '0' {
		f = f[:k]
	}
	n, err := strconv.ParseInt(string(f), 10, 64)
	if err != nil || n < lo || n > hi {
		if hi >= 1<<40 {
			t.fail(i, fmt.Sprintf("a whole number, %d or more", lo))
		} else {
			t.fail(i, fmt.Sprintf("a whole number from %d to %d", lo, hi))
		}
		return lo
	}
	return n
}

// real reads a number from lo to hi; NaN and infinities are malformed.
func (t *table) real(i int, lo, hi float64) float64 {
	if i < 0 {
		return 0
	}
	f, ok := parseReal(t.raw(i))
	if !ok || !(f >= lo && f <= hi) {
		t.fail(i, fmt.Sprintf("a number from %g to %g", lo, hi))
		return lo
	}
	return f
}

// dur reads an amount of time in the given unit.
func (t *table) dur(i int, unit time.Duration) time.Duration {
	if i < 0 {
		return 0
	}
	d, ok := parseAmount(t.raw(i), unit)
	if !ok {
		t.fail(i, fmt.Sprintf("a number of %s from 0 to %d (100 years)", unitName(unit), cluster.MaxDuration/unit))
	}
	return d
}

// at reads an instant as an amount of time since the trace's own zero.
func (t *table) at(i int, unit time.Duration) cluster.Time {
	return cluster.Time(t.dur(i, unit))
}

// stamp reads a date and time into nanoseconds since the Unix epoch.
func (t *table) stamp(i int) cluster.Time {
	if i < 0 {
		return 0
	}
	at, ok := parseStamp(t.raw(i))
	if !ok {
		t.fail(i, `a date and time such as "2017-10-09 07:01:55", from 1970 to 2069`)
	}
	return at
}

// missing reports whether a field is empty, in any of the usual notations.
func (t *table) missing(i int) bool {
	switch string(bytes.ToLower(t.raw(i))) {
	case "", "nan", "none", "null", "unknown", "n/a", "nat", "-":
		return true
	}
	return false
}

func unitName(u time.Duration) string {
	switch u {
	case time.Millisecond:
		return "milliseconds"
	case time.Minute:
		return "minutes"
	case time.Hour:
		return "hours"
	}
	return "seconds"
}

// parseAmount reads a decimal number of units. The common short forms use exact integer arithmetic,
// others a float.
func parseAmount(f []byte, unit time.Duration) (time.Duration, bool) {
	most := int64(cluster.MaxDuration / unit)
	var n, frac, div int64 = 0, 0, 1
	for i, c := range f {
		switch {
		case c >= '0' && c <= '9' && i < 12:
			n = n*10 + int64(c-'0')
		case c == '.' && i > 0 && len(f)-i <= 7 && len(f)-i > 1:
			for _, c := range f[i+1:] {
				if c < '0' || c > '9' {
					return slowAmount(f, unit)
				}
				frac, div = frac*10+int64(c-'0'), div*10
			}
			if n >= most {
				return slowAmount(f, unit)
			}
			return time.Duration(n)*unit + time.Duration(frac)*unit/time.Duration(div), true
		default:
			return slowAmount(f, unit)
		}
	}
	if len(f) == 0 || n > most {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

// parseReal reads a decimal number; Go's hexadecimal and underscored forms are
// not numbers in a trace.
func parseReal(f []byte) (float64, bool) {
	if bytes.ContainsAny(f, "_xXpP") {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(f), 64)
	return v, err == nil
}

func slowAmount(f []byte, unit time.Duration) (time.Duration, bool) {
	v, ok := parseReal(f)
	if !ok || !(v >= 0) || v > float64(cluster.MaxDuration/unit) {
		return 0, false
	}
	return time.Duration(math.Round(v * float64(unit))), true
}

// parseStamp reads "2017-10-09 07:01:55", with "T" or a blank, an optional
// fraction and an optional zone ("Z", "+08:00", "+0800"). Without a zone the
// time counts as UTC.
func parseStamp(s []byte) (cluster.Time, bool) {
	if len(s) < 19 || s[4] != '-' || s[7] != '-' || s[10] != ' ' && s[10] != 'T' || s[13] != ':' || s[16] != ':' {
		return 0, false
	}
	y, mo, d := digits(s[:4]), digits(s[5:7]), digits(s[8:10])
	h, mi, sec := digits(s[11:13]), digits(s[14:16]), digits(s[17:19])
	if y < 1970 || y > 2069 || mo < 1 || mo > 12 || d < 1 || h < 0 || h > 23 || mi < 0 || mi > 59 || sec < 0 ||
		sec > 60 {
		return 0, false
	}
	at := time.Date(y, time.Month(mo), d, h, mi, sec, 0, time.UTC)
	if at.Day() != d && sec < 60 {
		return 0, false // for example 31 February
	}
	ns := at.Unix() * int64(time.Second)
	rest := s[19:]
	if len(rest) > 1 && (rest[0] == '.' || rest[0] == ',') {
		n := 1
		for scale := int64(time.Second) / 10; n < len(rest) && rest[n] >= '0' && rest[n] <= '9'; n++ {
			ns += int64(rest[n]-'0') * scale
			scale /= 10
		}
		rest = rest[n:]
	}
	off, ok := parseZone(rest)
	ns -= off * int64(time.Second)
	return cluster.Time(ns), ok && ns >= 0 && ns < int64(cluster.MaxDuration)
}

// parseZone returns seconds east of UTC.
func parseZone(z []byte) (int64, bool) {
	if len(z) == 0 || string(z) == "Z" || string(z) == " UTC" {
		return 0, true
	}
	if z[0] != '+' && z[0] != '-' || len(z) != 3 && len(z) != 5 && len(z) != 6 {
		return 0, false
	}
	h, m := digits(z[1:3]), 0
	switch {
	case len(z) == 6 && z[3] == ':':
		m = digits(z[4:6])
	case len(z) == 5:
		m = digits(z[3:5])
	case len(z) != 3:
		return 0, false
	}
	if h < 0 || h > 15 || m < 0 || m > 59 {
		return 0, false
	}
	off := int64(h*3600 + m*60)
	if z[0] == '-' {
		off = -off
	}
	return off, true
}

// digits reads an unsigned number; -1: it is not a number.
func digits(s []byte) int {
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}
