package traffic

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/show"
)

// Port is a network interface of this machine, whose counters say what its link carries. The zero value has none.
type Port struct {
	Interface string
	last      []reading // of the last seconds
}

type reading struct {
	at        time.Time
	out, back uint64 // bytes
}

// portSpan is over how long a link's rate is taken.
const portSpan = 10 * time.Second

// Sample reads the counters.
func (p *Port) Sample(now time.Time) {
	if p.Interface == "" {
		return
	}
	read := func(name string) (uint64, bool) {
		text, err := os.ReadFile(filepath.Join("/sys/class/net", p.Interface, "statistics", name))
		n, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		return n, err == nil && bad == nil
	}
	out, ok := read("tx_bytes")
	back, also := read("rx_bytes")
	if !ok || !also {
		p.last = nil
		return
	}
	p.last = append(p.last, reading{now, out, back})
	for len(p.last) > 2 && now.Sub(p.last[1].at) >= portSpan {
		p.last = p.last[1:]
	}
}

// Count adds to links what was counted, if they are those of this machine, whose name is that of a host.
func (p *Port) Count(list []show.Link, name string) {
	out, back, known := p.Rates()
	if !known {
		return
	}
	short, _, _ := strings.Cut(name, ".")
	for i := range list {
		l := &list[i]
		from, to, _ := strings.Cut(l.Name, ">")
		rate := out
		switch {
		case from == name || from == short:
		case to == name || to == short:
			rate = back
		default:
			continue
		}
		part := rate / float64(l.Rate)
		l.Counted = &part
	}
}

// Rates are what it sends and receives, in bits per second; false: that is not known.
func (p *Port) Rates() (out, back float64, ok bool) {
	if len(p.last) < 2 {
		return 0, 0, false
	}
	first, now := &p.last[0], &p.last[len(p.last)-1]
	took := now.at.Sub(first.at).Seconds()
	if took <= 0 || now.out < first.out || now.back < first.back {
		return 0, 0, false
	}
	return float64(now.out-first.out) * 8 / took, float64(now.back-first.back) * 8 / took, true
}
