package kubeapi_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/internal/kubeapi"
)

const (
	inJSON     = "application/json"
	inProtobuf = "application/vnd.kubernetes.protobuf"
)

// server is an API server that gives one answer.
type server struct {
	*httptest.Server
	t      *testing.T
	answer runtime.Object // nil: that there is no such thing

	asked, accepts, form string // by the last request: method and address, and the forms of its answer and its body
	body                 []byte
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked, s.accepts, s.form = r.Method+" "+r.URL.String(), r.Header.Get("Accept"), r.Header.Get("Content-Type")
	var err error
	if s.body, err = io.ReadAll(r.Body); err != nil {
		s.t.Error(err)
	}
	answer, code, form := s.answer, http.StatusOK, inJSON
	if answer == nil {
		err := apierrors.NewNotFound(schema.GroupResource{}, "x")
		answer, code = &err.ErrStatus, http.StatusNotFound
	}
	if strings.HasPrefix(s.accepts, inProtobuf) {
		form = inProtobuf
	}
	w.Header().Set("Content-Type", form)
	w.WriteHeader(code)
	if err := write(answer, form, w); err != nil {
		s.t.Error(err)
	}
}

func write(obj runtime.Object, form string, to io.Writer) error {
	kinds, _, err := kubeapi.Scheme.ObjectKinds(obj)
	if err != nil {
		return err
	}
	info, _ := runtime.SerializerInfoForMediaType(kubeapi.Codecs.SupportedMediaTypes(), form)
	return kubeapi.Codecs.EncoderForVersion(info.Serializer, kinds[0].GroupVersion()).Encode(obj, to)
}

// sent is the body of the last request, if it is an object.
func (s *server) sent() runtime.Object {
	s.t.Helper()
	o, _, err := kubeapi.Codecs.UniversalDeserializer().Decode(s.body, nil, nil)
	if err != nil {
		s.t.Fatalf("%s: %q: %v", s.asked, s.body, err)
	}
	return o
}

