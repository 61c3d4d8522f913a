package ask

import (
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

// signals are the usual signals with their Linux numbers; Slurm knows most of them.
var signals = []struct {
	name string
	num  int
}{{"HUP", 1}, {"INT", 2}, {"QUIT", 3}, {"ILL", 4}, {"TRAP", 5}, {"ABRT", 6}, {"BUS", 7}, {"FPE", 8}, {"KILL", 9},
	{"USR1", 10}, {"SEGV", 11}, {"USR2", 12}, {"PIPE", 13}, {"ALRM", 14}, {"TERM", 15},
	{"CHLD", 17}, {"CONT", 18}, {"STOP", 19}, {"TSTP", 20}, {"TTIN", 21}, {"TTOU", 22}, {"URG", 23}, {"XCPU", 24},
	{"XFSZ", 25},
	{"VTALRM", 26}, {"PROF", 27}, {"WINCH", 28}, {"IO", 29}, {"PWR", 30}, {"SYS", 31}}

// ParseSignal reads a name with or without SIG, or a number. It returns the name without SIG (the number if it
// has none), and the number on Linux.
func ParseSignal(s string) (name string, number int, err error) {
	up := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	n, isNum := count(s, 64)
	for _, k := range signals {
		if k.name == up || isNum && int64(k.num) == n {
			return k.name, k.num, nil
		}
	}
	if isNum && n > 0 {
		return s, int(n), nil
	}
	names := make([]string, len(signals))
	for i, k := range signals {
		names[i] = k.name
	}
	return "", 0, cluster.Unknown("signal", up, names)
}
