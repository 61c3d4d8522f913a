// Package retry says which answers of an API server are worth asking again, and asks again.
package retry

import (
	"context"
	"errors"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How long it takes until an API server that did not answer is asked again.
const (
	firstAskAgain = 100 * time.Millisecond
	lastAskAgain  = 5 * time.Second
)

// Tries bounds how often a write is tried before it is given up; with the pauses between, about half a minute.
const Tries = 8

// UntilAnswered puts a question to the API server until the server answers it. A connection that breaks, or a server
// that is overloaded or still starting, says nothing about the cluster: a scheduler that starts meanwhile waits. Every
// other error is an answer, and is returned. what names the question in the log.
func UntilAnswered(ctx context.Context, log *slog.Logger, what string, ask func(context.Context) error) error {
	logged := ""
	for wait := firstAskAgain; ; wait = min(2*wait, lastAskAgain) {
		err := ask(ctx)
		if err == nil || ctx.Err() != nil || !Unanswered(err) {
			return err
		}
		if text := err.Error(); text != logged {
			logged = text
			log.Warn("the API server did not answer; Muster asks again", "question", what, "error", err)
		}
		if !Pause(ctx, wait) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// Unanswered reports whether an error says that a request did not reach its answer, rather than what the answer is.
func Unanswered(err error) bool {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return true
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsUnexpectedServerError(err)
}

// Definite reports whether trying again cannot help.
func Definite(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsForbidden(err) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// Pause waits; false: the context ended.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
