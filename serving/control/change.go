package control

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/show"
)

// Errors of changes.
var (
	ErrUnknown = errors.New("there is no such service")
	ErrForeign = errors.New("the service belongs to another user")

	errUncounted = errors.New("the gateway does not have it yet")
)

// Caller is who asks for a change.
type Caller struct {
	User     string
	Operator bool // jobs of the caller may have what users' may not, such as the tier critical
	Admin    bool
}

// mostEach is how many services a user may have.
const mostEach = 100

// Apply begins to run a service that a file describes, or changes the one of its name. What replicas run is changed
// make-before-break. An admin may change services of others, which keep their owner.
func (c *Controller) Apply(ctx context.Context, f *ask.ServiceFile, by Caller) (show.Service, error) {
	spec, err := Read(f)
	if err != nil {
		return show.Service{}, err
	}
	if err := bounded(spec); err != nil {
		return show.Service{}, err
	}
	if err := c.opt.Scheduler.Test(spec, by); err != nil {
		return show.Service{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.apply(ctx, spec, f, by); err != nil {
		return show.Service{}, err
	}
	return c.show(c.services[spec.Name]), nil
}

// Read reads a service that can run.
func Read(f *ask.ServiceFile) (*service.Service, error) {
	list, err := config.ReadServices("the service", []byte(f.Text))
	switch {
	case err != nil:
		return nil, err
	case len(list) != 1:
		return nil, fmt.Errorf("there are %d services: apply one at a time", len(list))
	}
	spec := &list[0]
	for i := range spec.Variants {
		spec.Variants[i].Dir = cmp.Or(spec.Variants[i].Dir, f.Dir)
	}
	return spec, runnable(spec)
}

// runnable reports as an error what a service lacks, or has, that only simulated ones may.
func runnable(s *service.Service) error {
	if !nameForm.MatchString(s.Name) {
		return fmt.Errorf("name: %q is not made of up to 63 letters, digits, and single dots, dashes and underscores",
			s.Name)
	}
	if s.Path != "" && (!nameForm.MatchString(s.Path) || s.Path == "v1" || s.Path == "v2") {
		return fmt.Errorf("path: %q is not a name such as app; v1 and v2 are the protocols'", s.Path)
	}
	for i := range s.Variants {
		if len(s.Variants[i].Command) == 0 {
			return fmt.Errorf("variants[%d]: command: what its replicas run is missing", i)
		}
		for name := range s.Variants[i].Env {
			if name == "" || strings.ContainsAny(name, "=\x00") {
				return fmt.Errorf("variants[%d]: env: %q is not a name of a variable", i, name)
			}
		}
	}
	return nil
}

const (
	mostTime     = 24 * time.Hour // of what a service states
	mostVariants = 32
)

// bounded reports as an error what the gateway would not take, or what would make its file large. It is not asked of
// services that are kept: such a one is left out of the file.
func bounded(s *service.Service) error {
	type stated struct {
		key  string
		time time.Duration
	}
	list := []stated{{"latency", s.Goal.Latency}, {"ttft", s.Goal.TTFT}, {"tpot", s.Goal.TPOT},
		{"batching: delay", s.Batching.Delay}}
	for i := range s.Variants {
		list = append(list, stated{fmt.Sprintf("variants[%d]: startup", i), s.Variants[i].Startup})
	}
	for _, x := range list {
		if x.time > mostTime {
			return fmt.Errorf("%s: %v is more than a day", x.key, x.time)
		}
	}
	if n := len(s.Variants); n > mostVariants {
		return fmt.Errorf("variants: there are %d, at most %d are possible", n, mostVariants)
	}
	return nil
}

// nameForm is what names and paths of services look like: they become parts of URLs, of file names and of labels.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// apply keeps a service and begins to run it; the lock is held.
func (c *Controller) apply(ctx context.Context, spec *service.Service, f *ask.ServiceFile, by Caller) error {
	s := Service{Service: *spec, File: *f, Owner: by.User, Trusted: by.Operator, Applied: c.opt.Now(),
		Generation: Generation(spec)}
	if old := c.services[s.Name]; old != nil {
		if err := mayChange(old, by); err != nil {
			return err
		}
		if old.deleted {
			return fmt.Errorf("a service called %s is being deleted: try again in a moment", s.Name)
		}
		s.Owner = old.Owner
	} else if n := c.owned(by.User); n >= mostEach {
		return fmt.Errorf("%s has %d services, the most for one user", by.User, n)
	}
	if s.Path != "" {
		for _, o := range c.services {
			if o.Path == s.Path && o.Name != s.Name {
				return fmt.Errorf("path: %s is the path of service %s", s.Path, o.Name)
			}
		}
	}
	if err := c.opt.Store.PutService(ctx, &s); err != nil {
		return err
	}
	defer c.wake()
	return c.take(&s)
}

func (c *Controller) owned(owner string) (n int) {
	for _, s := range c.services {
		if s.Owner == owner {
			n++
		}
	}
	return n
}

func mayChange(s *running, by Caller) error {
	if s.Owner != by.User && !by.Admin {
		return ErrForeign
	}
	return nil
}

// Generation is a fingerprint of what replicas run.
func Generation(s *service.Service) string {
	type part struct {
		Name    string
		Command []string
		Dir     string
		Env     map[string]string
		Request any
		GPUs    []string
	}
	parts := []any{s.Queue, s.Tier}
	for i := range s.Variants {
		v := &s.Variants[i]
		parts = append(parts, part{v.Name, v.Command, v.Dir, v.Env, v.Request, v.GPUTypes})
	}
	data, err := json.Marshal(parts)
	if err != nil {
		panic(err) // texts and numbers always can be
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// Scale sets how many replicas a service has, instead of what its file says; a new file takes that back.
func (c *Controller) Scale(ctx context.Context, name string, to service.Replicas, by Caller) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.find(name, by)
	if err != nil {
		return err
	}
	spec := s.Service.Service
	spec.Replicas = to
	if err := spec.Check(); err != nil {
		return err
	}
	changed := s.Service
	changed.Scaled = &to
	if err := c.opt.Store.PutService(ctx, &changed); err != nil {
		return err
	}
	s.Scaled = &to
	c.wake()
	return nil
}

// find returns a service that the caller may change.
func (c *Controller) find(name string, by Caller) (*running, error) {
	s := c.services[name]
	if s == nil || s.deleted {
		return nil, ErrUnknown
	}
	return s, mayChange(s, by)
}

// Delete ends a service: its replicas finish what they have.
func (c *Controller) Delete(ctx context.Context, name string, by Caller) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.find(name, by)
	if err != nil {
		return err
	}
	if err := c.opt.Store.DeleteService(ctx, name); err != nil {
		return err
	}
	s.deleted = true
	c.wake()
	return nil
}
