package cluster

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// GPUModel describes a kind of GPU. Without MemSlots the model cannot be partitioned.
type GPUModel struct {
	Name       string         `json:"name"`                 // canonical, e.g. "H100-80GB"
	Memory     MiB            `json:"memory"`               // MiB usable on the whole device
	Generation string         `json:"generation,omitempty"` // e.g. "hopper"
	NVLink     bool           `json:"nvlink,omitempty"`     // peers in a node are joined by NVLink
	NVSwitch   bool           `json:"nvswitch,omitempty"`   // ... through a switch: all pairs equal
	MemSlots   int            `json:"mem_slots,omitempty"`  // MIG memory slices (8; 4 on A30); 0: no MIG
	Compute    int            `json:"compute,omitempty"`    // MIG compute slices (7; 4 on A30)
	Profiles   []SliceProfile `json:"profiles,omitempty"`   // legal MIG profiles
	// maximum MPS clients on one GPU; 0: as for its generation (MPSClients)
	Clients int `json:"clients,omitempty"`
	// weight of its hours in decayed usage, in thousandths; 0: 1000
	Weight int64 `json:"weight,omitempty"`
}

// SliceProfile is a MIG profile: its extent on both axes and where it may start
// (NVIDIA MIG user guide, "Supported MIG Profiles"; mocks in the wild differ).
type SliceProfile struct {
	Name    string `json:"name"`    // e.g. "3g.40gb"
	Compute int    `json:"compute"` // compute slices taken
	Slots   int    `json:"slots"`   // memory slices taken, a contiguous run
	Memory  MiB    `json:"memory"`  // nominal memory, MiB
	Starts  []int  `json:"starts"`  // legal first memory slices
	Max     int    `json:"max"`     // maximum instances of this profile on one GPU
}

// oldMPS lists the generations before Volta: their MPS has no limits per client, and accepts fewer
// clients.
var oldMPS = []string{"kepler", "maxwell", "pascal"}

// MPSLimits reports whether MPS limits each client to a part of the memory and the threads of such
// a GPU: from Volta on (NVIDIA, Multi-Process Service, "Volta MPS"). An unknown generation counts
// as one that does.
func (m *GPUModel) MPSLimits() bool { return !slices.Contains(oldMPS, m.Generation) }

// MPSClients is the maximum number of MPS clients on such a GPU: 48 from Volta on, 16 before
// (NVIDIA, Multi-Process Service, "Client-Server Connection Limits"). Newer drivers accept 60 on
// newer GPUs; the bound is what all accept, unless the model states another one.
func (m *GPUModel) MPSClients() int {
	switch {
	case m.Clients > 0:
		return m.Clients
	case !m.MPSLimits():
		return 16
	}
	return 48
}

// Mask returns the memory slices that an instance at start occupies.
func (p *SliceProfile) Mask(start int) uint8 {
	return uint8((1<<p.Slots - 1) << start)
}

// Media reports whether the profile includes the GPU's media engines: only one instance can have
// them.
func (p *SliceProfile) Media() bool { return strings.HasSuffix(p.Name, "+me") }

// Held returns the profile and the first memory slice of the instance that occupies these slices;
// false: there is none.
func (m *GPUModel) Held(slots uint8, compute int, media bool) (p *SliceProfile, start int, ok bool) {
	start = bits.TrailingZeros8(slots)
	for i := range m.Profiles {
		p := &m.Profiles[i]
		if p.Compute == compute && p.Media() == media && slices.Contains(p.Starts, start) && p.Mask(start) == slots {
			return p, start, true
		}
	}
	return nil, 0, false
}

// Sizes lists the profiles that differ in their compute slices: of several with the same number,
// the one with the fewest memory slices and without media engines.
func (m *GPUModel) Sizes() (list []*SliceProfile) {
	for i := range m.Profiles {
		p := &m.Profiles[i]
		if !p.Media() && !slices.ContainsFunc(m.Profiles, func(o SliceProfile) bool {
			return o.Compute == p.Compute && o.Slots < p.Slots
		}) {
			list = append(list, p)
		}
	}
	return list
}

// Profile returns the named profile ("3g.40gb", or by shape alone "3g").
func (m *GPUModel) Profile(name string) (*SliceProfile, bool) {
	for i := range m.Profiles {
		p := &m.Profiles[i]
		rest, ok := strings.CutPrefix(p.Name, name)
		if ok && (rest == "" || rest[0] == '.' && !strings.Contains(p.Name, "+")) {
			return p, true
		}
	}
	return nil, false
}

// MIG reports whether the model can be partitioned.
func (m *GPUModel) MIG() bool { return len(m.Profiles) > 0 }

// migProfiles builds the table shared by all models with 8 memory slices. gb lists the nominal
// memory of 1g, 1g double, 2g, 3g, 4g, 7g in GB, as in NVIDIA's names; mib the actual memory of an
// instance, as reported by real cards (nvidia-smi mig -lgip), or nil where it is unknown: then the
// nominal value counts until a driver reports another.
func migProfiles(gb [6]int, mib []MiB) []SliceProfile {
	p := func(shape string, i, compute, slots, most int, starts ...int) SliceProfile {
		memory := MiB(gb[i]) * 1024
		if mib != nil {
			memory = mib[i]
		}
		return SliceProfile{Name: fmt.Sprintf("%s.%dgb", shape, gb[i]), Compute: compute,
			Slots: slots, Memory: memory, Starts: starts, Max: most}
	}
	one := p("1g", 0, 1, 1, 7, 0, 1, 2, 3, 4, 5, 6)
	media := one
	media.Name, media.Max = one.Name+"+me", 1
	return []SliceProfile{one, media,
		p("1g", 1, 1, 2, 4, 0, 2, 4, 6), p("2g", 2, 2, 2, 3, 0, 2, 4),
		p("3g", 3, 3, 4, 2, 0, 4), p("4g", 4, 4, 4, 1, 0), p("7g", 5, 7, 8, 1, 0)}
}

