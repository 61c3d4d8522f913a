package serving

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/internal/csvfile"
)

// Promises reads what services are promised: a CSV file with a header and the columns service, rate (requests
// per second) and latency_ms. Each service's measurements are in dir (Points).
func Promises(path, dir string) ([]Service, error) {
	rows, lines, err := csvfile.ReadLines(path)
	if err != nil {
		return nil, err
	}
	col := map[string]int{}
	for i, name := range rows[0] {
		col[strings.ToLower(strings.TrimSpace(name))] = i + 1
	}
	if col["service"] == 0 || col["rate"] == 0 || col["latency_ms"] == 0 {
		return nil, fmt.Errorf("%s: the header is %q; want the columns service, rate and latency_ms", path,
			strings.Join(rows[0], ","))
	}
	var list []Service
	for n, r := range rows[1:] {
		s := Service{Name: strings.TrimSpace(r[col["service"]-1])}
		rate, err1 := strconv.ParseFloat(strings.TrimSpace(r[col["rate"]-1]), 64)
		ms, err2 := strconv.ParseFloat(strings.TrimSpace(r[col["latency_ms"]-1]), 64)
		if err := s.checkName(); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, lines[n+1], err)
		}
		if err1 != nil || err2 != nil || !(ms > 0 && ms <= 1e9) || math.IsNaN(rate) {
			return nil, fmt.Errorf("%s: line %d: want requests per second and milliseconds, such as %s,250,200", path,
				lines[n+1], s.Name)
		}
		s.Rate, s.Latency = rate, time.Duration(ms*float64(time.Millisecond))
		if err := s.Measure(dir); err != nil {
			return nil, err
		}
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, lines[n+1], err)
		}
		if slices.ContainsFunc(list, func(o Service) bool { return o.Name == s.Name }) {
			return nil, fmt.Errorf("%s: line %d: service %s is listed twice", path, lines[n+1], s.Name)
		}
		list = append(list, s)
	}
	if list == nil {
		return nil, fmt.Errorf("%s: no service", path)
	}
	return list, nil
}

// checkName says what is wrong with a service's name, which is part of a file name.
func (s *Service) checkName() error {
	if s.Name == "" || s.Name != filepath.Base(s.Name) {
		return fmt.Errorf("service %q: not a name", s.Name)
	}
	return nil
}

// Measure reads the measurements of a service, prof_data_SERVICE.csv or SERVICE.csv of a directory: after a
// header, compute slices of the instance, batch size, processes, requests per second of each process, seconds
// per batch. A rate of 0: it did not run. If the header begins with percent, the first column is per cent of a
// GPU's threads under MPS, without interference. Columns named use_compute and use_memory say what the service
// uses of a whole GPU, 0 to 1; they count on lines of one process on a whole GPU, which are those with the most
// slices or per cent.
func (s *Service) Measure(dir string) error {
	if err := s.checkName(); err != nil {
		return err
	}
	path := filepath.Join(dir, "prof_data_"+s.Name+".csv")
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(dir, s.Name+".csv")
	}
	rows, lines, err := csvfile.ReadLines(path)
	if err != nil {
		return fmt.Errorf("service %s: %w", s.Name, err)
	}
	h := headOf(rows[0])
	var uses []Use
	largest := 0
	for n, r := range rows[1:] {
		p, u, err := h.line(r)
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", path, lines[n+1], err)
		}
		if p.Rate == 0 {
			continue
		}
		s.Points = append(s.Points, p)
		part := p.Compute + p.Percent
		if part > largest { // the lines before were not on the whole GPU
			largest, uses = part, nil
		}
		if h.compute > 0 && p.Processes == 1 && part == largest {
			uses = append(uses, u)
		}
	}
	slices.SortStableFunc(uses, func(a, b Use) int { return a.Batch - b.Batch })
	s.Uses = uses
	return nil
}

// head describes the columns of a file of measurements.
type head struct {
	percent         bool // of threads under MPS, instead of compute slices
	compute, memory int  // columns of uses, from 0; 0: none
}

func headOf(row []string) (h head) {
	for i, name := range row {
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case i == 0:
			h.percent = strings.HasPrefix(name, "percent")
		case i > 4 && name == "use_compute":
			h.compute = i
		case i > 4 && name == "use_memory":
			h.memory = i
		}
	}
	if h.compute == 0 || h.memory == 0 {
		h.compute, h.memory = 0, 0
	}
	return h
}

// line reads a measurement. A rate of 0: it did not run.
func (h *head) line(r []string) (p Point, u Use, err error) {
	var v [5]float64
	if len(r) < len(v) {
		return p, u, errors.New("want compute slices, batch, processes, requests per second, seconds")
	}
	for i := range v {
		if v[i], err = strconv.ParseFloat(strings.TrimSpace(r[i]), 64); err != nil || !(v[i] >= 0 && v[i] < 1e7) {
			return p, u, fmt.Errorf("%q is not a valid number", r[i])
		}
	}
	p = Point{int(v[0]), int(v[1]), int(v[2]), v[3], time.Duration(v[4] * float64(time.Second)), 0}
	for i, what := range []string{"of compute slices, or per cent", "of requests in a batch", "of processes"} {
		if v[i] != math.Trunc(v[i]) {
			return p, u, fmt.Errorf("%s: want a whole number %s", r[i], what)
		}
	}
	if h.percent {
		p.Compute, p.Percent = 0, p.Compute
	}
	if p.Rate == 0 {
		return p, u, nil
	}
	if p.Compute+p.Percent < 1 || p.Batch < 1 || p.Processes < 1 || p.Latency <= 0 {
		return p, u, errors.New("want at least one slice, one request and one process, and a latency")
	}
	if p.Percent > 100 || h.percent && p.Processes > 1 {
		return p, u, fmt.Errorf("%s per cent with %d processes; want whole per cent up to 100, and one process", r[0],
			p.Processes)
	}
	u.Batch = p.Batch
	for _, c := range []struct {
		column int
		to     *float64
	}{{h.compute, &u.Compute}, {h.memory, &u.Memory}} {
		if c.column == 0 {
			continue
		}
		if *c.to, err = strconv.ParseFloat(strings.TrimSpace(r[c.column]), 64); err != nil ||
			!(*c.to >= 0 && *c.to <= 1) {
			return p, u, fmt.Errorf("use %q; want a number from 0 to 1", r[c.column])
		}
	}
	return p, u, nil
}
