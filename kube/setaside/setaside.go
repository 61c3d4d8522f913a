// Package setaside tells people of what the scheduler does without, because it cannot be understood or fails the
// scheduler: each once, in the log, in an event and in a metric. No object of a cluster may end the scheduler.
package setaside

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// What is set aside, for the metric.
const (
	pod     = "pod"
	node    = "node"
	handler = "handler" // the handling of an object failed inside the scheduler
)

// Options say where people are told.
type Options struct {
	Log   *slog.Logger
	Count func(what string) // for the metric
	Event func(obj runtime.Object, kind, reason, text string)
}

// Room knows what people were told of.
type Room struct {
	opt  Options
	pods map[types.UID]string // what was said of each
}

// New has said nothing yet.
func New(opt Options) *Room { return &Room{opt, map[types.UID]string{}} }

// Pod says that a pod is not managed.
func (r *Room) Pod(obj *v1.Pod, why string) {
	r.say(obj, why, "a pod is set aside: it takes room where it is bound and is not managed",
		"Muster does not manage this pod, it only counts what it holds: ")
}

// Gang says that the gang of a pod is not scheduled.
func (r *Room) Gang(first *v1.Pod, why string) {
	r.say(first, why, "a gang is set aside: it is not scheduled",
		"Muster does not schedule this pod and its gang: ")
}

func (r *Room) say(obj *v1.Pod, why, logged, told string) {
	if r.pods[obj.UID] == why {
		return
	}
	r.pods[obj.UID] = why
	r.opt.Count(pod)
	r.opt.Log.Error(logged, "pod", obj.Namespace+"/"+obj.Name, "reason", why)
	r.opt.Event(obj, v1.EventTypeWarning, "SetAside", told+why)
}

// Node says, each time, that the GPUs of a node are not given away; obj is nil where it is gone.
func (r *Room) Node(name string, obj *v1.Node, why string) {
	r.opt.Count(node)
	r.opt.Log.Error("a node is set aside: its GPUs are not given away", "node", name, "reason", why)
	if obj != nil {
		r.opt.Event(obj, v1.EventTypeWarning, "SetAside", "Muster does not use the GPUs of this node: "+why)
	}
}

// Failed says that the scheduler failed inside while it was doing something; more is what else the log is to have.
func (r *Room) Failed(doing string, x any, more ...any) {
	r.opt.Count(handler)
	r.opt.Log.Error("the scheduler failed while it "+doing, append(more, "error", x, "stack", string(debug.Stack()))...)
}

// Try does something, of which a failure of any kind is an error.
func (r *Room) Try(doing string, f func() error) (err error) {
	defer func() {
		if x := recover(); x != nil {
			r.Failed(doing, x)
			err = fmt.Errorf("the scheduler failed: %v", x)
		}
	}()
	return f()
}

// Forget forgets what was said of pods that are gone.
func (r *Room) Forget(isThere func(types.UID) bool) {
	maps.DeleteFunc(r.pods, func(uid types.UID, _ string) bool { return !isThere(uid) })
}
