package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

// QoS is by which marks the network knows the classes of jobs' traffic.
type QoS struct {
	Classes   []Mark // from the most urgent on
	Interface string // that jobs use; "": their libraries find one
}

// Mark is what packets of a class bear.
type Mark struct {
	DSCP uint8
	TC   uint8 // traffic class of RoCE: the byte that has the DSCP in its upper six bits
	SL   int   // service level of InfiniBand; NoSL: not set
}

// NoSL is the service level of a class that sets none.
const NoSL = -1

// DefaultQoS has class selectors from CS5 down. CS6 and CS7 are left to the network's control, CS0 to all else.
func DefaultQoS() QoS {
	var q QoS
	for k := 5; k >= 1; k-- {
		q.Classes = append(q.Classes, Mark{DSCP: uint8(k << 3), TC: uint8(k << 5), SL: NoSL})
	}
	return q
}

// Mark is what packets of a job's class bear: those of classes beyond the last what that does; false: nothing.
func (q *QoS) Mark(class int) (Mark, bool) {
	if class <= 0 || len(q.Classes) == 0 {
		return Mark{SL: NoSL}, false
	}
	return q.Classes[min(class, len(q.Classes))-1], true
}

// DSCPText is a DSCP by its name, if it has a usual one (RFC 4594).
func DSCPText(v uint8) string {
	if name := dscpName(int(v)); name != "" {
		return name
	}
	return strconv.Itoa(int(v))
}

func dscpName(v int) string {
	switch class, drop := v>>3, v&7; {
	case drop == 0:
		return fmt.Sprintf("cs%d", class)
	case class >= 1 && class <= 4 && drop <= 6 && drop%2 == 0:
		return fmt.Sprintf("af%d%d", class, drop/2)
	case v == 46:
		return "ef"
	}
	return ""
}

// ParseDSCP reads a DSCP by its name or its number.
func ParseDSCP(text string) (uint8, error) {
	for v := range 64 {
		if name := dscpName(v); name != "" && strings.EqualFold(text, name) || text == strconv.Itoa(v) {
			return uint8(v), nil
		}
	}
	return 0, fmt.Errorf("%q is not a DSCP such as cs5, af41, ef, or a number from 0 to 63", text)
}

// marksFile is the section network of the configuration of muster serve.
type marksFile struct {
	Classes   []markFile `yaml:"classes"`
	Interface string     `yaml:"interface"`

	Hosts  string                 `yaml:"hosts"` // ends of links
	Links  []linkFile             `yaml:"links"`
	Models map[string]trafficFile `yaml:"models"`
	Uneven unevenFile             `yaml:"uneven"`
}

type markFile struct {
	DSCP string `yaml:"dscp"`
	TC   *int   `yaml:"tc"`
	SL   *int   `yaml:"sl"`
}

// read is what the section says, and the defaults of what it does not.
func (f *marksFile) read() (QoS, error) {
	q := DefaultQoS()
	if len(f.Classes) > cluster.MaxClasses {
		return q, At(fmt.Errorf("%d classes; switches keep at most %d apart", len(f.Classes), cluster.MaxClasses),
			"network", "classes")
	}
	if len(f.Classes) > 0 {
		q.Classes = nil
	}
	for i := range f.Classes {
		m, err := f.Classes[i].read()
		if err == nil {
			for k, o := range q.Classes {
				if o.DSCP == m.DSCP {
					err = At(fmt.Errorf("%s is that of class %d already", DSCPText(m.DSCP), k+1), "dscp")
				}
			}
		}
		if err != nil {
			return q, At(err, "network", "classes", strconv.Itoa(i))
		}
		q.Classes = append(q.Classes, m)
	}
	q.Interface = f.Interface
	if len(q.Interface) > 15 || strings.ContainsAny(q.Interface, "/,=^: \t\n") {
		return q, At(fmt.Errorf("%q is not the name of an interface, such as eth0", q.Interface), "network",
			"interface")
	}
	return q, nil
}

// links is the network between this machine's jobs and other hosts, as far as it is described; nil: it is not.
func (f *marksFile) links(q *QoS) (*cluster.Network, error) {
	if len(f.Links) == 0 {
		return nil, nil
	}
	hosts, err := Expand(f.Hosts)
	if err != nil {
		return nil, At(err, "network", "hosts")
	}
	if len(hosts) < 2 {
		return nil, At(errors.New(`missing: the ends of links between which jobs transmit, such as "node[1-4]"`),
			"network",
			"hosts")
	}
	ends := map[string]bool{}
	for _, name := range hosts {
		ends[name] = true
	}
	n, err := (&networkFile{Classes: len(q.Classes), Links: f.Links, Models: f.Models,
		Uneven: f.Uneven}).read(ends, nil)
	if err != nil {
		return nil, err
	}
	n.Hosts, n.Real = hosts, true
	return n, nil
}

