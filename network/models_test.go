package network

import (
	"encoding/csv"
	"os"
	"strconv"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// The models that are built in are those of the recorded table, with its parameters, bytes of gradients and, where it
// has them, multiplications.
func TestModels(t *testing.T) {
	f := shared.Must(os.Open(shared.Path(t, "traces/comm-profiles/models.csv")))
	defer f.Close()
	rows := shared.Must(csv.NewReader(f).ReadAll())[1:]
	if len(rows) != len(known) {
		t.Errorf("%d models are built in, %d recorded", len(known), len(rows))
	}
	for _, row := range rows {
		number := func(column int) float64 {
			if row[column] == "" {
				return 0
			}
			return shared.Must(strconv.ParseFloat(row[column], 64))
		}
		found := false
		for i, m := range Models() {
			if m.Model != row[0] {
				continue
			}
			found = true
			bytes := number(2)
			if known[i].half {
				bytes = number(3)
			}
			if float64(known[i].parameters) != number(1) || float64(m.Traffic.Bytes) != bytes ||
				known[i].gmac != number(4) {
				t.Errorf("%v: %+v, %+v", row, known[i], m.Traffic)
			}
			if m.Traffic.Compute <= 0 || m.Traffic.Check() != nil {
				t.Errorf("%s: %+v", row[0], m.Traffic)
			}
		}
		if !found {
			t.Errorf("%s is not built in", row[0])
		}
	}
}
