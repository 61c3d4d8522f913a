//go:build linux

package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServiceKeys: with keys in the configuration the gateway lets nobody else in; what a key may use and how often is
// kept. A reload brings keys and takes them away, and so does a restart, before replicas are known again.
func TestServiceKeys(t *testing.T) {
	t.Parallel()
	s := startServing(t, "1xH100-80GB")
	s.apply("vision", "replicas: {min: 1, max: 1}")
	s.apply("other", "replicas: {min: 0, max: 1}")
	s.answers("vision", 1)
	s.eventually("everybody may ask", func() bool { status, _ := s.ask("vision"); return status == http.StatusOK })
	made := func(name string, services ...string) (key, line string) {
		out := s.must(append([]string{"service", "key", name}, services...)...)
		for l := range strings.Lines(out) {
			switch l = strings.TrimSpace(l); {
			case strings.HasPrefix(l, "muster_"):
				key = l
			case strings.HasPrefix(l, "- {name: "):
				line = l
			}
		}
		if key == "" || line == "" || strings.Contains(line, key) {
			t.Fatalf("%s", out)
		}
		return key, line
	}
	configure := func(keys ...string) {
		text := "kill_wait: 1s\nservices:\n  ports: " + s.ports + "\n  period: 1s\n"
		if len(keys) > 0 {
			text += "  keys:" + strings.Join(append([]string{""}, keys...), "\n    ") + "\n"
		}
		s.configure(text)
	}
	ask := func(service, key string) (status int, retry string) {
		r, err := http.NewRequest(http.MethodPost, s.url+"/v2/models/"+service+"/infer", strings.NewReader(oneRow))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, ""
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	comes := func(status int, key string) {
		t.Helper()
		s.eventually("the gateway follows", func() bool { got, _ := ask("vision", key); return got == status })
	}

	shop, shopLine := made("shop", "vision")
	lab, labLine := made("lab", "*")
	shopLine = strings.TrimSuffix(shopLine, "}") + ", rate: 0.01, burst: 2, tier: best-effort}"
	configure(shopLine, labLine, strings.ReplaceAll(strings.Replace(labLine, "lab", "typo", 1), `"*"`, "visoin"))
	out, code := s.try("config", "reload")
	if s.want(out, "muster.yaml:8: services: keys: 2: lab has the same name or hash"); code == exitOK {
		t.Error("two keys of one hash are taken over")
	}
	_, none := made("typo", "visoin")
	configure(shopLine, labLine, none)
	s.want(s.must("config", "reload"), "services.keys.shop: (none) -> hash ", "services vision, rate 0.01, burst 2",
		"services.keys: typo: there is no service visoin yet")
	comes(http.StatusUnauthorized, "")
	if status, _ := ask("other", shop); status != http.StatusForbidden {
		t.Errorf("another service: %d", status)
	}
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		if status, retry := ask("vision", shop); status != want || (retry == "100") != (want != http.StatusOK) {
			t.Errorf("%d: %d, to be tried again after %q s", i, status, retry)
		}
	}
	s.kill()
	s.start()
	s.answers("vision", 1)
	for key, want := range map[string]int{"": http.StatusUnauthorized, shop: http.StatusTooManyRequests,
		lab: http.StatusOK} {
		if status, _ := ask("vision", key); status != want {
			t.Errorf("after a restart of the daemon: %d, not %d", status, want)
		}
	}

	configure(labLine)
	s.want(s.must("config", "reload"), "services.keys.shop: hash ", "-> (none)")
	comes(http.StatusUnauthorized, shop)
	if status, _ := ask("vision", lab); status != http.StatusOK {
		t.Errorf("the key that is left: %d", status)
	}
	configure("")
	if out, code = s.try("config", "reload"); code == exitOK {
		t.Error("a list without entries lets everybody in")
	}
	s.want(out, "muster.yaml:5: services: keys: the list is missing")
	s.kill()
	configure("[]")
	s.start()
	comes(http.StatusUnauthorized, lab)
	s.answers("vision", 1)
	configure()
	s.want(s.must("config", "reload"), "services.keys: none: nobody is let in -> (none)")
	comes(http.StatusOK, "")
}

// TestServiceWeights: a service under inss-rl is planned with the weights that the daemon's configuration names, and
// muster service why says whether the learnt plan was taken; a file that is none keeps the daemon from starting.
func TestServiceWeights(t *testing.T) {
	t.Parallel()
	s := startServing(t, "1xH100-80GB")
	shipped, err := os.ReadFile("../../serving/inss/agents.json")
	if err != nil {
		t.Fatal(err)
	}
	weights := s.write("weights.json", string(shipped))
	s.kill()
	configure := func(file string) {
		s.configure("kill_wait: 1s\nsharing: {shares: mps, mps_program: " + stand(t, "mps-control") + "}\n" +
			"services: {ports: " + s.ports + ", period: 1s, weights: " + file + "}\n")
	}
	configure(filepath.Join(s.dir, "muster.yaml"))
	if out, code := s.try("serve", "--config", filepath.Join(s.dir, "muster.yaml")); code == exitOK {
		t.Errorf("%s", out)
	} else {
		s.want(out, "muster.yaml:3: services: weights: ", "muster learn inss-rl writes such a file")
	}
	configure(weights)
	s.start()
	const profile = "{batch: 1, latency: 5ms}, {share: 0.5, batch: 1, latency: 8ms}"
	s.applyAs("vision", "replicas: {min: 1, max: 1}\nscaling: inss-rl", profile)
	s.eventually("why says which plan was taken", func() bool {
		return strings.Contains(s.must("service", "why", "vision"), "plan is taken")
	})
	s.answers("vision", 1)
	s.refuses("other", "replicas: {min: 1, max: 1}\nscaling: inss-rl:weights="+weights,
		"services.weights in the daemon's")
}
