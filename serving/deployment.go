package serving

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Deployment is a plan as stored in a file: what was promised, and what runs where.
type Deployment struct {
	Model    string     `json:"model"`    // of the GPUs
	GPUs     int        `json:"gpus"`     // that the plan uses
	Services []Promised `json:"services"` // Runs refer to them by index
	Runs     []Running  `json:"instances"`
}

// Promised is what a service was planned for.
type Promised struct {
	Name      string  `json:"service"`
	Rate      float64 `json:"rate"` // requests per second
	LatencyMS float64 `json:"latency_ms"`
}

// Running is an instance on which a service runs.
type Running struct {
	GPU       int     `json:"gpu"` // from 0
	Profile   string  `json:"profile"`
	Start     int     `json:"start"` // first memory slice
	Service   string  `json:"service"`
	Batch     int     `json:"batch"`
	Processes int     `json:"processes"`
	Rate      float64 `json:"rate"`       // requests per second of each process
	LatencyMS float64 `json:"latency_ms"` // of a batch
}

// Deploy converts a plan for services on GPUs of a model to what a file stores.
func Deploy(m *cluster.GPUModel, p *Plan, services []Service) *Deployment {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	d := &Deployment{Model: m.Name, GPUs: p.GPUs}
	for i := range services {
		s := &services[i]
		d.Services = append(d.Services, Promised{s.Name, s.Rate, ms(s.Latency)})
	}
	for i := range p.Instances {
		in := &p.Instances[i]
		d.Runs = append(d.Runs,
			Running{in.GPU, in.Profile, in.Start, services[in.Service].Name, in.Batch, in.Processes, in.Rate,
				ms(in.Point.Latency)})
	}
	return d
}

// Write writes a deployment as JSON.
func (d *Deployment) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

// mostDeployed bounds the GPU numbers of instances in a file.
const mostDeployed = 10_000

// ReadDeployment reads what Write wrote, for GPUs of a model. name is the file's name in errors.
func ReadDeployment(name string, data []byte, m *cluster.GPUModel) (*Deployment, error) {
	d := &Deployment{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(d); err != nil {
		return nil, fmt.Errorf("%s: %w; want a plan that --out wrote", name, err)
	}
	if d.Model != m.Name {
		return nil, fmt.Errorf("%s: model %q; this plan is for %s", name, d.Model, m.Name)
	}
	for i := range d.Services {
		s := &d.Services[i]
		switch {
		case s.Name == "" || slices.ContainsFunc(d.Services[:i], func(o Promised) bool { return o.Name == s.Name }):
			return nil, fmt.Errorf("%s: service %d is %q; want a name of its own", name, i, s.Name)
		case !(s.Rate > 0 && s.Rate <= 1e9):
			return nil, fmt.Errorf("%s: service %s: rate %g; want requests per second", name, s.Name, s.Rate)
		}
	}
	geometry := make([][]cluster.Instance, 0, 16)
	for i := range d.Runs {
		r := &d.Runs[i]
		profile, ok := m.Profile(r.Profile)
		switch {
		case r.GPU < 0 || r.GPU >= mostDeployed:
			return nil, fmt.Errorf("%s: instance %d: gpu %d; want a number from 0 to %d", name, i, r.GPU,
				mostDeployed-1)
		case !ok:
			return nil, fmt.Errorf("%s: instance %d: %s does not offer MIG profile %q", name, i, m.Name, r.Profile)
		case !slices.ContainsFunc(d.Services, func(s Promised) bool { return s.Name == r.Service }):
			return nil, fmt.Errorf("%s: instance %d: service %q is not one of services", name, i, r.Service)
		case r.Batch < 1 || r.Processes < 1 || !(r.Rate > 0 && r.Rate <= 1e9) ||
			!(r.LatencyMS > 0 && r.LatencyMS < 1e12):
			return nil, fmt.Errorf("%s: instance %d: want a batch, processes, a rate and a latency_ms above 0", name, i)
		}
		for len(geometry) <= r.GPU {
			geometry = append(geometry, nil)
		}
		r.Profile = profile.Name
		geometry[r.GPU] = append(geometry[r.GPU], cluster.Instance{Profile: profile.Name, Start: r.Start})
	}
	node := cluster.Node{GPUs: len(geometry), MIG: cluster.GeometryText(geometry)}
	if _, _, err := node.Geometry(m); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// instances are those of a deployment, with services as indices of a list: the new services, followed by those
// that no longer exist, which it appends.
func (d *Deployment) instances(m *cluster.GPUModel, names []string) (list []Instance, all []string) {
	for i := range d.Runs {
		r := &d.Runs[i]
		k := slices.Index(names, r.Service)
		if k < 0 {
			k, names = len(names), append(names, r.Service)
		}
		profile, _ := m.Profile(r.Profile)
		list = append(list, Instance{k, r.GPU, cluster.Instance{Profile: r.Profile, Start: r.Start},
			Point{profile.Compute, r.Batch, r.Processes, r.Rate,
				time.Duration(math.Round(r.LatencyMS * float64(time.Millisecond))), 0}})
	}
	return list, names
}
