//go:build linux

// Package agent marks what pods of one node send over TCP and UDP with the DSCP that the scheduler wrote to them. It
// reads pods of its node and the scheduler's authority, and writes nothing to the cluster.
package agent

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/seals"
	"github.com/muster-gpu/muster/kube/terms"
	"github.com/muster-gpu/muster/local/dscp"
)

// tableOf ends the name of the table of nftables.
const tableOf = "kube"

// every is how often it is looked into whether containers began, or entered other network namespaces.
const every = time.Second

// Options configure an agent.
type Options struct {
	Client  kubeapi.Interface
	Node    string // whose pods it marks
	Cgroups string // where the hierarchy of version 2 is, with the groups of pods
	// Authority is the APIService with the certificate of the scheduler's authority, by which seals of annotations are
	// checked, read with Dynamic; empty: annotations are believed without a seal.
	Authority string
	Dynamic   dynamic.Interface
	Log       *slog.Logger
}

// agent is one that runs.
type agent struct {
	Options
	again chan struct{}
	mu    sync.Mutex
	pods  map[types.UID]*marked
	said  map[types.UID]string // what became of a pod's mark, as the log has it
	// authority is that of the seals; nil: it is not known
	authority *x509.Certificate
}

// marked is a pod that has a DSCP, or had one since the agent began.
type marked struct {
	obj    *v1.Pod // as it is trimmed
	judged bool    // it was found out whether to believe what it says now
	dscp   uint8   // that is believed; 0: what it sends is not marked
	moment int64   // of the seal of that; 0: nothing was believed yet
}

func (m *marked) name() string { return m.obj.Namespace + "/" + m.obj.Name }

// Run marks until the context ends. The marks stay: the next agent keeps what is right.
func Run(ctx context.Context, opt Options) error {
	groups, err := findPods(opt.Cgroups)
	if err != nil {
		return err
	}
	a := &agent{Options: opt, again: make(chan struct{}, 1), pods: map[types.UID]*marked{},
		said: map[types.UID]string{}}
	running := &kubeapi.Informers{}
	in := running.Add(kubeapi.Inform(opt.Client, opt.Client.CoreV1().Pods(metav1.NamespaceAll), &v1.Pod{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", opt.Node).String()
		}), trim)
	reg, err := in.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.changed(obj) },
		UpdateFunc: func(_, obj any) { a.changed(obj) },
		DeleteFunc: func(obj any) { a.gone(obj) },
	})
	if err != nil {
		return err
	}
	if opt.Authority != "" {
		if err := a.watchAuthority(running); err != nil {
			return err
		}
	}
	running.Start(ctx)
	defer running.Wait()
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
		Annotations: map[string]string{terms.AnnotationDSCP: p.Annotations[terms.AnnotationDSCP],
			terms.AnnotationDSCP + terms.SealSuffix: p.Annotations[terms.AnnotationDSCP+terms.SealSuffix]}},
		Status: v1.PodStatus{Phase: p.Status.Phase}}, nil
}

func (a *agent) changed(obj any) {
	p, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.pods[p.UID]
	switch {
	case p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed:
		a.forget(p.UID)
	case m == nil && p.Annotations[terms.AnnotationDSCP] == "":
	case m == nil:
		a.pods[p.UID] = &marked{obj: p}
	case maps.Equal(m.obj.Annotations, p.Annotations):
	default:
		m.obj, m.judged = p, false
	}
	a.wake()
}

func (a *agent) gone(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if p, ok := obj.(*v1.Pod); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.forget(p.UID)
		a.wake()
	}
}

// forget is called with the lock.
func (a *agent) forget(uid types.UID) {
	delete(a.pods, uid)
	delete(a.said, uid)
}

func (a *agent) wake() {
	select {
	case a.again <- struct{}{}:
	default:
	}
}

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// watchAuthority has the authority read, and again when it changes.
func (a *agent) watchAuthority(s *kubeapi.Informers) error {
	in := s.Add(kubeapi.InformOf(a.Dynamic, apiServices, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", a.Authority).String()
	}), nil)
	_, err := in.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.read(obj) },
		UpdateFunc: func(_, obj any) { a.read(obj) },
	})
	return err
}

// read takes the authority from an APIService; one that has none yet leaves the last one in force.
func (a *agent) read(obj any) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u.GetName() != a.Authority {
		return
	}
	text, _, _ := unstructured.NestedString(u.Object, "spec", "caBundle")
	if text == "" {
		return
	}
	bundle, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		var now *x509.Certificate
		if now, err = seals.Read(bundle); err == nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.authority == nil || !now.Equal(a.authority) {
				a.authority = now
				for _, m := range a.pods { // seals of the former authority hold no more
					*m = marked{obj: m.obj}
				}
				a.wake()
			}
			return
		}
	}
	a.Log.Warn("the scheduler's authority cannot be read", "APIService", a.Authority, "error", err)
}

// longestText is how much of what a pod says is in the log.
const longestText = 16

// judge finds out whether what a pod's annotation says now is to be believed. If it is not, what was believed last
// stays, because the scheduler has said nothing else since.
func (a *agent) judge(m *marked) {
	if m.judged || a.Authority != "" && a.authority == nil {
		return
	}
	m.judged = true
	text := m.obj.Annotations[terms.AnnotationDSCP]
	var moment int64
	if a.Authority != "" {
		var holds bool
		moment, holds = seals.Holds(a.authority, m.obj, terms.AnnotationDSCP)
		problem := ""
		switch {
		case !holds && (text != "" || m.moment > 0):
			problem = "is not sealed by the scheduler"
		case moment < m.moment:
			problem = "is one that the scheduler has replaced"
		}
		if problem != "" {
			a.Log.Warn("a pod's DSCP is not believed: what it says "+problem, "pod", m.name(), "says",
				text[:min(len(text), longestText)], "marked", config.DSCPText(m.dscp))
			return
		}
	}
	value := uint8(0)
	if text != "" {
		var err error
		if value, err = config.ParseDSCP(text); err != nil {
			a.Log.Warn("a pod's DSCP is not understood", "pod", m.name(), "error", err)
		}
	}
	m.dscp, m.moment = value, moment
}

// wanted is the DSCP by pod, of those that have a group.
func (a *agent) wanted(groups *podGroups) map[string]uint8 {
	a.mu.Lock()
	defer a.mu.Unlock()
	want := map[string]uint8{}
	for uid, m := range a.pods {
		if a.judge(m); m.dscp != 0 && groups.dir(string(uid)) != "" {
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
			a.Log.Warn("what a pod sends is not marked", "pod", m.name(), "error", s.Err)
		} else {
			a.Log.Info("what a pod sends is marked", "pod", m.name(), "dscp", config.DSCPText(m.dscp), "where", now)
		}
	}
}
