package splitmix

import "testing"

// The first outputs of the published generator for the seed 1234567.
func TestMix(t *testing.T) {
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431} {
		if got := Mix(1234567 + uint64(i+1)*Step); got != want {
			t.Errorf("output %d: %d, want %d", i, got, want)
		}
	}
}
