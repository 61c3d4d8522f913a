//go:build cgo && linux && !nonvml

package gpu

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-gpu/muster/cluster"
)

// real is the GPUs that the driver knows.
type real struct {
	lib     nvml.Interface
	handles []nvml.Device
	devices []Device
	events  nvml.EventSet // nil: the driver reports none
	faults  []string      // by what the driver reported, until it says that they are over
	seen    []uint64      // time stamp of the last sample of the processes, by device
}

// Open finds this machine's GPUs. Without a driver it says so.
func Open() (Source, error) { return openNVML(nvml.New()) }

// failed is a call of the library that did not succeed.
type failed struct {
	call string
	ret  nvml.Return
}

// Error names the call and the reason.
func (e *failed) Error() string { return fmt.Sprintf("NVML: %s: %v", e.call, e.ret) }

func check(call string, ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return &failed{call, ret}
}

func openNVML(lib nvml.Interface) (Source, error) {
	if ret := lib.Init(); ret == nvml.ERROR_LIBRARY_NOT_FOUND || ret == nvml.ERROR_DRIVER_NOT_LOADED {
		return nil, fmt.Errorf("there is no NVIDIA driver on this machine: %w", &failed{"init", ret})
	} else if err := check("init", ret); err != nil {
		return nil, err
	}
	n, ret := lib.DeviceGetCount()
	if err := check("device count", ret); err != nil {
		_ = lib.Shutdown()
		return nil, err
	}
	s := &real{lib: lib}
	for i := range n {
		h, ret := lib.DeviceGetHandleByIndex(i)
		if ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_NO_PERMISSION {
			continue // it cannot even be named: as if it were not there
		}
		if err := check(fmt.Sprintf("device %d", i), ret); err != nil {
			_ = lib.Shutdown()
			return nil, err
		}
		d, err := describeDevice(h, i)
		if err != nil {
			_ = lib.Shutdown()
			return nil, err
		}
		s.handles, s.devices = append(s.handles, h), append(s.devices, d)
	}
	s.faults, s.seen = make([]string, len(s.devices)), make([]uint64, len(s.devices))
	s.islands()
	s.listen()
	return s, nil
}

func describeDevice(h nvml.Device, i int) (d Device, err error) {
	d = Device{Index: i, Minor: -1}
	var ret nvml.Return
	if d.UUID, ret = h.GetUUID(); ret != nvml.SUCCESS {
		return d, check(fmt.Sprintf("UUID of device %d", i), ret)
	}
	if d.Name, ret = h.GetName(); ret != nvml.SUCCESS {
		return d, check(fmt.Sprintf("name of device %d", i), ret)
	}
	mem, ret := h.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return d, check(fmt.Sprintf("memory of device %d", i), ret)
	}
	d.Memory = cluster.MiB(mem.Total >> 20)
	d.Model = ModelOf(d.Name, d.Memory).Name
	if minor, ret := h.GetMinorNumber(); ret == nvml.SUCCESS {
		d.Minor = minor
	}
	if now, next, ret := h.GetMigMode(); ret == nvml.SUCCESS {
		d.MIG = now == nvml.DEVICE_MIG_ENABLE || next == nvml.DEVICE_MIG_ENABLE
		if now == nvml.DEVICE_MIG_ENABLE {
			d.Instances = instancesOf(h)
		}
		d.Slices = slicesOf(h, &d)
	}
	return d, nil
}

// instancesOf lists a device's MIG instances, as far as the driver says where
// they are. One that is divided further, into compute instances ("1c.3g.20gb"),
// is not among them.
func instancesOf(h nvml.Device) (list []Instance) {
	most, ret := h.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	for i := range most {
		m, ret := h.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // there are fewer
		}
		var in Instance
		name, named := m.GetName()
		in.UUID, ret = m.GetUUID()
		id, known := m.GetGpuInstanceId()
		if named != nvml.SUCCESS || ret != nvml.SUCCESS || known != nvml.SUCCESS {
			continue
		}
		gi, ret := h.GetGpuInstanceById(id)
		if ret != nvml.SUCCESS {
			continue
		}
		info, ret := gi.GetInfo()
		_, profile, ok := strings.Cut(name, "MIG ")
		if ret != nvml.SUCCESS || !ok || strings.Contains(profile, "c.") {
			continue
		}
		in.Profile, in.Start = profile, int(info.Placement.Start)
		list = append(list, in)
	}
	return list
}

