package serving

import (
	"os"
	"path/filepath"
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
	if err != nil || len(got) != 1 || got[0].Name != "a" || got[0].Rate != 90 || got[0].Latency != 250*time.Millisecond ||
		len(got[0].Points) != 1 || got[0].Points[0] != (Point{1, 8, 2, 45.5, 125 * time.Millisecond}) {
		t.Errorf("%+v %v", got, err)
	}
	for _, c := range []struct{ slo, points, want string }{
		{"service,rate\na,1\n", "", "want the columns"},
		{"service,rate,latency_ms\n", "", "no service"},
		{"service,rate,latency_ms\na,x,1\n", "", "line 2"},
		{"service,rate,latency_ms\na,1,-1\n", "", "line 2"},
		{"service,rate,latency_ms\na,0,1\n", "", "rate 0"},
		{"service,rate,latency_ms\n../a,1,1\n", "", "not a name"},
		{"service,rate,latency_ms\nb,1,1\n", "", "service b"},
		{"service,rate,latency_ms\na,1,1\n", "h,h,h,h,h\n1,2,x,4,5\n", "line 2"},
		{"service,rate,latency_ms\na,1,1\n", "h,h,h,h,h\n0,2,3,4,5\n", "at least one slice"},
		{"service,rate,latency_ms\na,1,1\n", "h,h,h\n1,2,3\n", "want compute slices"},
	} {
		if c.points != "" {
			write("a.csv", c.points)
		}
		if _, err := Promises(write("bad.csv", c.slo), dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %q: %v, want %s", c.slo, c.points, err, c.want)
		}
	}
}
