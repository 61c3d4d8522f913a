package config

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/batch"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/scale"
)

// serviceFile is a service as people write it.
type serviceFile struct {
	Name       string        `yaml:"name"`
	Queue      string        `yaml:"queue"`
	Tier       string        `yaml:"tier"`
	Latency    Duration      `yaml:"latency"`
	TTFT       Duration      `yaml:"ttft"`
	TPOT       Duration      `yaml:"tpot"`
	Percentile float64       `yaml:"percentile"`
	Replicas   replicasFile  `yaml:"replicas"`
	Variants   []variantFile `yaml:"variants"`
	Batching   batchingFile  `yaml:"batching"`
	Budget     budgetFile    `yaml:"budget"`
	Path       string        `yaml:"path"`
	Probe      probeFile     `yaml:"probe"`
	Scaling    string        `yaml:"scaling"`
	Metrics    metricsFile   `yaml:"metrics"`
	Lend       lendFile      `yaml:"lend"`
	Canary     float64       `yaml:"canary"`
	Forecast   forecastFile  `yaml:"forecast"`
}

type lendFile struct {
	Within Duration `yaml:"within"`
}

type metricsFile struct {
	Server string `yaml:"server"`
	Port   int    `yaml:"port"`
	Path   string `yaml:"path"`
	Demand string `yaml:"demand"`
}

type probeFile struct {
	Path     string   `yaml:"path"`
	Every    Duration `yaml:"every"`
	Timeout  Duration `yaml:"timeout"`
	Failures int      `yaml:"failures"`
}

type budgetFile struct {
	Accuracy float64 `yaml:"accuracy"`
	PerHour  float64 `yaml:"per_hour"`
	Gives    string  `yaml:"gives"`
}

type replicasFile struct {
	Min int `yaml:"min"`
	Max int `yaml:"max"`
}

type variantFile struct {
	Name     string            `yaml:"name"`
	Accuracy float64           `yaml:"accuracy"`
	Cost     float64           `yaml:"cost"`
	GPUs     gpuNumber         `yaml:"gpus"`
	Share    float64           `yaml:"share"`
	Memory   Memory            `yaml:"memory"`
	MIG      string            `yaml:"mig"`
	CPUs     Cores             `yaml:"cpus"`
	RAM      Memory            `yaml:"ram"`
	GPUTypes []string          `yaml:"gpu_types"`
	Command  []string          `yaml:"command"`
	Dir      string            `yaml:"dir"`
	Env      map[string]string `yaml:"env"`
	Startup  Duration          `yaml:"startup"`
	Warm     Duration          `yaml:"warm"`
	Profile  profileFile       `yaml:"profile"`
	Use      variantUseFile    `yaml:"use"`
	Phase    string            `yaml:"phase"`
	Pipeline *int              `yaml:"pipeline"`
	Model    *languageFile     `yaml:"model"`
	Engine   engineFile        `yaml:"engine"`
}

// gpuNumber is a number of GPUs, or "auto".
type gpuNumber struct {
	number *int
	auto   bool
}

// UnmarshalYAML reads a number of GPUs.
func (g *gpuNumber) UnmarshalYAML(n *yaml.Node) error {
	if g.auto = n.Value == "auto"; g.auto {
		return nil
	}
	if n.Decode(&g.number) != nil {
		return fmt.Errorf("line %d: gpus: %q is neither a number nor auto", n.Line, n.Value)
	}
	return nil
}

// variantUseFile is what a variant uses of a GPU, and how sensitive it is to neighbours.
type variantUseFile struct {
	Compute float64 `yaml:"compute"`
	Memory  float64 `yaml:"memory"`
	Slowed  float64 `yaml:"slowed"`
}

// languageFile is a language model.
type languageFile struct {
	Params    float64 `yaml:"params"`
	Weights   float64 `yaml:"weights"` // bytes
	Precision string  `yaml:"precision"`
	Layers    int     `yaml:"layers"`
	Heads     int     `yaml:"heads"`
	KVHeads   int     `yaml:"kv_heads"`
	HeadDim   int     `yaml:"head_dim"`
	KVBytes   float64 `yaml:"kv_bytes"` // of a token
}

