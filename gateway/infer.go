package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// infer is a request of the Open Inference Protocol. Requests of the same kind can be computed together.
type infer struct {
	inferRequest
	kind string // names, types and shapes but for the first dimension, parameters, and which outputs are asked for
	n    int    // samples
}

// tensor is an input or an output.
type tensor struct {
	Name       string          `json:"name"`
	Shape      []int64         `json:"shape"`
	Datatype   string          `json:"datatype"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Data       json.RawMessage `json:"data"`
}

type inferRequest struct {
	ID         string          `json:"id,omitempty"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Inputs     []tensor        `json:"inputs"`
	Outputs    json.RawMessage `json:"outputs,omitempty"`
}

type inferResponse struct {
	Model      string          `json:"model_name,omitempty"`
	Version    string          `json:"model_version,omitempty"`
	ID         string          `json:"id,omitempty"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Outputs    []tensor        `json:"outputs"`
}

// readInfer reads the body of an inference request.
func readInfer(body []byte) (*infer, error) {
	var q inferRequest
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, fmt.Errorf("the body is no inference request: %w", err)
	}
	if len(q.Inputs) == 0 {
		return nil, errors.New("inputs: there are none")
	}
	x := &infer{inferRequest: q}
	var kind strings.Builder
	for i := range q.Inputs {
		t := &q.Inputs[i]
		if len(t.Shape) == 0 || t.Shape[0] < 1 || t.Shape[0] > 1<<20 || len(t.Data) < 2 || t.Data[0] != '[' {
			return nil, fmt.Errorf("inputs[%d]: needs a shape that begins with the number of samples, and data", i)
		}
		if i == 0 {
			x.n = int(t.Shape[0])
		} else if int(t.Shape[0]) != x.n {
			return nil, fmt.Errorf("inputs[%d]: %d samples, the first input has %d", i, t.Shape[0], x.n)
		}
		var values int64
		t.Data, values = flatten(t.Data)
		if values < 0 {
			return nil, fmt.Errorf("inputs[%d]: data is not an array of values", i)
		}
		if want := elements(t.Shape); values != want {
			return nil, fmt.Errorf("inputs[%d]: %d values in a shape of %v", i, values, t.Shape)
		}
		fmt.Fprintf(&kind, "%q %q %v %s;", t.Name, t.Datatype, t.Shape[1:], t.Parameters)
	}
	fmt.Fprintf(&kind, "%s %s", q.Parameters, q.Outputs)
	x.kind = kind.String()
	return x, nil
}

// elements is how many values a shape has; -1: none can have so many.
func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		if d < 0 || d > 0 && n > largestBody/d {
			return -1
		}
		n *= d
	}
	return n
}

// flatten turns a JSON array, which may be nested, into a flat one, and counts its values; -1: one is an object. The
// count matters: data that does not fill its shape would shift the values of the other requests of a batch.
func flatten(data []byte) (flat []byte, values int64) {
	flat = append(make([]byte, 0, len(data)), '[')
	quoted, escaped, inside := false, false, false // in a string; after a backslash; in a value
	for _, c := range data {
		switch {
		case c == '{' && !quoted:
			return nil, -1
		case quoted:
			flat = append(flat, c)
			quoted = escaped || c != '"'
			escaped = !escaped && c == '\\'
			continue
		case c == '[' || c == ']' || c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n':
			inside = false
			continue
		}
		if !inside {
			if values > 0 {
				flat = append(flat, ',')
			}
			inside = true
			values++
		}
		quoted = c == '"'
		flat = append(flat, c)
	}
	return append(flat, ']'), values
}

// joins reports whether two requests can be computed together.
func (x *infer) joins(o *infer) bool { return x.kind == o.kind }

// join makes one body of several requests of a kind.
func join(list []*infer) []byte {
	var b bytes.Buffer
	first := list[0]
	b.WriteByte('{')
	member := func(name string, value []byte) {
		if len(value) > 0 {
			fmt.Fprintf(&b, `%q:%s,`, name, value)
		}
	}
	member("parameters", first.Parameters)
	member("outputs", first.Outputs)
	b.WriteString(`"inputs":[`)
	for i := range first.Inputs {
		t := &first.Inputs[i]
		n := int64(0)
		for _, x := range list {
			n += x.Inputs[i].Shape[0]
		}
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(t.Name) // marshalling a string does not fail
		kind, _ := json.Marshal(t.Datatype)
		fmt.Fprintf(&b, `{"name":%s,"datatype":%s,`, name, kind)
		member("parameters", t.Parameters)
		fmt.Fprintf(&b, `"shape":[%d`, n)
		for _, d := range t.Shape[1:] {
			fmt.Fprintf(&b, ",%d", d)
		}
		b.WriteString(`],"data":[`)
		for k, x := range list {
			values := x.Inputs[i].Data[1 : len(x.Inputs[i].Data)-1]
			if k > 0 && len(values) > 0 {
				b.WriteByte(',')
			}
			b.Write(values)
		}
		b.WriteString("]}")
	}
	b.WriteString("]}")
	return b.Bytes()
}

// split divides the answer to several requests.
func split(body []byte, list []*infer) ([][]byte, error) {
	var all inferResponse
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("the answer is none of the protocol: %w", err)
	}
	total := 0
	for _, x := range list {
		total += x.n
	}
	values := make([][]json.RawMessage, len(all.Outputs))
	for i := range all.Outputs {
		t := &all.Outputs[i]
		if err := json.Unmarshal(t.Data, &values[i]); err != nil {
			return nil, fmt.Errorf("output %s: %w", t.Name, err)
		}
		if len(t.Shape) == 0 || int(t.Shape[0]) != total || len(values[i])%total != 0 {
			return nil, fmt.Errorf("output %s: %d values in a shape of %v for %d samples", t.Name, len(values[i]),
				t.Shape, total)
		}
	}
	var parts [][]byte
	from := 0
	for _, x := range list {
		one := inferResponse{Model: all.Model, Version: all.Version, ID: x.ID, Parameters: all.Parameters}
		for i := range all.Outputs {
			t := all.Outputs[i]
			each := len(values[i]) / total
			data, err := json.Marshal(values[i][from*each : (from+x.n)*each])
			if err != nil {
				return nil, err
			}
			t.Shape = slices.Clone(t.Shape)
			t.Shape[0], t.Data = int64(x.n), data
			one.Outputs = append(one.Outputs, t)
		}
		from += x.n
		part, err := json.Marshal(one)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

const largestAnswer = 64 << 20 // bytes of a replica's answer to a batch

// errDied marks a batch that a replica took and did not answer.
var errDied = errors.New("it died")

// statusError is an answer other than 200.
type statusError struct {
	code int
	text []byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%d %s: %.200s", e.code, http.StatusText(e.code), e.text)
}

// callersFault reports whether a replica has refused a request because of what is in it. Other answers such as 401 and
// 404 mean that it is not the replica that the gateway takes it for.
func callersFault(err error) bool {
	var status *statusError
	return errors.As(err, &status) && (status.code == http.StatusBadRequest ||
		status.code == http.StatusRequestEntityTooLarge || status.code == http.StatusUnsupportedMediaType ||
		status.code == http.StatusUnprocessableEntity)
}

// post sends a batch to a replica and divides the answer.
func (p *pool) post(r *replica, list []*call) ([][]byte, error) {
	batch := make([]*infer, len(list))
	for i, c := range list {
		batch[i] = c.infer
	}
	timeout, _ := p.times()
	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, errSlow)
	defer cancel()
	u := r.url.JoinPath("v2", "models", p.model(), "infer")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(join(batch)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	body, status, err := receive(p.server.transport, req)
	switch {
	case context.Cause(ctx) != nil && err != nil:
		return nil, errSlow
	case err != nil:
		return nil, fmt.Errorf("%w: %w: %w", errReplica, errDied, err)
	case len(body) > largestAnswer:
		return nil, fmt.Errorf("%w: its answer has more than %d MiB", errReplica, largestAnswer>>20)
	case status != http.StatusOK:
		return nil, fmt.Errorf("%w: %w", errReplica, &statusError{status, body})
	}
	parts, err := split(body, batch)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errReplica, err)
	}
	return parts, nil
}

// receive sends a request and reads the answer, up to a byte more than an answer may have.
func receive(t http.RoundTripper, req *http.Request) (body []byte, status int, err error) {
	resp, err := t.RoundTrip(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, largestAnswer+1))
	return body, resp.StatusCode, err
}
