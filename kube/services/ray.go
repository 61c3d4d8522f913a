package services

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/kube/patch"
	"github.com/muster-gpu/muster/service"
)

// A RayService (ray.io/v1, KubeRay 1.4) makes RayClusters, one of which answers. A replica of it is a replica of a
// worker group, with the replicas of a Serve deployment that run there. KubeRay gives the worker groups' replicas to a
// RayCluster only when it makes it, so Muster sets them in both. It sets num_replicas in the same write as those of the
// RayService; the RayCluster follows, and loses workers only once Serve has left them: KubeRay has these not ready.

// workers are a worker group.
type workers struct {
	Name     string `json:"groupName"`
	Replicas *int   `json:"replicas"`
	Min      *int   `json:"minReplicas"`
	Max      *int   `json:"maxReplicas"`
	Hosts    *int   `json:"numOfHosts"`
	Suspend  bool   `json:"suspend"`
}

// ray is what is read of a RayService or a RayCluster.
type ray struct {
	groups []workers
	scaled bool   // by Ray's autoscaler
	serve  string // serveConfigV2
	active string // name of the RayCluster that answers; "": none does
}

// rayPart is what is scaled of a RayService.
type rayPart struct {
	group   int // of the RayService's
	hosts   int // pods of a replica
	config  string
	name    string     // of the Serve deployment
	count   *yaml.Node // its num_replicas
	each    int        // of the Serve deployment's replicas on a replica of the group
	cluster *object    // nil: none answers
	in      int        // the group's number in the cluster
	has     int        // the cluster's replicas of it
}

func readRayService(o *object, u map[string]any) {
	o.ray = readRay(u, "spec", "rayClusterConfig")
	o.ray.serve, _, _ = unstructured.NestedString(u, "spec", "serveConfigV2")
	o.ray.active, _, _ = unstructured.NestedString(u, "status", "activeServiceStatus", "rayClusterName")
}

func readRayCluster(o *object, u map[string]any) { o.ray = readRay(u, "spec") }

func readRay(u map[string]any, path ...string) *ray {
	var spec struct {
		Groups []workers `json:"workerGroupSpecs"`
		Scaled bool      `json:"enableInTreeAutoscaling"`
	}
	into(u, &spec, path...)
	return &ray{groups: spec.Groups, scaled: spec.Scaled}
}

// value is a number that may be left out.
func value(n *int, usual int) int {
	if n == nil {
		return usual
	}
	return *n
}

// rayScaled is what is scaled of a RayService as a variant. What stands in the way is in its refusal.
func (r *Room) rayScaled(o *object, variant string, bounds service.Replicas) *object {
	part := *o
	part.part, part.refusal = o.ray.part(variant, bounds)
	p := part.part
	if p == nil {
		return &part
	}
	group := &o.ray.groups[p.group]
	part.replicas = value(group.Replicas, value(group.Min, 0))
	if p.cluster = r.find(rayClusters, o.Namespace, o.ray.active); p.cluster == nil {
		return &part
	}
	same := func(w workers) bool { return w.Name == group.Name }
	if p.in = slices.IndexFunc(p.cluster.ray.groups, same); p.in < 0 {
		p.cluster = nil
		return &part
	}
	g := &p.cluster.ray.groups[p.in]
	p.has = value(g.Replicas, value(g.Min, 0))
	part.labels = map[string]string{"ray.io/cluster": p.cluster.Name, "ray.io/group": group.Name,
		"ray.io/node-type": "worker"}
	part.selector = metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: part.labels})
	return &part
}

