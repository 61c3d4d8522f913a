//go:build linux

// Package netlab is a network to contend on, on one machine: hosts 1 and 2 on one leaf switch, 3 and 4 on another, and
// one narrow link between the two, whose ports keep eight classes apart by strict priority, as their DSCP says (CS7
// first). Hosts and switches are network namespaces; what they carry is real TCP.
package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Hosts is how many hosts a lab has, numbered from 1.
const Hosts = 4

// Interface is a host's network interface.
const Interface = "e0"

// Payload is the part of the link's rate that jobs can count on: headers, what htb counts as such, and the pauses of a
// reduction take the rest.
const Payload = 0.86

// Overhead is by how much a job states its computing time longer than it is: iterations of real programs vary, and
// slots without room are not held.
const Overhead = 8 * time.Millisecond

// ErrLacks says that this machine cannot have a lab.
var ErrLacks = errors.New("no network lab here")

// Lab is one network. Several can be up at the same time.
type Lab struct{ name string }

const namesBegin = "muster-lab-"

// New makes a lab with so many Mbit/s between the switches. It removes those of processes that were killed.
func New(mbit int) (*Lab, error) {
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("%w: only root can make network namespaces", ErrLacks)
	}
	for _, program := range []string{"ip", "tc", "nft", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%w: %v (scripts/install-test-deps.sh installs iproute2 and nftables)", ErrLacks,
				err)
		}
	}
	removeDead()
	l := &Lab{namesBegin + strconv.Itoa(os.Getpid())}
	for n := 0; ; n++ { // another lab of this process
		if _, err := os.Stat(l.path("left")); err != nil {
			break
		}
		l.name = fmt.Sprintf("%s%d.%d", namesBegin, os.Getpid(), n)
	}
	if err := l.build(mbit); err != nil {
		l.Close()
		return nil, fmt.Errorf("%w: %w", ErrLacks, err)
	}
	return l, nil
}

func (l *Lab) space(vertex string) string { return l.name + "-" + vertex }

func (l *Lab) path(vertex string) string { return filepath.Join("/run/netns", l.space(vertex)) }

// Path is the file of a host's network namespace, for nsenter --net=.
func (l *Lab) Path(host int) string { return l.path(fmt.Sprint("h", host)) }

// Address is a host's address.
func Address(host int) string { return fmt.Sprintf("10.77.%d.2", host) }

func leafOf(host int) string {
	if host <= Hosts/2 {
		return "left"
	}
	return "right"
}

func (l *Lab) build(mbit int) error {
	var ip, left, right []string
	for _, v := range []string{"left", "right", "h1", "h2", "h3", "h4"} {
		ip = append(ip, "netns add "+l.space(v))
	}
	if err := feed(strings.Join(ip, "\n"), "ip", "-batch", "-"); err != nil {
		return err
	}
	for h := 1; h <= Hosts; h++ {
		leaf, host := leafOf(h), fmt.Sprint("h", h)
		to := fmt.Sprintf("link add d%d type veth peer name %s netns %s\nlink set d%d up\naddr add 10.77.%d.1/24 dev d%d", h,
			Interface, l.space(host), h, h, h)
		if err := l.ip(leaf, to); err != nil {
			return err
		}
		if err := l.ip(host, "link set lo up", "link set "+Interface+" up",
			fmt.Sprintf("addr add %s/24 dev %s", Address(h), Interface),
			fmt.Sprintf("route add default via 10.77.%d.1", h)); err != nil {
			return err
		}
	}
	left = append(left, "link set lo up", "link add trunk type veth peer name trunk netns "+l.space("right"),
		"link set trunk up",
		"addr add 10.77.9.1/24 dev trunk")
	right = append(right, "link set lo up", "link set trunk up", "addr add 10.77.9.2/24 dev trunk")
	for h := 1; h <= Hosts; h++ {
		if leafOf(h) == "left" {
			right = append(right, fmt.Sprintf("route add 10.77.%d.0/24 via 10.77.9.1", h))
		} else {
			left = append(left, fmt.Sprintf("route add 10.77.%d.0/24 via 10.77.9.2", h))
		}
	}
	if err := l.ip("left", left...); err != nil {
		return err
	}
	if err := l.ip("right", right...); err != nil {
		return err
	}
	for _, leaf := range []string{"left", "right"} {
		if err := l.port(leaf, mbit); err != nil {
			return err
		}
	}
	return nil
}

// ip carries out commands of ip in a namespace.
func (l *Lab) ip(vertex string, commands ...string) error {
	return feed(strings.Join(commands, "\n"), "ip", "-n", l.space(vertex), "-batch", "-")
}

// port makes a switch's port to the narrow link: a queue for each class, the most urgent is served first. A class may
// always have 1 Mbit/s, so none is shut out altogether.
func (l *Lab) port(leaf string, mbit int) error {
	forward := "echo 1 > /proc/sys/net/ipv4/ip_forward"
	if err := feed("", "nsenter", "--net="+l.path(leaf), "sh", "-c", forward); err != nil {
		return err
	}
	rules := []string{"qdisc add dev trunk root handle 1: htb default 10 r2q 100",
		fmt.Sprintf("class add dev trunk parent 1: classid 1:1 htb rate %dmbit ceil %dmbit burst 64k", mbit, mbit)}
	marks := []string{"table inet lab {", "chain classes { type filter hook forward priority 0;"}
	for k := range 8 {
		rules = append(rules,
			fmt.Sprintf("class add dev trunk parent 1:1 classid 1:1%d htb rate 1mbit ceil %dmbit prio %d burst 32k cburst 32k", k,
				mbit, 7-k),
			fmt.Sprintf("qdisc add dev trunk parent 1:1%d handle 2%d: pfifo limit 200", k, k))
		marks = append(marks, fmt.Sprintf("ip dscp cs%d meta priority set 1:1%d", k, k))
	}
	if err := feed(strings.Join(rules, "\n"), "tc", "-n", l.space(leaf), "-batch", "-"); err != nil {
		return err
	}
	return feed(strings.Join(append(marks, "}", "}"), "\n"), "nsenter", "--net="+l.path(leaf), "nft", "-f", "-")
}

// Close removes the lab; processes that are still in it keep their namespaces, with nothing to reach.
func (l *Lab) Close() { remove(l.name) }

func remove(name string) {
	paths, _ := filepath.Glob(filepath.Join("/run/netns", name+"-*"))
	for _, p := range paths {
		_ = feed("", "ip", "netns", "del", filepath.Base(p))
	}
}

// removeDead removes the labs of processes that are not any more.
func removeDead() {
	paths, _ := filepath.Glob(filepath.Join("/run/netns", namesBegin+"*-left"))
	for _, p := range paths {
		name := strings.TrimSuffix(filepath.Base(p), "-left")
		digits, _, _ := strings.Cut(strings.TrimPrefix(name, namesBegin), ".")
		if pid, err := strconv.Atoi(digits); err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			remove(name)
		}
	}
}

// feed runs a program with a text for its standard input.
func feed(text string, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(text + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
