package policy

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/engine/sched"
)

// Tiresias, NSDI'19, vector 1: samples of 2, 4 and 12 GPU-seconds, a quantum of 4.
func TestGittins(t *testing.T) {
	past := sched.NewPast([]int64{4 * gpuSecond, 12 * gpuSecond, 2 * gpuSecond}, nil)
	for a, want := range map[int64]float64{0: 0.2, 2: 1. / 6, 4: 0, 8: 0.25, 12: 0, 13: 0} {
		got := float64(gittins(&past, a*gpuSecond, 4*gpuSecond)) * gpuSecond / (1 << indexBits)
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("G(%d) = %v, want %v", a, got, want)
		}
	}
	if g := gittins(&past, 0, math.MaxInt64); g == 0 {
		t.Error("without an end to the quantum there is no index")
	}
	none := sched.NewPast(nil, nil)
	if g := gittins(&none, 0, gpuSecond); g != 0 {
		t.Errorf("nothing is known and the index is %d", g)
	}
}

// The index is that of the definition, summed up sample by sample; it is 0 only if no sample lies
// within the quantum.
func TestGittinsDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		list := make([]int64, 1+r.IntN(20))
		for i := range list {
			list[i] = r.Int64N(50)
		}
		past := sched.NewPast(list, nil)
		a, d := r.Int64N(55), 1+r.Int64N(60)
		ends, n, sum := 0., 0., 0.
		for _, s := range list {
			if s <= a {
				continue
			}
			n++
			if s-a <= d {
				ends++
			}
			sum += float64(min(s-a, d))
		}
		want := 0.
		if n > 0 {
			want = ends / n / (sum / n)
		}
		if got := float64(gittins(&past, a, d)) / (1 << indexBits); math.Abs(got-want) > 1e-12 ||
			(got == 0) != (ends == 0) {
			t.Fatalf("samples %v: G(%d, %d) = %v, want %v", list, a, d, got, want)
		}
	}
}

func TestSamples(t *testing.T) {
	if _, err := New("tiresias-g:samples=x"); err == nil || !strings.Contains(err.Error(), "reads no files") {
		t.Error(err)
	}
	ReadFile = os.ReadFile
	t.Cleanup(func() { ReadFile = nil })
	write := func(text string) string {
		f := filepath.Join(t.TempDir(), "samples")
		if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	p, err := readSamples(write("duration\n12\n2.5\n\n4\n"))
	if err != nil || len(p.Services) != 3 || p.Services[0] != 2_500_000 || p.Sums[3] != 18_500_000 {
		t.Errorf("%+v, %v", p, err)
	}
	for text, want := range map[string]string{"duration\n": "no number in it", "duration\n1\nx\n": "line 3 is not",
		"1\n-2\n": "line 2 is not", "": "no number"} {
		if _, err := New("tiresias-g:samples=" + write(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if pol, err := New("tiresias-g:samples=" + write("duration\n12\n")); err != nil || pol.Traits().Learns != 0 {
		t.Errorf("with a file nothing is learned: %v, %v", pol, err)
	}
}
