package engine_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/policy"
)

// bytesSource draws from a string, one byte for each number, and at its end
// from a generator.
type bytesSource struct {
	data []byte
	pos  int
	rest *rand.PCG
}

func (s *bytesSource) Uint64() uint64 {
	if s.pos >= len(s.data) {
		return s.rest.Uint64()
	}
	s.pos++
	return uint64(s.data[s.pos-1])<<56 | s.rest.Uint64()>>8
}

// FuzzStep plays scenarios that are drawn from bytes: cluster, queues, jobs and
// events, under every policy, with the checks of TestRandom.
func FuzzStep(f *testing.F) {
	for i := range 8 {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		data := make([]byte, 2000)
		for k := range data {
			data[k] = byte(r.Uint32())
		}
		f.Add(data)
	}
	names := policy.Names()
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 2 || len(data) > 4000 {
			return
		}
		src := &bytesSource{data: data[2:], rest: rand.NewPCG(1, 2)}
		sc, err := generateFrom(rand.New(src), uint64(data[1]), names[int(data[0])%len(names)], func(n int) bool {
			return src.pos < len(src.data) && n < 100
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := play(sc, false); err != nil && !errors.Is(err, errInvalid) {
			w, _ := play(sc, true)
			t.Fatalf("%s: %v\n%+v\n%s", sc.label, err, sc.cfg.Spec, strings.Join(w.log, "\n"))
		}
	})
}
