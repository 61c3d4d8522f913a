package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/kube"
	"github.com/muster-gpu/muster/kube/front"
)

// reportFlags say what a sidecar reads and to whom it reports.
type reportFlags struct {
	file, to, token, ca, sum string
	every                    time.Duration
}

// newReport is the sidecar that reports what a pod's job writes to its progress file.
func newReport() *cobra.Command {
	f := &reportFlags{}
	c := &cobra.Command{
		Use: "report", Short: "Report what the job of this pod writes to MUSTER_PROGRESS (a sidecar; docs/howto/kubernetes-progress.md, Progress)", Args: cobra.NoArgs,
		Long: "Runs beside a training container and tells the scheduler what that one writes to its progress file: steps, speed, checkpoints,\n" +
			"metrics, the lines that muster serve reads on a machine. What it tells is the last of everything, so that nothing is lost\n" +
			"when the scheduler is not there for a while. It ends when it is told to (SIGTERM), after a last report.",
		Example: "  MUSTER_PROGRESS=/progress/log muster-kube report\n  muster-kube report --file /progress/log --to https://muster-view.gpus.svc --ca /etc/muster/ca.crt",
		RunE: func(c *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
			r, err := f.reporter(log)
			if err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			return r.run(c.Context())
		},
	}
	c.Flags().StringVar(&f.file, "file", os.Getenv("MUSTER_PROGRESS"), "the progress file ($MUSTER_PROGRESS)")
	c.Flags().StringVar(&f.to, "to", "https://muster-view.muster-system.svc",
		"where the scheduler answers: the Service that the chart makes")
	c.Flags().StringVar(&f.token, "token", "/var/run/secrets/muster/token",
		"file with this pod's token for the audience "+api.ReportAudience)
	c.Flags().StringVar(&f.ca, "ca", "", "file with the authority of the scheduler's certificate")
	c.Flags().StringVar(&f.sum, "ca-sum", os.Getenv("MUSTER_REPORT_CA"),
		"... or the SHA-256 of it, which the scheduler writes to pods that report (annotation "+kube.AnnotationSum+
			"; $MUSTER_REPORT_CA)")
	c.Flags().DurationVar(&f.every, "every", 5*time.Second, "least time between two reports")
	return c
}

// How often the file is looked at, what is said again though nothing is new, so that a new
// scheduler hears of it, and how long the last report may take.
const (
	lookEvery   = 500 * time.Millisecond
	leastEvery  = time.Second
	repeatEvery = 30 * time.Second
	sendTime    = 10 * time.Second
	lastTime    = 10 * time.Second
	readMost    = 1 << 20 // bytes at a time
)

// podReporter reads a progress file and reports it.
type podReporter struct {
	reportFlags
	log    *slog.Logger
	now    func() time.Time
	client *http.Client
	roots  string // PEM that the client trusts

	progressFile
	sent   int       // lines that were reported
	next   time.Time // not sooner
	repeat time.Time
	fails  int
	said   string
	most   int             // bytes of a report
	warned map[string]bool // what need not be said again
}

func (f *reportFlags) reporter(log *slog.Logger) (*podReporter, error) {
	u, err := url.Parse(f.to)
	switch {
	case f.file == "":
		return nil, errors.New("--file: which one is the progress file? (or set MUSTER_PROGRESS)")
	case err != nil:
		return nil, fmt.Errorf("--to: %w", err)
	case u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("--to %q: want https://HOST", f.to)
	case f.every < leastEvery:
		return nil, fmt.Errorf("--every %s: want %s or more", f.every, leastEvery)
	}
	f.to = strings.TrimSuffix(f.to, "/") + front.ReportPath
	return &podReporter{reportFlags: *f, log: log, now: wallClock, most: api.MaxReport, warned: map[string]bool{},
		progressFile: progressFile{metrics: map[int]map[string]point{}}}, nil
}

// run reports until it is told to end.
func (r *podReporter) run(ctx context.Context) error {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return r.end(context.WithoutCancel(ctx), t.C)
		case <-t.C:
		}
		r.read(false)
		if now := r.now(); r.lines.Count > 0 && !now.Before(r.next) &&
			(r.lines.Count != r.sent || !now.Before(r.repeat)) {
			_ = r.send(ctx) // it says what is wrong, and is asked again
		}
	}
}

// end reports for the last time. The pod waits for it, so it asks again only where another answer may come.
func (r *podReporter) end(ctx context.Context, tick <-chan time.Time) error {
	r.read(true)
	until := r.now().Add(lastTime)
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for r.lines.Count != r.sent && r.now().Before(until) {
		if err := r.send(ctx); err != nil && lasting(err) {
			return nil
		}
		if r.lines.Count != r.sent {
			<-tick
		}
	}
	return nil
}

