package remote

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
)

// A signal during a submission does not hide the job's number, so that the caller can cancel it.
func TestSubmitOutlivesSignal(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	t.Setenv("MUSTER_SOCKET", socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, signal := context.WithCancel(t.Context())
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signal()
		<-ctx.Done()
		select { // an abandoned request would be cancelled by now
		case <-r.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"job": {"id": 7}, "jobs": [7]}`))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	svc := New(ctx, client.Connect(), nil, time.Now)
	j, err := svc.Submit(api.Submission{Command: []string{"true"}})
	if err != nil || j.ID != 7 {
		t.Errorf("job %d, %v", j.ID, err)
	}
	if _, err := svc.Submit(api.Submission{Command: []string{"true"}}); err == nil {
		t.Error("after the signal a job was submitted")
	}
}
