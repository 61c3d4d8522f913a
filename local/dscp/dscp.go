//go:build linux

// Package dscp marks what control groups send with a DSCP, by which switches tell classes of traffic apart (RFC 2474).
// The rules are nftables', in one table of our own, in every network namespace that processes of the groups are in. The
// kernel compares numbers of groups only: nothing that a job can name gets into a rule.
package dscp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/local/cgroup"
)

// Max is the largest DSCP.
const Max = 63

// A group may be in so many namespaces, and so many of its processes are looked at, each time: a job that makes more of
// them keeps only itself from being marked.
const (
	mostSpaces    = 64
	mostProcesses = 4096
)

// Groups are control groups of version 2, by name.
type Groups interface {
	Levels() []uint32 // of the hierarchy, at which they are; none: there is no version 2
	ID(name string) (uint64, error)
	Pids(name string) []int
}

// managed are the groups of this machine's tasks. Where there is no version 2, class identifiers tell them apart.
type managed struct{ *cgroup.Manager }

func (m managed) Levels() []uint32 {
	if level, ok := m.ByID(); ok {
		return []uint32{uint32(level)}
	}
	return nil
}

func (m managed) ID(name string) (uint64, error) { return m.Group(name).ID() }

func (m managed) Pids(name string) []int { return m.Group(name).Pids() }

// Marker marks the traffic of control groups. It is not safe for concurrent use.
type Marker struct {
	groups  Groups
	old     *cgroup.Manager // of which class identifiers are set, where need be; nil: of none
	table   string
	spaces  map[spaceID]*space // with our table
	classes map[string]uint32  // by group: its class identifier, where groups are told apart by those
	sent    map[string]uint64  // by group: bytes
}

// State is what became of a group's mark.
type State struct {
	Spaces int   // network namespaces in which it is in force
	Err    error // why it is not in force everywhere; nil: it is
	// Sent is how many bytes it sent since it was marked first, headers included and what stays in a namespace left
	// out. It counts if Counted.
	Sent    uint64
	Counted bool
}

// errNoGroups: neither version of control groups is of use.
var errNoGroups = errors.New("this machine has neither control groups of version 2 nor net_cls")

// New makes a marker of tasks' groups; state, with which names of its groups end, tells its table from those of other
// daemons. It finds what an earlier daemon of the same state left, which the next Set keeps or removes.
func New(groups *cgroup.Manager, state string) *Marker {
	m := NewFor(managed{groups}, state)
	m.old, m.classes = groups, groups.Classes(state)
	return m
}

// NewFor is New for groups that others made.
func NewFor(groups Groups, state string) *Marker {
	m := &Marker{groups: groups, table: "muster-" + state, spaces: map[spaceID]*space{}, sent: map[string]uint64{}}
	own, err := openSpace(ownSpace, m.table)
	if err != nil || !own.found() {
		own.close()
		return m // every mark is in this namespace, too
	}
	m.spaces[own.id] = own
	paths, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	named, _ := filepath.Glob("/run/netns/*")
	for _, path := range append(paths, named...) {
		id, err := spaceOf(path)
		if err != nil || m.spaces[id] != nil {
			continue
		}
		if s, err := openSpace(path, m.table); err == nil && s.found() {
			m.spaces[s.id] = s
		} else {
			s.close()
		}
	}
	return m
}

// Set marks groups, by their names, and no others. It repairs what others removed; call it again when processes may
// have entered other namespaces.
func (m *Marker) Set(want map[string]uint8) map[string]State {
	states := map[string]State{}
	match, err := m.match()
	if err != nil {
		for name := range want {
			states[name] = State{Err: err}
		}
		return states
	}
	names := map[string]string{}             // groups by key
	tables := map[spaceID]map[string]uint8{} // by namespace: DSCP by key
	paths := map[spaceID]string{}
	in := map[string][]spaceID{}
	for name, value := range want {
		key, err := m.key(name, value)
		if err == nil {
			names[key] = name
			in[name], err = m.spacesOf(name, paths)
		}
		states[name] = State{Err: err}
		for _, id := range in[name] {
			if tables[id] == nil {
				tables[id] = map[string]uint8{}
			}
			tables[id][key] = value
		}
	}
	m.count(want, names, &match)
	failed := map[spaceID]error{}
	for id, table := range tables {
		failed[id] = m.declare(id, paths[id], match, table)
	}
	for id, s := range m.spaces {
		if tables[id] == nil {
			s.remove()
			s.close()
			delete(m.spaces, id)
		}
	}
	for name := range m.classes {
		if _, wanted := want[name]; !wanted {
			_ = m.old.Group(name).SetClass(0) // or it is gone
			delete(m.classes, name)
		}
	}
	for name, s := range states {
		for _, id := range in[name] {
			if failed[id] != nil {
				s.Err = failed[id]
			} else {
				s.Spaces++
			}
		}
		s.Sent, s.Counted = m.sent[name], match.counts()
		states[name] = s
	}
	return states
}

