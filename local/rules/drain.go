//go:build linux

package rules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/muster-gpu/muster/store"
)

const metaDrained = "drained"

// Drain is what is kept of a node that a person drained; its zero value: the node is not drained.
type Drain struct {
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// Put stores it.
func (d *Drain) Put(t *store.Tx) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return t.PutMeta(metaDrained, text)
}

// ReadDrain reads why the node was drained, if it was.
func ReadDrain(ctx context.Context, st *store.Store) (*Drain, error) {
	d := &Drain{}
	text, err := st.Meta(ctx, metaDrained)
	if errors.Is(err, store.ErrNotFound) {
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(text, d)
	}
	if err != nil {
		return nil, fmt.Errorf("why the node is drained: %w", err)
	}
	return d, nil
}

// Text says why the node is drained; "": it is not.
func (d *Drain) Text() string {
	if d == nil || d.By == "" {
		return ""
	}
	return strings.TrimSpace(d.Reason + " (" + d.By + ", " + d.At.Local().Format("2006-01-02 15:04") + ")")
}
