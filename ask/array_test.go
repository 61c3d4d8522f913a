package ask

import (
	"slices"
	"testing"
)

func TestParseArray(t *testing.T) {
	for in, want := range map[string]string{"1": "1", "1,2": "1-2", "1-3": "1-3", "1-7:2": "1,3,5,7", "0-3%2": "0-3%2",
		"1,1": "1", "1-3,2": "1-3", "5%0": "5", "0-15:4%2": "0,4,8,12%2",
		"[1-3]": "1-3", "1-3%2,5": "1-3,5%2", "01": "1", "0,2,4-9:3": "0,2,4,7",
		"": "!", "a": "!", "1-": "!", "-1": "!", "1-5:": "!", "1-5:0": "!", "3-1": "!", "1%": "!", "1,,2": "!",
		"1:2": "!", "0-4000001": "!", "0-200000": "!", "1%x": "!"} {
		a, err := ParseArray(in)
		got := a.String()
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("ParseArray(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
}

// Formatted arrays are parsed to the same arrays.
func TestArrayRoundTrip(t *testing.T) {
	for _, in := range []string{"0-15:2%4", "1,3,5-7", "9", "0-99%10"} {
		a, err := ParseArray(in)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := ParseArray(a.String()); err != nil || !slices.Equal(a.Indices, b.Indices) || a.Cap != b.Cap {
			t.Errorf("%s: %v, %v", in, b, err)
		}
	}
}

func FuzzParseArray(f *testing.F) {
	f.Add("0-15:2%4")
	f.Add("[1,3]%1")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseArray(s)
		if err != nil {
			return
		}
		if len(a.Indices) == 0 || len(a.Indices) > MaxArraySize || !slices.IsSorted(a.Indices) {
			t.Fatalf("%q: %d indices", s, len(a.Indices))
		}
		if b, err := ParseArray(a.String()); err != nil || !slices.Equal(a.Indices, b.Indices) || a.Cap != b.Cap {
			t.Fatalf("%q is shown as %q and read as %v, %v", s, a, b, err)
		}
	})
}