// count adds what groups sent since the last time, before tables are written again, with new counters.
func (m *Marker) count(want map[string]uint8, names map[string]string, how *match) {
	maps.DeleteFunc(m.sent, func(name string, _ uint64) bool {
		_, wanted := want[name]
		return !wanted
	})
	if !how.counts() {
		return
	}
	for _, s := range m.spaces {
		now := s.counts()
		for key, bytes := range now {
			if before := s.counted[key]; bytes >= before {
				bytes -= before
			}
			if name := names[key]; name != "" {
				m.sent[name] += bytes
			}
		}
		s.counted = now
	}
}

// match is how the rules find a packet's group.
func (m *Marker) match() (match, error) {
	if levels := m.groups.Levels(); len(levels) > 0 {
		return match{levels: levels}, nil
	}
	if m.old != nil && m.old.ByClass() {
		return match{byClass: true}, nil
	}
	return match{}, errNoGroups
}

// classBase is what the class identifiers of our groups begin with; the DSCP follows.
const classBase = 0x4d750000

// key is what the rules know a group by.
func (m *Marker) key(name string, value uint8) (string, error) {
	if len(m.groups.Levels()) > 0 {
		id, err := m.groups.ID(name)
		return string(binary.NativeEndian.AppendUint64(nil, id)), err
	}
	class := classBase | uint32(value)
	if m.classes[name] != class {
		if err := m.old.Group(name).SetClass(class); err != nil {
			return "", err
		}
		m.classes[name] = class
	}
	return string(binary.NativeEndian.AppendUint32(nil, class)), nil
}

// spacesOf lists the network namespaces of a group's processes, and this one, in which they begin.
func (m *Marker) spacesOf(name string, paths map[spaceID]string) (list []spaceID, err error) {
	add := func(path string) {
		id, err := spaceOf(path)
		if err != nil || slices.Contains(list, id) { // the process has ended
			return
		}
		list, paths[id] = append(list, id), path
	}
	add(ownSpace)
	pids := m.groups.Pids(name)
	for _, pid := range pids[:min(len(pids), mostProcesses)] {
		if add("/proc/" + strconv.Itoa(pid) + "/ns/net"); len(list) > mostSpaces {
			return list, fmt.Errorf("its processes are in more than %d network namespaces", mostSpaces)
		}
	}
	if len(pids) > mostProcesses {
		err = fmt.Errorf("it has more than %d processes", mostProcesses)
	}
	return list, err
}

// declare has the table of a namespace say what it should.
func (m *Marker) declare(id spaceID, path string, how match, want map[string]uint8) error {
	s := m.spaces[id]
	if s == nil {
		var err error
		if s, err = openSpace(path, m.table); err != nil {
			s.close()
			return err
		}
		if s.id != id { // the process has ended, and another has its number: it is looked at next time
			s.close()
			return os.ErrProcessDone
		}
	}
	m.spaces[id] = s
	if maps.Equal(s.read(how), want) {
		return nil
	}
	s.counted = nil
	err := s.write(how, want)
	if err != nil {
		s.close()
		delete(m.spaces, id)
	}
	switch {
	case errors.Is(err, unix.EPERM):
		return errors.New("only root may set rules of nftables")
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT),
		errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("the kernel has no nftables that match sockets by control group (nft_socket): %w", err)
	case err != nil:
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}
