//go:build linux

package segment

import (
	"strings"
	"testing"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/oldkeys"
)

// What is damaged is an error, not elements that there never were.
func TestDecodeBatch(t *testing.T) {
	for text, want := range map[string]string{
		`{"events":[{"type":"submitted","job":3,"spec":{"id":3,"array":{"id":3,"index":1},"tasks":[]},"elements":"1-x"}]}`: "event 0",
		`{"events":[{"type":"submitted","job":3,"spec":{"id":3,"tasks":[]},"elements":"1-3"}]}`:                            "of no array",
		`{"events":[{"type":"cancelled","job":3,"elements":"1-3"}]}`:                                                       "of no array",
	} {
		if _, err := decodeBatch([]byte(text), oldkeys.Current); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	b, err := decodeBatch([]byte(`{"seq":4,"now":5,"events":[{"type":"submitted","job":3,`+
		`"spec":{"id":3,"array":{"id":3,"index":1},"tasks":[]},"elements":"1,7"}]}`), oldkeys.Current)
	if err != nil || len(b.Events) != 2 || b.Events[1].Job != 4 || b.Events[1].Type != engine.Submitted ||
		b.Events[1].Spec.Array.Index != 7 {
		t.Errorf("%+v, %v", b, err)
	}
}

// It is so in a snapshot, too.
func TestDecodeSnapshot(t *testing.T) {
	for text, want := range map[string]string{
		`{"jobs":[{"spec":{"id":3,"array":{"id":3,"index":1},"tasks":[]},"elements":"1-x"}]}`: "job 0 of the snapshot",
		`{"jobs":[{"spec":{"id":3,"tasks":[]},"elements":"1-3"}]}`:                            "of no array",
		`{"jobs":[{"elements":"1-3"}]}`:                                                       "of no array",
	} {
		if _, err := DecodeSnapshot([]byte(text), oldkeys.Current); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