// islands finds which GPUs are joined by NVLink, directly or through others.
func (s *real) islands() {
	for i := range s.devices {
		s.devices[i].Island = i
		for k := range i {
			if s.devices[k].Island == s.devices[i].Island {
				continue
			}
			if st, ret := s.handles[i].GetP2PStatus(s.handles[k], nvml.P2P_CAPS_INDEX_NVLINK); ret != nvml.SUCCESS ||
				st != nvml.P2P_STATUS_OK {
				continue
			}
			from, to := s.devices[i].Island, s.devices[k].Island
			if from < to {
				from, to = to, from
			}
			for j := range i + 1 {
				if s.devices[j].Island == from {
					s.devices[j].Island = to
				}
			}
		}
	}
}

// listen asks the driver to report errors.
func (s *real) listen() {
	set, ret := s.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	heard := false
	for _, h := range s.handles {
		heard = h.RegisterEvents(nvml.EventTypeXidCriticalError, set) == nvml.SUCCESS || heard
	}
	if heard {
		s.events = set
	} else {
		_ = set.Free()
	}
}

func (s *real) Devices() []Device { return s.devices }

func (s *real) Close() error {
	if s.events != nil {
		_ = s.events.Free()
	}
	return check("shutdown", s.lib.Shutdown())
}

func (s *real) Exclusive(uuid string, on bool) error {
	h, _, err := s.find(uuid)
	if err != nil {
		return err
	}
	mode := nvml.COMPUTEMODE_DEFAULT
	if on {
		mode = nvml.COMPUTEMODE_EXCLUSIVE_PROCESS
	}
	if now, ret := h.GetComputeMode(); ret == nvml.SUCCESS && now == mode { // only root may set it, also to what it is
		return nil
	}
	return check("compute mode of "+uuid, h.SetComputeMode(mode))
}

// harmless errors are the program's own, or were contained: the GPU is well
// (NVIDIA's XID catalogue).
var harmless = map[uint64]bool{
	13: true, 31: true, 43: true, 45: true, 68: true, 109: true, // faults of the program, and its clean-up
	63: true, 92: true, 94: true, 121: true, // a row to be remapped, corrected errors, an error that was contained
}

// xids are the errors that operators know by name.
var xids = map[uint64]string{48: "double-bit ECC error", 62: "internal micro-controller halt",
	64: "row remapping failed", 74: "NVLink error",
	79: "the GPU has fallen off the bus", 95: "uncontained ECC error", 119: "GSP does not answer",
	140: "unrecovered ECC error"}

// mostWait bounds one wait for events, so that the end of the daemon is seen.
const mostWait = time.Second

func (s *real) Health(ctx context.Context, wait time.Duration) []string {
	s.await(ctx, wait)
	bad := make([]string, len(s.devices))
	for i, h := range s.handles {
		if s.faults[i] != "" && recovered(h) {
			s.faults[i] = ""
		}
		bad[i] = s.faults[i]
		switch _, ret := h.GetMemoryInfo(); ret {
		case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_GPU_NOT_FOUND:
			bad[i] = fmt.Sprint(ret)
		}
	}
	return bad
}

