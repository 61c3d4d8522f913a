package gateway

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// recorder is a backend that notes what it is asked, and answers with a text; below /missing it has nothing.
func recorder(t *testing.T, text string) (url string, asked func() *http.Request, body func() string) {
	var last *http.Request
	var sent string
	b := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		last, sent = r, string(data)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/missing") {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, text)
	})
	return b.URL, func() *http.Request { return last }, func() string { return sent }
}

// TestEmbeddings: a request for embeddings goes to the service that it names, as it came, and so does the answer; what
// is wrong with one is said in OpenAI's form, and no replica is asked.
func TestEmbeddings(t *testing.T) {
	const vector = `{"object":"list","data":[{"index":0,"embedding":[0.25,-1]}],"usage":{"prompt_tokens":2}}`
	backend, asked, body := recorder(t, vector)
	_, url := serveReal(t, one(backend), Limits{})
	const in = `{"input": ["a", "b"], "model": "app", "encoding_format": "float"}`
	status, text := post(t, url+"/v1/embeddings", in)
	if status != 200 || text != vector || body() != in || asked().URL.Path != "/v1/embeddings" {
		t.Errorf("%d %s; the replica was asked %v for %s", status, text, body(), asked().URL)
	}
	before := asked()
	for in, want := range map[string]string{`{"input":"a"}`: "400 model: the body names none; there are app",
		`{"input":"a","model":"other"}`: `404 no model "other"; there are app`,
		`["a"]`:                         "400 the body is no JSON object",
		`{"model":["app"]}`:             "400 the body is no JSON object", ``: "400 the body is no JSON object"} {
		status, text := post(t, url+"/v1/embeddings", in)
		code, message, _ := strings.Cut(want, " ")
		message = strings.ReplaceAll(message, `"`, `\"`)
		if strconv.Itoa(status) != code || !strings.HasPrefix(text, `{"error":{"code":`+code+`,"message":"`+message) {
			t.Errorf("%s: %d %s, want %s", in, status, text, want)
		}
	}
	if asked() != before {
		t.Errorf("a replica was asked for %s", body())
	}
}

// TestMetadata: what the Open Inference Protocol has besides inference is the replica's to answer, also of a service
// with batches: the model's metadata, other versions, extensions, and what it does not have.
func TestMetadata(t *testing.T) {
	const model = `{"name":"app","platform":"x","inputs":[]}`
	backend, asked, _ := recorder(t, model)
	c := one(backend)
	c.Services[0].Batch, c.Services[0].TakesMS = 4, takes(4, 1)
	c.Services = append(c.Services, Service{Name: "none"})
	_, url := serveReal(t, c, Limits{})
	get := func(path string) (int, string) {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	for path, want := range map[string]int{"": 200, "/versions/2": 200, "/versions/2/ready": 200, "/config?x=1": 200,
		"/versions/2/infer": 200, "/missing": 404} {
		path = "/v2/models/app" + path
		if status, text := get(path); status != want || text != model || asked().URL.String() != path {
			t.Errorf("%s: %d %s; the replica was asked for %s", path, status, text, asked().URL)
		}
	}
	before := asked()
	for path, want := range map[string]string{
		"/v2/models/other": `404 {"error":"no model \"other\"; there are app, none`,
		"/v2/models/none":  `503 {"error":"no replica answers"`,
		"/v2/models":       `404 {"error":"the protocol has no such path"`,
		"/v2/models/":      `404 `, "/v2/models/app/ready": `200 {"ready":true}`} {
		status, text := get(path)
		if text = strconv.Itoa(status) + " " + text; !strings.HasPrefix(text, want) {
			t.Errorf("%s: %s, want %s", path, text, want)
		}
	}
	if asked() != before {
		t.Errorf("a replica was asked for %s", asked().URL)
	}
}

// TestKeyStays: a caller's key is the gateway's and no replica gets it, by whichever way it came; where no key is
// needed, what a caller sends is for the replica.
func TestKeyStays(t *testing.T) {
	backend, asked, _ := recorder(t, "{}")
	c := one(backend)
	s, url := serveReal(t, c, Limits{})
	ways := map[string]string{"/app/x": "", "/v1/completions": `{"model":"app"}`, "/v2/models/app": ""}
	for _, keys := range [][]Key{nil, {{Name: "ann", Hash: hashOf("k")}}} {
		c.Keys = keys
		if err := s.Update(c); err != nil {
			t.Fatal(err)
		}
		for path, body := range ways {
			status, text := post(t, url+path, body, "Authorization", "Bearer k", "X-Api-Key", "k")
			h := asked().Header
			if status != 200 || (h.Get("Authorization")+h.Get("X-Api-Key") == "") != (keys != nil) {
				t.Errorf("%s: %d %s; with %d keys the replica got %v", path, status, text, len(keys), h)
			}
		}
	}
}
