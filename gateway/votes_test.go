package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// labeller answers with a label for each sample, and with a score, which is its own.
func labeller(t *testing.T, broken *atomic.Bool, score float64, labels ...string) *httptest.Server {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q inferRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.URL.Path != "/v2/models/vision/infer" ||
			broken.Load() {
			http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusInternalServerError)
			return
		}
		n := int(q.Inputs[0].Shape[0])
		label, scores := []string{}, []float64{}
		for i := range n {
			label, scores = append(label, labels[i%len(labels)]), append(scores, score)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"model_name": "vision", "outputs": []any{
			map[string]any{"name": "label", "datatype": "BYTES", "shape": []int{n}, "data": label},
			map[string]any{"name": "score", "datatype": "FP64", "shape": []int{n}, "data": scores}}})
	}))
	t.Cleanup(h.Close)
	return h
}

// Labels are voted for by weight, what is no label is the heaviest voter's; a variant that fails has no vote, and
// without any the request fails.
func TestVotes(t *testing.T) {
	var broken [3]atomic.Bool
	c := &Config{Services: []Service{{Name: "vision", LatencyMS: 2000}}}
	for i, labels := range [][]string{{"cat", "cat", "dog"}, {"dog", "cat", "dog"}, {"dog", "ant", "cat"}} {
		v := Voter{fmt.Sprintf("vision:votes:%d", i), []float64{1.5, 1, 1}[i]}
		h := labeller(t, &broken[i], float64(i), labels...)
		c.Services[0].Voters = append(c.Services[0].Voters, v)
		c.Services = append(c.Services, Service{Name: v.Name, Inner: true, Model: "vision", LatencyMS: 2000, Batch: 4,
			TakesMS: []float64{1, 1, 1, 1}, Replicas: []Replica{{ID: fmt.Sprint(i), URL: h.URL}}})
	}
	c.Services[1].Batch = 2 // the others take more
	s, h := serve(t, c)
	if status, text := post(t, h.URL+"/v2/models/vision/infer",
		`{"inputs":[{"name":"x","shape":[5,1],"datatype":"FP64","data":[1,2,3,4,5]}]}`); status != 413 ||
		!strings.Contains(text, "5 samples; this model takes up to 4 at once") {
		t.Errorf("%d %s", status, text)
	}
	c.Services[1].Batch = 4
	if err := s.Update(c); err != nil {
		t.Fatal(err)
	}
	ask := func() (status int, votes, text string) {
		t.Helper()
		resp, err := http.Post(h.URL+"/v2/models/vision/infer", "application/json",
			strings.NewReader(`{"id":"7","inputs":[{"name":"x","shape":[3,1],"datatype":"FP64","data":[1,2,3]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var a inferResponse
		_ = json.NewDecoder(resp.Body).Decode(&a)
		for _, o := range a.Outputs {
			text += " " + string(o.Data)
		}
		return resp.StatusCode, resp.Header.Get(votesHeader), a.ID + text
	}
	for _, step := range []struct {
		breaks int
		status int
		votes  string
		text   string
	}{{-1, 200, "3", `7 ["dog","cat","dog"] [0,0,0]`}, {1, 200, "2", `7 ["cat","cat","dog"] [0,0,0]`},
		{0, 200, "1", `7 ["dog","ant","cat"] [2,2,2]`}, {2, 502, "", ""}} {
		if step.breaks >= 0 {
			broken[step.breaks].Store(true)
		}
		if status, votes, text := ask(); status != step.status || votes != step.votes || text != step.text {
			t.Errorf("after %d broke: %d, %s votes: %s", step.breaks, status, votes, text)
		}
	}
	if got := served(s, "vision"); got.Arrived != 4 || got.Answered != 3 || got.InTime != 3 || got.Failed != 1 {
		t.Errorf("%+v", got.Tally)
	}
	resp, err := http.Get(h.URL + "/v2/models/vision/ready")
	if err != nil || resp.StatusCode != 200 {
		t.Error(resp, err)
	}
	_ = resp.Body.Close()
	if status, _ := post(t, h.URL+"/v2/models/vision:votes:0/infer", sample(1)); status != 404 {
		t.Errorf("an inner service answers: %d", status)
	}
	c.Services[0].Voters[0].Weight = 0
	if err := s.Update(c); err == nil {
		t.Error("a vote without weight is accepted")
	}
}
