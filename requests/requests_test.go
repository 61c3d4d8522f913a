package requests

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// all reads a stream to its end.
func all(t *testing.T, s Stream) (list []Request) {
	t.Helper()
	for {
		var r Request
		err := s.Next(&r)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
}

const second = cluster.Time(time.Second)

// TestFormats reads the first lines of each format.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		format, text string
		o            Options
		want         []Request
		skipped      int64
	}{
		{"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.6805900,396,109\n",
			Options{}, []Request{{0, 7, 374, 44}, {4 * second, 7, 396, 109}}, 0},
		{"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-10 00:00:00.009930+00:00,2162,5\r\n2024-05-10 00:00:01.009930+00:00,2399,6\r\n",
			Options{Speed: 2, From: second}, []Request{{second, 7, 2162, 5}, {second + second/2, 7, 2399, 6}}, 0},
		{"burstgpt", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,1087,230,1317,API log\n118,ChatGPT,417,0,417,API log\n119,ChatGPT,5,6,11,API log\n",
			Options{Service: "ChatGPT"}, []Request{{0, 7, 472, 18}, {114 * second, 7, 5, 6}}, 1},
		{"mooncake", `{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}` + "\n" +
			`{"timestamp":30535,"input_length":6472,"output_length":26,"hash_ids":[46]}`,
			Options{}, []Request{{0, 7, 6955, 52}, {3053 * cluster.Time(time.Millisecond), 7, 6472, 26}}, 0},
		{"csv", "arrival_s,service\n0.5,a\n0.75,b\n\n1,a\n", Options{Service: "a"},
			[]Request{{0, 7, 0, 0}, {second / 2, 7, 0, 0}}, 0},
		{"csv", "prompt_tokens, output_tokens, arrival_s\n10,20,3\n10,0,3\n", Options{Limit: 1},
			[]Request{{0, 7, 10, 20}}, 0},
	} {
		f, err := Read("x", strings.NewReader(c.text), c.o, 7)
		if err != nil {
			t.Errorf("%s: %v", c.format, err)
			continue
		}
		got := all(t, f)
		if f.Format != c.format || fmt.Sprint(got) != fmt.Sprint(c.want) || f.Skipped != c.skipped {
			t.Errorf("%s as %s: %v, %d skipped; want %v, %d", c.format, f.Format, got, f.Skipped, c.want, c.skipped)
		}
	}
}

