package kube

import (
	"context"
	"io"
	"log/slog"
	"net/url"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/muster-gpu/muster/internal/fakekube"
	"github.com/muster-gpu/muster/kube/queues"
)

// A scheduler that starts while the API server does not answer, or answers that it is not up to it, asks again: it
// neither ends nor takes silence for "there is none".
func TestStartUnanswered(t *testing.T) {
	broken := &url.Error{Op: "Get", URL: "https://192.0.2.1/apis", Err: io.ErrUnexpectedEOF}
	for name, fault := range map[string]error{"broken": broken, "overloaded": apierrors.NewTooManyRequests("later", 1),
		"starting": apierrors.NewServiceUnavailable("starting"),
		"internal": apierrors.NewInternalError(io.ErrClosedPipe)} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			asked := map[string]int{}
			fail := func(a k8stesting.Action) (bool, runtime.Object, error) {
				mu.Lock()
				defer mu.Unlock()
				key := a.GetVerb() + " " + a.GetResource().Resource
				asked[key]++
				if asked[key] <= 2 {
					return true, nil, fault
				}
				return false, nil, nil
			}
			client := fakekube.New()
			client.PrependReactor("get", "resource", fail)
			client.PrependReactor("get", "group", fail)
			kinds := map[schema.GroupVersionResource]string{queues.Resource: "QueueList"}
			dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
			dynamic.PrependReactor("list", queues.Resource.Resource, fail)
			opt := testOptions(client, slog.New(slog.DiscardHandler))
			opt.Dynamic = dynamic
			d := New(opt)
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- d.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			for deadline := time.Now().Add(time.Minute); !d.Ready(); time.Sleep(time.Millisecond) {
				select {
				case err := <-ended:
					ended <- nil
					t.Fatal("the scheduler ended:", err)
				default:
				}
				if time.Now().After(deadline) {
					t.Fatal("the scheduler is not ready")
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for _, key := range []string{"get resource", "get group", "list queues"} {
				if asked[key] < 3 {
					t.Errorf("%q was asked %d times", key, asked[key])
				}
			}
		})
	}
}
