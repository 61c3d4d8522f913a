package config

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// KubeServices says how inference services of a Kubernetes cluster are scaled.
type KubeServices struct {
	Period     time.Duration // between two decisions about a service
	Prometheus string        // URL of the server that is asked what replicas have to do; "": they are asked themselves
	Access     PrometheusAccess
}

// PrometheusAccess is how Prometheus is asked: by a bearer token, or a user and its password; over TLS.
type PrometheusAccess struct {
	TokenFile    string `yaml:"token_file"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	CAFile       string `yaml:"ca_file"` // of authorities in PEM; "": those of the system
}

type kubeServicesFile struct {
	Period     *Duration        `yaml:"period"`
	Prometheus string           `yaml:"prometheus"`
	Access     PrometheusAccess `yaml:"prometheus_access"`
	Weights    string           `yaml:"weights"` // refused: of muster serve
}

// servicesPeriod is the period if none is given.
const servicesPeriod = 15 * time.Second

// services reads the section; nil: there is none, and no service is scaled.
func (f *kubeServicesFile) services() (*KubeServices, error) {
	if f == nil {
		return nil, nil
	}
	s := &KubeServices{Period: servicesPeriod, Prometheus: f.Prometheus, Access: f.Access}
	if f.Period != nil {
		s.Period = time.Duration(*f.Period)
	}
	if f.Weights != "" {
		return nil, At(errors.New("on Kubernetes no service is under inss-rl: it chooses parts of GPUs, and there the pod "+
			"template does; muster serve and muster sim have them"), "weights")
	}
	if s.Period < time.Second || s.Period > time.Hour {
		return nil, At(errors.New("it is from 1s to 1h"), "period")
	}
	if f.Prometheus != "" {
		u, err := url.Parse(f.Prometheus)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, At(errors.New("it is no address such as http://prometheus.monitoring:9090"), "prometheus")
		}
	}
	if err := f.Access.check(f.Prometheus); err != nil {
		return nil, At(err, "prometheus_access")
	}
	return s, nil
}

func (a *PrometheusAccess) check(url string) error {
	switch {
	case *a == PrometheusAccess{}:
	case url == "":
		return errors.New("prometheus is missing: the address of the server")
	case a.TokenFile != "" && a.User != "":
		return errors.New("either token_file, or user and password_file")
	case (a.User == "") != (a.PasswordFile == ""):
		return errors.New("user and password_file belong together")
	case a.CAFile != "" && !strings.HasPrefix(url, "https:"):
		return errors.New("ca_file: the address of prometheus does not begin with https")
	}
	return nil
}

// text is the section as a line.
func (s *KubeServices) text() string {
	var w words
	w.add("period", cluster.FormatDuration(s.Period))
	w.add("prometheus", s.Prometheus)
	w.add("token_file", s.Access.TokenFile)
	w.add("user", s.Access.User)
	w.add("password_file", s.Access.PasswordFile)
	w.add("ca_file", s.Access.CAFile)
	return strings.Join(w, ", ")
}
