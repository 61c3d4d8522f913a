//go:build cgo && linux && !nonvml

package gpu

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxb200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/muster-gpu/muster/cluster"
)

// complete sets what the mock leaves out: links between all GPUs of a group,
// no events, no recovery action.
func complete(s *server.Server, group int) []*server.Device {
	var list []*server.Device
	for _, d := range s.Devices {
		list = append(list, d.(*server.Device))
	}
	for i, d := range list {
		d.GetP2PStatusFunc = func(o nvml.Device, _ nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
			if k, _ := o.GetIndex(); k/group == i/group {
				return nvml.P2P_STATUS_OK, nvml.SUCCESS
			}
			return nvml.P2P_STATUS_NOT_SUPPORTED, nvml.SUCCESS
		}
		d.GetFieldValuesFunc = func([]nvml.FieldValue) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }
	}
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	return list
}

func open(t *testing.T, s *server.Server) Source {
	t.Helper()
	src, err := openNVML(s)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// Every machine of NVIDIA's becomes eight GPUs of a model that the cluster knows.
func TestDiscover(t *testing.T) {
	for want, s := range map[string]*server.Server{"A100-40GB": dgxa100.New(), "H100-80GB": dgxh100.New(),
		"H200-141GB": dgxh200.New(), "B200-180GB": dgxb200.New()} {
		complete(s, 8)
		taken, model, islands, left := Node(open(t, s).Devices())
		if len(taken) != 8 || model.Name != want || islands != 1 || !model.NVLink || left != nil {
			t.Errorf("%d x %s in %d islands (NVLink %v), left out %v; want 8 x %s in one", len(taken), model.Name,
				islands, model.NVLink, left, want)
		}
		for i, d := range taken {
			if d.Index != i || d.Minor != i || !strings.HasPrefix(d.UUID, "GPU-") || d.MIG || d.Simulated ||
				d.Memory == 0 {
				t.Errorf("%s: device %d is %+v", want, i, d)
			}
		}
	}
}

// Pairs that are joined become islands; GPUs without links have no NVLink.
func TestIslands(t *testing.T) {
	for group, want := range map[int]int{2: 4, 4: 2, 1: 8} {
		s := dgxh100.New()
		complete(s, group)
		_, model, islands, _ := Node(open(t, s).Devices())
		if islands != want || model.NVLink != (group > 1) || group == 1 && model.NVSwitch {
			t.Errorf("groups of %d: %d islands, NVLink %v, switch %v", group, islands, model.NVLink, model.NVSwitch)
		}
	}
}

// The vendor's names, and what the driver reports of the memory (MiB), as seen
// on machines.
func TestModels(t *testing.T) {
	for _, c := range []struct {
		name   string
		memory int64
		want   string
	}{
		{"NVIDIA H100 80GB HBM3", 81559, "H100-80GB"}, {"NVIDIA H100 NVL", 95830, "H100-94GB"},
		{"NVIDIA A100-SXM4-40GB", 40960, "A100-40GB"},
		{"NVIDIA A100-PCIE-40GB", 40960, "A100-40GB"}, {"NVIDIA A100 80GB PCIe", 81920, "A100-80GB"},
		{"Tesla V100-SXM2-16GB", 16160, "V100-16GB"},
		{"Tesla T4", 15360, "T4-16GB"}, {"NVIDIA A10", 23028, "A10-24GB"}, {"NVIDIA L4", 23034, "L4-24GB"},
		{"NVIDIA H200", 143771, "H200-141GB"},
		{"NVIDIA GeForce RTX 4090", 24564, "GeForce-RTX-4090-24GB"}, {"NVIDIA A10G", 23028, "A10G-22GB"},
	} {
		m := ModelOf(c.name, c.memory)
		if m.Name != c.want || m.Memory != c.memory {
			t.Errorf("%s with %d MiB is %s with %d MiB, not %s", c.name, c.memory, m.Name, m.Memory, c.want)
		}
	}
}

// Without a driver it says so, and nothing else happens.
func TestNoDriver(t *testing.T) {
	s := dgxh100.New()
	s.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	if _, err := openNVML(s); err == nil || !strings.Contains(err.Error(), "no NVIDIA driver") {
		t.Errorf("the error is %v", err)
	}
}

// A machine of two models schedules the one of which there are more, and says
// what it leaves out; a GPU in MIG mode is known as such.
func TestMixedAndMIG(t *testing.T) {
	s := dgxh100.New()
	list := complete(s, 8)
	for _, d := range list[5:] {
		d.GetNameFunc = func() (string, nvml.Return) { return "NVIDIA L40S", nvml.SUCCESS }
		d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 46068 << 20}, nvml.SUCCESS }
	}
	list[1].MigMode = nvml.DEVICE_MIG_ENABLE
	list[1].GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	taken, model, _, left := Node(open(t, s).Devices())
	if len(taken) != 5 || model.Name != "H100-80GB" || len(left) != 3 ||
		!strings.Contains(left[0], "GPU 5 is a L40S-48GB") {
		t.Errorf("%d x %s, left out %q", len(taken), model.Name, left)
	}
	if !taken[1].MIG || taken[0].MIG {
		t.Errorf("MIG mode: %v, %v", taken[0].MIG, taken[1].MIG)
	}
}

