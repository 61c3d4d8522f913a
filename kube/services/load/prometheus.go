package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	apiv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Prometheus asks a Prometheus server for what it has scraped of replicas: series with the labels namespace and pod.
type Prometheus struct {
	api apiv1.API
	now func() time.Time
}

// window is how old a sample may be: several intervals between two scrapes.
const window = "3m"

const (
	askPatience = 10 * time.Second
	mostAnswer  = 64 << 20 // bytes
)

// NewPrometheus asks the server at a URL.
func NewPrometheus(address string, access Access, now func() time.Time) (*Prometheus, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	transport, err := access.transport(u.Host)
	if err != nil {
		return nil, err
	}
	c, err := api.NewClient(api.Config{Address: address, RoundTripper: bounded{transport}})
	if err != nil {
		return nil, err
	}
	return &Prometheus{api: apiv1.NewAPI(c), now: now}, nil
}

// bounded cuts off answers that are too long.
type bounded struct{ next http.RoundTripper }

// RoundTrip sends a request.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, mostAnswer), resp.Body}
	}
	return resp, err
}

// Read asks for the newest samples of all replicas at once. When they were scraped counts, not when they are asked for.
func (p *Prometheus) Read(ctx context.Context, namespace, server string, replicas []Replica) (map[string]Reading,
	error) {
	var names, prefixes []string
	parts := map[string]string{}
	for i := range replicas {
		parts[replicas[i].Name] = replicas[i].Part
		names = append(names, regexp.QuoteMeta(replicas[i].Name))
	}
	for _, k := range servers {
		if server == "" || k.Name == server {
			for _, prefix := range append([]string{k.prefix}, k.more...) {
				prefixes = append(prefixes, prefix+".*")
			}
		}
	}
	value, err := p.ask(ctx, fmt.Sprintf("{__name__=~%q,namespace=%q,pod=~%q}[%s]", strings.Join(prefixes, "|"),
		namespace, strings.Join(names, "|"), window))
	if err != nil {
		return nil, err
	}
	matrix, ok := value.(model.Matrix)
	if !ok {
		return nil, errors.New("Prometheus answers something else than was asked")
	}
	scraped, at := map[string]*samples{}, map[string]time.Time{}
	for _, series := range matrix {
		if len(series.Values) == 0 {
			continue
		}
		pod := string(series.Metric["pod"])
		if other(string(series.Metric[partLabel]), parts[pod]) {
			continue
		}
		if scraped[pod] == nil {
			scraped[pod] = newSamples()
		}
		last := series.Values[len(series.Values)-1]
		if t := last.Timestamp.Time(); t.After(at[pod]) {
			at[pod] = t
		}
		scraped[pod].series(series.Metric, float64(last.Value))
	}
	list := map[string]Reading{}
	err = nil
	for i := range replicas {
		x := &replicas[i]
		s := scraped[x.Name]
		if s == nil {
			if err == nil {
				err = fmt.Errorf("pod %s: Prometheus has no metrics of it within %s (labels namespace and pod)", x.Name,
					window)
			}
			continue
		}
		k, unknown := recognise(s, server)
		if unknown != nil {
			err = fmt.Errorf("pod %s: %w", x.Name, unknown)
			continue
		}
		list[x.ID] = k.read(s, at[x.Name])
	}
	return list, err
}

// series adds the newest sample of a series.
func (s *samples) series(labels model.Metric, value float64) {
	name := string(labels[model.MetricNameLabel])
	base, isBucket := strings.CutSuffix(name, "_bucket")
	bound, err := strconv.ParseFloat(string(labels[model.BucketLabel]), 64)
	if isBucket && err == nil {
		s.bucket(base, bound, value)
		return
	}
	s.add(name, value)
}

// Demand asks for a number of requests per second; nothing is 0.
func (p *Prometheus) Demand(ctx context.Context, query string) (float64, error) {
	value, err := p.ask(ctx, query)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	switch v := value.(type) {
	case model.Vector:
		for _, x := range v {
			sum += float64(x.Value)
		}
	case *model.Scalar:
		sum = float64(v.Value)
	default:
		return 0, errors.New("it yields no number")
	}
	if !(sum >= 0 && sum <= 1e9) {
		return 0, errors.New("it yields no rate of requests")
	}
	return sum, nil
}

// refused is the message of an answer 401 or 403.
var refused = regexp.MustCompile(`client error: 40[13]`)

func (p *Prometheus) ask(ctx context.Context, query string) (model.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	value, _, _, err := p.api.Query(ctx, query, p.now())
	if err != nil {
		var wrong *apiv1.Error
		switch {
		case errors.Is(err, errSecret):
			return nil, errSecret
		case errors.As(err, &wrong) && refused.MatchString(wrong.Msg):
			return nil, errors.New("Prometheus refuses Muster: prometheus_access is missing or wrong")
		case errors.As(err, &wrong):
			return nil, fmt.Errorf("Prometheus: %s: %s", wrong.Type, wrong.Msg)
		}
		return nil, fmt.Errorf("Prometheus: %w", unanswered(err))
	}
	return value, nil
}
