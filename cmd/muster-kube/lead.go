package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube"
	"github.com/muster-gpu/muster/kube/lead"
)

// Requests per second of what is not on the way of a binding.
const (
	tellQPS     = 500 // 10,000 pods are told why they wait within half a minute
	queueQPS    = 50
	leaseQPS    = 20
	servicesQPS = 50
	ownQPS      = 20
)

// clients speak to the cluster, each with its own rate limit.
type clients struct {
	schedule *kubeapi.Clientset // binds and evicts
	tell     *kubeapi.Clientset // conditions and events
	objects  dynamic.Interface  // Queue objects and what makes gangs
	read     *kubeapi.Clientset // what scales services: it does not hold up the scheduler
	lease    *kubeapi.Clientset // renewals: nothing else may hold them up, and no fence stands before them
	own      *kubeapi.Clientset // what belongs to this process rather than to the cluster's scheduling
}

// clients makes them. While fence is closed, the first three only read; nil: they always write.
func (f *kubeFlags) clients(fence *lead.Fence) (c clients, err error) {
	rc, err := f.reach()
	if err != nil {
		return c, err
	}
	rc.ContentType, rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf,application/json"
	limited := func(qps float32, burst int, fenced bool) *rest.Config {
		with := rest.CopyConfig(rc)
		with.QPS, with.Burst = qps, burst
		if fenced && fence != nil {
			with.Wrap(fence.Wrap)
		}
		return with
	}
	for _, set := range []struct {
		to     **kubeapi.Clientset
		config *rest.Config
	}{
		{&c.schedule, limited(f.qps, int(f.qps), true)},
		{&c.tell, limited(tellQPS, tellQPS, true)},
		{&c.read, limited(servicesQPS, 2*servicesQPS, true)},
		{&c.lease, limited(leaseQPS, leaseQPS, false)},
		{&c.own, limited(ownQPS, ownQPS, false)},
	} {
		if *set.to, err = kubeapi.New(set.config); err != nil {
			return c, err
		}
	}
	plain := limited(queueQPS, 2*queueQPS, true)
	plain.ContentType, plain.AcceptContentTypes = "", "" // no protobuf for what the API server knows by definition only
	c.objects, err = dynamic.NewForConfig(plain)
	return c, err
}

// identity is what this process is called in the election. A container that starts again in its pod is the same as
// before, as the one before it is dead, and need not wait for its lease to run out; anywhere else each process
// is its own.
func identity() (string, error) {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod, nil
	}
	host, err := os.Hostname()
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:6]), err
}

// lead runs the scheduler while it leads. One that loses the lead begins again as one that waits for it: as a new
// process, because the whole state of the old one is out of date, and in place, because a container that ends is not
// started again at once.
func (f *kubeFlags) lead(ctx context.Context, run func(context.Context) error, c clients, name string,
	fence *lead.Fence, log *slog.Logger) error {
	id, err := identity()
	if err != nil {
		return err
	}
	l := &lead.Lease{Client: c.lease, Namespace: f.namespace, Name: name, Identity: id, Length: f.lease, Fence: fence,
		Log: log}
	err = l.Lead(ctx, run)
	if !errors.Is(err, lead.ErrLost) || ctx.Err() != nil {
		return err
	}
	log.Error("this scheduler begins again and waits for the lead", "error", err)
	return errors.Join(err, beginAgain(os.Environ()))
}

// beginAgain makes this process a new one of the same program. It returns only if that fails.
func beginAgain(environ []string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(program, os.Args, environ)
}

// failuresVariable tells a scheduler that begins again what the one before it failed at.
const failuresVariable = "MUSTER_KUBE_FAILURES"

// earlierFailures are what the schedulers before this one, in this process, failed at.
func earlierFailures() (*kube.Failures, error) {
	text := os.Getenv(failuresVariable)
	if text == "" {
		return nil, nil
	}
	f := &kube.Failures{}
	if err := json.Unmarshal([]byte(text), f); err != nil {
		return nil, fmt.Errorf("%s: %w", failuresVariable, err)
	}
	return f, nil
}

// afterFailure begins again after a failure inside the scheduler, without the gang that it failed at; if that is of no
// use, it returns the failure.
func afterFailure(ctx context.Context, err error, before *kube.Failures, log *slog.Logger) error {
	var failure *kube.Failure
	if ctx.Err() != nil || !errors.As(err, &failure) {
		return err
	}
	after, useful := before.After(failure)
	if !useful {
		return err
	}
	text, failed := json.Marshal(after)
	if failed != nil {
		return errors.Join(err, failed)
	}
	log.Error("this scheduler begins again", "error", err, "set aside", len(after.Culprits))
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, failuresVariable+"=")
	})
	return errors.Join(err, beginAgain(append(environ, failuresVariable+"="+string(text))))
}

// checkLease refuses a length of the lease that the election cannot keep.
func (f *kubeFlags) checkLease() error {
	if f.lease < time.Second || f.lease%time.Second != 0 {
		return fmt.Errorf("%w: --lease %s: it has to be whole seconds, at least 1s", errUsage, f.lease)
	}
	return nil
}

// fenced is a program that is only called while the lease is surely held.
func fenced(fence *lead.Fence, call func(ctx context.Context, program, node string) error) func(ctx context.Context,
	program, node string) error {
	return func(ctx context.Context, program, node string) error {
		if fence != nil {
			if err := fence.Check(); err != nil {
				return err
			}
		}
		return call(ctx, program, node)
	}
}
