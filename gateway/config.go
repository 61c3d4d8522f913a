// Package gateway answers the requests of services with their replicas: it queues, batches and routes them, and drops
// early what can no longer be answered in time. It needs nothing but the file that says which replicas there are, so it
// goes on while the daemon that writes the file is down.
package gateway

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/internal/token"
	"github.com/muster-gpu/muster/serving/batch"
)

// Config is what the gateway serves.
type Config struct {
	Services []Service `json:"services"`
	Keys     []Key     `json:"keys,omitempty"`
	NeedsKey bool      `json:"needs_key,omitempty"` // also where there is none; else without keys all callers are let in
}

// Service is a service with the replicas that answer now.
type Service struct {
	Name      string    `json:"name"`
	Path      string    `json:"path,omitempty"`    // other HTTP: requests below /PATH/ go to it
	LatencyMS float64   `json:"latency_ms"`        // goal: longest time until an answer; 0: none
	TTFTMS    float64   `json:"ttft_ms,omitempty"` // of a language model: until the first token; 0: none
	TPOTMS    float64   `json:"tpot_ms,omitempty"` // and for each token after it
	Rule      string    `json:"rule,omitempty"`    // of batches
	Batch     int       `json:"batch,omitempty"`   // largest batch, in samples; 0 or 1: none are made
	DelayMS   float64   `json:"delay_ms,omitempty"`
	Preferred []int     `json:"preferred,omitempty"`
	TakesMS   []float64 `json:"takes_ms,omitempty"`   // of a batch; index 0 is a batch of one
	Waiting   int       `json:"waiting,omitempty"`    // most requests that wait, per replica; 0: 1000
	ColdMS    float64   `json:"cold_ms,omitempty"`    // longest wait for a first replica; 0: requests do not wait
	TimeoutMS float64   `json:"timeout_ms,omitempty"` // until a replica begins to answer; 0: five minutes
	StallMS   float64   `json:"stall_ms,omitempty"`   // between two parts of an answer; 0: two minutes
	// Prompts names the service whose replicas compute the prompts of this one's requests, before its own make
	// the answers (prefill and decode); "": its own do both.
	Prompts  string    `json:"prompts,omitempty"`
	Inner    bool      `json:"inner,omitempty"`  // it is there for another service: no caller can name it
	Voters   []Voter   `json:"voters,omitempty"` // inner services that answer its inference requests together
	Model    string    `json:"model,omitempty"`  // of an inner service: the model's name at its replicas; "": its own
	Replicas []Replica `json:"replicas"`
}

// Replica is where a copy of a service answers.
type Replica struct {
	ID       string  `json:"id"`
	URL      string  `json:"url"`
	AtOnce   int     `json:"at_once,omitempty"` // requests; 0: 1 if batches are made, else 64
	Weight   float64 `json:"weight,omitempty"`  // its part of the requests, relative to the others'; 0: 1
	Draining bool    `json:"draining,omitempty"`
}

// Key lets a caller in.
type Key struct {
	Name     string   `json:"name"`
	Hash     string   `json:"hash"`               // SHA-256 of the key, hexadecimal
	Services []string `json:"services,omitempty"` // none: all
	Rate     float64  `json:"rate,omitempty"`     // requests per second; 0: any
	Burst    int      `json:"burst,omitempty"`
	Priority int      `json:"priority,omitempty"` // requests of a higher one are answered first
}

// Load reads a configuration; unknown keys are errors, so that a newer writer is noticed.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var c Config
	if err := dec.Decode(&c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &c, nil
}

// Check says what is wrong with a configuration, which is then not taken over at all.
func (c *Config) Check() error {
	names, paths := map[string]bool{}, map[string]bool{}
	for i := range c.Services {
		s := &c.Services[i]
		if err := s.check(); err != nil {
			return fmt.Errorf("service %s: %w", s.Name, err)
		}
		if names[s.Name] {
			return fmt.Errorf("service %s is there twice", s.Name)
		}
		names[s.Name] = true
		if p := strings.Trim(s.Path, "/"); p != "" {
			if paths[p] || p == "v1" || p == "v2" || strings.Contains(p, "/") {
				return fmt.Errorf("service %s: path %s is one element, of one service only, and neither v1 nor v2",
					s.Name, p)
			}
			paths[p] = true
		}
	}
	for i := range c.Services {
		if s := &c.Services[i]; s.Prompts != "" && !slices.ContainsFunc(c.Services, func(o Service) bool {
			return o.Name == s.Prompts && o.Inner
		}) {
			return fmt.Errorf("service %s: prompts: there is no inner service %s", s.Name, s.Prompts)
		}
		for _, v := range c.Services[i].Voters {
			k := slices.IndexFunc(c.Services, func(o Service) bool { return o.Name == v.Name && o.Inner })
			if k < 0 || !(v.Weight > 0) || c.Services[k].Batch < 1 {
				return fmt.Errorf("service %s: voters: %s has to be an inner service with batches, and its weight above 0",
					c.Services[i].Name, v.Name)
			}
		}
	}
	return c.checkKeys()
}

