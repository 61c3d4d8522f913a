package config

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
)

// loadFile is a stream of requests as people write it: recorded or drawn.
type loadFile struct {
	Service string `yaml:"service"`
	// recorded
	Trace  string  `yaml:"trace"`
	Format string  `yaml:"format"`
	Only   string  `yaml:"only"` // the requests of the trace with this name
	Speed  float64 `yaml:"speed"`
	Limit  int64   `yaml:"limit"`
	// drawn
	Rate   float64     `yaml:"rate"`
	Steps  []stepFile  `yaml:"steps"`
	CV     *float64    `yaml:"cv"`
	Daily  float64     `yaml:"daily"`
	Peak   Clock       `yaml:"peak"`
	Spikes []spikeFile `yaml:"spikes"`
	Bursts *burstsFile `yaml:"bursts"`
	Prompt tokensFile  `yaml:"prompt"`
	Output tokensFile  `yaml:"output"`
	Seed   uint64      `yaml:"seed"`
	// both
	From Duration `yaml:"from"`
	For  Duration `yaml:"for"`
}

type stepFile struct {
	At   Duration `yaml:"at"`
	Rate float64  `yaml:"rate"`
}

type spikeFile struct {
	At    Duration `yaml:"at"`
	For   Duration `yaml:"for"`
	Times float64  `yaml:"times"`
}

type burstsFile struct {
	Times   float64  `yaml:"times"`
	For     Duration `yaml:"for"`
	Between Duration `yaml:"between"`
}

type tokensFile struct {
	Median float64 `yaml:"median"`
	Sigma  float64 `yaml:"sigma"`
	Most   int32   `yaml:"most"`
}

// RequestLoad is a load that can be replayed any number of times.
type RequestLoad struct {
	parts []loadPart
}

type loadPart struct {
	service  int32
	trace    string
	recorded requests.Options
	length   time.Duration
	drawn    requests.Arrivals
}

// LoadRequests reads a file of loads for these services, one for each YAML document. Traces are named relative to the
// folder of the file.
func LoadRequests(path string, services []service.Service) (*RequestLoad, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ReadRequests(path, data, services)
}

// ReadRequests reads a load from memory; path is the file's name in errors.
func ReadRequests(path string, data []byte, services []service.Service) (*RequestLoad, error) {
	l := &RequestLoad{}
	for _, doc := range Documents(data) {
		var f loadFile
		if err := decode(path, doc, &f); err != nil {
			return nil, err
		}
		p, err := f.part(filepath.Dir(path), services)
		if err != nil {
			return nil, fmt.Errorf("%s: load of service %s: %w", path, f.Service, err)
		}
		l.parts = append(l.parts, p)
	}
	if l.parts == nil {
		return nil, fmt.Errorf("%s: the file is empty; a load begins with service: NAME", path)
	}
	return l, nil
}

func (f *loadFile) part(dir string, services []service.Service) (p loadPart, err error) {
	var names []string
	found := false
	for i := range services {
		names = append(names, services[i].Name)
		if services[i].Name == f.Service {
			p.service, found = int32(i), true
		}
	}
	drawn := f.Rate != 0 || f.Steps != nil || f.CV != nil || f.Daily != 0 || f.Spikes != nil || f.Bursts != nil
	switch {
	case !found:
		return p, cluster.Unknown("service", f.Service, names)
	case f.Trace != "" && drawn:
		return p, fmt.Errorf("trace: recorded requests have their own arrivals; rate, steps, cv, daily, spikes and bursts are of drawn ones")
	case f.Trace == "" && !drawn:
		return p, fmt.Errorf("either trace (recorded requests) or rate (drawn ones) is needed")
	}
	p.length = time.Duration(f.For)
	if f.Trace != "" {
		p.trace = f.Trace
		if !filepath.IsAbs(p.trace) {
			p.trace = filepath.Join(dir, p.trace)
		}
		p.recorded = requests.Options{Format: f.Format, Service: f.Only, Speed: f.Speed, Limit: f.Limit,
			From: cluster.Time(f.From)}
		return p, nil
	}
	p.drawn = requests.Arrivals{Rate: f.Rate, CV: 1, Daily: f.Daily, Peak: time.Duration(f.Peak),
		From: cluster.Time(f.From), For: p.length, Prompt: f.Prompt.tokens(), Output: f.Output.tokens(), Seed: f.Seed}
	if f.CV != nil {
		p.drawn.CV = *f.CV
	}
	for _, s := range f.Steps {
		p.drawn.Steps = append(p.drawn.Steps, requests.Step{At: time.Duration(s.At), Rate: s.Rate})
	}
	for _, s := range f.Spikes {
		p.drawn.Spikes = append(p.drawn.Spikes,
			requests.Spike{At: time.Duration(s.At), For: time.Duration(s.For), Times: s.Times})
	}
	if b := f.Bursts; b != nil {
		p.drawn.Bursts = requests.Bursts{Times: b.Times, For: time.Duration(b.For), Between: time.Duration(b.Between)}
	}
	return p, p.drawn.Check()
}

func (f *tokensFile) tokens() requests.Tokens {
	return requests.Tokens{Median: f.Median, Sigma: f.Sigma, Most: f.Most}
}

// Stream begins the load from its start.
func (l *RequestLoad) Stream() (requests.Stream, error) {
	var list []requests.Stream
	for i := range l.parts {
		p := &l.parts[i]
		if p.trace == "" {
			list = append(list, requests.Draw(&p.drawn, p.service))
			continue
		}
		f, err := requests.Open(p.trace, p.recorded, p.service)
		if err != nil {
			return nil, err
		}
		if p.length > 0 {
			list = append(list, requests.Until(f, p.recorded.From.Add(p.length)))
		} else {
			list = append(list, f)
		}
	}
	return requests.Merge(list...), nil
}
