// Package terms reads on which terms a gang runs from what stands on its pods and on what made them, and knows the
// labels and annotations by which that is said.
package terms

import (
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/queues"
)

// Labels and annotations that people put on pods (and on Jobs, for gangs of
// their pods), and what Muster writes there. docs/reference/kubernetes.md lists them.
const (
	Prefix = "muster.sh/"

	LabelGang  = gangs.Label     // pods with the same value in a namespace are one gang; "true" on a Job: its pods are
	LabelQueue = queues.Label    // the queue
	LabelTier  = Prefix + "tier" // critical, standard or best-effort

	AnnotationSize    = gangs.AnnotationSize // tasks of the gang
	AnnotationMin     = gangs.AnnotationMin  // with so many it starts; the others follow one by one
	AnnotationWithin  = Prefix + "within"    // nvlink, node, rack, fabric or core: the gang must stay inside one
	AnnotationPrefer  = Prefix + "prefer"    // ... should
	AnnotationRunTime = Prefix + "run-time"  // how long it is expected to run, such as 2h30m

	// until when it is to be done: a time as in RFC 3339, or how long from creation on, such as 6h
	AnnotationDeadline = Prefix + "deadline"

	AnnotationLoss = Prefix + "on-node-loss" // requeue or repair

	AnnotationMovable = Prefix + "movable"          // "true": it may be moved; "false": it may not
	AnnotationSaves   = Prefix + "checkpoint-every" // how often it saves its work, such as 30m

	// when its metric falls no more, it ends: METRIC:BELOW:TIMES, such as loss:0.01:3
	AnnotationConverge = Prefix + "converge"

	// what it transmits in an iteration, such as {pattern: ring, bytes: 553MB, compute: 120ms}
	AnnotationTraffic = Prefix + "traffic"

	AnnotationModel = Prefix + "model"     // what it is called in the performance table
	AnnotationSpeed = Prefix + "min-speed" // least part of its speed alone that it accepts on a shared GPU, such as 0.8

	// none, memory or full: from what others do on its GPUs it is to be kept
	AnnotationIsolation = Prefix + "isolation"
	AnnotationMemory    = Prefix + "gpu-memory"        // of each GPU, or part of one, such as 8GiB
	AnnotationCores     = Prefix + "gpu-cores"         // ... of its compute, such as 30%
	AnnotationPrompt    = Prefix + "latency-sensitive" // "true": it cannot wait while others have their turns

	// Written with the binding where the network is scheduled: how it treats what the gang transmits. Containers take
	// the variables of NCCL and UCX from there (downward API). The class and the slots are written again when they
	// change.
	AnnotationClass = Prefix + "traffic-class" // 1 is the most urgent; 0: none
	AnnotationDSCP  = Prefix + "traffic-dscp"
	AnnotationSlots = Prefix + "traffic-slots" // when its iterations are to begin, as JSON
	AnnotationTC    = Prefix + "nccl-ib-tc"
	AnnotationFIFO  = Prefix + "nccl-ib-fifo-tc"
	AnnotationSL    = Prefix + "nccl-ib-sl"
	AnnotationQPs   = Prefix + "nccl-ib-qps-per-connection"
	AnnotationIface = Prefix + "nccl-socket-ifname" // where the configuration names an interface

	// written with the binding: after how many seconds it should write the next checkpoint
	AnnotationEvery = Prefix + "save-every"
	// written with the binding of a pod that reports: the SHA-256 of the authority that vouches for the scheduler
	AnnotationSum  = Prefix + "report-ca"
	AnnotationPlan = Prefix + "plan" // written with the binding: where the whole gang is
	// written to a pod that waits: what its gang received before it had to leave
	AnnotationBefore = Prefix + "before"
	// written to the pod of a replica that waits: since when others make room for it
	AnnotationAsked = Prefix + "asked-back"
	// ... which is counted: the same text, from then on
	AnnotationReturned = Prefix + "had-back"
	// The four that are for the next scheduler are sealed (kube.Options.Seal), each by an annotation with the suffix
	// -seal.

	// Of services: on what makes pods, from where some controllers copy them to the pods. They say nothing of gangs.
	AnnotationService = gangs.Service             // the service, as YAML
	AnnotationVariant = Prefix + "variant-of"     // the name of the service whose variant it is
	AnnotationStatus  = Prefix + "service-status" // written by Muster
)
