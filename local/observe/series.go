//go:build linux

package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/muster-gpu/muster/show"
)

const (
	seriesEvery = 5 * time.Second
	seriesKept  = int(time.Hour / seriesEvery)
)

// Series is the state of the machine in the last hour.
type Series struct {
	mu   sync.Mutex
	list []show.Sample
}

// Keep adds samples until the context ends.
func (s *Series) Keep(ctx context.Context, present func() show.Sample) {
	t := time.NewTicker(seriesEvery)
	defer t.Stop()
	for {
		v := present()
		s.mu.Lock()
		s.list = append(s.list, v)
		if over := len(s.list) - seriesKept; over > 0 {
			s.list = slices.Delete(s.list, 0, over)
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// List returns the samples, the earliest first.
func (s *Series) List() []show.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}
