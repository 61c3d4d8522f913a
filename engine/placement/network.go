package placement

import (
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/network/traffic"
)

// Compatibility is how well a gang would share links with the jobs that run.
type Compatibility = traffic.Compatibility

// Rater returns a function that rates what is bound so far by the links that the gang would share there; nil: nothing
// is known of a network, or of what the gang transmits.
func (s *Site) Rater() func() Compatibility {
	if s.r.IgnoreUsage || len(s.has) > 0 { // what grows is where it is
		return nil
	}
	if s.company = s.f.Around.Company(s.job); s.company == nil {
		return nil
	}
	return func() Compatibility { return s.company.Rate(s.allocs) }
}

// Quietly restricts Find, Most and Nodes to nodes whose own links no other job uses, or lifts that. It follows Rater.
func (s *Site) Quietly(on bool) { s.quiet = on }

// TakeAll binds what was bound before and taken back, to the very devices.
func (s *Site) TakeAll(allocs []inventory.Alloc) {
	for i := range allocs {
		s.bind(&allocs[i])
	}
}
