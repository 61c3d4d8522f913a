package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Tokens of prompts and answers are counted as the answer says, else by its events and the request's length; and an
// answer is in time by the goals for the first token and for each after it.
func TestTokens(t *testing.T) {
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"stream"`) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"choices":[{"text":"says \"usage\": {\"prompt_tokens\": 9} "}],"usage":{"prompt_tokens":20,`+
				`"completion_tokens":5},"kv":null}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			if strings.Contains(string(body), "slow") && i > 0 {
				time.Sleep(150 * time.Millisecond)
			}
			fmt.Fprintf(w, "data: {\"text\":\"%d\"}\n\n", i)
			w.(http.Flusher).Flush()
		}
		if strings.Contains(string(body), "include_usage") {
			fmt.Fprint(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5}}\n\n")
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	defer replica.Close()
	body := func(more string) string { return fmt.Sprintf(`{"model":"chat","prompt":"%090d"%s}`, 0, more) } // 20 tokens
	for name, c := range map[string]struct {
		asked                    []string
		prompts, outputs, inTime int64
	}{
		"in one piece":           {[]string{body("")}, 20, 5, 1},
		"a stream that says it":  {[]string{body(`,"stream":true,"stream_options":{"include_usage":true}`)}, 7, 5, 1},
		"a stream that does not": {[]string{body(`,"stream":true`)}, 33, 5, 1},
		"a slow stream":          {[]string{body(`,"stream":true,"user":"slow"`)}, 36, 5, 0},
		"after one that said it": {[]string{body(""), body(`,"stream":true`)}, 42, 10, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, h := serve(t, &Config{Services: []Service{{Name: "chat", TTFTMS: 5000, TPOTMS: 100,
				Replicas: []Replica{{ID: "1", URL: replica.URL}}}}})
			for _, b := range c.asked {
				if status, text := post(t, h.URL+"/v1/completions", b); status != http.StatusOK {
					t.Fatal(status, text)
				}
			}
			got := served(s, "chat")
			if got.Prompts != c.prompts || got.Outputs != c.outputs || got.InTime != c.inTime ||
				got.Answered != int64(len(c.asked)) {
				t.Errorf("%d and %d tokens, %d of %d in time; not %d, %d, %d", got.Prompts, got.Outputs, got.InTime,
					got.Answered, c.prompts, c.outputs, c.inTime)
			}
		})
	}
}