// events is an event set that reports what it is given, then nothing.
func events(s *server.Server, list ...nvml.EventData) {
	set := &mock.EventSet{FreeFunc: func() nvml.Return { return nvml.SUCCESS }}
	set.WaitFunc = func(uint32) (nvml.EventData, nvml.Return) {
		if len(list) == 0 {
			return nvml.EventData{}, nvml.ERROR_TIMEOUT
		}
		ev := list[0]
		list = list[1:]
		return ev, nvml.SUCCESS
	}
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return set, nvml.SUCCESS }
	for _, d := range s.Devices {
		d.(*server.Device).RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	}
}

func bad(s Source) (list []int) {
	for i, f := range s.Health(context.Background(), 1) {
		if f != "" {
			list = append(list, i)
		}
	}
	return list
}

// An error of the GPU makes it unhealthy until the driver says that nothing is
// left to be done; a fault of the program does not; a GPU that cannot be asked
// any more is lost as long as that is so.
func TestHealth(t *testing.T) {
	s := dgxh100.New()
	list := complete(s, 8)
	xid := func(i int, n uint64) nvml.EventData {
		return nvml.EventData{Device: list[i], EventType: nvml.EventTypeXidCriticalError, EventData: n}
	}
	events(s, xid(2, 13), xid(2, 94), xid(3, 79))
	src := open(t, s)
	if got := bad(src); !slices.Equal(got, []int{3}) {
		t.Errorf("after XID 13 and 94 on GPU 2 and 79 on GPU 3, unhealthy are %v", got)
	}
	if f := src.Health(context.Background(), 0)[3]; f != "XID 79: the GPU has fallen off the bus" {
		t.Errorf("the fault reads %q", f)
	}
	memory := list[5].GetMemoryInfoFunc
	list[5].GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	if got := bad(src); !slices.Equal(got, []int{3, 5}) {
		t.Errorf("with GPU 5 lost, unhealthy are %v", got)
	}
	list[5].GetMemoryInfoFunc = memory
	action := byte(nvml.GPU_RECOVERY_ACTION_GPU_RESET)
	list[3].GetFieldValuesFunc = func(v []nvml.FieldValue) nvml.Return {
		v[0].Value[0] = action
		return nvml.SUCCESS
	}
	if got := bad(src); !slices.Equal(got, []int{3}) {
		t.Errorf("GPU 5 is back and GPU 3 wants a reset; unhealthy are %v", got)
	}
	action = byte(nvml.GPU_RECOVERY_ACTION_NONE)
	if got := bad(src); got != nil {
		t.Errorf("after the reset, unhealthy are %v", got)
	}
}

