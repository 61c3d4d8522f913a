package inventory

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
)

// notModelled is the free CPU or RAM of a node that states none: never a bottleneck.
const notModelled = math.MaxInt64 / 4

// Device is a GPU that is, or can be, shared.
type Device struct {
	milli   int32 // free share, milli-GPU
	slots   uint8 // MIG memory slices in use
	compute uint8 // MIG compute slices in use
	tenants int16
	guests  int8        // jobs beside whoever holds it whole
	media   bool        // its media engines are in use
	mem     cluster.MiB // free
	user    string      // whose shares are on it, where that matters
}

// Node is a node as the engine sees it: what is free after everything
// that the engine decided (devices of a stopping job count as free here; the job that
// gets them waits until they really are, see Waits of job.State).
type Node struct {
	spec     cluster.Node
	class    int32
	pos      int32 // index within the class
	nfree    int16 // wholly free, healthy devices
	indexed  bool  // in the class's buckets: up and not draining
	drained  bool  // by a person, until it is taken back: also through an outage
	lent     bool  // of a loan (loan.go)
	given    bool  // given back to its lender
	resized  bool  // its size is that of an event, not of the configuration
	changed  bool  // ... and so is all of it
	free     uint64
	hosts    uint64 // devices that a job holds whole, not as a guest
	guested  uint64 // devices on which guests are
	healthy  uint64
	fixed    *fixed        // MIG instances that stay as they are; nil: they are made as needed
	cpu      cluster.Milli // free
	ram      cluster.MiB   // free
	devs     []Device
	stopping []cluster.JobID // jobs that still hold devices here physically
	frozen   int32           // allocations here whose jobs are suspended and have their memory here
	split    bool            // its NVLink domains are islands inside it
	nvlink   int32           // domain ids; equal ids are near
	rack     int32
	fabric   int32
	version  uint64 // names its state: grows with each change, and comes back with what is undone
	sizes    sizes
	tenants  []Tenant // whose shares are on which device, in no order
}

// Tenant is a share of a device.
type Tenant struct {
	Device int8
	Job    int32 // Alloc.Tenant
}

// sizes counts the tasks on a node by size: shares and slices, of one GPU, of two ...
type sizes [64]int32

// empty makes a node one on which nothing is.
func (n *Node) empty(model *cluster.GPUModel) {
	n.cpu, n.ram = cmp.Or(n.spec.CPU, notModelled), cmp.Or(n.spec.RAM, notModelled)
	n.devs = blankDevices(n.spec.GPUs, model)
	n.hosts, n.guested, n.tenants, n.sizes, n.stopping, n.frozen = 0, 0, nil, sizes{}, nil, 0
}

// blankDevices is so many devices on which nothing is.
func blankDevices(count int, model *cluster.GPUModel) []Device {
	devs := make([]Device, count)
	for i := range devs {
		devs[i] = Device{milli: int32(cluster.Whole), mem: model.Memory}
	}
	return devs
}

// setHealthy makes all of the devices healthy but some, of a node on which nothing is and that is not in the index.
func (n *Node) setHealthy(bad uint64) {
	n.healthy = (uint64(1)<<n.spec.GPUs - 1) &^ bad
	n.free = n.Whole()
	n.nfree = int16(bits.OnesCount64(n.free))
}

// Others is the devices on which another user's shares are.
func (n *Node) Others(user string) (mask uint64) {
	for i := range n.devs {
		if d := &n.devs[i]; d.tenants > 0 && d.slots == 0 && d.user != user {
			mask |= 1 << i
		}
	}
	return mask
}

// FreeSlots is how many of its memory slices, of eight, a device has left.
func (d *Device) FreeSlots() int64 { return int64(8 - bits.OnesCount8(d.slots)) }

// Spec is the node as it was described, with its state. It must not be changed.
func (n *Node) Spec() *cluster.Node { return &n.spec }

// Class is the number of its class.
func (n *Node) Class() int32 { return n.class }

// FreeGPUs is how many healthy devices are wholly free.
func (n *Node) FreeGPUs() int16 { return n.nfree }

// TakesJobs reports whether it is up and not draining.
func (n *Node) TakesJobs() bool { return n.indexed }

// Resized reports whether its CPU and RAM are those of an event, not of the configuration.
func (n *Node) Resized() bool { return n.resized }

// Changed reports whether an event described it, not the configuration.
func (n *Node) Changed() bool { return n.changed }

// Overcommitted reports whether its jobs hold more CPU or RAM than it has.
func (n *Node) Overcommitted() bool { return n.cpu < 0 || n.ram < 0 }

// Drained reports whether a person drained it.
func (n *Node) Drained() bool { return n.drained }

// Lent reports whether it is of a loan.
func (n *Node) Lent() bool { return n.lent }

// GivenBack reports whether it is given back to its lender.
func (n *Node) GivenBack() bool { return n.given }

// Free is the mask of wholly free devices.
func (n *Node) Free() uint64 { return n.free }

// Hosts is the devices that a job holds whole, not as a guest.
func (n *Node) Hosts() uint64 { return n.hosts }

// Healthy is the mask of healthy devices.
func (n *Node) Healthy() uint64 { return n.healthy }

// Fixed is the MIG instances that stay as they are; nil: they are made as needed.
func (n *Node) Fixed() *fixed { return n.fixed }

// CPU is what is free of it.
func (n *Node) CPU() cluster.Milli { return n.cpu }

// RAM is what is free of it.
func (n *Node) RAM() cluster.MiB { return n.ram }

// Devices is its devices.
func (n *Node) Devices() []Device { return n.devs }

// Stopping is the jobs that still hold devices here physically.
func (n *Node) Stopping() []cluster.JobID { return n.stopping }

// Frozen is how many allocations here are of suspended jobs that have their memory here.
func (n *Node) Frozen() int32 { return n.frozen }

// Split reports whether its NVLink domains are islands inside it.
func (n *Node) Split() bool { return n.split }

// Rack is the number of its rack: equal ones are near.
func (n *Node) Rack() int32 { return n.rack }

// Version names its state: it grows with each change, and comes back with what is undone.
func (n *Node) Version() uint64 { return n.version }

// Sizes counts its tasks by size.
func (n *Node) Sizes() *sizes { return &n.sizes }

// Tenants is whose shares are on which device, in no order.
func (n *Node) Tenants() []Tenant { return n.tenants }

// Milli is its free share.
func (d *Device) Milli() int32 { return d.milli }

// Slots is its MIG memory slices in use.
func (d *Device) Slots() uint8 { return d.slots }

// Compute is its MIG compute slices in use.
func (d *Device) Compute() uint8 { return d.compute }

// Tenants is how many shares and slices are on it.
func (d *Device) Tenants() int16 { return d.tenants }

// Media reports whether its media engines are in use.
func (d *Device) Media() bool { return d.media }

// Mem is its free memory.
func (d *Device) Mem() cluster.MiB { return d.mem }

// User is whose shares are on it, where that matters.
func (d *Device) User() string { return d.user }
