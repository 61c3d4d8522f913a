package kube

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/queues"
	"github.com/muster-gpu/muster/kube/terms"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/show"
)

// Labels and annotations that people put on pods, and what Muster writes there (terms.Label and so on).
const (
	Prefix              = terms.Prefix
	LabelGang           = terms.LabelGang
	LabelQueue          = terms.LabelQueue
	LabelTier           = terms.LabelTier
	AnnotationSize      = terms.AnnotationSize
	AnnotationMin       = terms.AnnotationMin
	AnnotationWithin    = terms.AnnotationWithin
	AnnotationPrefer    = terms.AnnotationPrefer
	AnnotationRunTime   = terms.AnnotationRunTime
	AnnotationDeadline  = terms.AnnotationDeadline
	AnnotationLoss      = terms.AnnotationLoss
	AnnotationMovable   = terms.AnnotationMovable
	AnnotationSaves     = terms.AnnotationSaves
	AnnotationConverge  = terms.AnnotationConverge
	AnnotationModel     = terms.AnnotationModel
	AnnotationSpeed     = terms.AnnotationSpeed
	AnnotationIsolation = terms.AnnotationIsolation
	AnnotationMemory    = terms.AnnotationMemory
	AnnotationCores     = terms.AnnotationCores
	AnnotationPrompt    = terms.AnnotationPrompt
	AnnotationEvery     = terms.AnnotationEvery
	AnnotationTraffic   = terms.AnnotationTraffic
	AnnotationClass     = terms.AnnotationClass
	AnnotationDSCP      = terms.AnnotationDSCP
	AnnotationSlots     = terms.AnnotationSlots
	AnnotationTC        = terms.AnnotationTC
	AnnotationFIFO      = terms.AnnotationFIFO
	AnnotationSL        = terms.AnnotationSL
	AnnotationQPs       = terms.AnnotationQPs
	AnnotationIface     = terms.AnnotationIface
	AnnotationSum       = terms.AnnotationSum
	AnnotationPlan      = terms.AnnotationPlan
	AnnotationBefore    = terms.AnnotationBefore
)

// Labels are the labels of nodes that say what is where.
type Labels = gpus.Labels

// LabelsOf are the labels that a configuration names.
func LabelsOf(c *config.KubeLabels) Labels {
	return Labels{Stated: gpus.Stated(*c)}
}

// Options configure a driver.
type Options struct {
	Client kubeapi.Interface // for what schedules
	// Dynamic reads and writes Queue objects, and reads what makes gangs of pods, of
	// kinds that not every cluster has; nil: there are none. Rescan is how often it
	// is looked which kinds are served; 0: every minute.
	Dynamic dynamic.Interface
	Rescan  time.Duration
	Tell    kubeapi.Interface // for conditions and events, with its own limit; nil: nothing is told
	// TellAfter is how long a gang waits before it is told why, and how often it is looked which gangs are to be told;
	// 0: a second.
	TellAfter time.Duration
	// StatusEvery is how often the status of Queue objects is looked at, at most;
	// 0: two seconds.
	StatusEvery time.Duration
	// Rules are those of the engine, without nodes and partitions: the cluster
	// itself says what there is. Of their GPU models the weights count.
	Rules        config.Rules
	QoS          config.QoS // by which marks the network knows classes of traffic
	Scheduler    string     // the schedulerName of our pods
	GPUs         []string   // extended resources that count as GPUs
	Drivers      []string   // of dynamic resource allocation, whose devices count as GPUs
	Labels       Labels
	DefaultQueue string // of pods that name none
	// Classes are tiers by the name of a PriorityClass.
	Classes map[string]cluster.Tier
	// Workers is how many requests bind or evict at a time; 0: 32.
	Workers int
	Repair  bool // gangs that say nothing of it are repaired when they lose a node
	// Await is how long the place of a gang that is moved (Rules.Defrag) is kept for the
	// pods that its owner makes instead; 0: two minutes.
	Await time.Duration
	// Loans are nodes that are lent; none: all are ours.
	Loans []Loan
	// Power are the rules by which nodes are switched off; none: they stay on. Program switches a node
	// by a program of Power; Namespace is where a ConfigMap keeps what is learnt of the cluster's weeks ("": it is not
	// kept), and PowerWait how long a node that is cordoned is looked at before it goes off; 0: ten seconds.
	Power     []Power
	Program   func(ctx context.Context, program, node string) error
	Namespace string
	PowerWait time.Duration
	// MIG are the rules by which nodes are partitioned; none: no node is.
	MIG     []MIG
	Now     func() time.Time
	Log     *slog.Logger
	Observe Observer // nil: none
	// Journal begins a segment: the steps that follow are recorded there. nil:
	// nothing is recorded.
	Journal func(journal.Header) (Recorder, error)
	// Saving says how often pods are told to write checkpoints; nil: they are not told.
	Saving *perf.Saving
	// Authority is the SHA-256 of the authority that vouches for the schedulers' certificate, for pods that
	// report; "": they are not told.
	Authority string
	// Seal is the key by which what is written to pods for the next scheduler is sealed, the same for all schedulers of
	// a cluster; empty: nothing is sealed, and what pods carry is checked against what they hold alone.
	Seal plans.Key
	// Sign is the seal of an annotation that is written to a pod now, by the authority's key, for programs other than
	// schedulers; nil: none is made.
	Sign func(obj *v1.Pod, annotation, text string, now time.Time) string
	// History is told what became of gangs; nil: nothing is told.
	History History
	// Lenders knows which services lend what they do not use; nil: none does.
	Lenders Lenders
	// Failures are what schedulers before this one, in the same process's place, failed at; nil: none failed.
	Failures *Failures
	// Crash, if it is set, is called where a test lets the scheduler die.
	Crash func(point string)
}