// What the driver does not tell is absent, not zero.
func TestSample(t *testing.T) {
	s := dgxh100.New()
	for i, d := range complete(s, 8) {
		no := nvml.ERROR_NOT_SUPPORTED
		d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
			return nvml.Utilization{Gpu: 73}, nvml.SUCCESS
		}
		d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 345_600, nvml.SUCCESS }
		d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 61, nvml.SUCCESS }
		d.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return 5_000, nvml.SUCCESS }
		d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 41, UsedGpuMemory: 3 << 30}, {Pid: 42, UsedGpuMemory: notAvailable}},
				nvml.SUCCESS
		}
		d.GetProcessUtilizationFunc = func(since uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
			return []nvml.ProcessUtilizationSample{{Pid: 41, TimeStamp: since + 1, SmUtil: 70}}, nvml.SUCCESS
		}
		if i == 1 {
			d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, no }
			d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, no }
			d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, no }
			d.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return 0, no }
			d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, no }
		}
	}
	list := open(t, s).Sample()
	v := list[0]
	if *v.Utilisation != 73 || *v.Power != 345.6 || *v.Temperature != 61 || *v.Energy != 5 || len(v.Processes) != 2 {
		t.Errorf("sample %+v", v)
	}
	if p := v.Processes; *p[0].Memory != 3072 || *p[0].Utilisation != 70 || p[1].Memory != nil ||
		*p[1].Utilisation != 0 || !v.PerProcess {
		t.Errorf("processes %+v", p)
	}
	if v := list[1]; v.Utilisation != nil || v.Power != nil || v.Temperature != nil || v.Energy != nil ||
		v.Processes != nil {
		t.Errorf("a driver that tells nothing gives %+v", v)
	}
}

// The driver names the processes that computed, and finds nothing when none did:
// that is believed if the GPU as a whole did nothing either.
func TestIdleProcess(t *testing.T) {
	for _, c := range []struct {
		gpu   uint32 // percent
		ret   nvml.Return
		known bool
	}{{0, nvml.ERROR_NOT_FOUND, true}, {40, nvml.ERROR_NOT_FOUND, false}, {0, nvml.ERROR_NOT_SUPPORTED, false},
		{40, nvml.SUCCESS, true}} {
		s := dgxh100.New()
		no := nvml.ERROR_NOT_SUPPORTED
		for _, d := range complete(s, 8) {
			d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
				return nvml.Utilization{Gpu: c.gpu}, nvml.SUCCESS
			}
			d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, no }
			d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, no }
			d.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return 0, no }
			d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
				return []nvml.ProcessInfo{{Pid: 41}}, nvml.SUCCESS
			}
			d.GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
				return nil, c.ret
			}
		}
		v := open(t, s).Sample()[0]
		if u := v.Processes[0].Utilisation; v.PerProcess != c.known || (u != nil) != c.known || c.known && *u != 0 {
			t.Errorf("GPU at %d %%, %v: each process known %v, its use %v", c.gpu, c.ret, v.PerProcess, u)
		}
	}
}

