package control

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/gateway"
)

// keys are what the gateway is told of callers.
type keys struct {
	list  []gateway.Key
	needs bool // callers need one, also where there is none
	known bool // the gateway has these, whatever it has of replicas
}

// priorities are those of requests in the gateway, by the tier of their key.
var priorities = map[cluster.Tier]int{cluster.Critical: 2, cluster.Standard: 1, cluster.BestEffort: 0}

// put has a configuration of the gateway say who may use services.
func (k *keys) put(g *gateway.Config) { g.Keys, g.NeedsKey = k.list, k.needs }

// are reports whether a configuration of the gateway has these keys.
func (k *keys) are(g *gateway.Config) bool {
	return g.NeedsKey == k.needs && len(g.Keys) == len(k.list) &&
		(len(k.list) == 0 || reflect.DeepEqual(g.Keys, k.list))
}

// tellFirst tells the gateway of other keys than a former controller did, before it is known which replicas answer: a
// key that is revoked while the daemon is away is refused from the daemon's start on, however long a replica takes.
func (k *keys) tellFirst(to Gateway) error {
	if k.known {
		return nil
	}
	g, err := to.Former()
	if err != nil || g == nil || k.are(g) {
		k.known = true // a gateway does not take over either what cannot be read
		return err
	}
	k.put(g)
	if err := to.Write(g); err != nil {
		return err
	}
	k.known = true
	return nil
}

// SetKeys says who may use services from now on; nil: everybody may, without a key. It returns what people should know:
// which keys name services that there are not, and that the gateway could not be told yet.
func (c *Controller) SetKeys(list []config.ServiceKey) (notes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := keys{needs: list != nil}
	for _, k := range list {
		now.list = append(now.list, gateway.Key{Name: k.Name, Hash: k.Hash, Services: slices.Clone(k.Services),
			Rate: k.Rate, Burst: k.Burst, Priority: priorities[k.Tier]})
		for _, name := range k.Services {
			if s := c.services[name]; s == nil || s.deleted {
				notes = append(notes, fmt.Sprintf("services.keys: %s: there is no service %s yet", k.Name, name))
			}
		}
	}
	c.keys = now
	if c.wrote == nil {
		return notes // the first step tells the gateway
	}
	if err := c.tell(); err != nil {
		notes = append(notes, fmt.Sprintf("services.keys: the gateway has the former ones until it can be told: %v", err))
	}
	return notes
}