// TestBadFiles: each error names the line and what would be right.
func TestBadFiles(t *testing.T) {
	azure := "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	for text, want := range map[string]string{
		"":                                 "x: is empty",
		"a,b\n1,2\n":                       `x:1: no known format of requests begins with "a,b"`,
		azure + "yesterday,1,2":            `x:2: timestamp: "yesterday" is not a time such as`,
		azure + "2023-11-16 18:15:46,1":    "x:2: 2 values in a line, 3 columns",
		azure + "2023-11-16 18:15:46,-1,2": `x:2: contexttokens: "-1" is not a number of tokens from 0`,
		azure + "2023-11-16 18:15:46,1,99999999999":                "x:2: generatedtokens:",
		azure + "2023-11-16 18:15:46,1,2\n2023-11-16 18:15:45,1,2": "x:3: it comes 1s before the request above it",
		"arrival_s,colour\n1,2\n":                                  "x:1: unknown column \"colour\"",
		"arrival_s\nNaN\n":                                         `x:2: arrival_s: "NaN" is not a number of seconds`,
		`{"timestamp": 1, "input_length": 5}` + "\n":               `x:1: there is no "output_length"`,
		`{"timestamp":"x","input_length":5,"output_length":1}`:     `x:1: timestamp: "" is not a number of milliseconds`,
		"arrival_s\n" + strings.Repeat("1", 70000):                 "x:2: the line is longer than",
		"\x1f\x8b\x00\x00":                                         "x: not a readable gzip file",
	} {
		f, err := Read("x", strings.NewReader(text), Options{}, 0)
		var r Request
		for err == nil {
			err = f.Next(&r)
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
	for _, o := range []Options{{Speed: -1}, {Speed: math.NaN()}, {Limit: -1}, {Format: "xml"}} {
		if _, err := Read("x", strings.NewReader("arrival_s\n1\n"), o, 0); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"))
	f.Add([]byte(`{"timestamp": 27482, "input_length": 6955, "output_length": 52}`))
	f.Add([]byte("arrival_s,service\n0.5,a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Read("x", strings.NewReader(string(data)), Options{}, 0)
		last := cluster.Time(0)
		for err == nil {
			var r Request
			if err = s.Next(&r); err == nil && (r.At < last || r.Prompt < 0 || r.Output < 0) {
				t.Fatalf("%+v after %v", r, last)
			}
			last = max(last, r.At)
		}
	})
}

// TestAzure reads the recorded hour.
func TestAzure(t *testing.T) {
	f, err := Open("../../shared/traces/azure-llm/AzureLLMInferenceTrace_conv.csv", Options{}, 0)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the recorded traces are not beside the repository")
	}
	if err != nil {
		t.Fatal(err)
	}
	list := all(t, f)
	prompt, output := 0, 0
	for i := range list {
		prompt, output = prompt+int(list[i].Prompt), output+int(list[i].Output)
	}
	if n := len(list); n != 19366 || list[n-1].At.Sub(0).Round(time.Second) != 58*time.Minute+22*time.Second ||
		prompt/n != 1154 || output/n != 211 {
		t.Errorf("%d requests until %v, %d and %d tokens in the mean", n, list[n-1].At, prompt/n, output/n)
	}
}

// count is the requests of a stream in each slice of time, and the coefficient of variation of its gaps.
func count(list []Request, slice time.Duration) (n []int, cv float64) {
	sum, squares := 0.0, 0.0
	for i := range list {
		k := int(list[i].At.Sub(0) / slice)
		for len(n) <= k {
			n = append(n, 0)
		}
		n[k]++
		if i > 0 {
			g := float64(list[i].At - list[i-1].At)
			sum, squares = sum+g, squares+g*g
		}
	}
	m := sum / float64(len(list)-1)
	return n, math.Sqrt(squares/float64(len(list)-1)-m*m) / m
}

func near(got int, want, by float64) bool { return math.Abs(float64(got)-want) <= by*want }

// TestDraw: rates over time and the variation of gaps are what was asked for.
func TestDraw(t *testing.T) {
	for _, cv := range []float64{0, 0.5, 1, 2, 4} {
		n, got := count(all(t, Draw(&Arrivals{Rate: 100, CV: cv, For: 2000 * time.Second, Seed: 3}, 0)),
			2000*time.Second)
		if !near(n[0], 200_000, 0.02) || math.Abs(got-cv) > 0.05*max(0.2, cv) {
			t.Errorf("cv %g: %d requests with a coefficient of %.3f", cv, n[0], got)
		}
	}
	steps := Arrivals{Rate: 50, CV: 1, For: 400 * time.Second,
		Steps:  []Step{{100 * time.Second, 200}, {200 * time.Second, 0}},
		Spikes: []Spike{{50 * time.Second, 50 * time.Second, 4}}, From: 100 * second}
	n, _ := count(all(t, Draw(&steps, 0)), 50*time.Second)
	if len(n) != 6 || n[0]+n[1] != 0 || !near(n[2], 2500, 0.1) || !near(n[3], 10_000, 0.1) ||
		!near(n[4], 10_000, 0.1) ||
		!near(n[5], 10_000, 0.1) {
		t.Errorf("steps and a spike: %v", n)
	}
	daily := Arrivals{Rate: 10, CV: 1, Daily: 0.8, Peak: 15 * time.Hour, For: day}
	if n, _ = count(all(t, Draw(&daily, 0)), time.Hour); !near(n[14], 36_000*1.8, 0.05) ||
		!near(n[2], 36_000*0.2, 0.1) {
		t.Errorf("daily cycle: %v", n)
	}
	bursts := Arrivals{Rate: 100, CV: 1, For: 10_000 * time.Second,
		Bursts: Bursts{Times: 10, For: time.Second, Between: 9 * time.Second}}
	list := all(t, Draw(&bursts, 0))
	if n, _ = count(list, 10_000*time.Second); !near(n[0], 1e6*(0.9+0.1*10), 0.1) {
		t.Errorf("bursts: %d requests", n[0])
	}
	if _, cv := count(list, time.Second); cv < 1.3 {
		t.Errorf("bursts: the gaps have a coefficient of %.3f", cv)
	}
	tokens := Arrivals{Rate: 1000, CV: 1, For: 10 * time.Second, Prompt: Tokens{Median: 500, Sigma: 1},
		Output: Tokens{Median: 9, Most: 8}}
	above := 0
	for _, r := range all(t, Draw(&tokens, 0)) {
		if r.Prompt > 500 {
			above++
		}
		if r.Output != 8 || r.Prompt < 1 {
			t.Fatalf("%+v", r)
		}
	}
	if !near(above, 5000, 0.05) {
		t.Errorf("%d prompts are above the median", above)
	}
}

// TestMerge: by time, then by stream; the end of one is not the end of all.
func TestMerge(t *testing.T) {
	a := &Arrivals{Rate: 1, For: 10 * time.Second}
	b := &Arrivals{Rate: 2, For: 5 * time.Second}
	got := all(t, Merge(Draw(a, 0), Until(Draw(b, 1), 3*second), Draw(a, 2)))
	want := "1@0.5 0@1 1@1 2@1 1@1.5 0@2 1@2 2@2 1@2.5 0@3 2@3 0@4 2@4 0@5 2@5 0@6 2@6 0@7 2@7 0@8 2@8 0@9 2@9"
	var text []string
	for _, r := range got {
		text = append(text, fmt.Sprintf("%d@%g", r.Service, r.At.Sub(0).Seconds()))
	}
	if strings.Join(text, " ") != want {
		t.Errorf("%s, want %s", strings.Join(text, " "), want)
	}
}

// TestBadArrivals: each mistake is named.
func TestBadArrivals(t *testing.T) {
	good := Arrivals{Rate: 1, CV: 1, For: time.Second}
	for want, change := range map[string]func(*Arrivals){
		"rate:": func(a *Arrivals) { a.Rate = math.NaN() }, "cv:": func(a *Arrivals) { a.CV = -1 },
		"daily:": func(a *Arrivals) { a.Daily = 2 }, "peak:": func(a *Arrivals) { a.Peak = day },
		"for:": func(a *Arrivals) { a.For = 0 }, "steps[1]": func(a *Arrivals) { a.Steps = []Step{{2, 1}, {1, 1}} },
		"spikes[0]": func(a *Arrivals) { a.Spikes = []Spike{{Times: 2}} },
		"bursts:":   func(a *Arrivals) { a.Bursts.Times = 2 }, "tokens:": func(a *Arrivals) { a.Prompt.Median = 0.5 },
		"from:": func(a *Arrivals) { a.From = -1 },
	} {
		a := good
		if change(&a); a.Check() == nil || !strings.HasPrefix(a.Check().Error(), want) {
			t.Errorf("%+v: %v, want %s", a, a.Check(), want)
		}
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
}

func BenchmarkDraw(b *testing.B) {
	s := Draw(&Arrivals{Rate: 1000, CV: 1, Daily: 0.5, For: 1 << 60}, 0)
	var r Request
	for range b.N {
		if err := s.Next(&r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	line := "2023-11-16 18:15:46.6805900,374,44\n"
	text := "TIMESTAMP,ContextTokens,GeneratedTokens\n" + strings.Repeat(line, b.N)
	s, err := Read("x", strings.NewReader(text), Options{}, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	var r Request
	for range b.N {
		if err := s.Next(&r); err != nil {
			b.Fatal(err)
		}
	}
}
