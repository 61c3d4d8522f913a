package kube

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How long the driver waits before it asks an API server again that did not answer.
const (
	firstAskAgain = 100 * time.Millisecond
	lastAskAgain  = 5 * time.Second
)

// untilAnswered puts a question to the API server until the server answers it. A connection that breaks, or a
// server that is overloaded or still starting, says nothing about the cluster: a scheduler that starts
// meanwhile waits. Every other error is an answer, and is returned. what names the question in the log.
func (d *Driver) untilAnswered(ctx context.Context, what string, ask func(context.Context) error) error {
	said := ""
	for wait := firstAskAgain; ; wait = min(2*wait, lastAskAgain) {
		err := ask(ctx)
		if err == nil || ctx.Err() != nil || !unanswered(err) {
			return err
		}
		if text := err.Error(); text != said {
			said = text
			d.opt.Log.Warn("the API server did not answer; Muster asks again", "question", what, "error", err)
		}
		if !pause(ctx, wait) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// unanswered reports whether an error says that a request did not reach its answer, rather than what the answer is.
func unanswered(err error) bool {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return true
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsUnexpectedServerError(err)
}