// A GPU that MPS has is for its server alone, until it is given back.
func TestExclusive(t *testing.T) {
	s := dgxh100.New()
	list := complete(s, 8)
	src := open(t, s)
	var modes []nvml.ComputeMode
	list[3].GetComputeModeFunc = func() (nvml.ComputeMode, nvml.Return) {
		return append([]nvml.ComputeMode{nvml.COMPUTEMODE_DEFAULT}, modes...)[len(modes)], nvml.SUCCESS
	}
	list[3].SetComputeModeFunc = func(m nvml.ComputeMode) nvml.Return {
		modes = append(modes, m)
		return nvml.SUCCESS
	}
	uuid := src.Devices()[3].UUID
	for _, on := range []bool{true, false} {
		if err := src.Exclusive(uuid, on); err != nil {
			t.Error(err)
		}
	}
	if want := []nvml.ComputeMode{nvml.COMPUTEMODE_EXCLUSIVE_PROCESS, nvml.COMPUTEMODE_DEFAULT}; !slices.Equal(modes,
		want) {
		t.Errorf("modes %v, want %v", modes, want)
	}
	list[3].SetComputeModeFunc = func(nvml.ComputeMode) nvml.Return { return nvml.ERROR_NO_PERMISSION }
	if src.Exclusive(uuid, true) == nil || src.Exclusive("GPU-none", true) == nil {
		t.Error("without permission, or of a GPU that is not there, it is no error")
	}
	if err := src.Exclusive(uuid, false); err != nil {
		t.Error("without permission, a GPU that is not exclusive is not given back:", err)
	}
}

// GPUs are chosen by index, UUID or the beginning of one.
func TestChoose(t *testing.T) {
	all := []Device{{Index: 0, UUID: "GPU-aaaa-1"}, {Index: 1, UUID: "GPU-aaaa-2"}, {Index: 2, UUID: "GPU-bbbb-3"}}
	for list, want := range map[string]string{"2,0": "GPU-aaaa-1 GPU-bbbb-3", "GPU-bbbb": "GPU-bbbb-3",
		"1, 1": "GPU-aaaa-2"} {
		var got []string
		some, err := Choose(all, list)
		for _, d := range some {
			got = append(got, d.UUID)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v %v", list, got, err)
		}
	}
	for list, want := range map[string]string{"3": `no GPU "3"`, "GPU-aaaa": "several UUIDs", "": `no GPU ""`} {
		if _, err := Choose(all, list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", list, err)
		}
	}
}

// The MIG instances of a GPU are those of the driver: where they start, what they
// are, and by which UUID a job names them. One that is divided into compute
// instances is left out.
func TestInstances(t *testing.T) {
	s := dgxa100.New()
	list := complete(s, 8)
	d := list[2]
	d.MigMode = nvml.DEVICE_MIG_ENABLE
	made := []struct {
		name  string
		start uint32
	}{{"NVIDIA A100-SXM4-40GB MIG 3g.20gb", 4}, {"NVIDIA A100-SXM4-40GB MIG 1c.2g.10gb", 2},
		{"NVIDIA A100-SXM4-40GB MIG 1g.5gb", 0}}
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i >= len(made) {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{GetNameFunc: func() (string, nvml.Return) { return made[i].name, nvml.SUCCESS },
			GetUUIDFunc:          func() (string, nvml.Return) { return fmt.Sprintf("MIG-%d", i), nvml.SUCCESS },
			GetGpuInstanceIdFunc: func() (int, nvml.Return) { return i + 1, nvml.SUCCESS }}, nvml.SUCCESS
	}
	d.GetGpuInstanceByIdFunc = func(id int) (nvml.GpuInstance, nvml.Return) {
		return &mock.GpuInstance{GetInfoFunc: func() (nvml.GpuInstanceInfo, nvml.Return) {
			return nvml.GpuInstanceInfo{Id: uint32(id),
				Placement: nvml.GpuInstancePlacement{Start: made[id-1].start, Size: 1}}, nvml.SUCCESS
		}}, nvml.SUCCESS
	}
	found := open(t, s).Devices()
	want := []Instance{{cluster.Instance{Profile: "3g.20gb", Start: 4}, "MIG-0"},
		{cluster.Instance{Profile: "1g.5gb", Start: 0}, "MIG-2"}}
	if !found[2].MIG || !slices.Equal(found[2].Instances, want) {
		t.Errorf("GPU 2 has %+v, want %+v", found[2].Instances, want)
	}
	if found[1].MIG || found[1].Instances != nil {
		t.Errorf("GPU 1 has %+v", found[1].Instances)
	}
}
