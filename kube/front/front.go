// Package front lets people look at a cluster over HTTP: it finds out who asks,
// asks the API server whether they may, and answers with the routes of package
// view. People come through the API server, which has authenticated them
// (aggregated API), or with a bearer token of the cluster's.
package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/server/view"
	"github.com/muster-gpu/muster/web"
)

// The aggregated API, as it is registered with the API server.
const (
	Group   = "view.muster.sh"
	Version = "v1"
	Base    = "/apis/" + Group + "/" + Version
	// Service is the name of the APIService.
	Service = Version + "." + Group
)

// Options say what is shown to whom.
type Options struct {
	Source view.Source
	Client kubeapi.Interface // asks who a user is, and what they may do
	// Missing reports whether an error of the source says that there is no such
	// thing, Away that another scheduler has to be asked.
	// Refused that it is not done here, or not now.
	Missing, Away, Refused func(error) bool
	// Move makes the moves that are worth it: all that can be changed here.
	Move func(context.Context, *api.MovesRequest) ([]api.Moves, error)
	// Speeds is what progress told of jobs' speeds.
	Speeds func(context.Context) (api.Speeds, error)
	// Report books what a pod tells of itself, Reported counts what became of it (ReportOutcomes), and Pods asks whose
	// token a pod shows; a client of its own, so that many pods do not keep people waiting. nil: pods do not report.
	Report   func(ctx context.Context, namespace, pod, uid string, r *api.Report) error
	Reported func(outcome string)
	Pods     kubeapi.Interface
	Build    string // version of the program
	Now      func() time.Time
	Log      *slog.Logger
}

// Front answers those who look.
type Front struct {
	opt    Options
	mux    *http.ServeMux
	proxy  proxies
	people cache[*person]
	rights cache[bool]

	reporters reporters
	bodyTime  time.Duration // so long the body of a request may take to come
}

// New makes a front.
func New(opt Options) *Front {
	f := &Front{opt: opt, mux: http.NewServeMux(), bodyTime: answerTime}
	f.reporters.tokens.most, f.reporters.reviews = podsMost, make(chan struct{}, reviewsMost)
	cfg := huma.DefaultConfig("Muster", opt.Build)
	cfg.DocsPath = ""
	cfg.CreateHooks = nil
	a := humago.New(f.mux, cfg)
	view.Register(a, view.Options{Source: opt.Source, Problem: f.problem, Info: func() view.Info {
		return view.Info{Version: opt.Build, Cluster: true}
	},
		Caller: func(ctx context.Context) (view.Who, error) {
			p, ok := ctx.Value(personKey{}).(*person)
			if !ok {
				return nil, huma.Error401Unauthorized(nobody)
			}
			return p, nil
		}})
	huma.Register(a, huma.Operation{OperationID: "make-moves", Method: http.MethodPost, Path: "/v1/moves",
		Summary: "Make the moves that are worth it"},
		func(ctx context.Context, in *struct{ Body api.MovesRequest }) (*struct{ Body []api.Moves }, error) {
			list, err := opt.Move(ctx, &in.Body)
			if err != nil {
				return nil, f.problem(err)
			}
			return &struct{ Body []api.Moves }{list}, nil
		})
	huma.Register(a, huma.Operation{OperationID: "speeds", Method: http.MethodGet, Path: "/v1/speeds",
		Summary: "How fast jobs of each model were measured to go"},
		func(ctx context.Context, _ *struct{}) (*struct{ Body api.Speeds }, error) {
			s, err := opt.Speeds(ctx)
			if err != nil {
				return nil, f.problem(err)
			}
			return &struct{ Body api.Speeds }{s}, nil
		})
	f.mux.HandleFunc("GET /v1/events", view.Events(opt.Source))
	for pattern, page := range web.Pages() {
		f.mux.HandleFunc(pattern, page)
	}
	f.mux.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups: []metav1.APIGroup{group()}})
	})
	f.mux.HandleFunc("GET /apis/"+Group, func(w http.ResponseWriter, _ *http.Request) {
		g := group()
		g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		reply(w, &g)
	})
	f.mux.HandleFunc("GET "+Base, func(w http.ResponseWriter, _ *http.Request) { reply(w, resources()) })
	f.mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	f.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if _, err := opt.Source.Queues(r.Context()); err != nil {
			refuse(w, http.StatusServiceUnavailable, err.Error())
		}
	})
	return f
}

