package controlplane

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/muster-gpu/muster/internal/kubeapi"
)

// thing names an object of a cluster.
type thing struct {
	of              schema.GroupVersionResource
	namespace, name string
}

// all is what things are there.
func (p *Plane) all() (all map[thing]bool) {
	p.t.Helper()
	p.Wait("all objects are listed", func(ctx context.Context) bool {
		var err error
		all, err = p.things(ctx)
		return err == nil
	})
	return all
}

// things are all objects of the cluster that can be deleted, but for those that Kubernetes makes by itself.
func (p *Plane) things(ctx context.Context) (map[thing]bool, error) {
	c := p.metadata()
	resources, err := p.resources(ctx)
	if err != nil {
		return nil, err
	}
	all := map[thing]bool{}
	for _, of := range resources {
		if of.Group == "events.k8s.io" { // the same as the events without a group
			continue
		}
		list, err := c.Resource(of).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		for k := range list.Items {
			if o := &list.Items[k]; !kubernetesOwn(of, &o.ObjectMeta) {
				all[thing{of, o.Namespace, o.Name}] = true
			}
		}
	}
	return all, nil
}

// resources are those whose objects can be listed and deleted, each in the first version that has it, as the preferred
// version comes first. What the API server cannot reach now is not among them.
func (p *Plane) resources(ctx context.Context) (list []schema.GroupVersionResource, err error) {
	for _, path := range []string{"/api", "/apis"} {
		text, err := p.Client().Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept",
			kubeapi.AsksDescribed).DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		var groups kubeapi.DescribedGroups
		if err := json.Unmarshal(text, &groups); err != nil {
			return nil, err
		}
		for _, g := range groups.Items {
			seen := map[string]bool{}
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					if seen[r.Resource] || v.Freshness == "Stale" {
						continue
					}
					seen[r.Resource] = true
					if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") {
						list = append(list, schema.GroupVersionResource{Group: g.Metadata.Name, Version: v.Version,
							Resource: r.Resource})
					}
				}
			}
		}
	}
	return list, nil
}

// kubernetesOwn reports whether Kubernetes makes an object by itself, perhaps some time after its start.
func kubernetesOwn(of schema.GroupVersionResource, o *metav1.ObjectMeta) bool {
	switch of.Resource {
	case "namespaces":
		return o.Name == "default" || strings.HasPrefix(o.Name, "kube-")
	case "serviceaccounts":
		return strings.HasPrefix(o.Namespace, "kube-") || o.Name == "default"
	case "configmaps":
		return o.Name == "kube-root-ca.crt"
	case "services", "endpoints", "endpointslices":
		return o.Namespace == "default" && o.Name == "kubernetes"
	case "leases":
		return strings.HasPrefix(o.Name, "apiserver-")
	case "apiservices":
		return o.Labels["kube-aggregator.kubernetes.io/automanaged"] != ""
	}
	_, kept := o.Annotations["apf.kubernetes.io/autoupdate-spec"] // a rule of how requests wait their turn
	return kept || of.Resource == "ipaddresses" || of.Resource == "servicecidrs"
}

// reset deletes all objects that are not among those that were there before, and returns when they are gone.
func (p *Plane) reset(before map[thing]bool) {
	p.t.Helper()
	c := p.metadata()
	background, now := metav1.DeletePropagationBackground, int64(0)
	p.Wait("only what was there before is left", func(ctx context.Context) bool {
		all, err := p.things(ctx)
		if err != nil {
			return false
		}
		maps.DeleteFunc(all, func(o thing, _ bool) bool { return before[o] })
		done := map[thing]bool{}
		for o := range all {
			opt, of := metav1.DeleteOptions{PropagationPolicy: &background}, c.Resource(o.of).Namespace(o.namespace)
			switch o.of.Resource { // what fails is repeated in the next round
			case "events": // there are many
				if o.name = ""; !done[o] {
					_ = of.DeleteCollection(ctx, opt, metav1.ListOptions{})
				}
				done[o] = true
			case "pods":
				opt.GracePeriodSeconds = &now
				_ = of.Delete(ctx, o.name, opt)
			default:
				_ = of.Delete(ctx, o.name, opt)
			}
		}
		return len(all) == 0
	})
}

func (p *Plane) metadata() metadata.Interface {
	p.t.Helper()
	c, err := metadata.NewForConfig(p.unlimited())
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}
