package inventory

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
)

// notModelled is the free CPU or RAM of a node that declares none: never a bottleneck.
const notModelled = math.MaxInt64 / 4

// Device is a GPU that is, or can be, shared.
type Device struct {
	milli   int32 // free share, milli-GPU
	slots   uint8 // MIG memory slices in use
	compute uint8 // MIG compute slices in use
	tenants int16
	guests  int8        // guests on the device, in addition to the job that holds it
	media   bool        // its media engines are in use
	mem     cluster.MiB // free
	user    string      // user whose shares are on it, if that matters
}

// Node is a node as the engine sees it: what is free after all decisions of the engine (devices of
// a stopping job count as free here; the job that gets them waits until they really are, see Waits
// of job.State).
type Node struct {
	spec     cluster.Node
	class    int32
	pos      int32 // index within the class
	nfree    int16 // wholly free, healthy devices
	indexed  bool  // in the class's buckets: up and not draining
	drained  bool  // by an operator, until undrained; survives an outage
	lent     bool  // part of a loan (loan.go)
	given    bool  // given back to its lender
	resized  bool  // its size was set by an event, not by the configuration
	changed  bool  // ... and so was everything else
	free     uint64
	hosts    uint64 // devices held whole, guests not counted
	guested  uint64 // devices that have guests
	healthy  uint64
	fixed    *fixed        // MIG instances that cannot be changed; nil: they are made as needed
	cpu      cluster.Milli // free
	ram      cluster.MiB   // free
	devs     []Device
	stopping []cluster.JobID // jobs that still hold devices here physically
	frozen   int32           // allocations here whose suspended jobs have their memory here
	split    bool            // its NVLink domains are islands within it
	nvlink   int32           // domain ids; equal ids are the same domain
	rack     int32
	fabric   int32
	cores    []int32 // above the fabric, from near to far
	version  uint64  // identifies its state: grows with each change, and is restored by undo
	sizes    sizes
	tenants  []Tenant // shares by device, in no order
}

// Tenant is a share of a device.
type Tenant struct {
	Device int8
	Job    int32 // Alloc.Tenant
}

// sizes counts the tasks on a node by size: shares and slices, of one GPU, of two ...
type sizes [64]int32

// empty resets a node to have nothing on it.
func (n *Node) empty(model *cluster.GPUModel) {
	n.cpu, n.ram = cmp.Or(n.spec.CPU, notModelled), cmp.Or(n.spec.RAM, notModelled)
	n.devs = blankDevices(n.spec.GPUs, model)
	n.hosts, n.guested, n.tenants, n.sizes, n.stopping, n.frozen = 0, 0, nil, sizes{}, nil, 0
}

// blankDevices returns n devices with nothing on them.
func blankDevices(count int, model *cluster.GPUModel) []Device {
	devs := make([]Device, count)
	for i := range devs {
		devs[i] = Device{milli: int32(cluster.Whole), mem: model.Memory}
	}
	return devs
}

// setHealthy marks all devices healthy except some; the node must be empty and not indexed.
func (n *Node) setHealthy(bad uint64) {
	n.healthy = (uint64(1)<<n.spec.GPUs - 1) &^ bad
	n.free = n.Whole()
	n.nfree = int16(bits.OnesCount64(n.free))
}

// Others is the devices that have shares of other users.
func (n *Node) Others(user string) (mask uint64) {
	for i := range n.devs {
		if d := &n.devs[i]; d.tenants > 0 && d.slots == 0 && d.user != user {
			mask |= 1 << i
		}
	}
	return mask
}

// FreeSlots is the number of free memory slices of a device, of eight.
func (d *Device) FreeSlots() int64 { return int64(8 - bits.OnesCount8(d.slots)) }

// Spec is the node's description and state. It must not be changed.
func (n *Node) Spec() *cluster.Node { return &n.spec }

// Class is the number of its class.
func (n *Node) Class() int32 { return n.class }

// FreeGPUs is the number of wholly free healthy devices.
func (n *Node) FreeGPUs() int16 { return n.nfree }

// TakesJobs reports whether it is up and not draining.
func (n *Node) TakesJobs() bool { return n.indexed }

// Resized reports whether its CPU and RAM were set by an event, not by the configuration.
func (n *Node) Resized() bool { return n.resized }

// Changed reports whether it was described by an event, not by the configuration.
func (n *Node) Changed() bool { return n.changed }

// SizeByEvent reports whether its CPU and RAM may be less than they were: jobs keep what they hold.
func (n *Node) SizeByEvent() bool { return n.resized || n.changed }

// Overcommitted reports whether its jobs hold more CPU or RAM than it has.
func (n *Node) Overcommitted() bool { return n.cpu < 0 || n.ram < 0 }

// Drained reports whether an operator drained it.
func (n *Node) Drained() bool { return n.drained }

// Lent reports whether it is part of a loan.
func (n *Node) Lent() bool { return n.lent }

// GivenBack reports whether it was returned to its lender.
func (n *Node) GivenBack() bool { return n.given }

// Free is the mask of wholly free devices.
func (n *Node) Free() uint64 { return n.free }

// Hosts is the devices held whole, guests not counted.
func (n *Node) Hosts() uint64 { return n.hosts }

// Healthy is the mask of healthy devices.
func (n *Node) Healthy() uint64 { return n.healthy }

// Fixed is the MIG instances that cannot be changed; nil: they are made as needed.
func (n *Node) Fixed() *fixed { return n.fixed }

// CPU is its free CPU.
func (n *Node) CPU() cluster.Milli { return n.cpu }

// RAM is its free RAM.
func (n *Node) RAM() cluster.MiB { return n.ram }

// Devices is its devices.
func (n *Node) Devices() []Device { return n.devs }

// Stopping is the jobs that still hold devices here physically.
func (n *Node) Stopping() []cluster.JobID { return n.stopping }

// Frozen is the number of allocations here of suspended jobs that have their memory here.
func (n *Node) Frozen() int32 { return n.frozen }

// Split reports whether its NVLink domains are islands within it.
func (n *Node) Split() bool { return n.split }

// Rack is the number of its rack: equal numbers are the same rack.
func (n *Node) Rack() int32 { return n.rack }

// Version identifies its state: it grows with each change, and is restored by undo.
func (n *Node) Version() uint64 { return n.version }

// Sizes counts its tasks by size.
func (n *Node) Sizes() *sizes { return &n.sizes }

// Tenants is its shares by device, in no order.
func (n *Node) Tenants() []Tenant { return n.tenants }

// Milli is its free share.
func (d *Device) Milli() int32 { return d.milli }

// Slots is its MIG memory slices in use.
func (d *Device) Slots() uint8 { return d.slots }

// Compute is its MIG compute slices in use.
func (d *Device) Compute() uint8 { return d.compute }

// Tenants is the number of shares and slices on it.
func (d *Device) Tenants() int16 { return d.tenants }

// Media reports whether its media engines are in use.
func (d *Device) Media() bool { return d.media }

// Mem is its free memory.
func (d *Device) Mem() cluster.MiB { return d.mem }

// User is the user whose shares are on it, if that matters.
func (d *Device) User() string { return d.user }