// nobody is the answer to those who do not say who they are.
const nobody = "unknown caller: ask through the API server (muster --context NAME queue), or give a token of the cluster's (Authorization: Bearer)"

// readOnly is the answer to those who want to change something.
const readOnly = "Muster only shows a cluster. To change something: kubectl delete ends pods, Jobs and what else owns them; kubectl cordon and drain are for nodes; " +
	"queues and rules are the scheduler's configuration"

// problem turns an error of the source into an answer.
func (f *Front) problem(err error) error {
	var field *api.FieldError
	switch {
	case errors.As(err, &field):
		return huma.Error422UnprocessableEntity(field.Error())
	case f.opt.Missing(err):
		return huma.Error404NotFound(err.Error())
	case f.opt.Refused != nil && f.opt.Refused(err):
		return huma.Error409Conflict(err.Error())
	case f.opt.Away(err):
		return huma.Error503ServiceUnavailable(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return huma.Error503ServiceUnavailable("the scheduler is too busy to answer; try again")
	}
	return huma.Error500InternalServerError(err.Error())
}

// answerTime is how long the scheduler may take to be asked.
const answerTime = 20 * time.Second

// ServeHTTP lets those through to the routes who may use them. The paths of the
// aggregated API stand for those of the interface: /apis/view.muster.sh/v1/jobs
// is /v1/jobs.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	// one that never comes would hold the connection; the request's context does not bound reading
	if r.ContentLength != 0 {
		// what cannot have one reads from no connection
		_ = http.NewResponseController(w).SetReadDeadline(f.opt.Now().Add(f.bodyTime))
		if r.ProtoMajor == 1 {
			h.Set("Connection", "close") // so that what nobody reads of it is not waited for
		}
	}
	path := r.URL.Path
	if rest, ok := strings.CutPrefix(path, Base+"/"); ok {
		path = "/v1/" + rest
		r = r.Clone(r.Context())
		r.URL.Path, r.URL.RawPath = path, ""
	}
	switch {
	// pages hold nothing: what they show they ask for
	case !strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/apis"):
		f.mux.ServeHTTP(w, r)
		return
	case path == ReportPath && r.Method == http.MethodPost && f.opt.Report != nil:
		f.report(w, r)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead &&
		(r.Method != http.MethodPost || path != "/v1/moves" || f.opt.Move == nil):
		refuse(w, http.StatusNotImplemented, readOnly)
		return
	}
	ctx := r.Context()
	p, err := f.identify(r)
	if err != nil {
		h.Set("WWW-Authenticate", `Bearer realm="muster"`)
		refuse(w, http.StatusUnauthorized, err.Error())
		return
	}
	if rest, ok := strings.CutPrefix(path, "/v1/"); ok {
		switch ok, why, err := f.may(r.WithContext(ctx), p, rest); {
		case err != nil:
			refuse(w, http.StatusServiceUnavailable,
				"the API server cannot be asked whether you may look: "+err.Error())
			return
		case !ok:
			refuse(w, http.StatusForbidden, why)
			return
		}
	}
	_, pattern := f.mux.Handler(r)
	if pattern == "" {
		refuse(w, http.StatusNotFound,
			fmt.Sprintf("there is no %s here; a cluster shows jobs, why, history, nodes, queues, usage, overview, moves, speeds and events", r.URL.Path))
		return
	}
	if pattern != "GET /v1/events" {
		limited, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		ctx = limited
	}
	p = p.in(ctx)
	f.mux.ServeHTTP(w, r.WithContext(context.WithValue(ctx, personKey{}, p)))
}

type personKey struct{}

func refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	// the client has gone
	_ = json.NewEncoder(w).Encode(&huma.ErrorModel{Status: code, Title: http.StatusText(code), Detail: text})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client has gone
}

func group() metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: Group + "/" + Version, Version: Version}
	return metav1.APIGroup{Name: Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

// resources are what the API server's discovery lists: none of them can be
// watched, changed or deleted as an object.
func resources() *metav1.APIResourceList {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: Group + "/" + Version, APIResources: []metav1.APIResource{}}
	for _, name := range []string{"events", "info", "jobs", "jobs/history", "jobs/samples", "jobs/why", "me", "moves",
		"nodes", "overview", "queues", "speeds", "usage"} {
		list.APIResources = append(list.APIResources,
			metav1.APIResource{Name: name, SingularName: "", Kind: "View", Verbs: metav1.Verbs{"get"}})
	}
	return list
}
