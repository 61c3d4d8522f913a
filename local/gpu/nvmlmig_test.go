//go:build cgo && linux && !nonvml

package gpu

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/muster-gpu/muster/cluster"
)

// partitionable adds to the mock what it leaves out: that instances do not overlap,
// and that those with a compute instance are MIG devices.
func partitionable(d *server.Device, model *cluster.GPUModel) {
	create := d.CreateGpuInstanceWithPlacementFunc
	d.CreateGpuInstanceWithPlacementFunc = func(info *nvml.GpuInstanceProfileInfo,
		at *nvml.GpuInstancePlacement) (nvml.GpuInstance, nvml.Return) {
		for g := range d.GpuInstances {
			if p := g.Info.Placement; p.Start < at.Start+at.Size && at.Start < p.Start+p.Size {
				return nil, nvml.ERROR_INSUFFICIENT_RESOURCES
			}
		}
		return create(info, at)
	}
	existing := func() (list []*server.GpuInstance) {
		for g := range d.GpuInstances {
			if len(g.ComputeInstances) > 0 {
				list = append(list, g)
			}
		}
		slices.SortFunc(list, func(a, b *server.GpuInstance) int { return int(a.Info.Id) - int(b.Info.Id) })
		return list
	}
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		list := existing()
		if i >= len(list) {
			return nil, nvml.ERROR_NOT_FOUND
		}
		g := list[i]
		return &mock.Device{GetNameFunc: func() (string, nvml.Return) {
			return "NVIDIA A100 MIG " + nameOf(d, model, g.Info.ProfileId), nvml.SUCCESS
		},
			GetUUIDFunc: func() (string, nvml.Return) {
				return fmt.Sprintf("MIG-%d", g.Info.Id), nvml.SUCCESS
			},
			GetGpuInstanceIdFunc: func() (int, nvml.Return) { return int(g.Info.Id), nvml.SUCCESS }}, nvml.SUCCESS
	}
	d.GetGpuInstanceByIdFunc = func(id int) (nvml.GpuInstance, nvml.Return) {
		for _, g := range existing() {
			if int(g.Info.Id) == id {
				return g, nvml.SUCCESS
			}
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
}

// nameOf is what the driver calls a profile.
func nameOf(d *server.Device, model *cluster.GPUModel, id uint32) string {
	info := d.Config.MIGProfiles.GpuInstanceProfiles[int(id)]
	for i := range model.Profiles {
		p := &model.Profiles[i]
		if off := p.Memory - int64(info.MemorySizeMB); p.Compute == int(info.SliceCount) && off < 2000 && off > -2000 &&
			p.Media() == (int(id) == nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1) {
			return p.Name
		}
	}
	return "?"
}

// Instances are made through the driver, on GPUs that it puts into MIG mode; those in
// the way go, unless a job is on them, and with them what a service left that died
// between two calls.
func TestMakeInstances(t *testing.T) {
	s := dgxa100.New()
	d := complete(s, 8)[2]
	src := open(t, s)
	uuid := src.Devices()[2].UUID
	model := ModelOf(src.Devices()[2].Name, src.Devices()[2].Memory)
	partitionable(d, &model)
	unused := func(string) bool { return false }
	var list []Instance
	have := func() string {
		var words []string
		for _, in := range list {
			words = append(words, fmt.Sprintf("%s@%d", in.Profile, in.Start))
		}
		slices.Sort(words)
		return strings.Join(words, " ")
	}
	for _, c := range []struct {
		profile string
		start   int
		used    string // profile that a job is on
		want    string // the instances; or the error
	}{
		{"3g.20gb", 4, "", "3g.20gb@4"},
		{"4g.20gb", 0, "3g.20gb", "3g.20gb@4 4g.20gb@0"},
		{"4g.20gb", 0, "4g.20gb", "3g.20gb@4 4g.20gb@0"},
		{"2g.10gb", 2, "4g.20gb", "4g.20gb at 0 is in the way of 2g.10gb at 2, and in use"},
		{"2g.10gb", 2, "3g.20gb", "2g.10gb@2 3g.20gb@4"},
		{"1g.5gb+me", 0, "", "1g.5gb+me@0 2g.10gb@2 3g.20gb@4"},
		{"1g.5gb", 1, "1g.5gb+me", "1g.5gb+me@0 1g.5gb@1 2g.10gb@2 3g.20gb@4"},
		{"7g.40gb", 0, "", "7g.40gb@0"},
		{"1g.5gb", 7, "", "has no 1g.5gb at memory slice 7"},
	} {
		now := list
		got, err := src.Make(uuid, cluster.Instance{Profile: c.profile, Start: c.start}, func(id string) bool {
			return slices.ContainsFunc(now, func(in Instance) bool { return in.UUID == id && in.Profile == c.used })
		})
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s@%d: %v, want %s", c.profile, c.start, err, c.want)
			}
			continue
		}
		if list = got; have() != c.want {
			t.Errorf("%s@%d: there are %s, want %s", c.profile, c.start, have(), c.want)
		}
	}
	if d.MigMode != nvml.DEVICE_MIG_ENABLE {
		t.Error("the GPU is not in MIG mode")
	}
	if err := src.Whole(uuid, func(id string) bool {
		return id == list[0].UUID
	}); err == nil || !strings.Contains(err.Error(), "7g.40gb at 0 is in use") {
		t.Errorf("a job is on it: %v", err)
	}
	if err := src.Whole(uuid, unused); err != nil || d.MigMode != nvml.DEVICE_MIG_DISABLE || len(d.GpuInstances) > 0 {
		t.Errorf("it is not whole: %v, %d instances", err, len(d.GpuInstances))
	}
	info, _ := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_3_SLICE)
	if _, ret := d.CreateGpuInstanceWithPlacement(&info,
		&nvml.GpuInstancePlacement{Start: 0, Size: 4}); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	var err error
	if list, err = src.Make(uuid, cluster.Instance{Profile: "2g.10gb", Start: 0}, unused); err != nil ||
		have() != "2g.10gb@0" || len(d.GpuInstances) != 1 {
		t.Errorf("what a service left is in the way: %v, %s", err, have())
	}
	d.SetMigModeFunc = func(int) (nvml.Return, nvml.Return) { return nvml.ERROR_IN_USE, nvml.SUCCESS }
	if err := src.Whole(uuid, unused); err == nil || !strings.Contains(err.Error(), "has to be reset") {
		t.Errorf("a GPU that has to be reset: %v", err)
	}
	if _, err := src.Make("GPU-none", cluster.Instance{Profile: "2g.10gb"}, unused); err == nil {
		t.Error("a GPU that is not there")
	}
}