// part finds what is scaled, or why nothing can be.
func (x *ray) part(variant string, bounds service.Replicas) (p *rayPart, refusal string) {
	if x.scaled {
		return nil, "Ray's autoscaler sets its workers: delete enableInTreeAutoscaling, or the annotation"
	}
	p = &rayPart{config: x.serve}
	p.group = slices.IndexFunc(x.groups, func(w workers) bool { return w.Name == variant })
	switch {
	case p.group < 0 && len(x.groups) == 1:
		p.group = 0
	case p.group < 0:
		return nil, fmt.Sprintf("it has %d worker groups, and none is called as the variant %s", len(x.groups), variant)
	}
	g := &x.groups[p.group]
	p.hosts = max(1, value(g.Hosts, 1))
	least, most := value(g.Min, 0), value(g.Max, bounds.Max)
	switch {
	case g.Suspend:
		return nil, "the worker group " + g.Name + " is suspended"
	case bounds.Min < max(1, least) || bounds.Max > most:
		return nil, fmt.Sprintf("replicas: %d to %d are not possible: the worker group %s has from %d to %d", bounds.Min,
			bounds.Max, g.Name, max(1, least), most)
	}
	if refusal = p.deployment(variant, value(g.Replicas, least)); refusal != "" {
		return nil, refusal
	}
	return p, ""
}

// serveConfig is what is read of serveConfigV2.
type serveConfig struct {
	Applications []struct {
		Deployments []serveDeployment `yaml:"deployments"`
	} `yaml:"applications"`
}

type serveDeployment struct {
	Name   string    `yaml:"name"`
	Count  yaml.Node `yaml:"num_replicas"`
	Scaled yaml.Node `yaml:"autoscaling_config"`
}

// deployment finds the Serve deployment that is scaled with the group, which has so many replicas.
func (p *rayPart) deployment(variant string, replicas int) (refusal string) {
	var c serveConfig
	if err := yaml.Unmarshal([]byte(p.config), &c); err != nil {
		return "serveConfigV2 is not YAML"
	}
	var all, named []*serveDeployment
	for i := range c.Applications {
		for k := range c.Applications[i].Deployments {
			d := &c.Applications[i].Deployments[k]
			if all = append(all, d); d.Name == variant {
				named = append(named, d)
			}
		}
	}
	if len(all) == 1 {
		named = all
	}
	if len(named) != 1 {
		return fmt.Sprintf("serveConfigV2 lists %d deployments, of which %d are called as the variant %s: there must be one",
			len(all), len(named), variant)
	}
	d := named[0]
	p.name, p.count = d.Name, &d.Count
	n, err := strconv.Atoi(d.Count.Value)
	switch {
	case !d.Scaled.IsZero() || d.Count.Value == "auto":
		return "Ray Serve's autoscaler sets the replicas of its deployment " + d.Name + ": give it a num_replicas instead"
	case err != nil || n < 1 || d.Count.Anchor != "" || d.Count.Kind != yaml.ScalarNode:
		return "serveConfigV2: the deployment " + d.Name + " has no num_replicas that is a number"
	case replicas < 1 || n%replicas != 0:
		return fmt.Sprintf("serveConfigV2: num_replicas: %d of the deployment %s is no multiple of the %d workers", n,
			d.Name, replicas)
	}
	p.each = n / replicas
	return ""
}

// serveWith is serveConfigV2 with another num_replicas, and nothing else changed.
func (p *rayPart) serveWith(replicas int) (string, error) {
	lines := strings.Split(p.config, "\n")
	if at := p.count.Line - 1; at < len(lines) {
		line, column := []rune(lines[at]), p.count.Column-1
		if rest, ok := strings.CutPrefix(string(line[min(column, len(line)):]), p.count.Value); ok {
			lines[at] = string(line[:column]) + strconv.Itoa(p.each*replicas) + rest
		}
	}
	text := strings.Join(lines, "\n")
	was, is := (&rayPart{config: p.config}).others(p.name), (&rayPart{config: text}).others(p.name)
	changed := &rayPart{config: text}
	if changed.deployment(p.name, replicas) != "" || changed.each != p.each || !reflect.DeepEqual(was, is) {
		return "", fmt.Errorf("num_replicas of the deployment %s is written in a way that is not understood", p.name)
	}
	return text, nil
}

