package serving

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/internal/csvfile"
)

// Promises reads what services are promised: a CSV file with the columns service,
// rate (requests per second) and latency_ms, by its head. Each service's measurements
// are those of dir (Points).
func Promises(path, dir string) ([]Service, error) {
	rows, err := csvfile.Read(path)
	if err != nil {
		return nil, err
	}
	col := map[string]int{}
	for i, name := range rows[0] {
		col[strings.ToLower(strings.TrimSpace(name))] = i + 1
	}
	if col["service"] == 0 || col["rate"] == 0 || col["latency_ms"] == 0 {
		return nil, fmt.Errorf("%s: the head is %q; want the columns service, rate and latency_ms", path, strings.Join(rows[0], ","))
	}
	var list []Service
	for n, r := range rows[1:] {
		s := Service{Name: strings.TrimSpace(r[col["service"]-1])}
		rate, err1 := strconv.ParseFloat(strings.TrimSpace(r[col["rate"]-1]), 64)
		ms, err2 := strconv.ParseFloat(strings.TrimSpace(r[col["latency_ms"]-1]), 64)
		if err1 != nil || err2 != nil || !(ms > 0 && ms <= 1e9) || math.IsNaN(rate) {
			return nil, fmt.Errorf("%s: line %d: want requests per second and milliseconds, such as %s,250,200", path, n+2, s.Name)
		}
		s.Rate, s.Latency = rate, time.Duration(ms*float64(time.Millisecond))
		if s.Points, err = Points(dir, s.Name); err != nil {
			return nil, err
		}
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, n+2, err)
		}
		list = append(list, s)
	}
	if list == nil {
		return nil, fmt.Errorf("%s: no service", path)
	}
	return list, nil
}

// Points reads the measurements of a service, prof_data_SERVICE.csv or SERVICE.csv of
// a directory: after a head, compute slices of the instance, batch size, processes,
// requests per second of each process, seconds per batch. A rate of 0: it did not run.
func Points(dir, service string) ([]Point, error) {
	if service == "" || service != filepath.Base(service) {
		return nil, fmt.Errorf("service %q: not a name", service)
	}
	path := filepath.Join(dir, "prof_data_"+service+".csv")
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(dir, service+".csv")
	}
	rows, err := csvfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", service, err)
	}
	var list []Point
	for n, r := range rows[1:] {
		var v [5]float64
		if len(r) < len(v) {
			return nil, fmt.Errorf("%s: line %d: want compute slices, batch, processes, requests per second, seconds", path, n+2)
		}
		for i := range v {
			if v[i], err = strconv.ParseFloat(strings.TrimSpace(r[i]), 64); err != nil || !(v[i] >= 0 && v[i] < 1e7) {
				return nil, fmt.Errorf("%s: line %d: %q is not a number that can be meant", path, n+2, r[i])
			}
		}
		p := Point{int(v[0]), int(v[1]), int(v[2]), v[3], time.Duration(v[4] * float64(time.Second))}
		if p.Rate == 0 {
			continue
		}
		if p.Compute < 1 || p.Batch < 1 || p.Processes < 1 || p.Latency <= 0 {
			return nil, fmt.Errorf("%s: line %d: want at least one slice, one request and one process, and a latency", path, n+2)
		}
		list = append(list, p)
	}
	return list, nil
}
