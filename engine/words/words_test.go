package words

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/shape"
)

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{GPUs(0): "0 GPUs", GPUs(1): "1 GPU", Jobs(2): "2 jobs", Tasks(1): "1 task",
		Devices(1): "GPU 0", Devices(0b1101): "GPUs 0,2,3"} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What is held is counted by kind, whole GPUs first; a slice is named by its profile.
func TestHolds(t *testing.T) {
	var st inventory.Store
	a100 := cluster.GPUModel{Name: "a100", Memory: 81920, MemSlots: 8, Compute: 7, Profiles: []cluster.SliceProfile{
		{Name: "3g.40gb", Compute: 3, Slots: 4, Memory: 40960, Starts: []int{0, 4}}}}
	for _, name := range []string{"n0", "n1"} {
		if _, err := st.Add(cluster.Node{Name: name, Model: "a100", GPUs: 4}, a100, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	part := inventory.Alloc{GPUs: 4, Share: 250}
	for _, c := range []struct {
		want   string
		allocs []inventory.Alloc
	}{
		{"0 GPUs", []inventory.Alloc{{CPU: 1000}}},
		{"3 GPUs", []inventory.Alloc{{GPUs: 3}, {Node: 1, GPUs: 1}}},
		{"1 GPU and 2 times 0.25 of a GPU", []inventory.Alloc{part, {GPUs: 1}, part}},
		{"a 3g.40gb slice", []inventory.Alloc{{GPUs: 1, Share: 428, Slots: 0xf, Compute: 3}}},
	} {
		if got := Holds(&st, c.allocs); got != c.want {
			t.Errorf("%+v: %q, want %q", c.allocs, got, c.want)
		}
	}
	if got := On(&st, 1, 2); got != "GPU 1 of n1" {
		t.Errorf("%q", got)
	}
}

// What is asked for is that of the smallest size, by task set; sets without GPUs are left out.
func TestAsks(t *testing.T) {
	s := &shape.Shape{Min: 3, Sets: []cluster.TaskSet{
		{Count: 8, Request: cluster.Request{GPUs: 2, Share: 500, Memory: 1000}},
		{Count: 1, Request: cluster.Request{CPU: 1000}},
		{Count: 2, Request: cluster.Request{GPUs: 1, Profile: "8g.80gb"}},
		{Count: 1, Request: cluster.Request{GPUs: 4}}}}
	want := "3 times 2 times 0.5 of a GPU with 1000 MiB of its memory and 2 times an 8g.80gb slice and 4 GPUs"
	if got := Asks(s); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for want, r := range map[string]cluster.Request{"": {}, "1.5 CPU cores": {CPU: 1500},
		"1 CPU cores and 64 MiB of RAM": {CPU: 1000, RAM: 64}} {
		if got := Host(&r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