// others is all of serveConfigV2 but num_replicas of a deployment.
func (p *rayPart) others(name string) (all map[string]any) {
	if yaml.Unmarshal([]byte(p.config), &all) != nil {
		return nil
	}
	apps, _ := all["applications"].([]any)
	for _, app := range apps {
		fields, _ := app.(map[string]any)
		list, _ := fields["deployments"].([]any)
		for _, d := range list {
			if m, ok := d.(map[string]any); ok && m["name"] == name {
				delete(m, "num_replicas")
			}
		}
	}
	return all
}

// replace is a change of the replicas of a worker group, if they are as they were seen.
func replace(groups string, number int, g *workers, to int) []any {
	at := fmt.Sprintf("%s/%d/", groups, number)
	list := []any{map[string]any{"op": "test", "path": at + "groupName", "value": g.Name}}
	if g.Replicas != nil {
		list = append(list, map[string]any{"op": "test", "path": at + "replicas", "value": *g.Replicas})
	}
	return append(list, map[string]any{"op": "add", "path": at + "replicas", "value": to})
}

// setRay sets the replicas of a RayService; changed: they were still as they were seen.
func (r *Room) setRay(ctx context.Context, o *object, _, to int) (changed bool, err error) {
	p := o.part
	serve, err := p.serveWith(to)
	if err != nil {
		return false, err
	}
	changes := replace("/spec/rayClusterConfig/workerGroupSpecs", p.group, &o.ray.groups[p.group], to)
	changes = append(changes, map[string]any{"op": "test", "path": "/spec/serveConfigV2", "value": p.config},
		map[string]any{"op": "replace", "path": "/spec/serveConfigV2", "value": serve})
	return r.change(ctx, o, changes)
}

// change applies a JSON patch, whose tests may fail because another wrote the object.
func (r *Room) change(ctx context.Context, o *object, changes []any) (changed bool, err error) {
	_, err = r.opt.Dynamic.Resource(o.resource()).Namespace(o.Namespace).Patch(ctx, o.Name, types.JSONPatchType,
		patch.JSON(changes), metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "test") {
		return false, nil
	}
	return err == nil, err
}

// drainFor is how long Serve may take to leave workers that are too many.
const drainFor = 2 * time.Minute

// follow gives the RayClusters that answer the replicas of their RayServices. They lose those workers first on which
// Serve has no replica.
func (r *Room) follow(ctx context.Context, s *running, f *fleet, replicas []int, now time.Time) {
	for i, o := range s.parts {
		if o == nil || o.part == nil || o.part.cluster == nil {
			continue
		}
		p, want, silent := o.part, replicas[i], f.silent[i]
		since, drains := s.draining[o.UID]
		switch {
		case want >= p.has:
			delete(s.draining, o.UID)
		case !drains:
			s.draining[o.UID], since = now, now
		}
		if want == p.has || want < p.has && len(silent) < (p.has-want)*p.hosts && now.Sub(since) < drainFor {
			continue
		}
		changes := replace("/spec/workerGroupSpecs", p.in, &p.cluster.ray.groups[p.in], want)
		if want < p.has && p.hosts == 1 && len(silent) > 0 {
			changes = append(changes, map[string]any{"op": "add", "value": map[string]any{
				"workersToDelete": silent[:min(len(silent), p.has-want)]},
				"path": fmt.Sprintf("/spec/workerGroupSpecs/%d/scaleStrategy", p.in)})
		}
		changed, err := r.change(ctx, p.cluster, changes)
		switch {
		case err != nil:
			r.opt.Log.Warn("services: workers cannot be set", "object", p.cluster.String(), "error", err)
			r.notices.Event(o.reference(), v1.EventTypeWarning, "ServiceNotScaled", err.Error())
		case changed:
			delete(s.draining, o.UID)
			r.opt.Log.Info("services: workers", "object", p.cluster.String(), "from", p.has, "to", want)
		}
	}
}
