package serving

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("a.csv", "slices,batch,processes,rate,seconds\n1,8,2,45.5,0.125\n1,16,2,0,0\n")
	got, err := Promises(write("slo.csv", "latency_ms,service,rate\n250,a,90\n"), dir)
	if err != nil || len(got) != 1 || got[0].Name != "a" || got[0].Rate != 90 ||
		got[0].Latency != 250*time.Millisecond ||
		len(got[0].Points) != 1 || got[0].Points[0] != (Point{1, 8, 2, 45.5, 125 * time.Millisecond, 0}) {
		t.Errorf("%+v %v", got, err)
	}
	write("p.csv", "Percent,batch,processes,rate,seconds,use_memory,use_compute\n50,8,1,45.5,0.125,1,1\n100,16,1,90,0.125,0.4,0.3\n100,8,1,80,0.1,0.2,0.1\n")
	got, err = Promises(write("slo.csv", "service,rate,latency_ms\np,1,9\n"), dir)
	if err != nil || len(got) != 1 || got[0].Points[0] != (Point{0, 8, 1, 45.5, 125 * time.Millisecond, 50}) ||
		!slices.Equal(got[0].Uses, []Use{{8, 0.1, 0.2}, {16, 0.3, 0.4}}) {
		t.Errorf("%+v %v", got, err)
	}
	for batch, want := range map[int]Use{4: {4, 0.1, 0.2}, 8: {8, 0.1, 0.2}, 16: {16, 0.3, 0.4}, 99: {99, 0.3, 0.4}} {
		if u := got[0].use(batch); u != want {
			t.Errorf("%d: %+v, want %+v", batch, u, want)
		}
	}
	if u := got[0].use(12); math.Abs(u.Compute-0.2) > 1e-9 || math.Abs(u.Memory-0.3) > 1e-9 {
		t.Errorf("halfway: %+v", u)
	}
	for _, c := range []struct{ slo, points, want string }{
		{"service,rate\na,1\n", "", "want the columns"},
		{"service,rate,latency_ms\n", "", "no service"},
		{"service,rate,latency_ms\na,x,1\n", "", "line 2"},
		{"service,rate,latency_ms\na,1,-1\n", "", "line 2"},
		{"service,rate,latency_ms\na,0,1\n", "", "rate 0"},
		{"service,rate,latency_ms\na,1e-10,1\n", "", "from a millionth"},
		{"service,rate,latency_ms\n\n\na,0,1\n", "", "bad.csv: line 4: service a: rate 0"},
		{"service,rate,latency_ms\n,1,1\n", "", "bad.csv: line 2: service \"\": not a name"},
		{"service,rate,latency_ms\n../a,1,1\n", "", "not a name"},
		{"service,rate,latency_ms\nb,1,1\n", "", "service b"},
		{"service,rate,latency_ms\na,1,1\n", "h,h,h,h,h\n1,2,x,4,5\n", "line 2"},
		{"service,rate,latency_ms\na,1,1\n", "h,h,h,h,h\n0,2,3,4,5\n", "at least one slice"},
		{"service,rate,latency_ms\na,1,1\n", "h,h,h,h,h\n1,2.5,3,4,5\n",
			"a.csv: line 2: 2.5: want a whole number of requests in a batch"},
		{"service,rate,latency_ms\na,1,1\n", "h,h,h,h,h\n\n1,2,1.5,4,5\n",
			"a.csv: line 3: 1.5: want a whole number of processes"},
		{"service,rate,latency_ms\na,1,1\n", "h,h,h\n1,2,3\n", "want compute slices"},
		{"service,rate,latency_ms\na,1,1\n", "percent,h,h,h,h\n120,1,1,4,5\n", "whole per cent up to 100"},
		{"service,rate,latency_ms\na,1,1\n", "percent,h,h,h,h\n50,1,2,4,5\n", "line 2: 50 per cent with 2 processes"},
		{"service,rate,latency_ms\na,1,1\n", "percent,h,h,h,h,use_compute,use_memory\n50,1,1,4,5,0.5,2\n",
			"from 0 to 1"},
		{"service,rate,latency_ms\na,1,1\n", "percent,h,h,h,h,use_compute,use_memory\n50,1,1,4,5,0.5\n",
			"wrong number of fields"},
	} {
		if c.points != "" {
			write("a.csv", c.points)
		}
		if _, err := Promises(write("bad.csv", c.slo), dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %q: %v, want %s", c.slo, c.points, err, c.want)
		}
	}
}
