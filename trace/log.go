package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/muster-gpu/muster/cluster"
)

// Log is a workload that is written while it happens: a line for each job that has ended, in
// Muster's own format. Its submission times are Unix times. A header line describes the cluster; a
// later writer of the file adds another one.
type Log struct {
	f     *os.File
	name  string // name of the workload
	begun bool   // its header has been written
	torn  bool   // a line may have been written in part
}

// OpenLog opens or creates a log. A file with other contents is an error, and is not changed.
func OpenLog(path, name string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := checkLog(f); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return &Log{f: f, name: name}, nil
}

// checkLog reports whether a file is a log, or empty.
func checkLog(f *os.File) error {
	first, start := make([]byte, 32), []byte(`{"muster_trace":1,"log":true`)
	n, err := f.ReadAt(first, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n > 0 && !bytes.HasPrefix(first[:n], start[:min(n, len(start))]) {
		return fmt.Errorf("this is no history of Muster (it does not begin with %s); give another file", start)
	}
	return nil
}

// trim removes a partial line of a writer that was killed.
func trim(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	const chunk = 1 << 16
	buf := make([]byte, chunk)
	for end := info.Size(); end > 0; {
		from := max(0, end-chunk)
		part := buf[:end-from]
		if _, err := f.ReadAt(part, from); err != nil {
			return err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			if whole := from + int64(i) + 1; whole < info.Size() {
				return f.Truncate(whole)
			}
			return nil
		}
		end = from
	}
	return f.Truncate(0) // the writer was killed within the header
}

// logHeader is a header line; its first fields identify a log.
type logHeader struct {
	Version int             `json:"muster_trace"`
	Log     bool            `json:"log"`
	Name    string          `json:"name"`
	Nodes   []cluster.Node  `json:"nodes,omitempty"`
	Queues  []cluster.Queue `json:"queues,omitempty"`
}

// Cluster writes the description of the cluster from now on. It must be called first: until then
// another process may be writing to the file.
func (l *Log) Cluster(nodes []cluster.Node, queues []cluster.Queue) error {
	l.torn = l.torn || !l.begun
	err := l.line(logHeader{jsonlVersion, true, l.name, nodes, queues})
	l.begun = l.begun || err == nil
	return err
}

// Add writes a job that has ended, with Unix times. It is an error before a header is written: such
// a file could not be reopened.
func (l *Log) Add(e *Entry) error {
	if !l.begun {
		return errors.New("the header that describes the cluster is not written yet")
	}
	return l.line(&jsonlEntry{Entry: *e, Job: jsonlJob{Job: e.Job, Tier: e.Job.Tier}})
}

// line writes a line immediately, so that a killed process has written everything before. A partial
// line is removed before the next one.
func (l *Log) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if l.torn {
		if err := trim(l.f); err != nil {
			return err
		}
	}
	_, err = l.f.Write(append(text, '\n'))
	l.torn = err != nil
	return err
}

// Close closes the log.
func (l *Log) Close() error { return l.f.Close() }
