//go:build linux

package dscp

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// ownSpace is the network namespace of the daemon.
const ownSpace = "/proc/self/ns/net"

// spaceID is a network namespace.
type spaceID struct{ dev, ino uint64 }

// spaceOf is the namespace that a file stands for.
func spaceOf(path string) (spaceID, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return spaceID{st.Dev, st.Ino}, err
}

// space is our table in a network namespace.
type space struct {
	id      spaceID
	conn    *nftables.Conn
	t       *nftables.Table
	counted map[string]uint64 // counts of the last time
}

// openSpace connects to the rules of a namespace. Its result is to be closed, also with an error.
func openSpace(path, table string) (*space, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(f.Fd())), nftables.AsLasting())
	if err != nil {
		return nil, err
	}
	return &space{id: spaceID{st.Dev, st.Ino}, conn: c,
		t: &nftables.Table{Family: nftables.TableFamilyINet, Name: table}}, nil
}

func (s *space) close() {
	if s != nil {
		_ = s.conn.CloseLasting()
	}
}

// found reports whether the table is there.
func (s *space) found() bool {
	t, err := s.conn.ListTableOfFamily(s.t.Name, s.t.Family)
	return err == nil && t != nil
}

// remove removes the table.
func (s *space) remove() {
	s.conn.AddTable(s.t) // else the removal of one that is not there fails
	s.conn.DelTable(s.t)
	_ = s.conn.Flush() // a namespace without processes goes, too
}

// Names in the table: a map from groups to chains, the set of groups with a counter of each, one chain for each DSCP,
// and the one that consults map and set.
const (
	marksName  = "marks"
	sentName   = "sent"
	outputName = "output"
	chainName  = "dscp"
)

// counts are the bytes that groups sent to other network interfaces since the table was written, by key; nil: they are
// not known.
func (s *space) counts() map[string]uint64 {
	elements, err := s.conn.GetSetElements(&nftables.Set{Table: s.t, Name: sentName})
	if err != nil {
		return nil
	}
	sent := map[string]uint64{}
	for _, e := range elements {
		if e.Counter != nil {
			sent[string(e.Key)] = e.Counter.Bytes
		}
	}
	return sent
}

// read is what the table says: DSCP by key; nil: the table is not as we would make it.
func (s *space) read(how match) map[string]uint8 {
	if t, err := s.conn.ListTableOfFamily(s.t.Name, s.t.Family); err != nil || t == nil {
		return nil
	}
	elements, err := s.conn.GetSetElements(&nftables.Set{Table: s.t, Name: marksName})
	if err != nil {
		return nil
	}
	whole := func(chain string, rules int) bool {
		list, err := s.conn.GetRules(s.t, &nftables.Chain{Name: chain})
		return err == nil && len(list) == rules
	}
	if !whole(outputName, how.rules()) {
		return nil
	}
	found, chains := map[string]uint8{}, map[string]bool{}
	for _, e := range elements {
		if e.VerdictData == nil {
			return nil
		}
		chain := e.VerdictData.Chain
		number, ok := strings.CutPrefix(chain, chainName)
		value, err := strconv.ParseUint(number, 10, 6)
		if !ok || err != nil || !chains[chain] && !whole(chain, 2) {
			return nil
		}
		found[string(e.Key)], chains[chain] = uint8(value), true
	}
	return found
}

// match is how rules find a packet's group: by its number in version 2, at one of some levels, or by its class
// identifier.
type match struct {
	byClass bool
	levels  []uint32
}

// loads are the expressions that load what a packet's group may be known by.
func (m *match) loads() (list []expr.Any) {
	if m.byClass {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyCGROUP, Register: unix.NFT_REG_1}}
	}
	for _, level := range m.levels {
		list = append(list, &expr.Socket{Key: expr.SocketKeyCgroupv2, Level: level, Register: unix.NFT_REG_1})
	}
	return list
}

// rules is how many rules the chain of output has.
func (m *match) rules() int {
	if m.counts() {
		return 2 * len(m.loads())
	}
	return len(m.loads())
}

