package load

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAccess: a token is read again for each query, and goes to Prometheus only; its path is not said.
func TestAccess(t *testing.T) {
	var other, asked []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		other = append(other, r.Header.Get("Authorization"))
		http.Error(w, "no", http.StatusUnauthorized)
	}))
	defer elsewhere.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Authorization"))
		if len(asked) == 3 {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}`))
	}))
	defer s.Close()
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewPrometheus(s.URL, Access{TokenFile: path}, time.Now); err == nil {
		t.Error("a token that is not there")
	}
	write("one\n")
	p, err := NewPrometheus(s.URL, Access{TokenFile: path}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() error { _, err := p.Demand(t.Context(), "x"); return err }
	if err := ask(); err != nil {
		t.Error(err)
	}
	write("two")
	if err := ask(); err != nil {
		t.Error(err)
	}
	if err := ask(); err == nil || !strings.Contains(err.Error(), "refuses Muster") {
		t.Errorf("another host: %v", err)
	}
	if strings.Join(asked, " ") != "Bearer one Bearer two Bearer two" || len(other) == 0 || other[0] != "" {
		t.Errorf("Prometheus was sent %q, another %q", asked, other)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := ask(); err == nil || strings.Contains(err.Error(), path) {
		t.Errorf("without the file: %v", err)
	}
}
