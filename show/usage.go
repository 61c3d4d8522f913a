package show

import (
	"time"

	"github.com/muster-gpu/muster/ask"
)

// Measured has the measurements of a job's GPUs and host. Values that devices do not report, such as simulated
// ones, are absent.
type Measured struct {
	Samples     int          `json:"samples" doc:"Number of checks"`
	Seconds     float64      `json:"seconds" doc:"Time covered by the samples"`
	Utilisation *float64     `json:"utilisation,omitempty" doc:"Percent, mean over its GPUs and time"`
	Most        *float64     `json:"most,omitempty" doc:"Percent, the highest of a GPU"`
	MemoryMost  *int64       `json:"memory_most,omitempty" doc:"MiB of GPU memory, the most on one GPU"`
	Energy      *float64     `json:"energy,omitempty" doc:"Joule"`
	Idle        float64      `json:"idle,omitempty" doc:"GPU-seconds at less than one percent"`
	Holding     float64      `json:"holding,omitempty" doc:"... of these with GPU memory in use"`
	Unused      int          `json:"unused,omitempty" doc:"GPUs that it held and never used"`
	CPU         ask.Duration `json:"cpu,omitempty" doc:"CPU time"`
	RAM         int64        `json:"ram,omitempty" doc:"MiB of host memory, peak"`
}

// Point is a job at one time.
type Point struct {
	At          int64    `json:"at" doc:"Unix seconds"`
	Utilisation *float64 `json:"utilisation,omitempty" doc:"Percent, mean over its GPUs"`
	Memory      *int64   `json:"memory,omitempty" doc:"MiB of GPU memory, all GPUs together"`
	Power       *float64 `json:"power,omitempty" doc:"Watt, all GPUs together"`
	CPU         float64  `json:"cpu" doc:"Cores in use"`
	RAM         int64    `json:"ram" doc:"MiB of host memory"`
	Step        *float64 `json:"step,omitempty" doc:"The progress that it had reported; absent: none in this run"`
	Rate        *float64 `json:"samples_per_s,omitempty" doc:"Training samples per second, as reported"`
}

// Samples are a job's measurements, with at most a few hundred points: the longer it runs, the farther apart
// they are.
type Samples struct {
	Measured Measured `json:"measured"`
	Cost     *float64 `json:"cost,omitempty" doc:"Cost of its GPU-hours; absent: no price is configured"`
	Every    int      `json:"every" doc:"Samples of the job per point"`
	Points   []Point  `json:"points"`
}

// UsageRow is what the jobs of one user, queue, name or model used.
type UsageRow struct {
	Key         string       `json:"key"`
	Jobs        int          `json:"jobs"`
	GPUHours    float64      `json:"gpu_hours"`
	Cost        *float64     `json:"cost,omitempty"`
	Utilisation *float64     `json:"utilisation,omitempty" doc:"Percent, by GPU time; absent: not measured"`
	KWh         *float64     `json:"kwh,omitempty"`
	CPUHours    float64      `json:"cpu_hours"`
	Waited      ask.Duration `json:"waited" doc:"Mean"`
	Preemptions int          `json:"preemptions"`
	LostHours   float64      `json:"lost_gpu_hours" doc:"GPU-hours of work that stopped runs lost"`
	SwitchHours float64      `json:"switch_gpu_hours" doc:"GPU-hours that stops and starts took, of jobs that report progress"`
	Samples     *float64     `json:"samples_per_gpu_hour,omitempty" doc:"Training samples per GPU-hour, of jobs that report them"`
}

// Waste is GPU time that others could have used.
type Waste struct {
	Kind     string   `json:"kind" doc:"idle, memory-only, unused-gpus, long-limit, fits-less, empty-hours"`
	Job      int      `json:"job,omitempty"`
	User     string   `json:"user,omitempty"`
	Name     string   `json:"name,omitempty"`
	GPUHours float64  `json:"gpu_hours"`
	Cost     *float64 `json:"cost,omitempty"`
	Text     string   `json:"text"`
}

// Score says how good the expected starts given to jobs were.
type Score struct {
	Predicted     int          `json:"predicted" doc:"Jobs that waited and had an expected start"`
	Started       int          `json:"started" doc:"Those that have started since"`
	Median        ask.Duration `json:"median_error"`
	Ninety        ask.Duration `json:"ninety_error" doc:"90th percentile of how far off they were"`
	Intervals     int          `json:"intervals" doc:"Answers with an interval"`
	Within        int          `json:"within" doc:"Answers whose interval held"`
	Early         int          `json:"early" doc:"Those that started earlier than expected"`
	Later         int          `json:"later" doc:"Later answers about waiting jobs that differed from the first"`
	LaterMedian   ask.Duration `json:"later_median_error"`
	LaterNinety   ask.Duration `json:"later_ninety_error" doc:"90th percentile of how far off they were"`
	EndsPredicted int          `json:"ends_predicted" doc:"Jobs whose progress predicted their end"`
	Ended         int          `json:"ended" doc:"Those that have completed since"`
	EndMedian     ask.Duration `json:"end_median_error"`
	EndNinety     ask.Duration `json:"end_ninety_error" doc:"90th percentile of how far off they were"`
	Off           []Off        `json:"off" doc:"Counts by how far off they were"`
}

// Off counts the jobs whose start was off by at most a time, and by more than the one before.
type Off struct {
	UpTo ask.Duration `json:"up_to,omitempty" doc:"Absent: any farther off"`
	Jobs int          `json:"jobs"`
}

// Load is the use of the machine's healthy GPUs within a span of time, in GPU-hours.
type Load struct {
	At    int64    `json:"at" doc:"Unix seconds at which it begins"`
	Total float64  `json:"total" doc:"GPU-hours that existed"`
	Held  float64  `json:"held" doc:"... of these held by jobs"`
	Busy  *float64 `json:"busy,omitempty" doc:"... and computing; absent: not measured"`
}

// WeekHour is an hour of the week, over all weeks of a report.
type WeekHour struct {
	Total float64 `json:"total" doc:"GPU-hours that existed; 0: nothing is known about this hour"`
	Held  float64 `json:"held" doc:"... of these held by jobs"`
}

// Usage is a report since a time: of all that was used by jobs that ended since then, or have not ended.
type Usage struct {
	Since    time.Time  `json:"since"`
	Until    time.Time  `json:"until"`
	By       string     `json:"by"`
	HourCost float64    `json:"gpu_hour_cost,omitempty"`
	Notes    []string   `json:"notes,omitempty" doc:"What the figures leave out"`
	Rows     []UsageRow `json:"rows"`
	Total    UsageRow   `json:"total"`
	Waste    []Waste    `json:"waste" doc:"The worst first"`
	Score    Score      `json:"predictions"`
	Load     []Load     `json:"load" doc:"Hour by hour; day by day in a report of more than two weeks"`
	Daily    bool       `json:"daily,omitempty" doc:"The load is day by day"`
	Week     []WeekHour `json:"week" doc:"The 168 hours of the week from Sunday 00:00 on, in the server's time zone"`
}
