package traffic

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/show"
)

// Port is a network interface of this machine, whose counters say what its link carries, RDMA included. The zero value
// has none.
type Port struct {
	Interface string
	Class     string    // the folder of the kernel's classes of devices; "": /sys/class
	last      []reading // of the last seconds
}

type reading struct {
	at        time.Time
	out, back uint64 // bytes
	rdma      uint64 // of those that go out
	hasRDMA   bool
}

// portSpan is over how long a link's rate is taken.
const portSpan = 10 * time.Second

// Sample reads the counters.
func (p *Port) Sample(now time.Time) {
	if p.Interface == "" {
		return
	}
	r, ok := p.read()
	if !ok {
		p.last = nil
		return
	}
	r.at = now
	p.last = append(p.last, r)
	for len(p.last) > 2 && now.Sub(p.last[1].at) >= portSpan {
		p.last = p.last[1:]
	}
}

// infiniband is the type of network interfaces on InfiniBand (ARPHRD_INFINIBAND, linux/if_arp.h): their packets are
// among those that the port counts. Those of an Ethernet interface are not among what its card sends by RDMA (RoCE).
const infiniband = 32

func (p *Port) read() (r reading, ok bool) {
	class := cmp.Or(p.Class, "/sys/class")
	net := filepath.Join(class, "net", p.Interface)
	out, ok := counter(filepath.Join(net, "statistics", "tx_bytes"))
	back, also := counter(filepath.Join(net, "statistics", "rx_bytes"))
	if !ok || !also {
		return r, false
	}
	r.out, r.back = out, back
	devices, _ := os.ReadDir(filepath.Join(net, "device", "infiniband"))
	if len(devices) != 1 {
		return r, true
	}
	of, _ := counter(filepath.Join(net, "dev_port")) // of the card, from 0 on
	port := filepath.Join(class, "infiniband", devices[0].Name(), "ports", strconv.FormatUint(of+1, 10), "counters")
	out, ok = counter(filepath.Join(port, "port_xmit_data"))
	back, also = counter(filepath.Join(port, "port_rcv_data"))
	if !ok || !also {
		return r, true
	}
	const word = 4 // bytes (InfiniBand Architecture Specification, PortXmitData and PortRcvData)
	r.rdma, r.hasRDMA = out*word, true
	if kind, _ := counter(filepath.Join(net, "type")); kind == infiniband {
		r.out, r.back = out*word, back*word
	} else {
		r.out, r.back = r.out+out*word, r.back+back*word
	}
	return r, true
}

// counter reads a file of one number.
func counter(path string) (uint64, bool) {
	text, err := os.ReadFile(path)
	n, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && bad == nil
}

// Card is what the machine's network card sent by RDMA, of all programs, up to the last sample.
func (p *Port) Card() (c Card) {
	if len(p.last) > 0 {
		r := &p.last[len(p.last)-1]
		c.Sent, c.Counts = r.rdma, r.hasRDMA
	}
	return c
}

// Own reports whether a host of the network is the machine of this name; without a name none is.
func Own(host, name string) bool {
	short, _, _ := strings.Cut(name, ".")
	return name != "" && (host == name || host == short)
}

// Count adds to links what was counted, if they are those of this machine, whose name is that of a host.
func (p *Port) Count(list []show.Link, name string) {
	out, back, known := p.Rates()
	if !known {
		return
	}
	for i := range list {
		l := &list[i]
		from, to, _ := strings.Cut(l.Name, ">")
		rate := out
		switch {
		case Own(from, name):
		case Own(to, name):
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