func (c *Config) checkKeys() error {
	hashes := map[string]bool{}
	for _, k := range c.Keys {
		switch sum, err := hex.DecodeString(k.Hash); {
		case err != nil || len(sum) != sha256.Size || k.Hash != hex.EncodeToString(sum) || !(k.Rate >= 0):
			return fmt.Errorf("key %s: hash is the SHA-256 in 64 hexadecimal digits, rate 0 or more", k.Name)
		case k.Hash == token.Hash(""):
			return fmt.Errorf("key %s: its hash is that of an empty text, which every caller has", k.Name)
		case hashes[k.Hash]:
			return fmt.Errorf("key %s: another has the same hash", k.Name)
		}
		hashes[k.Hash] = true
	}
	return nil
}

func (s *Service) check() error {
	switch {
	case s.Name == "" || strings.ContainsAny(s.Name, "/? \n"):
		return errors.New("name: must be there, without slashes and blanks")
	case s.Path != "" && strings.Trim(s.Path, "/") == "":
		return errors.New("path: must not be the root")
	case !valid(s.LatencyMS, s.TTFTMS, s.TPOTMS, s.DelayMS, s.ColdMS, s.TimeoutMS, s.StallMS) || !valid(s.TakesMS...):
		return errors.New("latency_ms, ttft_ms, tpot_ms, delay_ms, takes_ms, cold_ms, timeout_ms, stall_ms: from 0 to a week")
	case s.Batch < 0 || s.Batch > 4096 || s.Waiting < 0:
		return errors.New("batch is from 0 to 4096, waiting 0 or more")
	case s.Batch > 1 && len(s.TakesMS) < s.Batch:
		return fmt.Errorf("takes_ms: %d values for batches of up to %d", len(s.TakesMS), s.Batch)
	}
	if _, err := batch.New(s.Rule, s.setting()); err != nil {
		return err
	}
	ids := map[string]bool{}
	for _, r := range s.Replicas {
		u, err := url.Parse(r.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("replica %s: %q is not an address such as http://127.0.0.1:9000", r.ID, r.URL)
		}
		if ids[r.ID] || r.ID == "" || r.AtOnce < 0 || !(r.Weight >= 0) {
			return fmt.Errorf("replica %q: ids differ, at_once and weight are 0 or more", r.ID)
		}
		ids[r.ID] = true
	}
	return nil
}

// valid reports whether times in milliseconds are from 0 to a week.
func valid(ms ...float64) bool {
	for _, t := range ms {
		if !(t >= 0 && t <= 7*24*3600*1000) {
			return false
		}
	}
	return true
}

// setting is what a batching rule gets to know of the service.
func (s *Service) setting() batch.Setting {
	takes := s.TakesMS
	return batch.Setting{Max: max(1, s.Batch), Delay: millis(s.DelayMS), Preferred: s.Preferred, Goal: s.goal(),
		Takes: func(n int) time.Duration {
			if n > len(takes) {
				return time.Millisecond
			}
			return millis(takes[n-1])
		}}
}

// goal is the latency that is promised; without one, requests may wait for a minute.
func (s *Service) goal() time.Duration { return millis(cmp.Or(s.LatencyMS, 60_000)) }

func (s *Service) timeout() time.Duration { return millis(cmp.Or(s.TimeoutMS, 300_000)) }

func (s *Service) stall() time.Duration { return millis(cmp.Or(s.StallMS, 120_000)) }

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// Files in the folder that the gateway shares with what tells it of replicas.
const (
	RoutesFile   = "routes.json" // a Config
	CountsSocket = "counts.sock" // answers GET /counts with a Report
)

// UnknownHeader marks the answer that there is no such service, which is no answer of a model.
const UnknownHeader = "X-Muster-Unknown-Service"

// BulkHeader marks a request that may wait for whatever the others leave: "left=N;by=UNIX", how many such requests are
// left, and until when they should be answered, if there is a time.
const BulkHeader = "X-Muster-Bulk"
