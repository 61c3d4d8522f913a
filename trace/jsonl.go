package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/muster-gpu/muster/cluster"
)

// jsonlFormat is Muster's own format: a header object on the first line, then one Entry per line.
// It can express every Workload.
var jsonlFormat = Format{
	Name:  "muster",
	About: "Muster's own JSON lines: a header object, then one job per line",
	Detect: func(head []byte, _ string) bool {
		line, _, _ := bytes.Cut(head, []byte("\n"))
		return bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) && bytes.Contains(line, []byte(`"muster_trace"`))
	},
	Read: readJSONL,
}

const jsonlVersion = 1

// jsonlHeader is the first line.
type jsonlHeader struct {
	Version int             `json:"muster_trace"`
	Log     bool            `json:"log,omitempty"` // it was written as jobs ended (Log)
	Name    string          `json:"name"`
	Format  string          `json:"format,omitempty"`
	Epoch   int64           `json:"epoch,omitempty"`
	Nodes   []cluster.Node  `json:"nodes,omitempty"`
	Queues  []cluster.Queue `json:"queues,omitempty"`
	Notes   []string        `json:"notes,omitempty"`
	Bad     []RowError      `json:"bad,omitempty"`
	BadAll  int             `json:"bad_all,omitempty"`
	Models  []string        `json:"models,omitempty"`
}

// jsonlJob always writes the tier: if it is missing it means standard, which is not the zero value.
type jsonlJob struct {
	cluster.Job
	Tier cluster.Tier `json:"tier"`
}

// jsonlEntry shadows the job of the entry with the form above.
type jsonlEntry struct {
	Job jsonlJob `json:"job"`
	Entry
}

// WriteJSONL writes the workload in Muster's own format, without loss.
func WriteJSONL(w io.Writer, wl *Workload) error {
	out := bufio.NewWriterSize(w, 1<<16)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	h := jsonlHeader{jsonlVersion, false, wl.Name, wl.Format, wl.Epoch, wl.Nodes, wl.Queues, wl.Notes, wl.Bad,
		wl.BadAll, wl.Models}
	if err := enc.Encode(h); err != nil {
		return err
	}
	for i := range wl.Jobs {
		e := jsonlEntry{Entry: wl.Jobs[i]}
		e.Job = jsonlJob{Job: e.Entry.Job, Tier: e.Entry.Job.Tier}
		if err := enc.Encode(&e); err != nil {
			return err
		}
	}
	return out.Flush()
}