// await notes the errors that the driver reports until the time is over, or
// until there is one; those that are there already are all noted.
func (s *real) await(ctx context.Context, wait time.Duration) {
	for ctx.Err() == nil {
		w := min(wait, mostWait)
		ret := nvml.ERROR_NOT_SUPPORTED
		var ev nvml.EventData
		if s.events != nil {
			ev, ret = s.events.Wait(uint32(w.Milliseconds()))
		}
		if ret == nvml.SUCCESS {
			if s.note(&ev) {
				wait = 0
			}
			continue
		}
		if ret != nvml.ERROR_TIMEOUT && w > 0 { // no events; or a GPU is lost, which is said at once, every time
			select {
			case <-ctx.Done():
			case <-time.After(w):
			}
		}
		if wait -= w; wait <= 0 {
			return
		}
	}
}

// note books an event; false: it is none that matters.
func (s *real) note(ev *nvml.EventData) bool {
	if ev.EventType != nvml.EventTypeXidCriticalError || harmless[ev.EventData] {
		return false
	}
	uuid, ret := "", nvml.ERROR_UNKNOWN
	if ev.Device != nil {
		uuid, ret = ev.Device.GetUUID()
	}
	for i := range s.devices {
		if ret != nvml.SUCCESS || s.devices[i].UUID == uuid { // it is not said which: it may be any
			s.faults[i] = fmt.Sprintf("XID %d", ev.EventData)
			if text := xids[ev.EventData]; text != "" {
				s.faults[i] += ": " + text
			}
		}
	}
	return true
}

// recovered reports whether the driver says that nothing is left to be done
// about a GPU. Older drivers do not say: then a new start of the daemon finds out.
func recovered(h nvml.Device) bool {
	v := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if h.GetFieldValues(v) != nvml.SUCCESS || nvml.Return(v[0].NvmlReturn) != nvml.SUCCESS {
		return false
	}
	return v[0].Value[0] == byte(nvml.GPU_RECOVERY_ACTION_NONE)
}

func (s *real) Sample() []Sample {
	list := make([]Sample, len(s.handles))
	for i, h := range s.handles {
		v := &list[i]
		if u, ret := h.GetUtilizationRates(); ret == nvml.SUCCESS {
			v.Utilisation = number(float64(u.Gpu))
		}
		if m, ret := h.GetMemoryInfo(); ret == nvml.SUCCESS {
			v.MemoryUsed = mib(m.Used)
		}
		if p, ret := h.GetPowerUsage(); ret == nvml.SUCCESS {
			v.Power = number(float64(p) / 1000) // from mW
		}
		if t, ret := h.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
			v.Temperature = number(float64(t))
		}
		if e, ret := h.GetTotalEnergyConsumption(); ret == nvml.SUCCESS {
			v.Energy = number(float64(e) / 1000) // from mJ
		}
		v.Processes, v.PerProcess = s.processes(i, v.Utilisation)
	}
	return list
}

// processes lists the users of a GPU, with what the driver says of each; each says
// that it says what every process computes. It names those only that computed
// since it was asked last, and finds nothing when none did: where the GPU as a
// whole did nothing either, that can be believed.
func (s *real) processes(i int, util *float64) (list []Process, each bool) {
	running, ret := s.handles[i].GetComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return nil, false
	}
	use := map[uint32]float64{} // looked up only
	samples, ret := s.handles[i].GetProcessUtilization(s.seen[i])
	each = ret == nvml.SUCCESS || ret == nvml.ERROR_NOT_FOUND && util != nil && *util == 0
	if ret == nvml.SUCCESS {
		for _, u := range samples {
			use[u.Pid] = max(use[u.Pid], float64(u.SmUtil))
			s.seen[i] = max(s.seen[i], u.TimeStamp)
		}
	}
	for _, p := range running {
		v := Process{PID: int(p.Pid)}
		if p.UsedGpuMemory != notAvailable {
			v.Memory = mib(p.UsedGpuMemory)
		}
		if u, ok := use[p.Pid]; ok || each {
			v.Utilisation = number(u)
		}
		list = append(list, v)
	}
	return list, each
}

func number(v float64) *float64 { return &v }

func mib(bytes uint64) *int64 {
	v := int64(bytes >> 20)
	return &v
}

// notAvailable is NVML_VALUE_NOT_AVAILABLE as an unsigned number.
const notAvailable = ^uint64(0)
