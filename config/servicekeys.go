package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/token"
	"github.com/muster-gpu/muster/serving/scale"
)

// ServiceKey lets a caller use services through the gateway.
type ServiceKey struct {
	Name     string
	Hash     string       // SHA-256 of the key, 64 hexadecimal digits
	Services []string     // nil: all
	Rate     float64      // requests per second; 0: any
	Burst    int          // requests at once, while they are fewer per second; 0 without a rate
	Tier     cluster.Tier // whose requests go first
}

type serviceKeyFile struct {
	Name     string   `yaml:"name"`
	Hash     string   `yaml:"hash"`
	Services []string `yaml:"services"`
	Rate     *float64 `yaml:"rate"`
	Burst    *int     `yaml:"burst"`
	Tier     string   `yaml:"tier"`
}

// noKeys stands for a file that says nothing of keys. An entry without a value becomes nil, which is an error: a list
// whose last key was taken out must not let everybody in.
func noKeys() *[]serviceKeyFile { return new([]serviceKeyFile) }

const (
	mostKeyRate  = 1e6 // requests per second
	mostKeyBurst = 1e6
	allServices  = "*"
	shownHash    = 12 // digits, which tell one from another
)

// serviceKeys reads who may use services; nil: everybody may, without a key.
func serviceKeys(files *[]serviceKeyFile) ([]ServiceKey, error) {
	switch {
	case files == nil:
		return nil, At(errors.New("the list is missing: [] lets nobody in; without keys: everybody may use every service"),
			"services", "keys")
	case *files == nil:
		return nil, nil
	}
	keys := []ServiceKey{}
	for i := range *files {
		f := &(*files)[i]
		k, err := f.read()
		same := func(o ServiceKey) bool { return o.Name == k.Name || o.Hash == k.Hash }
		if j := slices.IndexFunc(keys, same); err == nil && j >= 0 {
			err = fmt.Errorf("%s has the same name or hash", keys[j].Name)
		}
		if err != nil {
			return nil, At(err, "services", "keys", strconv.Itoa(i))
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func (f *serviceKeyFile) read() (k ServiceKey, err error) {
	k = ServiceKey{Name: f.Name, Hash: strings.ToLower(f.Hash), Tier: cluster.Standard}
	switch {
	case !keyName(f.Name):
		return k, fmt.Errorf("name: %q is not 1 to 63 letters, digits, dots, dashes and underscores", f.Name)
	case len(k.Hash) != 64 || strings.Trim(k.Hash, "0123456789abcdef") != "":
		return k, errors.New("hash: 64 hexadecimal digits are the SHA-256 of a key: muster service key NAME makes both")
	case k.Hash == token.Hash(""):
		return k, errors.New("hash: this is that of an empty text, which every caller has")
	case len(f.Services) == 0:
		return k, errors.New(`services: name those that it may use, such as [vision]; ["*"] is all, also those to come`)
	}
	for i, name := range f.Services {
		if name == "" || slices.Contains(f.Services[:i], name) || name == allServices && len(f.Services) > 1 {
			return k, fmt.Errorf("services: %q is empty, there twice, or beside others", name)
		}
	}
	if f.Services[0] != allServices {
		k.Services = f.Services
	}
	if f.Rate != nil {
		if k.Rate = *f.Rate; !(k.Rate > 0 && k.Rate <= mostKeyRate) {
			return k, fmt.Errorf("rate: %g is not more than 0 requests a second and at most %g; without it there is no limit",
				k.Rate, mostKeyRate)
		}
		k.Burst = int(math.Ceil(k.Rate))
	}
	if f.Burst != nil {
		if k.Burst = *f.Burst; k.Rate == 0 || k.Burst < 1 || k.Burst > mostKeyBurst {
			return k, fmt.Errorf("burst: %d; from 1 to %g requests at once are possible, and only beside a rate", k.Burst,
				mostKeyBurst)
		}
	}
	if f.Tier != "" {
		if k.Tier, err = cluster.ParseTier(f.Tier); err != nil {
			return k, fmt.Errorf("tier: %w", err)
		}
	}
	return k, nil
}

func keyName(s string) bool {
	return s != "" && len(s) <= 63 && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r)
	})
}

// NewServiceKey makes a key for services, and the line that says so in the configuration, which does not have the key.
func NewServiceKey(name string, services []string) (key, line string, err error) {
	key, hash := token.New()
	k, err := (&serviceKeyFile{Name: name, Hash: hash, Services: services}).read()
	if err != nil {
		return "", "", err
	}
	text, err := json.Marshal(services) // which is YAML
	return key, fmt.Sprintf("- {name: %q, hash: %s, services: %s}", k.Name, k.Hash, text), err
}

// text is a key in words. Of the hash it has as much as tells one from another.
func (k *ServiceKey) text() string {
	w := words{"hash " + k.Hash[:shownHash] + "…"}
	w.add("services", strings.Join(k.Services, " "))
	if k.Services == nil {
		w = append(w, "all services")
	}
	if k.Rate > 0 {
		w.add("rate", number(k.Rate))
		w.number("burst", int64(k.Burst))
	}
	w.add("tier", k.Tier.String())
	return w.text()
}

// serviceWeights reads a file of weights of inss-rl. It is the configuration's: whoever writes that may have the daemon
// read what it reads.
func serviceWeights(path string) (string, []byte, error) {
	if path == "" {
		return "", nil, nil
	}
	if !filepath.IsAbs(path) {
		return "", nil, fmt.Errorf("%q is not an absolute path", path)
	}
	data, err := ReadWeights(path)
	if err != nil {
		return "", nil, err
	}
	return path, data, nil
}

// ReadWeights reads a file of weights of inss-rl, and reports as an error that it has none.
func ReadWeights(path string) ([]byte, error) {
	data, err := ReadFile(path)
	if err == nil {
		err = scale.CheckWeights(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; muster learn inss-rl writes such a file", err)
	}
	return data, nil
}

// settings lists how services are run.
func (s *Services) settings(add func(live bool, key, value string)) {
	if s.Keys != nil && len(s.Keys) == 0 {
		add(true, "services.keys", "none: nobody is let in")
	}
	for i := range s.Keys {
		add(true, "services.keys."+s.Keys[i].Name, s.Keys[i].text())
	}
	if s.Weights != "" {
		add(false, "services.weights", s.Weights+" (SHA-256 "+token.Hash(string(s.Learnt))[:shownHash]+"…)")
	}
	add(false, "services.ports", fmt.Sprintf("%d-%d", s.First, s.Last))
	add(false, "services.period", cluster.FormatDuration(s.Period))
}