func readJSONL(b *Builder) error {
	in := lines{in: b.in}
	line, _, err := in.next()
	if err != nil {
		return b.fatal(1, "%s", readError(err))
	}
	var h jsonlHeader
	if err := strictJSON(line, &h); err != nil {
		return b.fatal(1, "header: %v", err)
	}
	if h.Version != jsonlVersion {
		return b.fatal(1, "muster_trace %d: this program reads version %d", h.Version, jsonlVersion)
	}
	if err := b.header(h); err != nil {
		return err
	}
	torn := 0 // a line that may be truncated; 0: none
	for {
		line, long, err := in.next()
		if errors.Is(err, io.EOF) {
			if torn > 0 {
				b.note("line %d, the last one, was not written to its end", torn)
			}
			return nil
		}
		if err != nil {
			return b.fatal(in.n, "%s", readError(err))
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if torn > 0 {
			if err := b.bad(torn, "not a complete JSON object"); err != nil {
				return err
			}
			torn = 0
		}
		if h.Log && bytes.HasPrefix(line, []byte(`{"muster_trace"`)) {
			if err := b.again(line, in.n); err != nil {
				return err
			}
			continue
		}
		if h.Log && !long && !json.Valid(line) {
			torn = in.n
			continue
		}
		var je jsonlEntry
		je.Job.Tier = cluster.Standard
		if long {
			err = fmt.Errorf("the line is longer than %d MiB", maxLine>>20)
		} else {
			err = strictJSON(line, &je)
		}
		if err != nil {
			err = b.bad(in.n, err.Error())
		} else {
			e := je.Entry
			e.Job = je.Job.Job
			e.Job.Tier = je.Job.Tier
			e.tidy()
			err = b.add(&e, in.n)
		}
		if err != nil {
			return err
		}
	}
}

// header applies the first line.
func (b *Builder) header(h jsonlHeader) error {
	const year = 365 * 24 * 3600
	if h.Epoch < 0 || h.Epoch > 100*year {
		return b.fatal(1, "epoch %d: must be Unix seconds between 1970 and 2069", h.Epoch)
	}
	if text := checkNodes(h.Nodes); text != "" {
		return b.fatal(1, "%s", text)
	}
	if h.BadAll < len(h.Bad) {
		h.BadAll = len(h.Bad)
	}
	b.verbatim, b.calendar = true, h.Log
	h.Nodes, h.Notes, h.Bad, h.Models = noEmpty(h.Nodes), noEmpty(h.Notes), noEmpty(h.Bad), noEmpty(h.Models)
	wl := b.wl
	if h.Name != "" {
		wl.Name = h.Name
	}
	if h.Format != "" {
		wl.Format = h.Format
	}
	wl.Epoch, wl.Nodes, wl.Notes, wl.Bad, wl.BadAll, wl.Models = h.Epoch, h.Nodes, h.Notes, h.Bad, h.BadAll, h.Models
	wl.Queues = noEmpty(h.Queues)
	return nil
}

// again applies a later header of a log: nodes that joined or changed, and the latest queues.
func (b *Builder) again(line []byte, n int) error {
	var h jsonlHeader
	if err := strictJSON(line, &h); err != nil {
		return b.fatal(n, "header: %v", err)
	}
	if h.Version != jsonlVersion || !h.Log {
		return b.fatal(n, "a header in the middle has to be that of a log of version %d", jsonlVersion)
	}
	wl := b.wl
	if text := checkNodes(h.Nodes); text != "" {
		return b.fatal(n, "%s", text)
	}
	at := make(map[string]int, len(wl.Nodes))
	for i := range wl.Nodes {
		at[wl.Nodes[i].Name] = i
	}
	for _, node := range h.Nodes {
		if i, ok := at[node.Name]; ok {
			wl.Nodes[i] = node
		} else {
			at[node.Name] = len(wl.Nodes)
			wl.Nodes = append(wl.Nodes, node)
		}
	}
	wl.Queues = noEmpty(h.Queues)
	return nil
}

// checkNodes describes what is wrong with the nodes of a header; "": nothing.
func checkNodes(nodes []cluster.Node) string {
	for i := range nodes {
		n := &nodes[i]
		if n.Name == "" || n.GPUs < 0 || n.GPUs > cluster.MaxGPUsPerNode || n.CPU < 0 || n.CPU > cluster.MaxMilli ||
			n.RAM < 0 || n.RAM > cluster.MaxMiB || n.Islands < 0 {
			return fmt.Sprintf("node %d (%q): must have a name, 0 to %d GPUs, and CPU and RAM of 0 or more", i, n.Name,
				cluster.MaxGPUsPerNode)
		}
	}
	return ""
}

// noEmpty replaces an empty list by nil, which has the same JSON.
func noEmpty[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

func (e *Entry) tidy() {
	j := &e.Job
	j.GPUTypes, j.Partitions, j.After = noEmpty(j.GPUTypes), noEmpty(j.Partitions), noEmpty(j.After)
	if e.Work != nil {
		e.Work.Stages = noEmpty(e.Work.Stages)
	}
}

// strictJSON decodes one value and nothing else; unknown fields are errors,
// because a misspelt field would otherwise be lost silently.
func strictJSON(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("not a complete JSON object: %s", quote(line))
		}
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("more than one JSON value on the line: %s", quote(line))
	}
	return nil
}
