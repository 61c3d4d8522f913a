package retry

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What the API server refuses is an answer, and is not asked again and again.
func TestAnswers(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	queues := schema.GroupResource{Group: "muster.sh", Resource: "queues"}
	for _, answer := range []error{nil, apierrors.NewNotFound(queues, "x"), apierrors.NewForbidden(queues, "x", nil),
		apierrors.NewUnauthorized("x")} {
		n := 0
		err := UntilAnswered(context.Background(), log, "?", func(context.Context) error {
			n++
			return answer
		})
		if err != answer || n != 1 {
			t.Errorf("%v: asked %d times, answered %v", answer, n, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var seen []error
	err := UntilAnswered(ctx, log, "?", func(context.Context) error {
		seen = append(seen, io.ErrUnexpectedEOF)
		if cancel(); len(seen) > 1 {
			t.Fatal("asked after the end")
		}
		return io.ErrUnexpectedEOF
	})
	if !slices.Contains(seen, err) {
		t.Errorf("at the end: %v", err)
	}
}
