// Package services scales inference services on Kubernetes: it finds the Deployments and other objects that are
// annotated as services, finds out what they have to do, asks the same policies as on one machine, and sets replicas by
// the scale subresource. It runs beside the scheduler, which never waits for it and never fails because of it; what it
// knows it can find out again, so it may end at any moment.
package services

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/notices"
	"github.com/muster-gpu/muster/kube/services/load"
	"github.com/muster-gpu/muster/kube/terms"
	"github.com/muster-gpu/muster/serving/scale"
)

// Annotations of Deployments and other objects.
const (
	Annotation        = terms.AnnotationService // the service, as YAML; on an HTTPRoute its name
	AnnotationVariant = terms.AnnotationVariant // the name of the service whose variant this is
	AnnotationStatus  = terms.AnnotationStatus  // written by Muster
)

// manager is who sets replicas and weights, as the API server records it.
const manager = "muster-services"

// Options are what a room needs.
type Options struct {
	Client  kubeapi.Interface // reads pods, nodes and Services
	Dynamic dynamic.Interface // reads and changes all else
	Tell    kubeapi.Interface // writes events; nil: none is written
	Source  load.Source
	Demand  func(ctx context.Context, query string) (perSecond float64, err error) // nil: it cannot be asked
	GPUs    []string                                                               // extended resources that count as GPUs
	Labels  gpus.Labels
	Period  time.Duration // between two decisions about a service; 0: 15 s
	Rescan  time.Duration // how often it is looked which kinds are served; 0: every minute
	Now     func() time.Time
	Log     *slog.Logger
	// Crash, if it is set, is called where a test lets the scheduler die.
	Crash func(point string)
}

const (
	periodUsual = 15 * time.Second
	rescanUsual = time.Minute
	settling    = 200 * time.Millisecond // several changes at once are looked at once
	atOnce      = 8                      // services that are looked at at a time
)

// Room scales services.
type Room struct {
	opt     Options
	poke    chan struct{}
	notices *notices.Writer
	running sync.WaitGroup
	watched map[*kind]*watching
	refused map[*kind]string // why a kind is not read

	mu      sync.Mutex // the fields that follow are for others, too
	lenders []lender
	lending []cluster.Lender
	changed func() // called when others lend; nil: nothing is
	known   bool   // which services lend
	early   []early
	shown   map[types.UID]figures // by the object that is annotated
	returns map[types.UID]returns

	services map[types.UID]*running // by the object that is annotated
	models   []scale.GPUs           // of the cluster, but not how many: only planners ask, which are refused
	modelsAt time.Time
}

// New makes a room.
func New(opt Options) *Room {
	if opt.Period == 0 {
		opt.Period = periodUsual
	}
	if opt.Rescan == 0 {
		opt.Rescan = rescanUsual
	}
	return &Room{opt: opt, poke: make(chan struct{}, 1), notices: notices.New(opt.Tell, manager),
		watched: map[*kind]*watching{}, refused: map[*kind]string{},
		services: map[types.UID]*running{}, shown: map[types.UID]figures{}, returns: map[types.UID]returns{}}
}

// Run scales services until the context ends. Nothing of it outlives Run.
func (r *Room) Run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer r.running.Wait()
	defer stop()
	r.running.Go(func() { r.notices.Run(ctx) })
	tick := time.NewTicker(min(r.opt.Period, time.Second))
	defer tick.Stop()
	scanned := time.Time{}
	for {
		if now := r.opt.Now(); now.Sub(scanned) >= r.opt.Rescan {
			if err := r.look(ctx); err != nil {
				r.opt.Log.Warn("services: which APIs are served is not known", "error", err)
			}
			scanned = now
		}
		if r.synced() {
			r.round(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.poke:
			pause(ctx, settling)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// wake lets the next round come at once.
func (r *Room) wake() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// round looks at every service once.
func (r *Room) round(ctx context.Context) {
	now := r.opt.Now()
	var due []*running
	list := r.gather()
	r.lend(list)
	for _, s := range list {
		if now.Sub(s.decided) >= r.opt.Period {
			due = append(due, s)
		}
	}
	if len(due) > 0 {
		r.seeModels(ctx, now)
	}
	var wait sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, s := range due {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			r.guarded(s.object.String(), func() { r.step(ctx, s, now) })
		})
	}
	wait.Wait()
}

// guarded keeps what one service makes go wrong from the others, and from the scheduler.
func (r *Room) guarded(what string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			r.opt.Log.Error("services: a failure inside Muster", "service", what, "failure", fmt.Sprint(v),
				"stack", string(debug.Stack()))
		}
	}()
	f()
}

// seeModels finds out, now and then, of which models the cluster's GPUs are.
func (r *Room) seeModels(ctx context.Context, now time.Time) {
	const every = 5 * time.Minute
	if now.Sub(r.modelsAt) < every && len(r.models) > 0 {
		return
	}
	nodes, err := r.opt.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: r.opt.Labels.Product,
		ResourceVersion: "0"})
	if err != nil {
		r.opt.Log.Warn("services: the models of GPUs are not known", "error", err)
		return
	}
	names := r.names()
	r.models, r.modelsAt = nil, now
	for i := range nodes.Items {
		r.models = addServer(r.models, names.Model(&nodes.Items[i]), names.Count(nodes.Items[i].Status.Allocatable))
	}
}

// names says which resources of pods and nodes are GPUs.
func (r *Room) names() *gpus.Names { return &gpus.Names{GPUs: r.opt.GPUs, Labels: r.opt.Labels} }

// addServer adds a server with so many GPUs of a model; 0: it is not known how many. Of several of a model the fewest
// count.
func addServer(list []scale.GPUs, model string, n int) []scale.GPUs {
	k := slices.IndexFunc(list, func(g scale.GPUs) bool { return g.Model == model })
	if k < 0 {
		return append(list, scale.GPUs{Model: model, Server: n})
	}
	if list[k].Server == 0 || n > 0 && n < list[k].Server {
		list[k].Server = n
	}
	return list
}

// reference names an object in events.
func (o *object) reference() *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: o.resource().GroupVersion().String(), Kind: o.kind.name,
		Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}
