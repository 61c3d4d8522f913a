package place

import (
	"fmt"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/learn"
)

var metaRL = Info{
	Name:   "meta-rl",
	About:  "learned: a network chooses a node for each task of a gang in turn; other weights: meta-rl:weights=FILE (muster learn meta-rl)",
	Source: "Meta-RL worker placement (TCC'23), reconstructed",
	New: func() placement.Placer {
		p, err := newMetaRL("")
		if err != nil {
			panic(err) // the embedded weights cannot be read
		}
		return p
	},
	With: newMetaRL,
}

// ReadFile reads the files that placers name. A program with access to files sets it before it
// makes a placer.
var ReadFile func(name string) ([]byte, error)

// learned places by a neural network.
type learned struct {
	name, pinned string
	agent        *learn.Agent
}

// newMetaRL makes the placer for weights=FILE;digest=DIGEST, or with the embedded weights.
func newMetaRL(knobs string) (placement.Placer, error) {
	file, digest := "", ""
	for _, f := range strings.FieldsFunc(knobs, func(r rune) bool { return r == ';' }) {
		switch key, value, _ := strings.Cut(f, "="); key {
		case "weights":
			file = value
		case "digest":
			digest = value
		default:
			return nil, fmt.Errorf("placer meta-rl: %w", cluster.Unknown("knob", key, []string{"weights", "digest"}))
		}
	}
	a, err := learn.Load(learn.SystemMetaRL, file, digest, ReadFile)
	if err != nil {
		return nil, fmt.Errorf("placer meta-rl: %w", err)
	}
	p := &learned{name: "meta-rl", pinned: "meta-rl:digest=" + a.Digest(), agent: a}
	if file != "" {
		p.name += ":weights=" + file + ";digest=" + a.Digest()
		p.pinned = p.name
	}
	return p, nil
}

// Files lists the files that a placer's text names, for callers that read them in advance.
func Files(text string) (names []string) {
	_, knobs, _ := strings.Cut(text, ":")
	for _, f := range strings.FieldsFunc(knobs, func(r rune) bool { return r == ';' }) {
		if file, ok := strings.CutPrefix(f, "weights="); ok && file != "" {
			names = append(names, file)
		}
	}
	return names
}

func (p *learned) Name() string { return p.name }

// Pinned is the placer's name with the digest of its weights, also for the embedded ones.
func (p *learned) Pinned() string { return p.pinned }

// Place puts each task in turn where the network says, on nodes with room: so whatever fits is
// placed. Gangs with several task sets, shares and slices are placed by best-fit.
func (p *learned) Place(s *placement.Site) bool {
	all := s.Sets()
	if r := &all[0].Request; len(all) > 1 || r.GPUs == 0 || r.Fractional() || r.Profile != "" {
		return constrained(s, pack)
	}
	return constrained(s, p.workers)
}

// learnedRoom is reusable memory for placing a gang.
type learnedRoom struct {
	spots  []learn.Spot
	nodes  []int
	crowd  []int32
	places learn.Places
	choose learn.Placing
}

func (p *learned) workers(s *placement.Site) bool {
	set, room := s.Sets()[0], 0
	m := placement.Memory[learnedRoom](s)
	spots, nodes := m.spots[:0], m.nodes[:0]
	s.Candidates(0, func(node int) bool {
		spot := learn.Spot{GPUs: int32(s.Node(node).GPUs), Free: int32(s.FreeGPUs(node)),
			Room: int32(s.Room(node, 0, set.Count)), Rack: s.DomainOf(node, cluster.LevelRack).ID}
		spots, nodes = append(spots, spot), append(nodes, node)
		room += int(spot.Room)
		return true
	})
	// binding never adds room, so the network need not run to find out
	m.spots, m.nodes = spots, nodes
	if room < set.Count {
		return false
	}
	w := &learn.Worker{Tasks: int32(set.Count), Each: int32(set.Request.GPUs)}
	if w.Tasks > 1 {
		w.Loss, m.crowd = s.Losses(), s.Crowds(m.crowd)
		for i, node := range nodes {
			spots[i].Crowd = m.crowd[node]
		}
	}
	m.choose.By(p.agent)
	m.places.Begin(spots)
	for range set.Count {
		at := m.choose.NextOf(&m.places, w)
		if at < 0 {
			return false
		}
		s.Take(nodes[at], 0, 1)
		// the bound tasks may exceed the node's part of the room
		m.places.Bind(w, at, int32(s.Room(nodes[at], 0, set.Count-int(w.Placed)-1)))
	}
	return true
}
