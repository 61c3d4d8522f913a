//go:build linux

package record

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/oldkeys"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/local/observe"
	"github.com/muster-gpu/muster/local/segment"
)

// A record of the version before names had numbers, with a value in each field, is read whole.
func TestOldNames(t *testing.T) {
	for kind, into := range map[oldkeys.Kind]any{oldkeys.Info: &Info{}, oldkeys.Array: &arrayData{},
		oldkeys.Usage: &observe.Meter{}, oldkeys.Step: &segment.Batch{},
		oldkeys.Header: &journal.Header{}, oldkeys.Snapshot: &engine.Snapshot{}} {
		text, err := os.ReadFile(filepath.Join("..", "..", "internal", "oldkeys", "testdata", string(kind)+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if text, err = oldkeys.Translate(kind, 1, text); err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		again, err := json.Marshal(into)
		if err != nil {
			t.Fatal(err)
		}
		var before, after map[string]any
		if json.Unmarshal(text, &before) != nil || json.Unmarshal(again, &after) != nil {
			t.Fatal(kind)
		}
		delete(after, oldkeys.Key)
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%s is read as\n%s\nand was\n%s", kind, again, text)
		}
	}
}
