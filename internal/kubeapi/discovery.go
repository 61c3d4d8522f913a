package kubeapi

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// Discovery says which groups an API server has.
type Discovery interface {
	// ServerGroups are the groups and their versions. Where the API server says which versions it cannot reach now,
	// as it does from Kubernetes 1.30 on, these are not among them.
	ServerGroups() (*metav1.APIGroupList, error)
	// ServerResourcesForGroupVersion is what a version of a group with a name has, such as "apps/v1"; an error may say
	// that there is no such version.
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
	// RESTClient asks for any path.
	RESTClient() rest.Interface
}

// AsksDescribed accepts, of an API server that describes its groups, nothing else.
const AsksDescribed = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// asksGroups accepts that, or the answer of an older one.
const asksGroups = AsksDescribed + ",application/json"

// DescribedGroups is what is read of that answer: APIGroupDiscoveryList of apidiscovery.k8s.io/v2.
type DescribedGroups struct {
	Items []struct {
		Metadata struct{ Name string }
		Versions []struct {
			Version   string
			Freshness string // "Stale": it cannot be reached now
			Resources []struct {
				Resource string
				Verbs    []string
			}
		}
	}
}

type discovery struct{ c rest.Interface }

// newDiscovery makes one that shares connections with other clients. It reads answers in every form that they may have.
func newDiscovery(of *rest.Config, connections *http.Client) (*discovery, error) {
	c := *of
	c.APIPath, c.GroupVersion = "", nil
	if c.Burst == 0 {
		c.Burst = 300 // as client-go's
	}
	codec := runtime.NoopEncoder{Decoder: Codecs.UniversalDecoder()}
	c.NegotiatedSerializer = serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
	asks, err := rest.UnversionedRESTClientForConfigAndClient(&c, connections)
	return &discovery{asks}, err
}

func (d *discovery) RESTClient() rest.Interface { return d.c }

func (d *discovery) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{}
	if err := d.c.Get().AbsPath("/apis/" + groupVersion).Do(context.Background()).Into(list); err != nil {
		return nil, err
	}
	return list, nil
}

func (d *discovery) ServerGroups() (*metav1.APIGroupList, error) {
	old, err := d.groups("/api", func(text []byte) ([]metav1.APIGroup, error) {
		v := &metav1.APIVersions{}
		err := json.Unmarshal(text, v)
		return []metav1.APIGroup{apiGroup("", v.Versions)}, err
	})
	if err != nil && !apierrors.IsNotFound(err) { // a server that serves some groups only has none without a name
		return nil, err
	}
	named, err := d.groups("/apis", func(text []byte) ([]metav1.APIGroup, error) {
		list := &metav1.APIGroupList{}
		err := json.Unmarshal(text, list)
		return list.Groups, err
	})
	if err != nil {
		return nil, err
	}
	return &metav1.APIGroupList{Groups: append(old, named...)}, nil
}

// groups asks for those below a path; plain reads an answer that does not describe them.
func (d *discovery) groups(path string, plain func(text []byte) ([]metav1.APIGroup, error)) (groups []metav1.APIGroup,
	err error) {
	var form string
	answer := d.c.Get().AbsPath(path).SetHeader("Accept", asksGroups).Do(context.Background())
	text, err := answer.ContentType(&form).Raw()
	if err != nil {
		return nil, err
	}
	if !described(form) {
		return plain(text)
	}
	var all DescribedGroups
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	for _, g := range all.Items {
		var versions []string
		for _, v := range g.Versions {
			if v.Freshness != "Stale" {
				versions = append(versions, v.Version)
			}
		}
		groups = append(groups, apiGroup(g.Metadata.Name, versions))
	}
	return groups, nil
}

// described reports whether an answer of this content type describes the groups.
func described(contentType string) bool {
	form, of, err := mime.ParseMediaType(contentType)
	return err == nil && form == runtime.ContentTypeJSON && of["g"] == "apidiscovery.k8s.io" && of["v"] == "v2" &&
		of["as"] == "APIGroupDiscoveryList"
}

// apiGroup is one with its versions, of which the first is preferred.
func apiGroup(name string, versions []string) metav1.APIGroup {
	g := metav1.APIGroup{Name: name}
	for _, v := range versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{Version: v,
			GroupVersion: schema.GroupVersion{Group: name, Version: v}.String()})
	}
	if len(g.Versions) > 0 {
		g.PreferredVersion = g.Versions[0]
	}
	return g
}
