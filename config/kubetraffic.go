package config

import (
	"errors"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/place"
)

// kubeNetworkFile describes the network of a cluster, whose nodes are known by their labels only.
type kubeNetworkFile struct {
	Rates     []Bitrate              `yaml:"rates"` // of a tree by racks and fabrics, from the nodes up
	Links     []linkFile             `yaml:"links"`
	Models    map[string]trafficFile `yaml:"models"`
	Classes   []markFile             `yaml:"classes"`
	Interface string                 `yaml:"interface"`
	Uneven    unevenFile             `yaml:"uneven"`
}

// network reads the links between nodes, and what becomes of the traffic on them.
func (f *kubeFile) network(c *Kube) (err error) {
	if c.Traffic = f.Traffic; c.Traffic != "" {
		if _, err := traffic.New(c.Traffic); err != nil {
			return At(err, "traffic")
		}
	}
	n := f.Network
	if n == nil {
		if c.Traffic != "" {
			return At(errors.New("what links are there? (network.rates, or network.links)"), "traffic")
		}
		return At(place.Fits(c.Placer, &cluster.Spec{}), "place")
	}
	marks := marksFile{Classes: n.Classes, Interface: n.Interface}
	if c.QoS, err = marks.read(); err != nil {
		return err
	}
	file := networkFile{Classes: len(c.QoS.Classes), Rates: n.Rates, Links: n.Links, Models: n.Models,
		Uneven: n.Uneven}
	if c.Network, err = file.read(nil, nil); err != nil { // nodes come and go: which there are is not known here
		return err
	}
	c.Network.Real = true
	return nil
}

// ParseTraffic reads what a job transmits, as YAML in one line: {pattern: ring, bytes: 553MB, compute: 120ms}.
func ParseTraffic(text string) (cluster.Traffic, error) {
	var f trafficFile
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil || len(text) > 1000 {
		return cluster.Traffic{}, errors.New("want such as {pattern: ring, bytes: 553MB, compute: 120ms, overlap: 0.5}")
	}
	return f.traffic()
}
