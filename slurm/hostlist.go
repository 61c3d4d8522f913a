package slurm

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

const maxHosts = 65536

// ExpandHosts expands a node list such as n[01-03,7],login.
func ExpandHosts(s string) ([]string, error) {
	var out []string
	for _, part := range splitOutside(s) {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		hosts, err := expandHost(part)
		if err != nil {
			return nil, err
		}
		if len(out)+len(hosts) > maxHosts {
			return nil, fmt.Errorf("the node list names more than %d nodes", maxHosts)
		}
		out = append(out, hosts...)
	}
	return out, nil
}

// splitOutside splits at commas outside brackets.
func splitOutside(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth <= 0 {
				out = append(out, s[from:i])
				from = i + 1
			}
		}
	}
	return append(out, s[from:])
}

func expandHost(s string) ([]string, error) {
	open := strings.IndexByte(s, '[')
	if open < 0 {
		if strings.Contains(s, "]") {
			return nil, fmt.Errorf("node list %q: ] without [", s)
		}
		return []string{s}, nil
	}
	end := strings.IndexByte(s[open:], ']')
	if end < 0 {
		return nil, fmt.Errorf("node list %q: [ without ]", s)
	}
	end += open
	tails, err := expandHost(s[end+1:])
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range strings.Split(s[open+1:end], ",") {
		from, to, isRange := strings.Cut(r, "-")
		if !isRange {
			to = from
		}
		a, ok1 := number(from, 1<<30)
		b, ok2 := number(to, 1<<30)
		if !ok1 || !ok2 || a > b || (b-a+1)*int64(len(tails)) > maxHosts-int64(len(out)) {
			return nil, fmt.Errorf("node list %q: %q is not a range, or too long a one", s, r)
		}
		for n := a; n <= b; n++ {
			for _, t := range tails {
				out = append(out, fmt.Sprintf("%s%0*d%s", s[:open], len(from), n, t))
			}
		}
	}
	return out, nil
}

// CompressHosts formats nodes as a node list: sorted, numbers of equal width as ranges.
func CompressHosts(hosts []string) string {
	type group struct {
		prefix string
		width  int
		nums   []int
	}
	sorted := append([]string(nil), hosts...)
	sort.Strings(sorted)
	var groups []group
	for i, h := range sorted {
		if i > 0 && h == sorted[i-1] {
			continue
		}
		prefix := strings.TrimRight(h, "0123456789")
		digits := h[len(prefix):]
		if len(digits) > 9 {
			prefix, digits = h, ""
		}
		n, _ := strconv.Atoi(digits) // no digits: a group of its own
		if k := len(groups) - 1; k >= 0 && digits != "" && groups[k].prefix == prefix &&
			groups[k].width == len(digits) {
			groups[k].nums = append(groups[k].nums, n)
			continue
		}
		g := group{prefix: prefix, width: len(digits)}
		if digits != "" {
			g.nums = []int{n}
		}
		groups = append(groups, g)
	}
	var out []string
	for _, g := range groups {
		switch len(g.nums) {
		case 0:
			out = append(out, g.prefix)
		case 1:
			out = append(out, fmt.Sprintf("%s%0*d", g.prefix, g.width, g.nums[0]))
		default:
			out = append(out, g.prefix+"["+padRanges(g.nums, g.width)+"]")
		}
	}
	return strings.Join(out, ",")
}

func padRanges(v []int, width int) string {
	var parts []string
	for i := 0; i < len(v); {
		j := i
		for j+1 < len(v) && v[j+1] == v[j]+1 {
			j++
		}
		s := fmt.Sprintf("%0*d", width, v[i])
		if j > i {
			s += fmt.Sprintf("-%0*d", width, v[j])
		}
		parts = append(parts, s)
		i = j + 1
	}
	return strings.Join(parts, ",")
}
