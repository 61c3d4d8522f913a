// Package cluster holds the nouns of Muster: GPU models, nodes, topology, jobs, gangs, queues,
// partitions and reservations. They are plain data without decisions. The package imports the
// standard library only.
//
// Units, everywhere: GPU shares are milli-GPU (1000 = one GPU), memory is MiB,
// CPU is milli-cores, times and durations are nanoseconds.
package cluster
