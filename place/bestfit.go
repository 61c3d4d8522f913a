package place

import "github.com/muster-gpu/muster/engine/placement"

var bestFit = Info{
	Name:   "best-fit",
	About:  "the node that is left with the least (pack): keeps whole nodes free for big jobs",
	Source: "best-fit; lexicographic over free GPUs, then CPU",
	New:    func() placement.Placer { return best{} },
}

type best struct{}

func (best) Name() string { return "best-fit" }

// Place packs the gang on as few and as full nodes as possible.
func (best) Place(s *placement.Site) bool { return constrained(s, pack) }
