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
}

type kubeServicesFile struct {
	Period     *Duration `yaml:"period"`
	Prometheus string    `yaml:"prometheus"`
}

// servicesPeriod is the period if none is given.
const servicesPeriod = 15 * time.Second

// services reads the section; nil: there is none, and no service is scaled.
func (f *kubeServicesFile) services() (*KubeServices, error) {
	if f == nil {
		return nil, nil
	}
	s := &KubeServices{Period: servicesPeriod, Prometheus: f.Prometheus}
	if f.Period != nil {
		s.Period = time.Duration(*f.Period)
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
	return s, nil
}

// text is the section as a line.
func (s *KubeServices) text() string {
	var w words
	w.add("period", cluster.FormatDuration(s.Period))
	w.add("prometheus", s.Prometheus)
	return strings.Join(w, ", ")
}
