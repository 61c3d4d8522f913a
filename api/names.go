package api

import (
	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/show"
)

// Requests.
type (
	Acted         = ask.Acted
	After         = ask.After
	Duration      = ask.Duration
	Elements      = ask.Elements
	FieldError    = ask.FieldError
	Filter        = ask.Filter
	FusedTrial    = ask.FusedTrial
	MovesRequest  = ask.MovesRequest
	PolicyGuard   = ask.PolicyGuard
	PolicyRequest = ask.PolicyRequest
	Refusal       = ask.Refusal
	Selection     = ask.Selection
	ServiceFile   = ask.ServiceFile
	ServiceScale  = ask.ServiceScale
	Submission    = ask.Submission
	Trial         = ask.Trial
	Update        = ask.Update
)

// Answers.
type (
	Audit        = show.Audit
	Device       = show.Device
	Element      = show.Element
	Factors      = show.Factors
	Fair         = show.Fair
	GPU          = show.GPU
	Idle         = show.Idle
	Job          = show.Job
	Joined       = show.Joined
	Left         = show.Left
	Load         = show.Load
	MIG          = show.MIG
	Measured     = show.Measured
	Metrics      = show.Metrics
	Moment       = show.Moment
	Move         = show.Move
	Moves        = show.Moves
	Node         = show.Node
	Off          = show.Off
	Overview     = show.Overview
	Pace         = show.Pace
	Pair         = show.Pair
	Partition    = show.Partition
	Point        = show.Point
	Policy       = show.Policy
	PolicyChange = show.PolicyChange
	PolicyChoice = show.PolicyChoice
	PolicyJob    = show.PolicyJob
	PolicyWatch  = show.PolicyWatch
	Priority     = show.Priority
	Progress     = show.Progress
	Network      = show.Network
	Queue        = show.Queue
	Report       = show.Report
	Sample       = show.Sample
	Samples      = show.Samples
	Score        = show.Score
	Service      = show.Service
	Share        = show.Share
	Speeds       = show.Speeds
	Task         = show.Task
	Usage        = show.Usage
	UsageRow     = show.UsageRow
	Waste        = show.Waste
	WeekHour     = show.WeekHour
	Whole        = show.Whole
	Why          = show.Why
)

// Constants of the two.
const (
	EndByEstimate  = show.EndByEstimate
	EndByHistory   = show.EndByHistory
	EndByLimit     = show.EndByLimit
	EndByProgress  = show.EndByProgress
	IdleDemoted    = show.IdleDemoted
	IdleStopped    = show.IdleStopped
	IdleWarned     = show.IdleWarned
	ReportAudience = show.ReportAudience
	MaxMetric      = show.MaxMetric
	MaxMetrics     = show.MaxMetrics
	MaxReport      = show.MaxReport
	MaxTrials      = show.MaxTrials
	StateCancelled = show.StateCancelled
	StateCompleted = show.StateCompleted
	StateFailed    = show.StateFailed
	StateLost      = show.StateLost
	StatePending   = show.StatePending
	StatePreempted = show.StatePreempted
	StateRejected  = show.StateRejected
	StateRunning   = show.StateRunning
	StateStarting  = show.StateStarting
	StateStopping  = show.StateStopping
	StateSuspended = show.StateSuspended
	StateTimeout   = show.StateTimeout
)
