package controlplane

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/kubeapi"
)

// The description of the cluster after a failure is short, because often only the end of the output is seen.
const (
	dumpPods, dumpEvents = 40, 20
	dumpWidth            = 200 // characters of a line
	dumpWithin           = 30 * time.Second
)

// logs describes the state of the cluster or, if one of its programs ended, the last output of all of them.
func (p *Plane) logs() string {
	if p.ended.Load() == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), dumpWithin)
		defer cancel()
		return Dump(ctx, p.Client())
	}
	var b bytes.Buffer
	files, _ := filepath.Glob(p.path("*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		fmt.Fprintf(&b, "== %s\n%s\n", filepath.Base(f), text[max(0, len(text)-4000):])
	}
	return b.String()
}

// Dump lists what may be wrong in a cluster, one line each: nodes that take no pods, pods that neither run nor
// have succeeded or that are being deleted or are to end, Jobs that are not complete; and the last events, by
// time.
func Dump(ctx context.Context, c kubeapi.Interface) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
		if len(text) > dumpWidth {
			text = text[:dumpWidth] + "..."
		}
		b.WriteString(text + "\n")
	}
	if list, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		line("nodes: %v", err)
	} else {
		line("%d nodes", len(list.Items))
		for i := range list.Items {
			if why := takesNobody(&list.Items[i]); why != "" {
				line("node %s %s", list.Items[i].Name, why)
			}
		}
	}
	if list, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); err != nil {
		line("pods: %v", err)
	} else {
		dumpOf(list.Items, line)
	}
	if list, err := c.BatchV1().Jobs("").List(ctx, metav1.ListOptions{}); err != nil {
		line("jobs: %v", err)
	} else {
		for i := range list.Items {
			if j := &list.Items[i]; j.Status.CompletionTime == nil {
				line("job %s/%s: %d active, %d succeeded, %d failed", j.Namespace, j.Name, j.Status.Active,
					j.Status.Succeeded, j.Status.Failed)
			}
		}
	}
	if list, err := c.CoreV1().Events("").List(ctx, metav1.ListOptions{}); err != nil {
		line("events: %v", err)
	} else {
		dumpLast(list.Items, line)
	}
	return b.String()
}

// dumpTime is a time in the format of the programs' logs, to the second.
func dumpTime(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// takesNobody says why a node takes no pods; "": it does.
func takesNobody(n *v1.Node) string {
	i := slices.IndexFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady })
	switch {
	case n.DeletionTimestamp != nil:
		return "is being deleted"
	case n.Spec.Unschedulable:
		return "is cordoned"
	case i < 0 || n.Status.Conditions[i].Status != v1.ConditionTrue:
		return "is not ready"
	case len(n.Spec.Taints) > 0:
		return fmt.Sprintf("has taints %v", n.Spec.Taints)
	}
	return ""
}

// dumpOf counts the pods by phase and lists the unfinished ones.
func dumpOf(pods []v1.Pod, line func(string, ...any)) {
	count, open := map[string]int{}, []string{}
	for i := range pods {
		p := &pods[i]
		count[string(p.Status.Phase)]++
		text := fmt.Sprintf("pod %s/%s of %s, %s, on %q", p.Namespace, p.Name, dumpTime(p.CreationTimestamp.Time),
			p.Status.Phase, p.Spec.NodeName)
		switch ends := p.Annotations[RunFor]; {
		case p.DeletionTimestamp != nil:
			text += fmt.Sprintf(", to leave since %s, finalizers %v", dumpTime(p.DeletionTimestamp.Time), p.Finalizers)
		case p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodRunning && ends == "":
			continue
		case p.Status.Phase == v1.PodRunning:
			text += ", to end after " + ends
		}
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
				text += ": " + c.Message
			}
		}
		open = append(open, text)
	}
	var sums []string
	for _, phase := range slices.Sorted(maps.Keys(count)) {
		sums = append(sums, fmt.Sprintf("%d %s", count[phase], phase))
	}
	line("%d pods: %s", len(pods), strings.Join(sums, ", "))
	for _, text := range open[:min(len(open), dumpPods)] {
		line("%s", text)
	}
	if len(open) > dumpPods {
		line("and %d pods more", len(open)-dumpPods)
	}
}

// dumpLast lists the last events.
func dumpLast(events []v1.Event, line func(string, ...any)) {
	at := func(e *v1.Event) time.Time {
		if e.LastTimestamp.IsZero() {
			return e.EventTime.Time
		}
		return e.LastTimestamp.Time
	}
	slices.SortStableFunc(events, func(a, b v1.Event) int { return cmp.Compare(at(&a).UnixNano(), at(&b).UnixNano()) })
	for i := max(0, len(events)-dumpEvents); i < len(events); i++ {
		e := &events[i]
		line("%s %s %s/%s: %s", dumpTime(at(e)), e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
	}
}