// send reports all that is known; who does not answer is asked again later, less and less often.
func (r *podReporter) send(ctx context.Context) error {
	count := r.lines.Count
	err := r.post(ctx)
	now := r.now()
	var no *refused
	switch {
	case err == nil:
		r.sent, r.fails, r.next, r.repeat = count, 0, now.Add(r.every), now.Add(repeatEvery)
		r.say("")
		return nil
	// it would be refused again
	case errors.As(err, &no) &&
		(no.code == http.StatusUnprocessableEntity || no.code == http.StatusRequestEntityTooLarge):
		r.sent, r.fails, r.repeat = count, 0, now.Add(repeatEvery)
		r.next = now.Add(r.every)
	default:
		if r.client != nil {
			r.client.CloseIdleConnections() // another scheduler may lead
		}
		r.fails++
		r.next = now.Add(min(leastEvery<<min(r.fails-1, 5), repeatEvery))
	}
	r.say(err.Error())
	return err
}

// final is a reason that is the same as long as this pod is.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// lasting reports whether asking again within seconds is of no use: all but a network that
// fails, and a scheduler that says later.
func lasting(err error) bool {
	var no *refused
	if errors.As(err, &no) {
		return no.code != http.StatusTooManyRequests && no.code != http.StatusServiceUnavailable
	}
	var known final
	var stranger *tls.CertificateVerificationError
	return errors.As(err, &known) || errors.As(err, &stranger)
}

// say logs what is new.
func (r *podReporter) say(text string) {
	if text == r.said {
		return
	}
	if r.said = text; text == "" {
		r.log.Info("the scheduler hears of the job's progress")
	} else {
		r.log.Warn("the scheduler does not hear of the job's progress", "reason", text)
	}
}

// warn logs something once.
func (r *podReporter) warn(key, text string, args ...any) {
	if !r.warned[key] {
		r.warned[key] = true
		r.log.Warn(text, args...)
	}
}

// refused is an answer that is not a yes.
type refused struct {
	code int
	text string
}

func (r *refused) Error() string { return r.text }

// body is the report as it is sent. Where it is too large, the oldest metrics go.
func (r *podReporter) body() ([]byte, error) {
	rep := api.Report{Progress: r.lines.Last, Lines: r.lines.Count, Age: max(0, r.now().Sub(r.written).Milliseconds()),
		Finished: r.lines.Finished}
	if r.lines.Last.Checkpoint != "" {
		rep.SavedAt = &r.lines.SavedAt
	}
	for {
		rep.Metrics = r.kept()
		body, err := json.Marshal(&rep)
		if err != nil || len(body) <= r.most || len(rep.Metrics) == 0 {
			return body, err
		}
		r.forget()
		r.warn("large", "there are more metrics than a report can hold: the oldest are left out", "bytes", r.most)
	}
}

func (r *podReporter) post(ctx context.Context) error {
	if err := r.trust(); err != nil {
		return final{err}
	}
	token, err := os.ReadFile(r.token) // it is another from time to time
	if err != nil {
		return final{fmt.Errorf("--token: %w", err)}
	}
	body, err := r.body()
	if err != nil {
		return final{fmt.Errorf("the report cannot be written: %w", err)}
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	res, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, readMost))
	if err != nil || res.StatusCode == http.StatusNoContent {
		return err
	}
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(text, &problem) != nil || problem.Detail == "" {
		problem.Detail = "it says " + res.Status
	}
	return &refused{res.StatusCode, problem.Detail}
}

// trust makes the client that trusts who the authority vouches for; its file may be another
// tomorrow.
func (r *podReporter) trust() error {
	if r.ca == "" {
		return r.trustSum()
	}
	text, err := os.ReadFile(r.ca)
	if err != nil {
		return fmt.Errorf("--ca: %w", err)
	}
	if r.client != nil && string(text) == r.roots {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("--ca: %s holds no certificate (PEM)", r.ca)
	}
	r.roots = string(text)
	r.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true}}
	return nil
}

// trustSum makes the client that trusts an authority by its sum, wherever it stands in the chain that a
// connection shows.
func (r *podReporter) trustSum() error {
	if r.client != nil {
		return nil
	}
	if r.sum == "" {
		return errors.New("nothing vouches for the scheduler: MUSTER_REPORT_CA is empty, so the scheduler that bound this pod has no --api-secret (or give --ca)")
	}
	sum := strings.ToLower(r.sum)
	check := func(c tls.ConnectionState) error {
		pool := x509.NewCertPool()
		known := false
		for _, cert := range c.PeerCertificates {
			if front.Sum(cert.Raw) == sum {
				pool.AddCert(cert)
				known = true
			}
		}
		if !known {
			return final{errors.New("who vouches for the scheduler is another than the pod was told when it was bound (MUSTER_REPORT_CA): the Secret was made again")}
		}
		_, err := c.PeerCertificates[0].Verify(
			x509.VerifyOptions{Roots: pool, DNSName: c.ServerName, CurrentTime: r.now()})
		return err
	}
	r.client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: check}}} // #nosec G402: check does it
	return nil
}