// Observer is told what happens, for metrics.
type Observer interface {
	Stepped(took time.Duration) // a step of the engine
	Bound(waited time.Duration) // a pod, so long after it was created
	BindFailed(reason string)   // a binding that was given up
	Evicted(reason string)      // a pod
	Unwound()                   // a gang that could not be bound as a whole
	Moved(outcome string)       // a gang: others took the place that was kept for it (done), or it was let go
	// a node: done, failed, late, or dropped, because another writer changed it or no gang needs it any more
	Partitioned(outcome string)
	SetAside(what string)                // a pod or node that cannot be understood, or something whose handling failed
	Renewed(reason string)               // the engine was renewed from a snapshot
	Gangs(gathering, waiting, bound int) // after a step
	Leading(bool)                        // whether this scheduler schedules
	Free(free, usable cluster.Milli)     // of the GPUs; what is usable, the pods submitted last could use on average
	Queues([]QueueFigures)               // every few seconds where something changed: all of them
	Links([]show.Link)                   // likewise: those of the network that gangs transmit over
}

type noObserver struct{}

func (noObserver) Stepped(time.Duration)   {}
func (noObserver) Bound(time.Duration)     {}
func (noObserver) BindFailed(string)       {}
func (noObserver) Evicted(string)          {}
func (noObserver) Unwound()                {}
func (noObserver) Moved(string)            {}
func (noObserver) Partitioned(string)      {}
func (noObserver) SetAside(string)         {}
func (noObserver) Renewed(string)          {}
func (noObserver) Gangs(int, int, int)     {}
func (noObserver) Leading(bool)            {}
func (noObserver) Free(_, _ cluster.Milli) {}
func (noObserver) Queues([]QueueFigures)   {}
func (noObserver) Links([]show.Link)       {}

// QueueFigures are what a queue has and what waits there, those of queues below
// it included.
type QueueFigures = queues.Figures

// CrashPoints are where Options.Crash is called.
var CrashPoints = []string{"kube-binding", "kube-bound", "kube-started", "kube-evicting", "kube-reserving",
	"kube-reserved", "kube-releasing", "kube-moving"}

// awaitMoved is how long a place is kept for a gang that is moved: a Job makes its first
// new pod after ten seconds, a node may have given the old one a minute.
const awaitMoved = 2 * time.Minute

// termRules are what holds where a gang does not say on which terms it runs.
func (o *Options) termRules() *terms.Rules {
	return &terms.Rules{Labels: &o.Labels, Classes: o.Classes, Repair: o.Repair,
		MinSpeed: o.Rules.Spec.MinSpeed}
}