// Each method of a client asks for what it is called for, and returns the answer; as JSON and as protobuf, which is
// preferred where no form is stated.
func TestVerbs(t *testing.T) {
	s, ctx := newServer(t), t.Context()
	named := func(name string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"a": "b"}}}
	}
	done := &metav1.Status{Status: metav1.StatusSuccess}
	uid, dry := types.UID("u"), []string{metav1.DryRunAll}
	deleted := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	only := metav1.ListOptions{LabelSelector: "a=b"}
	name := metav1.ObjectMeta{Name: "p"}
	binding, eviction := &v1.Binding{ObjectMeta: name, Target: v1.ObjectReference{Kind: "Node", Name: "n"}},
		&policyv1.Eviction{ObjectMeta: name}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"muster"}}}
	patch := []byte(`{"metadata":{"labels":{"c":"d"}}}`)
	for _, form := range []string{"", inJSON, inProtobuf} {
		c := kubeapi.Must(&rest.Config{Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: form}})
		pods, accounts := c.CoreV1().Pods("ns"), c.CoreV1().ServiceAccounts("ns")
		for _, v := range []struct {
			asks   string
			call   func() (runtime.Object, error) // nil: nothing but an error is returned
			sent   runtime.Object                 // nil: none
			answer runtime.Object
		}{
			{"GET /api/v1/namespaces/ns/pods/p?resourceVersion=7", func() (runtime.Object, error) {
				return pods.Get(ctx, "p", metav1.GetOptions{ResourceVersion: "7"})
			}, nil, named("p")},
			{"GET /api/v1/namespaces/ns/pods?labelSelector=a%3Db", func() (runtime.Object, error) {
				return pods.List(ctx, only)
			}, nil, &v1.PodList{Items: []v1.Pod{*named("p"), *named("q")}}},
			{"POST /api/v1/namespaces/ns/pods?dryRun=All", func() (runtime.Object, error) {
				return pods.Create(ctx, named("new"), metav1.CreateOptions{DryRun: dry})
			}, named("new"), named("p")},
			{"PUT /api/v1/namespaces/ns/pods/p?dryRun=All", func() (runtime.Object, error) {
				return pods.Update(ctx, named("p"), metav1.UpdateOptions{DryRun: dry})
			}, named("p"), named("p")},
			{"PUT /api/v1/namespaces/ns/pods/p/status", func() (runtime.Object, error) {
				return pods.UpdateStatus(ctx, named("p"), metav1.UpdateOptions{})
			}, named("p"), named("p")},
			{"DELETE /api/v1/namespaces/ns/pods/p", func() (runtime.Object, error) {
				return nil, pods.Delete(ctx, "p", *deleted)
			}, deleted, done},
			{"DELETE /api/v1/namespaces/ns/pods?labelSelector=a%3Db", func() (runtime.Object, error) {
				return nil, pods.DeleteCollection(ctx, *deleted, only)
			}, deleted, done},
			{"PATCH /api/v1/namespaces/ns/pods/p/status?fieldManager=m", func() (runtime.Object, error) {
				return pods.Patch(ctx, "p", types.StrategicMergePatchType, patch,
					metav1.PatchOptions{FieldManager: "m"}, "status")
			}, nil, named("p")},
			{"POST /api/v1/namespaces/ns/pods/p/binding?dryRun=All", func() (runtime.Object, error) {
				return nil, pods.Bind(ctx, binding, metav1.CreateOptions{DryRun: dry})
			}, binding, done},
			{"POST /api/v1/namespaces/ns/pods/p/eviction", func() (runtime.Object, error) {
				return nil, pods.EvictV1(ctx, eviction)
			}, eviction, done},
			{"POST /api/v1/namespaces/ns/serviceaccounts/a/token", func() (runtime.Object, error) {
				return accounts.CreateToken(ctx, "a", token, metav1.CreateOptions{})
			}, token, token},
		} {
			s.answer = v.answer
			got, err := v.call()
			if s.asked != v.asks || err != nil {
				t.Errorf("%s, %q: %q, %v", v.asks, form, s.asked, err)
			}
			if v.sent != nil && !same(s.sent(), v.sent) {
				t.Errorf("%s, %q: it sent %v", v.asks, form, s.sent())
			}
			if got != nil && !same(got, v.answer) {
				t.Errorf("%s, %q: it returned %v", v.asks, form, got)
			}
			want := form
			if want == "" && v.sent != binding && v.sent != eviction {
				want = inProtobuf
			}
			if want == "" {
				want = inJSON
			}
			if v.sent != nil && s.form != want {
				t.Errorf("%s, %q: it sent %s", v.asks, form, s.form)
			}
			s.answer = nil
			if _, err = v.call(); !apierrors.IsNotFound(err) {
				t.Errorf("%s, %q: of what is not there it says %v", v.asks, form, err)
			}
		}
		s.answer = named("p")
		if _, err := pods.Patch(t.Context(), "p", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil ||
			s.form != string(types.MergePatchType) || !bytes.Equal(s.body, patch) {
			t.Errorf("%q: a patch is %s %q, %v", form, s.form, s.body, err)
		}
	}
}

// same reports whether two objects are the same, whatever their kind is called.
func same(a, b runtime.Object) bool {
	a, b = a.DeepCopyObject(), b.DeepCopyObject()
	a.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	b.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if l, ok := a.(*v1.PodList); ok {
		for i := range l.Items {
			l.Items[i].TypeMeta = metav1.TypeMeta{}
		}
	}
	return reflect.DeepEqual(a, b)
}