// engineFile is how a language model batches.
type engineFile struct {
	Tokens    int     `yaml:"tokens"`
	Sequences int     `yaml:"sequences"`
	Blocks    int     `yaml:"blocks"`
	Watermark *int    `yaml:"watermark"`
	Whole     bool    `yaml:"whole_prompts"`
	Memory    float64 `yaml:"memory"`  // part of the GPU's
	Reserve   Memory  `yaml:"reserve"` // of each GPU
	Link      float64 `yaml:"link"`    // bytes per second
}

// profileFile is a list of points, or "measure".
type profileFile struct {
	points  []pointFile
	measure bool
}

// measured is the profile that is found out while a service runs.
const measured = "measure"

// UnmarshalYAML reads a profile. The library does not look for unknown keys below this.
func (p *profileFile) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if p.measure = n.Value == measured; !p.measure {
			return fmt.Errorf("line %d: profile: %q is neither a list of points nor %s", n.Line, n.Value, measured)
		}
		return nil
	}
	for _, point := range n.Content {
		for i := 0; i+1 < len(point.Content) && point.Kind == yaml.MappingNode; i += 2 {
			if k := point.Content[i]; !slices.Contains([]string{"share", "batch", "latency"}, k.Value) {
				return fmt.Errorf("line %d: field %s not found in type config.pointFile", k.Line, k.Value)
			}
		}
	}
	return n.Decode(&p.points)
}

type pointFile struct {
	Share   float64  `yaml:"share"`
	Batch   int      `yaml:"batch"`
	Latency Duration `yaml:"latency"`
}

type batchingFile struct {
	Rule      string   `yaml:"rule"`
	Max       int      `yaml:"max"`
	Delay     Duration `yaml:"delay"`
	Preferred []int    `yaml:"preferred"`
	Waiting   int      `yaml:"waiting"`
}

// LoadServices reads a file of services, one for each YAML document.
func LoadServices(path string) ([]service.Service, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ReadServices(path, data)
}

// ReadServices reads services from memory; path is the file's name in errors.
func ReadServices(path string, data []byte) (list []service.Service, err error) {
	names := map[string]bool{}
	for _, doc := range Documents(data) {
		var f serviceFile
		if err := decode(path, doc, &f); err != nil {
			return nil, err
		}
		s, err := f.service()
		if err == nil {
			err = s.Check()
		}
		if err == nil {
			_, err = batch.New(s.Batching.Rule, batch.Setting{Max: 1, Takes: func(int) time.Duration { return 1 }})
			err = At(err, "batching", "rule")
		}
		if err == nil {
			var p scale.Policy
			if p, err = scale.New(s.Scaling); err == nil {
				err = scale.Check(p, &s)
			}
			err = At(err, "scaling")
		}
		if err == nil && names[s.Name] {
			err = fmt.Errorf("name: there are two of this name")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: service %s: %w", path, f.Name, err)
		}
		names[s.Name] = true
		list = append(list, s)
	}
	if list == nil {
		return nil, fmt.Errorf("%s: the file is empty; a service begins with name: NAME", path)
	}
	return list, nil
}

// Documents returns the YAML documents of a file, each after as many empty lines as are before it, so that errors name
// the right line. Documents without content are left out.
func Documents(data []byte) (list [][]byte) {
	var doc []byte
	lines := 0
	add := func() {
		for line := range bytes.Lines(doc) {
			if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
				list = append(list, doc)
				return
			}
		}
	}
	for line := range bytes.Lines(data) {
		lines++
		if text := string(bytes.TrimRight(line, " \t\r\n")); text == "---" {
			add()
			doc = []byte(strings.Repeat("\n", lines))
			continue
		}
		doc = append(doc, line...)
	}
	add()
	return list
}

