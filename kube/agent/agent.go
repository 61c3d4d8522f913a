//go:build linux

// Package agent marks what pods of one node send over TCP and UDP with the DSCP that the scheduler wrote to them. It
// reads pods of its node and nothing else, and writes nothing to the cluster.
package agent

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/kube/terms"
	"github.com/muster-gpu/muster/local/dscp"
)

// tableOf ends the name of the table of nftables.
const tableOf = "kube"

// every is how often it is looked into whether containers began, or entered other network namespaces.
const every = time.Second

// Options configure an agent.
type Options struct {
	Client  kubernetes.Interface
	Node    string // whose pods it marks
	Cgroups string // where the hierarchy of version 2 is, with the groups of pods
	Log     *slog.Logger
}

// agent is one that runs.
type agent struct {
	Options
	again chan struct{}
	mu    sync.Mutex
	pods  map[types.UID]marked
	said  map[types.UID]string // what kept a pod from being marked, as the log has it
}

// marked is a pod that is to be marked.
type marked struct {
	name string
	dscp uint8
}

// Run marks until the context ends. The marks stay: the next agent keeps what is right.
func Run(ctx context.Context, opt Options) error {
	groups, err := findPods(opt.Cgroups)
	if err != nil {
		return err
	}
	a := &agent{Options: opt, again: make(chan struct{}, 1), pods: map[types.UID]marked{}, said: map[types.UID]string{}}
	f := informers.NewSharedInformerFactoryWithOptions(opt.Client, 0, informers.WithTransform(trim),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", opt.Node).String()
		}))
	in := f.Core().V1().Pods().Informer()
	reg, err := in.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.changed(obj) },
		UpdateFunc: func(_, obj any) { a.changed(obj) },
		DeleteFunc: func(obj any) { a.gone(obj) },
	})
	if err != nil {
		return err
	}
	f.Start(ctx.Done())
	defer f.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
		return ctx.Err()
	}
	opt.Log.Info("marking what pods send", "node", opt.Node)
	marker := dscp.NewFor(groups, tableOf)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		a.note(marker.Set(a.wanted(groups)))
		select {
		case <-ctx.Done():
			return nil
		case <-a.again:
		case <-tick.C:
		}
	}
}

// trim leaves of a pod what is read here.
func trim(obj any) (any, error) {
	p, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID,
		ResourceVersion: p.ResourceVersion,
		Annotations:     map[string]string{terms.AnnotationDSCP: p.Annotations[terms.AnnotationDSCP]}},
		Status: v1.PodStatus{Phase: p.Status.Phase}}, nil
}

func (a *agent) changed(obj any) {
	p, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	text := p.Annotations[terms.AnnotationDSCP]
	value, err := config.ParseDSCP(text)
	switch {
	case text == "" || err == nil && value == 0 || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed:
		a.set(p.UID, nil)
	case err != nil:
		a.Log.Warn("a pod's DSCP is not understood", "pod", p.Namespace+"/"+p.Name, "error", err)
		a.set(p.UID, nil)
	default:
		a.set(p.UID, &marked{p.Namespace + "/" + p.Name, value})
	}
}

func (a *agent) gone(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if p, ok := obj.(*v1.Pod); ok {
		a.set(p.UID, nil)
	}
}

// set says how a pod is to be marked; nil: not at all.
func (a *agent) set(uid types.UID, m *marked) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m == nil {
		delete(a.pods, uid)
		delete(a.said, uid)
	} else {
		a.pods[uid] = *m
	}
	select {
	case a.again <- struct{}{}:
	default:
	}
}

// wanted is the DSCP by pod, of those that have a group.
func (a *agent) wanted(groups *podGroups) map[string]uint8 {
	a.mu.Lock()
	defer a.mu.Unlock()
	want := map[string]uint8{}
	for uid, m := range a.pods {
		if groups.dir(string(uid)) != "" {
			want[string(uid)] = m.dscp
		}
	}
	return want
}

// note logs what is new in what became of marks.
func (a *agent) note(states map[string]dscp.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, s := range states {
		uid := types.UID(id)
		now := "in " + strconv.Itoa(s.Spaces) + " network namespaces"
		if s.Err != nil {
			now = s.Err.Error()
		}
		m, there := a.pods[uid]
		if !there || a.said[uid] == now {
			continue
		}
		a.said[uid] = now
		if s.Err != nil {
			a.Log.Warn("what a pod sends is not marked", "pod", m.name, "error", s.Err)
		} else {
			a.Log.Info("what a pod sends is marked", "pod", m.name, "dscp", config.DSCPText(m.dscp), "where", now)
		}
	}
}
