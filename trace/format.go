package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/unpack"
)

// Options says how to read a trace. The zero value detects the format and
// stops at the first malformed row.
type Options struct {
	Format      string  // name from Formats; "": detected from the content
	SkipBad     bool    // count malformed rows in Workload.Bad instead of failing
	Limit       int     // number of first jobs by submission to keep; 0: all
	Nodes       string  // openb: path of the node list
	Rate        float64 // gavel: jobs per hour of the unit-rate lists; 0: 4
	Throughputs string  // gavel: path of the throughput table (.json or .json.gz)
	Profiles    string  // pollux: directory with one directory of measurements per application
	Partitions  bool    // sacct: keep the partition as a constraint of the job
	dir         string  // directory of the trace, to find companion files
}

// Format is a trace format that Muster reads.
type Format struct {
	Name  string // as given to Options.Format
	About string // one line for the help text
	// Detect reports whether a file is in this format from its first bytes
	// (decompressed, at most headSize) and its base name.
	Detect func(head []byte, name string) bool
	// Read feeds the rows to the builder.
	Read func(b *Builder) error
}

// Formats lists the formats in the order in which detection tries them:
// where one header contains another, the longer one comes first.
func Formats() []Format {
	return []Format{
		jsonlFormat,
		csvFormat,
		phillyFormat,
		muriFormat,
		chronusFormat,
		openbFormat,
		gavelFormat,
		polluxFormat,
		rubickFormat,
		heliosFormat,
		acmeFormat,
		itpFormat,
		tiresiasFormat,
		paiFormat,
		sacctFormat,
		sacctJSONFormat,
		swfFormat,
		pbsFormat,
	}
}

const headSize = 64 << 10

// Open reads the trace at path, compressed (.gz, .zst) or not.
func Open(path string, o Options) (*Workload, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return nil, fmt.Errorf("%s: is a directory; name a trace file in it", path)
	}
	o.dir = filepath.Dir(path)
	return Read(path, f, o)
}

// Read reads a trace from r. The name is used in error messages, and its base
// without extensions becomes the workload's name.
func Read(name string, r io.Reader, o Options) (*Workload, error) {
	if o.Limit < 0 {
		return nil, fmt.Errorf("limit %d: must be 0 (all jobs) or more", o.Limit)
	}
	plain, done, err := unpack.Reader(r)
	if err != nil {
		return nil, RowError{File: name, Reason: err.Error()}
	}
	defer done()
	in := bufio.NewReaderSize(plain, headSize)
	head, err := in.Peek(headSize)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, RowError{File: name, Reason: readError(err)}
	}
	head = trimBOM(head)
	if len(bytes.TrimSpace(head)) == 0 {
		return nil, RowError{File: name, Reason: "is empty; a trace needs at least a header or one job"}
	}
	f, err := pick(head, name, o.Format)
	if err != nil {
		return nil, err
	}
	b := newBuilder(name, f.Name, in, o)
	if err := f.Read(b); err != nil {
		return nil, err
	}
	return b.finish()
}

// trimBOM removes the byte order mark that some spreadsheets write.
func trimBOM(b []byte) []byte { return bytes.TrimPrefix(b, []byte("\ufeff")) }

// readError describes a failed read; most are damaged compressed files.
func readError(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the file ends in the middle of its compressed data"
	}
	return "cannot be read: " + err.Error()
}

// pick finds the format by its name, or by content if no name is given.
func pick(head []byte, name, want string) (Format, error) {
	var names []string
	for _, f := range Formats() {
		if f.Name == want || want == "" && f.Detect(head, stem(name)) {
			return f, nil
		}
		names = append(names, f.Name)
	}
	if want != "" {
		return Format{}, cluster.Unknown("trace format", want, names)
	}
	first, _, _ := bytes.Cut(head, []byte("\n"))
	return Format{}, RowError{File: name, Line: 1, Reason: fmt.Sprintf(
		"no known trace format has this first line: %s; name the format (one of %s)",
		quote(bytes.TrimSpace(first)), strings.Join(names, ", "))}
}

// stem returns the base name without compression extensions.
func stem(name string) string {
	base := filepath.Base(name)
	base = strings.TrimSuffix(base, ".gz")
	return strings.TrimSuffix(base, ".zst")
}

// columns returns a detector for a header line that holds all these columns.
func columns(sep byte, want ...string) func(head []byte, name string) bool {
	return func(head []byte, _ string) bool {
		line, _, _ := bytes.Cut(head, []byte("\n"))
		have := map[string]bool{}
		for _, f := range bytes.Split(line, []byte{sep}) {
			have[headerName(f)] = true
		}
		for _, w := range want {
			if !have[w] {
				return false
			}
		}
		return true
	}
}

// headerName normalises a column name: case, blanks and quotes do not matter.
func headerName(b []byte) string {
	return strings.ToLower(string(bytes.Trim(bytes.TrimSpace(b), `"`)))
}

// quote formats input for an error message: escaped and shortened.
func quote(b []byte) string {
	const most = 80
	if len(b) > most {
		return fmt.Sprintf("%q...", b[:most])
	}
	return fmt.Sprintf("%q", b)
}