// Profiled is the text of a service with what was measured of its variants, by name, in the place of profile: measure.
func Profiled(text string, profiles map[string]service.Profile) (string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return "", err
	}
	value := func(of *yaml.Node, key string) *yaml.Node {
		for i := 0; of.Kind == yaml.MappingNode && i+1 < len(of.Content); i += 2 {
			if of.Content[i].Value == key {
				return of.Content[i+1]
			}
		}
		return &yaml.Node{}
	}
	if doc.Kind != yaml.DocumentNode {
		return text, nil
	}
	for _, v := range value(doc.Content[0], "variants").Content {
		name, profile := value(v, "name").Value, value(v, "profile")
		if profile.Value != measured || len(profiles[name]) == 0 {
			continue
		}
		points := []map[string]any{}
		for _, p := range profiles[name] {
			point := map[string]any{"batch": p.Batch, "latency": p.Latency.Round(time.Microsecond).String()}
			if share := value(v, "share"); share.Value != "" {
				point["share"] = share
			}
			points = append(points, point)
		}
		if err := profile.Encode(points); err != nil {
			return "", err
		}
		profile.Style = yaml.FlowStyle
	}
	out := &strings.Builder{}
	e := yaml.NewEncoder(out)
	e.SetIndent(2)
	err := e.Encode(&doc)
	return out.String(), errors.Join(err, e.Close())
}

// service converts the file to a service.
func (f *serviceFile) service() (s service.Service, err error) {
	s = service.Service{Name: f.Name, Queue: f.Queue, Tier: cluster.Critical, Scaling: f.Scaling,
		Goal: service.Goal{Latency: time.Duration(f.Latency), TTFT: time.Duration(f.TTFT), TPOT: time.Duration(f.TPOT),
			Percentile: f.Percentile},
		Replicas: service.Replicas{Min: f.Replicas.Min, Max: f.Replicas.Max},
		Batching: service.Batching{Rule: f.Batching.Rule, Max: f.Batching.Max, Delay: time.Duration(f.Batching.Delay),
			Preferred: f.Batching.Preferred, Waiting: f.Batching.Waiting}}
	s.Path = strings.Trim(f.Path, "/")
	s.Metrics, s.Canary = service.Metrics(f.Metrics), f.Canary
	s.Lend = service.Lend{Within: time.Duration(f.Lend.Within)}
	s.Probe = service.Probe{Path: f.Probe.Path, Every: time.Duration(f.Probe.Every),
		Timeout: time.Duration(f.Probe.Timeout), Failures: f.Probe.Failures}
	s.Budget = service.Budget{Accuracy: f.Budget.Accuracy, PerHour: f.Budget.PerHour}
	if f.Budget.Gives != "" {
		i := slices.Index(service.GivesNames, f.Budget.Gives)
		if i < 0 {
			return s, fmt.Errorf("budget: gives: %w",
				cluster.Unknown("part of a budget", f.Budget.Gives, service.GivesNames))
		}
		s.Budget.Gives = service.Gives(i)
	}
	if s.Forecast, err = f.Forecast.forecast(); err != nil {
		return s, fmt.Errorf("forecast: %w", err)
	}
	if s.Goal.Percentile == 0 {
		s.Goal.Percentile = 99
	}
	if f.Tier != "" {
		if s.Tier, err = cluster.ParseTier(f.Tier); err != nil {
			return s, err
		}
	}
	for i := range f.Variants {
		v, err := f.Variants[i].variant()
		if err != nil {
			return s, fmt.Errorf("variants[%d]: %w", i, err)
		}
		s.Variants = append(s.Variants, v)
	}
	for i := range f.Variants {
		if v := &s.Variants[i]; f.Variants[i].GPUs.auto {
			if err := v.Choose(&s); err != nil {
				return s, fmt.Errorf("variants[%d]: %w", i, err)
			}
		}
	}
	return s, nil
}

