//go:build cgo && linux && !nonvml

package gpu

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-gpu/muster/cluster"
)

func (s *real) find(uuid string) (h nvml.Device, d *Device, err error) {
	i := slices.IndexFunc(s.devices, func(d Device) bool { return d.UUID == uuid })
	if i < 0 {
		return nil, nil, fmt.Errorf("there is no GPU %s", uuid)
	}
	return s.handles[i], &s.devices[i], nil
}

func (s *real) Make(uuid string, want cluster.Instance, inUse func(uuid string) bool) ([]Instance, error) {
	h, d, err := s.find(uuid)
	if err != nil {
		return nil, err
	}
	if err := setMIG(h, true); err != nil {
		return nil, err
	}
	model := ModelOf(d.Name, d.Memory)
	list := instancesOf(h)
	gone, there, err := inTheWay(&model, list, want, inUse)
	if err != nil || there {
		return list, err
	}
	made, err := made(h)
	if err != nil {
		return nil, err
	}
	p, _ := model.Profile(want.Profile)
	for _, g := range made { // also those that cannot be used, of a service that died between two calls
		whose := slices.IndexFunc(list, func(in Instance) bool { return in.Start == int(g.placement.Start) })
		overlaps := int(g.placement.Start) < want.Start+p.Slots && want.Start < int(g.placement.Start+g.placement.Size)
		if overlaps || slices.Contains(gone, whose) {
			if err := g.destroy(); err != nil {
				return nil, err
			}
		}
	}
	if err := create(h, p, want.Start); err != nil {
		return nil, err
	}
	return instancesOf(h), nil
}

func (s *real) Whole(uuid string, inUse func(uuid string) bool) error {
	h, _, err := s.find(uuid)
	if err != nil {
		return err
	}
	if now, _, ret := h.GetMigMode(); ret != nvml.SUCCESS || now != nvml.DEVICE_MIG_ENABLE {
		return nil // it is whole, or cannot be anything else
	}
	if err := idle(instancesOf(h), inUse); err != nil {
		return err
	}
	list, err := made(h)
	if err != nil {
		return err
	}
	for _, g := range list {
		if err := g.destroy(); err != nil {
			return err
		}
	}
	return setMIG(h, false)
}

// setMIG turns MIG mode on or off. The GPU has to be idle; before Hopper it has to
// be reset, too, which is left to a person.
func setMIG(h nvml.Device, on bool) error {
	mode := nvml.DEVICE_MIG_DISABLE
	if on {
		mode = nvml.DEVICE_MIG_ENABLE
	}
	if now, _, ret := h.GetMigMode(); ret == nvml.SUCCESS && now == mode {
		return nil
	}
	active, ret := h.SetMigMode(mode)
	if err := check("MIG mode", ret); err != nil {
		return err
	}
	if err := check("MIG mode", active); err != nil {
		return fmt.Errorf("%w: the GPU has to be reset (nvidia-smi --gpu-reset)", err)
	}
	return nil
}

// gpuInstance is an instance as the driver has it, with or without a compute
// instance on it.
type gpuInstance struct {
	handle    nvml.GpuInstance
	placement nvml.GpuInstancePlacement
}

// made lists a GPU's instances.
func made(h nvml.Device) (list []gpuInstance, err error) {
	for id := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := h.GetGpuInstanceProfileInfo(id)
		if ret != nvml.SUCCESS {
			continue // not of this model
		}
		some, ret := h.GetGpuInstances(&info)
		if err := check("MIG instances", ret); err != nil {
			return nil, err
		}
		for _, g := range some {
			about, ret := g.GetInfo()
			if err := check("MIG instance", ret); err != nil {
				return nil, err
			}
			list = append(list, gpuInstance{g, about.Placement})
		}
	}
	return list, nil
}

// destroy destroys an instance and what is on it. The driver refuses while a
// process uses it.
func (g *gpuInstance) destroy() error {
	for id := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := g.handle.GetComputeInstanceProfileInfo(id, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != nvml.SUCCESS {
			continue
		}
		some, ret := g.handle.GetComputeInstances(&info)
		if err := check("compute instances", ret); err != nil {
			return err
		}
		for _, c := range some {
			if err := check("destroy compute instance", c.Destroy()); err != nil {
				return err
			}
		}
	}
	return check("destroy MIG instance", g.handle.Destroy())
}

// create makes an instance with one compute instance that covers it.
func create(h nvml.Device, p *cluster.SliceProfile, start int) error {
	info, err := profileInfo(h, p)
	if err != nil {
		return err
	}
	places, ret := h.GetGpuInstancePossiblePlacements(info)
	if err := check("MIG placements", ret); err != nil {
		return err
	}
	at := slices.IndexFunc(places, func(l nvml.GpuInstancePlacement) bool { return int(l.Start) == start })
	if at < 0 {
		return fmt.Errorf("the driver knows no place for %s at memory slice %d", p.Name, start)
	}
	g, ret := h.CreateGpuInstanceWithPlacement(info, &places[at])
	if err := check("create MIG instance "+p.Name, ret); err != nil {
		return err
	}
	for id := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		c, ret := g.GetComputeInstanceProfileInfo(id, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != nvml.SUCCESS || c.SliceCount != info.SliceCount {
			continue
		}
		if _, ret := g.CreateComputeInstance(&c); ret == nvml.SUCCESS {
			return nil
		} else {
			err = check("create compute instance on "+p.Name, ret)
		}
	}
	_ = g.Destroy()
	if err == nil {
		err = fmt.Errorf("the driver knows no compute instance that covers %s", p.Name)
	}
	return err
}

// slicesOf is the memory that an instance of each of the model's profiles has, as the driver
// says: less than its name does, and not the same in all versions.
func slicesOf(h nvml.Device, d *Device) (list []cluster.MiB) {
	model := ModelOf(d.Name, d.Memory)
	for i := range model.Profiles {
		mib := cluster.MiB(0)
		if info, err := profileInfo(h, &model.Profiles[i]); err == nil {
			mib = cluster.MiB(info.MemorySizeMB)
		}
		list = append(list, mib)
	}
	return list
}

// profileInfo is the driver's of a profile: the one with as many compute slices
// and nearest in memory; of equals with the most media engines where the profile has
// them, else with the fewest.
func profileInfo(h nvml.Device, p *cluster.SliceProfile) (*nvml.GpuInstanceProfileInfo, error) {
	var best *nvml.GpuInstanceProfileInfo
	better := func(a *nvml.GpuInstanceProfileInfo) bool {
		if best == nil {
			return true
		}
		off := func(i *nvml.GpuInstanceProfileInfo) int64 {
			return max(int64(i.MemorySizeMB)-p.Memory, p.Memory-int64(i.MemorySizeMB))
		}
		media := func(i *nvml.GpuInstanceProfileInfo) uint32 { return i.JpegCount + i.OfaCount + i.DecoderCount }
		if d := off(a) - off(best); d != 0 {
			return d < 0
		}
		return (media(a) > media(best)) == p.Media() && media(a) != media(best)
	}
	for id := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := h.GetGpuInstanceProfileInfo(id)
		if ret == nvml.SUCCESS && int(info.SliceCount) == p.Compute && better(&info) {
			best = &info
		}
	}
	if best == nil {
		return nil, fmt.Errorf("the driver knows no profile like %s", p.Name)
	}
	return best, nil
}
