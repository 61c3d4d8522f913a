package front

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Certificate finds the certificate for a connection (tls.Config.GetCertificate).
type Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// Serve answers at a listener until the context ends.
func (f *Front) Serve(ctx context.Context, l net.Listener, cert Certificate) error {
	cfg := &tls.Config{GetCertificate: cert, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert,
		NextProtos: []string{"h2", "http/1.1"}}
	s := &http.Server{Handler: f, TLSConfig: cfg, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context {
			return ctx
		}, ErrorLog: slog.NewLogLogger(f.opt.Log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.ServeTLS(l, "", ""); ctx.Err() == nil {
		return err
	}
	return nil
}

// Publisher tells the API server where the scheduler that leads answers.
type Publisher struct {
	*Front
	// Bundle is what vouches for the certificate; nil: the APIService holds what
	// its operator wrote there.
	Bundle []byte
	// Address is where the scheduler answers, as the API server can reach it.
	Address string
	// Leads reports whether this scheduler does.
	Leads func() bool
	said  string
}

// publishEvery is how often is looked whether all is as it should be.
const publishEvery = 5 * time.Second

// Run publishes whenever this scheduler leads and another did before.
func (p *Publisher) Run(ctx context.Context) {
	t := time.NewTicker(publishEvery / 10)
	defer t.Stop()
	next := p.opt.Now()
	for {
		if now := p.opt.Now(); p.Leads() && !now.Before(next) {
			next = now.Add(publishEvery)
			p.say(p.publish(ctx))
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// say logs what is new.
func (p *Publisher) say(err error) {
	text := "the API server knows where to ask"
	if err != nil {
		text = "muster --context cannot ask through the API server: " + err.Error()
	}
	if text != p.said {
		p.said = text
		if err != nil {
			p.opt.Log.Warn(text)
		} else {
			p.opt.Log.Info(text, "address", p.Address)
		}
	}
}

const servicePath = "/apis/apiregistration.k8s.io/v1/apiservices/" + Service

func (p *Publisher) publish(ctx context.Context) error {
	rc := p.opt.Client.Discovery().RESTClient()
	text, err := rc.Get().AbsPath(servicePath).SetHeader("Accept", "application/json").DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no APIService %s", Service)
	} else if err != nil {
		return fmt.Errorf("APIService %s: %w", Service, err)
	}
	var s struct {
		Spec struct {
			CABundle []byte                            `json:"caBundle"`
			Service  *struct{ Namespace, Name string } `json:"service"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("APIService %s: %w", Service, err)
	}
	if s.Spec.Service == nil {
		return fmt.Errorf("APIService %s names no Service", Service)
	}
	if err := p.endpoint(ctx, s.Spec.Service.Namespace, s.Spec.Service.Name); err != nil {
		return err
	}
	if p.Bundle == nil || bytes.Equal(p.Bundle, s.Spec.CABundle) {
		return nil
	}
	patch, err := json.Marshal(
		map[string]any{"spec": map[string]any{"caBundle": p.Bundle, "insecureSkipTLSVerify": false}})
	if err != nil {
		return err
	}
	if err := rc.Patch(types.MergePatchType).AbsPath(servicePath).SetHeader("Accept",
		"application/json").Body(patch).Do(ctx).Error(); err != nil {
		return fmt.Errorf("APIService %s, caBundle: %w", Service, err)
	}
	return nil
}

// endpoint makes a Service without a selector lead here. One that has a selector,
// or stands for a name, is its operator's own.
func (p *Publisher) endpoint(ctx context.Context, namespace, name string) error {
	svc, err := p.opt.Client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("service %s/%s: %w", namespace, name, err)
	}
	if svc.Spec.Type == v1.ServiceTypeExternalName || len(svc.Spec.Selector) > 0 {
		return nil
	}
	host, text, err := net.SplitHostPort(p.Address)
	if err != nil {
		return err
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return err
	}
	kind := discoveryv1.AddressTypeIPv4
	if ip := net.ParseIP(host); ip == nil || ip.IsLoopback() {
		return fmt.Errorf("service %s/%s has no selector, and %s is no address that others can reach: give --api-address", namespace, name, host)
	} else if ip.To4() == nil {
		kind = discoveryv1.AddressTypeIPv6
	}
	n, yes, tcp := int32(port), true, v1.ProtocolTCP
	want := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-leader",
		Labels: map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "muster.sh"}},
		AddressType: kind,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{host}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}}}
	for i := range svc.Spec.Ports {
		want.Ports = append(want.Ports,
			discoveryv1.EndpointPort{Name: &svc.Spec.Ports[i].Name, Port: &n, Protocol: &tcp})
	}
	slices := p.opt.Client.DiscoveryV1().EndpointSlices(namespace)
	have, err := slices.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = slices.Create(ctx, want, metav1.CreateOptions{})
	case err == nil && (have.AddressType != kind || len(have.Endpoints) != 1 || len(have.Endpoints[0].Addresses) != 1 ||
		have.Endpoints[0].Addresses[0] != host ||
		len(have.Ports) == 0 || have.Ports[0].Port == nil || *have.Ports[0].Port != n):
		if have.AddressType != kind { // that cannot be changed
			err = slices.Delete(ctx, want.Name, metav1.DeleteOptions{})
			break
		}
		want.ResourceVersion = have.ResourceVersion
		_, err = slices.Update(ctx, want, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("EndpointSlice %s/%s: %w", namespace, want.Name, err)
	}
	return nil
}