// A watch reads what comes, in every form.
func TestWatch(t *testing.T) {
	for _, form := range []string{inJSON, inProtobuf} {
		asked := ""
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.Method + " " + r.URL.String()
			info, _ := runtime.SerializerInfoForMediaType(kubeapi.Codecs.SupportedMediaTypes(), form)
			w.Header().Set("Content-Type", form+";stream=watch")
			frames := info.StreamSerializer.Framer.NewFrameWriter(w)
			for _, name := range []string{"p", "q"} {
				var obj, event bytes.Buffer
				err := write(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}, form, &obj)
				if err == nil {
					err = info.StreamSerializer.Serializer.Encode(
						&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: obj.Bytes()}}, &event)
				}
				if err == nil {
					_, err = frames.Write(event.Bytes())
				}
				if err != nil {
					t.Error(err)
				}
			}
		}))
		defer s.Close()
		c := kubeapi.Must(&rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: form}})
		w, err := c.CoreV1().Pods("ns").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "5"})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*v1.Pod); ok {
				names = append(names, p.Name)
			}
		}
		if asked != "GET /api/v1/namespaces/ns/pods?resourceVersion=5&watch=true" ||
			!slices.Equal(names, []string{"p", "q"}) {
			t.Errorf("%s: %q, %v", form, asked, names)
		}
	}
}

// paths are where objects of each resource are created.
const paths = `
/api/v1/namespaces
/api/v1/namespaces/ns/configmaps
/api/v1/namespaces/ns/events
/api/v1/namespaces/ns/persistentvolumeclaims
/api/v1/namespaces/ns/pods
/api/v1/namespaces/ns/secrets
/api/v1/namespaces/ns/serviceaccounts
/api/v1/namespaces/ns/services
/api/v1/nodes
/api/v1/persistentvolumes
/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies
/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings
/apis/apps/v1/namespaces/ns/daemonsets
/apis/apps/v1/namespaces/ns/deployments
/apis/apps/v1/namespaces/ns/statefulsets
/apis/authentication.k8s.io/v1/tokenreviews
/apis/authorization.k8s.io/v1/subjectaccessreviews
/apis/batch/v1/namespaces/ns/jobs
/apis/coordination.k8s.io/v1/namespaces/ns/leases
/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices
/apis/policy/v1/namespaces/ns/poddisruptionbudgets
/apis/rbac.authorization.k8s.io/v1/clusterrolebindings
/apis/rbac.authorization.k8s.io/v1/clusterroles
/apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings
/apis/rbac.authorization.k8s.io/v1/namespaces/ns/roles
/apis/resource.k8s.io/v1/deviceclasses
/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims
/apis/resource.k8s.io/v1/namespaces/ns/resourceclaimtemplates
/apis/resource.k8s.io/v1/resourceslices
/apis/scheduling.k8s.io/v1/priorityclasses
/apis/storage.k8s.io/v1/csidrivers
/apis/storage.k8s.io/v1/csinodes
/apis/storage.k8s.io/v1/namespaces/ns/csistoragecapacities
/apis/storage.k8s.io/v1/storageclasses
/apis/storage.k8s.io/v1/volumeattachments
`

// Every client sends objects of its type to their resource, in its namespace if they have one.
func TestPaths(t *testing.T) {
	s := newServer(t)
	c := kubeapi.Must(&rest.Config{Host: s.URL, QPS: -1})
	var list []string
	each := func(of reflect.Value, f func(method reflect.Method, results []reflect.Value)) {
		for m := range of.Type().NumMethod() {
			var args []reflect.Value
			if of.Method(m).Type().NumIn() == 1 {
				args = []reflect.Value{reflect.ValueOf("ns")}
			}
			f(of.Type().Method(m), of.Method(m).Call(args))
		}
	}
	each(reflect.ValueOf(c), func(group reflect.Method, of []reflect.Value) {
		if group.Name == "Discovery" {
			return
		}
		each(of[0].Elem(), func(resource reflect.Method, of []reflect.Value) {
			create := of[0].MethodByName("Create")
			obj := reflect.New(create.Type().In(1).Elem())
			create.Call([]reflect.Value{reflect.ValueOf(t.Context()), obj, reflect.ValueOf(metav1.CreateOptions{})})
			if !same(s.sent(), obj.Interface().(runtime.Object)) {
				t.Errorf("%s.%s sends %v", group.Name, resource.Name, s.sent())
			}
			path, _ := strings.CutPrefix(s.asked, "POST ")
			list = append(list, path)
			kind := obj.Type().Elem().Name()
			if name := path[strings.LastIndexByte(path, '/')+1:]; !strings.EqualFold(resource.Name, name) ||
				resourceOf(kind) != name {
				t.Errorf("%s.%s sends a %s to %s", group.Name, resource.Name, kind, path)
			}
		})
	})
	slices.Sort(list)
	if got := "\n" + strings.Join(list, "\n") + "\n"; got != paths {
		t.Errorf("they are%s", got)
	}
}

