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

// Marker marks the traffic of control groups. It is not safe for concurrent use.
type Marker struct {
	groups  *cgroup.Manager
	table   string
	spaces  map[spaceID]*space // with our table
	classes map[string]uint32  // by group: its class identifier, where groups are told apart by those
}

// State is what became of a group's mark.
type State struct {
	Spaces int   // network namespaces in which it is in force
	Err    error // why it is not in force everywhere; nil: it is
}

// errNoGroups: neither version of control groups is of use.
var errNoGroups = errors.New("this machine has neither control groups of version 2 nor net_cls")

// New makes a marker; state, with which names of its groups end, tells its table from those of other daemons. It finds
// what an earlier daemon of the same state left, which the next Set keeps or removes.
func New(groups *cgroup.Manager, state string) *Marker {
	m := &Marker{groups: groups, table: "muster-" + state, spaces: map[spaceID]*space{}, classes: groups.Classes(state)}
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
	tables := map[spaceID]map[string]uint8{} // by namespace: DSCP by key
	paths := map[spaceID]string{}
	in := map[string][]spaceID{}
	for name, value := range want {
		key, err := m.key(name, value)
		if err == nil {
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
			_ = m.groups.Group(name).SetClass(0) // or it is gone
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
		states[name] = s
	}
	return states
}

// match is how the rules find a packet's group.
func (m *Marker) match() (match, error) {
	if level, ok := m.groups.ByID(); ok {
		return match{level: uint32(level)}, nil
	}
	if m.groups.ByClass() {
		return match{byClass: true}, nil
	}
	return match{}, errNoGroups
}

// classBase is what the class identifiers of our groups begin with; the DSCP follows.
const classBase = 0x4d750000

// key is what the rules know a group by.
func (m *Marker) key(name string, value uint8) (string, error) {
	g := m.groups.Group(name)
	if _, ok := m.groups.ByID(); ok {
		id, err := g.ID()
		return string(binary.NativeEndian.AppendUint64(nil, id)), err
	}
	class := classBase | uint32(value)
	if m.classes[name] != class {
		if err := g.SetClass(class); err != nil {
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
	pids := m.groups.Group(name).Pids()
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
	if maps.Equal(s.read(), want) {
		return nil
	}
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