func (f *variantFile) variant() (v service.Variant, err error) {
	v = service.Variant{Name: f.Name, Accuracy: f.Accuracy, Cost: f.Cost, GPUTypes: f.GPUTypes, Command: f.Command,
		Dir: f.Dir, Env: f.Env, Use: service.Use(f.Use),
		Startup: time.Duration(f.Startup), Warm: time.Duration(f.Warm),
		Request: cluster.Request{GPUs: 1, Memory: cluster.MiB(f.Memory),
			Profile: f.MIG, CPU: cluster.Milli(f.CPUs), RAM: cluster.MiB(f.RAM)}}
	if f.GPUs.number != nil {
		v.Request.GPUs = *f.GPUs.number
	}
	if f.GPUs.auto && (f.Share != 0 || f.MIG != "") {
		return v, errors.New("gpus: auto chooses the share, too: without share and mig")
	}
	if v.Request.Share, err = share(f.Share); err != nil {
		return v, err
	}
	for i, p := range f.Profile.points {
		part, err := share(p.Share)
		if err != nil {
			return v, fmt.Errorf("profile[%d]: %w", i, err)
		}
		if part == 0 {
			part = cluster.Whole
		}
		v.Profile = append(v.Profile, service.Point{Share: part, Batch: p.Batch, Latency: time.Duration(p.Latency)})
	}
	v.Profile.Sort()
	v.Measure = f.Profile.measure
	switch {
	case f.Model != nil:
		v.Language, err = f.language()
	case f.Phase != "":
		err = errors.New("phase: only a language model (model) has phases")
	case f.Pipeline != nil:
		err = errors.New("pipeline: only a language model (model) has stages")
	}
	return v, err
}

// language is the language model of a variant, with the defaults of what is not given.
func (f *variantFile) language() (*service.Language, error) {
	m, e := f.Model, f.Engine
	l := &service.Language{Part: 0.9, Reserve: float64(e.Reserve) * (1 << 20), Precision: llm.BF16,
		Model: llm.Model{Name: f.Name, Params: m.Params, Weights: m.Weights, Layers: m.Layers, Heads: m.Heads,
			KVHeads: m.KVHeads, HeadDim: m.HeadDim, KVBytes: m.KVBytes},
		Engine: llm.Engine{Tokens: 2048, Sequences: 256, Blocks: e.Blocks, Whole: e.Whole}}
	if m.Precision != "" {
		if !slices.Contains(llm.Precisions, m.Precision) {
			return nil, fmt.Errorf("model: %w", cluster.Unknown("precision", m.Precision, llm.Precisions))
		}
		l.Precision = llm.Precision(m.Precision)
	}
	if f.Phase != "" {
		i := slices.Index(llm.PhaseNames[:], f.Phase)
		if i < 0 {
			return nil, cluster.Unknown("phase", f.Phase, llm.PhaseNames[:])
		}
		l.Phase = llm.Phase(i)
	}
	if f.Pipeline != nil {
		if l.Engine.Stages = *f.Pipeline; l.Engine.Stages < 1 {
			return nil, fmt.Errorf("pipeline: %d is not a number of stages of 1 or more", l.Engine.Stages)
		}
	}
	if l.Link = linkRate; e.Link != 0 {
		l.Link = e.Link
	}
	if e.Tokens != 0 {
		l.Engine.Tokens = e.Tokens
	}
	if e.Sequences != 0 {
		l.Engine.Sequences = e.Sequences
	}
	if e.Memory != 0 {
		l.Part = e.Memory
	}
	if l.Engine.Watermark = 64; e.Watermark != nil {
		l.Engine.Watermark = *e.Watermark
	}
	return l, nil
}

// linkRate is how fast keys and values leave an instance of prefill where nothing is stated: at 400 Gb/s.
const linkRate = 50e9

// share reads a part of a GPU; 0: none is stated.
func share(part float64) (cluster.Milli, error) {
	if !(part >= 0 && part <= 1) || tooFine(part) {
		return 0, fmt.Errorf("share: %g is not a part of a GPU (0.001 to 1)", part)
	}
	return cluster.Milli(math.Round(part * float64(cluster.Whole))), nil
}
