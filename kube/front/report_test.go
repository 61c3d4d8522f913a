package front

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/internal/fakekube"
)

// token is one that says of itself that it is for reports of a pod.
func token(uid, sign string) string {
	text := fmt.Sprintf(
		`{"aud":["muster"],"exp":%d,"kubernetes.io":{"namespace":"default","pod":{"name":"a","uid":%q}}}`,
		time.Now().Add(time.Hour).Unix(), uid)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(text)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(sign))
}

// reviewed is a front whose API server knows all tokens that are signed so.
func reviewed(t *testing.T, opt Options, sign string, asked func()) *Front {
	t.Helper()
	c := fakekube.New()
	c.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if asked != nil {
			asked()
		}
		r, ok := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		if !ok {
			t.Errorf("%T is asked for", a)
			return false, nil, nil
		}
		if strings.HasSuffix(r.Spec.Token, "."+base64.RawURLEncoding.EncodeToString([]byte(sign))) {
			r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{api.ReportAudience},
				User: authenticationv1.UserInfo{Username: "system:serviceaccount:default:default",
					Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/pod-name": {"a"},
						"authentication.kubernetes.io/pod-uid": {"a"}}}}
		}
		return true, r, nil
	})
	opt.Pods, opt.Client, opt.Now, opt.Log = c, c, time.Now, slog.New(slog.DiscardHandler)
	if opt.Report == nil {
		opt.Report = func(context.Context, string, string, string, *api.Report) error { return nil }
	}
	opt.Reported = func(string) {}
	no := func(error) bool { return false }
	opt.Missing, opt.Away = no, no
	return New(opt)
}

// listens serves a front as the scheduler does, with TLS, over HTTP/1 or 2.
func listens(t *testing.T, f *Front) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(f)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// A body that never comes holds no connection, whoever sends it and whatever for.
func TestBodyNeverComes(t *testing.T) {
	f := reviewed(t, Options{}, "good", nil)
	f.bodyTime = 100 * time.Millisecond
	s := listens(t, f)
	for _, c := range []struct {
		what, request string
		code          int
	}{
		{"a report", "POST /v1/report HTTP/1.1\r\nAuthorization: Bearer " + token("a", "good"),
			http.StatusRequestTimeout},
		{"a report that is refused", "POST /v1/report HTTP/1.1\r\nAuthorization: Bearer x", http.StatusUnauthorized},
		{"what cannot be done", "POST /v1/jobs HTTP/1.1", http.StatusNotImplemented},
		{"a look", "GET /v1/jobs HTTP/1.1", http.StatusUnauthorized},
		{"a page", "GET /healthz HTTP/1.1", http.StatusOK},
	} {
		conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}) // #nosec G402: a test's own server
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(conn, c.request+"\r\nHost: muster\r\nContent-Length: 100\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if _, err := in.ReadByte(); res.StatusCode != c.code || err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: %d, not %d, and then %v, not its end", c.what, res.StatusCode, c.code, err)
		}
		_ = conn.Close()
	}
}

// Over HTTP/2, too; and one who sends what they said keeps the connection.
func TestBodyComes(t *testing.T) {
	post := func(s *httptest.Server, body io.Reader) (int, bool) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+ReportPath, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token("a", "good"))
		res, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode, res.Close
	}
	if code, closes := post(listens(t, reviewed(t, Options{}, "good", nil)),
		strings.NewReader("{}")); code != http.StatusNoContent || closes {
		t.Errorf("%d, and the connection closes: %v", code, closes)
	}
	f := reviewed(t, Options{}, "good", nil)
	f.bodyTime = 100 * time.Millisecond
	never, w := io.Pipe()
	defer w.Close()
	if code, _ := post(listens(t, f), never); code != http.StatusRequestTimeout {
		t.Errorf("a body that never comes: %d", code)
	}
}

// Tokens that the cluster does not know are asked about once in a while, push out none that are good, and only
// so many at a time.
func TestForgedTokens(t *testing.T) {
	asked := 0
	f := reviewed(t, Options{}, "good", func() { asked++ })
	f.reporters.tokens.most, f.reporters.refused.most = 2, 2
	take := func(sign string) string {
		who, err := f.reporter(t.Context(), "Bearer "+token("a", sign))
		if (who == nil) == (err == nil) {
			t.Errorf("%q: %v, %v", sign, who, err)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	}
	good := "Bearer " + token("a", "good")
	for _, sign := range []string{"1", "2", "3", "4", "5"} {
		if who, err := f.reporter(t.Context(), good); err != nil || who.uid != "a" {
			t.Fatalf("%v, %v", who, err)
		}
		if why := take(sign); !strings.Contains(why, "does not know the token") {
			t.Errorf("%q", why)
		}
	}
	if asked != 6 {
		t.Errorf("the API server was asked %d times, not once for the good one and each of five others", asked)
	}
	for range reviewsMost {
		f.reporters.reviews <- struct{}{}
	}
	if why := take("6"); !strings.Contains(why, "later") || asked != 6 {
		t.Errorf("%q, asked %d times", why, asked)
	}
	if _, err := f.reporter(t.Context(), good); err != nil {
		t.Errorf("one that is known: %v", err)
	}
}