// counts reports whether it is known of each group what it sends: several groups may have one class identifier.
func (m *match) counts() bool { return !m.byClass }

// loopback is the type of the interface of what stays in a namespace (ARPHRD_LOOPBACK).
const loopback = 772

// write declares the table, in one transaction: no packet sees a part of it.
func (s *space) write(how match, want map[string]uint8) error {
	c := s.conn
	c.AddTable(s.t)
	c.DelTable(s.t)
	c.AddTable(s.t)
	chains := map[uint8]bool{}
	var elements []nftables.SetElement
	for key, value := range want {
		name := fmt.Sprint(chainName, value)
		if !chains[value] {
			chains[value] = true
			s.addChain(name, value)
		}
		elements = append(elements, nftables.SetElement{Key: []byte(key),
			VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: name}})
	}
	slices.SortFunc(elements, func(a, b nftables.SetElement) int { return slices.Compare(a.Key, b.Key) })
	marks := &nftables.Set{Table: s.t, Name: marksName, IsMap: true, KeyType: nftables.TypeCGroupV2,
		DataType: nftables.TypeVerdict, KeyByteOrder: binaryutil.NativeEndian}
	if how.byClass {
		marks.KeyType = nftables.TypeClassID
	}
	if err := c.AddSet(marks, elements); err != nil {
		return err
	}
	keys := slices.Clone(elements)
	for i := range keys {
		keys[i].VerdictData = nil
	}
	sent := &nftables.Set{Table: s.t, Name: sentName, KeyType: marks.KeyType, Counter: true,
		KeyByteOrder: binaryutil.NativeEndian}
	if how.counts() {
		if err := c.AddSet(sent, keys); err != nil {
			return err
		}
	}
	output := c.AddChain(&nftables.Chain{Name: outputName, Table: s.t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityMangle})
	consult := func(name string, id uint32, verdict bool, exprs ...expr.Any) {
		c.AddRule(&nftables.Rule{Table: s.t, Chain: output, Exprs: append(exprs,
			&expr.Lookup{SourceRegister: unix.NFT_REG_1, IsDestRegSet: verdict, SetName: name, SetID: id})})
	}
	for _, load := range how.loads() {
		if how.counts() {
			consult(sent.Name, sent.ID, false, &expr.Meta{Key: expr.MetaKeyOIFTYPE, Register: unix.NFT_REG_1},
				&expr.Cmp{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1,
					Data: binary.NativeEndian.AppendUint16(nil, loopback)}, load)
		}
		consult(marks.Name, marks.ID, true, load)
	}
	return c.Flush()
}

// addChain adds the chain that sets a DSCP and leaves the two bits of congestion notification (RFC 3168) beside it.
func (s *space) addChain(name string, value uint8) {
	chain := s.conn.AddChain(&nftables.Chain{Name: name, Table: s.t})
	for _, v := range []struct {
		family    byte
		keep, set uint16
		sum       expr.PayloadCsumType
	}{
		{unix.NFPROTO_IPV4, 0xff03, uint16(value) << 2, expr.CsumTypeInet}, // version, header length, DSCP, ECN
		{unix.NFPROTO_IPV6, 0xf03f, uint16(value) << 6, expr.CsumTypeNone}, // version, DSCP, ECN, flow label
	} {
		const register = unix.NFT_REG_1
		header := expr.Payload{Base: expr.PayloadBaseNetworkHeader, Len: 2}
		load, store := header, header
		load.DestRegister = register
		store.OperationType, store.SourceRegister, store.CsumType = expr.PayloadWrite, register, v.sum
		if v.sum == expr.CsumTypeInet {
			store.CsumOffset = 10
		}
		s.conn.AddRule(&nftables.Rule{Table: s.t, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{v.family}},
			&load,
			&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 2,
				Mask: binary.BigEndian.AppendUint16(nil, v.keep), Xor: binary.BigEndian.AppendUint16(nil, v.set)},
			&store,
		}})
	}
}
