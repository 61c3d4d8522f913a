package progress

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/show"
)

// WriteTable writes measurements as a performance table.
func WriteTable(out io.Writer, s *show.Speeds) error {
	if len(s.Paces)+len(s.Pairs) == 0 {
		fmt.Fprintln(out, "# nothing was measured so far: jobs say what they are (--model) and report their steps (MUSTER_PROGRESS)")
		return nil
	}
	same := func(a, b *show.Pace) bool { return a.Model == b.Model && a.GPUs == b.GPUs && a.Unit == b.Unit }
	var speed, scale, pairs strings.Builder
	written := map[string]bool{}
	// samples before steps
	slices.SortStableFunc(s.Paces, func(a, b show.Pace) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Unit, b.Unit))
	})
	for i := 0; i < len(s.Paces); {
		n := i + 1
		for n < len(s.Paces) && same(&s.Paces[i], &s.Paces[n]) {
			n++
		}
		list := s.Paces[i:n]
		i = n
		if written[list[0].Model] { // a table has one row for each
			fmt.Fprintf(&speed, "  # %s was also measured with %d GPUs for each task, in %s\n", list[0].Model,
				list[0].GPUs, list[0].Unit)
			continue
		}
		written[list[0].Model] = true
		writeScale(&scale, list)
		writeSpeed(&speed, list)
	}
	for _, p := range s.Pairs {
		fmt.Fprintf(&pairs, "  %s: %.3g\n", yamlName(p.Model+"/"+p.Beside), p.Speed)
	}
	for _, part := range []struct{ name, text string }{{"speed", speed.String()}, {"scale", scale.String()},
		{"pairs", pairs.String()}} {
		if part.text != "" {
			fmt.Fprintf(out, "%s:\n%s", part.name, part.text)
		}
	}
	return nil
}

// writeSpeed writes how fast a job model is on each GPU model, with the number of tasks of
// which most is known, relative to the fastest.
func writeSpeed(out *strings.Builder, list []show.Pace) {
	known := map[int]int{}
	for _, p := range list {
		known[p.Tasks]++
	}
	tasks := slices.MaxFunc(list, func(a, b show.Pace) int {
		return cmp.Or(cmp.Compare(known[a.Tasks], known[b.Tasks]), cmp.Compare(a.Tasks, b.Tasks))
	}).Tasks
	most, cells, notes := 0.0, []string{}, []string{}
	for _, p := range list {
		if p.Tasks == tasks {
			most = max(most, p.Pace)
		}
	}
	for _, p := range list {
		if p.Tasks == tasks {
			cells = append(cells, fmt.Sprintf("%s: %.3g", yamlName(p.GPU), p.Pace/most))
			notes = append(notes, fmt.Sprintf("%.4g %s/s in %s", p.Pace, p.Unit, several(p.Runs, "run")))
		}
	}
	fmt.Fprintf(out, "  %s: {%s}   # with %s of %s: %s\n", yamlName(list[0].Model), strings.Join(cells, ", "),
		several(tasks, "task"), several(list[0].GPUs, "GPU"), strings.Join(notes, ", "))
}

// writeScale writes how fast it is with each number of tasks on the GPU model on which most
// of them were measured, relative to the most tasks.
func writeScale(out *strings.Builder, list []show.Pace) {
	known := map[string]int{}
	for _, p := range list {
		known[p.GPU]++
	}
	gpu := slices.MaxFunc(list, func(a, b show.Pace) int {
		return cmp.Or(cmp.Compare(known[a.GPU], known[b.GPU]), cmp.Compare(b.GPU, a.GPU))
	}).GPU
	if known[gpu] < 2 {
		return
	}
	var cells []string
	most, largest := 0.0, 0
	for _, p := range list {
		if p.GPU == gpu {
			most, largest = p.Pace, p.Tasks // the last one has the most
		}
	}
	for _, p := range list {
		if p.GPU == gpu {
			cells = append(cells, fmt.Sprintf("%d: %.3g", p.Tasks, p.Pace/most))
		}
	}
	fmt.Fprintf(out, "  %s: {%s}   # on %s, of jobs that ask for %d tasks\n", yamlName(list[0].Model),
		strings.Join(cells, ", "), gpu, largest)
}

// yamlName is a name as YAML takes it for one.
func yamlName(s string) string {
	if text, err := json.Marshal(s); err == nil {
		return string(text)
	}
	return s
}

// several is so many of a thing.
func several(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
