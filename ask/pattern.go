package ask

import (
	"fmt"
	"strconv"
	"strings"
)

// FileNames are the values of the patterns in a file name.
type FileNames struct {
	Job     int    // %j
	Array   int    // %A; 0: not an array, then %A is the job and %a 4294967294, as in Slurm
	Index   int    // %a, and %b modulo 10
	User    string // %u
	JobName string // %x, the job's name
	Node    string // %N, the short host name
	NodeNum int    // %n
	Task    int    // %t
	Step    string // %s; a batch script's is "batch"
	Restart int    // %r
}

// noIndex is what Slurm prints as the index of a job without one.
const noIndex = 4294967294

// ExpandPattern expands the patterns of a file name. A number between % and the letter pads numbers with zeros
// (at most ten digits); a backslash anywhere switches the patterns off and is removed; %% is %.
func ExpandPattern(p string, n FileNames) string {
	if strings.Contains(p, `\`) {
		return strings.ReplaceAll(p, `\`, "")
	}
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		if p[i] != '%' {
			b.WriteByte(p[i])
			continue
		}
		j := i + 1
		for j < len(p) && p[j] >= '0' && p[j] <= '9' {
			j++
		}
		if j == len(p) {
			b.WriteString(p[i:])
			break
		}
		width, _ := strconv.Atoi(p[i+1 : j]) // too large: the largest int
		if text, ok := n.expand(p[j], min(width, 10)); ok {
			b.WriteString(text)
		} else {
			b.WriteString(p[i : j+1])
		}
		i = j
	}
	return b.String()
}

func (n FileNames) expand(letter byte, width int) (string, bool) {
	pad := func(v int) (string, bool) { return fmt.Sprintf("%0*d", width, v), true }
	array, index := n.Array, n.Index
	if array == 0 {
		array, index = n.Job, noIndex
	}
	switch letter {
	case '%':
		return "%", true
	case 'A':
		return pad(array)
	case 'a':
		return pad(index)
	case 'b':
		return pad(index % 10)
	case 'j':
		return pad(n.Job)
	case 'J':
		if n.Step == "" || n.Step == "batch" {
			return pad(n.Job)
		}
		return strconv.Itoa(n.Job) + "." + n.Step, true
	case 'N':
		return n.Node, true
	case 'n':
		return pad(n.NodeNum)
	case 'r':
		return pad(n.Restart)
	case 's':
		if n.Step == "" {
			return "batch", true
		}
		return n.Step, true
	case 't':
		return pad(n.Task)
	case 'u':
		return n.User, true
	case 'x':
		return n.JobName, true
	}
	return "", false
}