func (f *markFile) read() (m Mark, err error) {
	if f.DSCP == "" {
		return m, At(errors.New("missing: state one, such as cs5"), "dscp")
	}
	if m.DSCP, err = ParseDSCP(f.DSCP); err != nil {
		return m, At(err, "dscp")
	}
	m.TC, m.SL = m.DSCP<<2, NoSL
	if f.TC != nil {
		switch tc := *f.TC; {
		case tc < 0 || tc > 255:
			return m, At(fmt.Errorf("%d; a traffic class is a byte, from 0 to 255", tc), "tc")
		case tc>>2 != int(m.DSCP) && tc == int(m.DSCP):
			return m, At(fmt.Errorf("%d is the DSCP; the traffic class has it in its upper six bits: %d", tc, m.TC),
				"tc")
		case tc>>2 != int(m.DSCP):
			return m, At(fmt.Errorf("%d has DSCP %s in its upper six bits, not %s: %d has", tc, DSCPText(uint8(tc>>2)),
				DSCPText(m.DSCP), m.TC), "tc")
		default:
			m.TC = uint8(tc)
		}
	}
	if f.SL != nil {
		if m.SL = *f.SL; m.SL < 0 || m.SL > 15 {
			return m, At(fmt.Errorf("%d; service levels are from 0 to 15", m.SL), "sl")
		}
	}
	return m, nil
}

// linksText lists links.
func linksText(n *cluster.Network) string {
	var list []string
	for _, l := range n.Links {
		list = append(list, fmt.Sprintf("%s-%s %gGbps", l.A, l.B, float64(l.Rate)/1e9))
	}
	return strings.Join(list, ", ")
}

// ratesText lists the rates of a tree.
func ratesText(rates []int64) string {
	var list []string
	for _, r := range rates {
		list = append(list, fmt.Sprintf("%gGbps", float64(r)/1e9))
	}
	return strings.Join(list, ", ")
}

// text is a class in words.
func (m *Mark) text() string {
	w := words{}
	w.add("dscp", DSCPText(m.DSCP))
	w.add("tc", strconv.Itoa(int(m.TC)))
	if m.SL != NoSL {
		w.add("sl", strconv.Itoa(m.SL))
	}
	return w.text()
}

// Variables are what NCCL, UCX and gloo read of a treatment when a job starts. What the job's user sets is left alone.
func (q *QoS) Variables(t *cluster.Treatment, user []string) (env []string) {
	add := func(name string, value any) {
		if !slices.ContainsFunc(user, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }) {
			env = append(env, fmt.Sprintf("%s=%v", name, value))
		}
	}
	if q.Interface != "" {
		add("NCCL_SOCKET_IFNAME", "="+q.Interface) // that one, and not those whose names begin so
		add("GLOO_SOCKET_IFNAME", q.Interface)
	}
	if t == nil {
		return env
	}
	if m, ok := q.Mark(t.Class); ok {
		add("NCCL_IB_TC", m.TC)
		add("UCX_IB_TRAFFIC_CLASS", m.TC)
		if above, higher := q.Mark(min(t.Class, len(q.Classes)) - 1); higher { // what says that data may come
			add("NCCL_IB_FIFO_TC", above.TC)
		}
		if m.SL != NoSL {
			add("NCCL_IB_SL", m.SL)
			add("UCX_IB_SL", m.SL)
		}
	}
	if t.Spread > 1 {
		add("NCCL_IB_QPS_PER_CONNECTION", t.Spread)
	}
	return env
}

// slots is what jobs are told of a treatment.
type slots struct {
	Class  int     `json:"class"`
	Shift  float64 `json:"shift_s"` // iterations begin so long after multiples of the period, since the Unix epoch
	Period float64 `json:"period_s"`
}

// Slots is what a job is told of how it is treated, as JSON: its class, and when its iterations begin.
func Slots(t *cluster.Treatment) []byte {
	v := t.Value()
	text, _ := json.Marshal(&slots{v.Class, v.Shift.Seconds(), v.Period.Seconds()}) // numbers only
	return append(text, '\n')
}