// resourceOf is what the resource of a kind is called.
func resourceOf(kind string) string {
	plural, _ := apimeta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return plural.Resource
}

// What an API server says of its groups is read in the form of today, which leaves out what it cannot reach, and in the
// older one; a server without the group that has no name has the others.
func TestServerGroups(t *testing.T) {
	const described = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	type answer struct {
		code       int
		form, text string
	}
	old, today, none := answer{200, inJSON, `{"versions":["v1"]}`},
		answer{200, described, `{"items":[{"metadata":{"name":""},"versions":[{"version":"v1"}]}]}`},
		answer{404, "text/plain", "there is no such page"}
	for _, c := range []struct {
		core, named answer
		want        string // "": an error
	}{
		{old, answer{200, inJSON, `{"groups":[
			{"name":"a","versions":[{"version":"v2"},{"version":"v1"}]},{"name":"b"}]}`}, " v1; a v2 v1; b"},
		{today, answer{200, described + ";charset=utf-8", `{"items":[
			{"metadata":{"name":"a"},"versions":[
				{"version":"v2","freshness":"Stale"},{"version":"v1","freshness":"Current"}]},
			{"metadata":{"name":"b"},"versions":[{"version":"v1","freshness":"Stale"}]}]}`}, " v1; a v1; b"},
		{none, answer{200, described, `{"items":[{"metadata":{"name":"a"},"versions":[{"version":"v1"}]}]}`}, "a v1"},
		{today, none, ""},
		{today, answer{200, described, "{"}, ""},
		{answer{503, "text/plain", "starting"}, answer{200, described, `{}`}, ""},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a := c.core
			if r.URL.Path == "/apis" {
				a = c.named
			}
			if accepts := r.Header.Get("Accept"); accepts != described+","+inJSON {
				t.Errorf("it accepts %s", accepts)
			}
			w.Header().Set("Content-Type", a.form)
			w.WriteHeader(a.code)
			if _, err := io.WriteString(w, a.text); err != nil {
				t.Error(err)
			}
		}))
		defer s.Close()
		groups, err := kubeapi.Must(&rest.Config{Host: s.URL}).Discovery().ServerGroups()
		if (err == nil) != (c.want != "") {
			t.Errorf("%v: %v", c.named, err)
		}
		if err != nil {
			continue
		}
		var list []string
		for _, g := range groups.Groups {
			text := g.Name
			for _, v := range g.Versions {
				text += " " + v.Version
			}
			list = append(list, text)
		}
		if got := strings.Join(list, "; "); got != c.want {
			t.Errorf("%q instead of %q", got, c.want)
		}
	}
}

// Whether a version of a group is there is read in every form.
func TestServerResources(t *testing.T) {
	s := newServer(t)
	for _, form := range []string{"", inProtobuf} {
		c := kubeapi.Must(&rest.Config{Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: form}})
		s.answer = &metav1.APIResourceList{GroupVersion: "apps/v1",
			APIResources: []metav1.APIResource{{Name: "things"}}}
		list, err := c.Discovery().ServerResourcesForGroupVersion("apps/v1")
		if err != nil || len(list.APIResources) != 1 || s.asked != "GET /apis/apps/v1" {
			t.Errorf("%q: %q, %v, %v", form, s.asked, list, err)
		}
		s.answer = nil
		if _, err := c.Discovery().ServerResourcesForGroupVersion("apps/v1"); !apierrors.IsNotFound(err) {
			t.Errorf("%q: of what is not there it says %v", form, err)
		}
	}
}
