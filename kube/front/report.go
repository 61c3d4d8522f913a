package front

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api"
)

// Pods report what they have done: POST /v1/report, straight to the scheduler, with a token of
// their service account that is bound to the pod and made for them. Such a token opens
// nothing else, and the pod needs no right.

// ReportPath is where pods report.
const ReportPath = "/v1/report"

const (
	reportGap   = time.Second // least time between two reports of a pod
	tokenMargin = time.Minute // before a token ends, the API server is asked again
	tokenMost   = time.Hour   // so long an answer holds at most: the account may be gone
	podsMost    = 100_000
	reviewsMost = 32 // tokens that the API server is asked about at a time
)

// reporter is the pod that a token is bound to.
type reporter struct{ namespace, name, uid string }

// reporters are the pods that report.
type reporters struct {
	tokens  cache[*reporter]
	refused cache[bool]   // apart, so that made-up tokens push out none that are good
	reviews chan struct{} // full: reviewsMost are asked about
	mu      sync.Mutex
	next    map[string]time.Time // by uid: when it may report again
}

// refusal is why a report is not taken, with the code of the answer.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// ReportOutcomes are what may become of a report, as it is counted.
var ReportOutcomes = []string{"taken", "token", "often", "nonsense", "unknown", "later"}

// report takes a pod's report.
func (f *Front) report(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	err := f.takeReport(ctx, w, r)
	var no *refusal
	if err != nil && !errors.As(err, &no) {
		no = f.reportProblem(err)
	}
	outcome := "taken"
	if no != nil {
		outcome = map[int]string{http.StatusUnauthorized: "token", http.StatusTooManyRequests: "often",
			http.StatusUnprocessableEntity:   "nonsense",
			http.StatusRequestEntityTooLarge: "nonsense", http.StatusNotFound: "unknown"}[no.code]
		if outcome == "" {
			outcome = "later"
		}
	}
	f.opt.Reported(outcome)
	if no == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if no.code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	refuse(w, no.code, no.text)
}

func (f *Front) takeReport(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	who, err := f.reporter(ctx, r.Header.Get("Authorization"))
	if err != nil {
		return err
	}
	if !f.reporters.may(who.uid, f.opt.Now()) {
		return &refusal{http.StatusTooManyRequests,
			fmt.Sprintf("pod %s/%s reported less than %s ago", who.namespace, who.name, reportGap)}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, api.MaxReport))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("a report may be %d bytes long", api.MaxReport)}
	} else if err != nil {
		return &refusal{http.StatusRequestTimeout, "the report did not come whole: " + err.Error()}
	}
	w.Header().Del("Connection") // it is read
	var rep api.Report
	if err := json.Unmarshal(body, &rep); err != nil {
		return &refusal{http.StatusUnprocessableEntity, "the report cannot be read: " + err.Error()}
	}
	return f.opt.Report(ctx, who.namespace, who.name, who.uid, &rep)
}

// reportProblem is the answer to a report that the scheduler does not take.
func (f *Front) reportProblem(err error) *refusal {
	var field *api.FieldError
	switch {
	case errors.As(err, &field):
		return &refusal{http.StatusUnprocessableEntity, field.Error()}
	case f.opt.Missing(err):
		return &refusal{http.StatusNotFound, err.Error()}
	case f.opt.Away(err):
		return &refusal{http.StatusServiceUnavailable, err.Error()}
	}
	return &refusal{http.StatusServiceUnavailable, "the report cannot be taken now: " + err.Error()}
}

// may reports whether a pod may report now, and books that it does.
func (p *reporters) may(uid string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.next[uid]) {
		return false
	}
	if len(p.next) >= podsMost {
		for k, at := range p.next {
			if now.After(at) {
				delete(p.next, k)
			}
		}
	}
	if p.next == nil || len(p.next) >= podsMost {
		p.next = map[string]time.Time{}
	}
	p.next[uid] = now.Add(reportGap)
	return true
}

// howToReport is the answer to those whose token is not one to report with.
const howToReport = "a pod reports with a projected service account token with the audience " + api.ReportAudience +
	" (Authorization: Bearer; docs/howto/kubernetes-progress.md, Progress)"

// reporter is the pod whose token a request shows, as the API server says.
func (f *Front) reporter(ctx context.Context, header string) (*reporter, error) {
	kind, token, _ := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(kind, "Bearer") || token == "" {
		return nil, &refusal{http.StatusUnauthorized, howToReport}
	}
	now := f.opt.Now()
	ends, ok := claims(token)
	if !ok || !now.Before(ends) { // as anybody can see, so that the API server is not asked
		return nil, &refusal{http.StatusUnauthorized,
			"the token is none for " + api.ReportAudience + ", or is over: " + howToReport}
	}
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(token)))
	who, ok := f.reporters.tokens.get(key, now)
	if _, no := f.reporters.refused.get(key, now); !ok && !no {
		select {
		case f.reporters.reviews <- struct{}{}:
			defer func() { <-f.reporters.reviews }()
		default:
			return nil, &refusal{http.StatusServiceUnavailable,
				fmt.Sprintf("the API server is asked about %d other tokens; report later", reviewsMost)}
		}
		t, err := f.opt.Pods.AuthenticationV1().TokenReviews().Create(ctx,
			&authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{api.ReportAudience}}},
			metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("the API server cannot be asked whose token it is: %w", err)
		}
		if who = boundTo(&t.Status); who != nil {
			until := ends.Add(-tokenMargin)
			if most := now.Add(tokenMost); most.Before(until) {
				until = most
			}
			f.reporters.tokens.put(key, who, until)
		} else {
			f.reporters.refused.put(key, true, now.Add(refusedFor))
		}
	}
	if who == nil {
		return nil, &refusal{http.StatusUnauthorized,
			"the cluster does not know the token, or it is not bound to a pod: " + howToReport}
	}
	return who, nil
}

// boundTo is the pod that a token is bound to, made to report; nil: it is not, or the cluster
// does not know it.
func boundTo(s *authenticationv1.TokenReviewStatus) *reporter {
	account, ok := strings.CutPrefix(s.User.Username, "system:serviceaccount:")
	namespace, _, _ := strings.Cut(account, ":")
	name, uid := s.User.Extra["authentication.kubernetes.io/pod-name"],
		s.User.Extra["authentication.kubernetes.io/pod-uid"]
	if !s.Authenticated || !ok || !slices.Contains(s.Audiences, api.ReportAudience) || len(name) != 1 || len(uid) != 1 {
		return nil
	}
	return &reporter{namespace, name[0], uid[0]}
}

// claims are when a token ends, and whether it says itself that it is to report with. Nobody has
// checked what it says.
func claims(token string) (ends time.Time, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ends, false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var c struct {
		Ends int64           `json:"exp"`
		For  json.RawMessage `json:"aud"`
	}
	if err != nil || json.Unmarshal(text, &c) != nil {
		return ends, false
	}
	var list []string
	if json.Unmarshal(c.For, &list) != nil {
		list = []string{""}
		_ = json.Unmarshal(c.For, &list[0]) // one may stand by itself
	}
	return time.Unix(c.Ends, 0), slices.Contains(list, api.ReportAudience)
}