func mig8(m GPUModel, gb [6]int, mib ...MiB) GPUModel {
	m.MemSlots, m.Compute, m.Profiles = 8, 7, migProfiles(gb, mib)
	return m
}

// Models lists the GPU models that Muster knows, oldest first. Memory is the vendor's nominal
// figure in MiB, for MIG instances the usable one where it is known; a cluster file may override
// any of it.
func Models() []GPUModel {
	list := slices.Clone(catalogue)
	for i := range list {
		list[i].Profiles = slices.Clone(list[i].Profiles)
	}
	return list
}

// catalogue is what Models lists, for reading only.
var catalogue = func() []GPUModel {
	const g = 1024
	sw := func(name string, gb MiB, gen string) GPUModel {
		return GPUModel{Name: name, Memory: gb * g, Generation: gen, NVLink: true, NVSwitch: true}
	}
	pcie := func(name string, gb MiB, gen string) GPUModel {
		return GPUModel{Name: name, Memory: gb * g, Generation: gen}
	}
	a30 := pcie("A30-24GB", 24, "ampere")
	a30.MemSlots, a30.Compute = 4, 4
	a30.Profiles = []SliceProfile{
		{"1g.6gb", 1, 1, 5836, []int{0, 1, 2, 3}, 4}, {"1g.6gb+me", 1, 1, 5836, []int{0, 1, 2, 3}, 1},
		{"2g.12gb", 2, 2, 11672, []int{0, 2}, 2}, {"2g.12gb+me", 2, 2, 11672, []int{0, 2}, 1},
		{"4g.24gb", 4, 4, 23344, []int{0}, 1}}
	return []GPUModel{
		pcie("K80-12GB", 12, "kepler"), pcie("M40-24GB", 24, "maxwell"), pcie("P4-8GB", 8, "pascal"),
		pcie("P40-24GB", 24, "pascal"), pcie("P100-16GB", 16, "pascal"),
		{Name: "V100-16GB", Memory: 16 * g, Generation: "volta", NVLink: true},
		{Name: "V100-32GB", Memory: 32 * g, Generation: "volta", NVLink: true},
		pcie("T4-16GB", 16, "turing"), pcie("A10-24GB", 24, "ampere"), a30, pcie("A40-48GB", 48, "ampere"),
		mig8(sw("A100-40GB", 40, "ampere"), [6]int{5, 10, 10, 20, 20, 40}, 4864, 9856, 9856, 19968, 19968, 40192),
		mig8(sw("A100-80GB", 80, "ampere"), [6]int{10, 20, 20, 40, 40, 80}, 9728, 19968, 19968, 40192, 40192, 80896),
		sw("A800-80GB", 80, "ampere"), pcie("L4-24GB", 24, "ada"), pcie("L40S-48GB", 48, "ada"),
		mig8(sw("H100-80GB", 80, "hopper"), [6]int{10, 20, 20, 40, 40, 80}, 9984, 20096, 20096, 40448, 40448, 81152),
		mig8(sw("H100-94GB", 94, "hopper"), [6]int{12, 24, 24, 47, 47, 94}),
		mig8(sw("H100-96GB", 96, "hopper"), [6]int{12, 24, 24, 48, 48, 96}),
		mig8(sw("GH200-96GB", 96, "hopper"), [6]int{12, 24, 24, 48, 48, 96}),
		mig8(sw("H200-141GB", 141, "hopper"), [6]int{18, 35, 35, 71, 71, 141}),
		mig8(sw("B200-180GB", 180, "blackwell"), [6]int{23, 45, 45, 90, 90, 180}),
		mig8(sw("GB200-186GB", 186, "blackwell"), [6]int{24, 47, 47, 93, 93, 186}),
	}
}()

// FindModel looks a model up by its name or, where that is unambiguous in
// practice, by its family ("V100" is the 16 GB part, "H100" the 80 GB part).
func FindModel(name string) (GPUModel, bool) {
	norm := func(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "_", "-")) }
	want := norm(name)
	at := slices.IndexFunc(catalogue, func(m GPUModel) bool { return norm(m.Name) == want })
	if at < 0 {
		at = slices.IndexFunc(catalogue, func(m GPUModel) bool { return strings.HasPrefix(norm(m.Name), want+"-") })
	}
	if at < 0 {
		return GPUModel{}, false
	}
	m := catalogue[at]
	m.Profiles = slices.Clone(m.Profiles)
	return m, true
}

// Variants are the known models that a name stands for: the one with that name, or all of that
// family ("A100" is A100-40GB and A100-80GB). None: the name is unknown.
func Variants(name string) (list []GPUModel) {
	want := strings.ReplaceAll(name, "_", "-")
	for _, m := range Models() {
		if strings.EqualFold(m.Name, want) {
			return []GPUModel{m}
		}
		if MatchModel(m.Name, want) {
			list = append(list, m)
		}
	}
	return list
}
