package show

// Speeds are the measured speeds of jobs, by the progress that they reported.
type Speeds struct {
	Paces []Pace `json:"paces" doc:"On GPUs that they did not share, by job model"`
	Pairs []Pair `json:"pairs" doc:"In shares of one GPU"`
}

// Pace is the speed of jobs of one model on GPUs of one model.
type Pace struct {
	Model string  `json:"model" doc:"Of the jobs"`
	GPU   string  `json:"gpu" doc:"Model of the GPUs"`
	GPUs  int     `json:"gpus" doc:"Of each task"`
	Tasks int     `json:"tasks"`
	Pace  float64 `json:"pace" doc:"Units per second"`
	Unit  string  `json:"unit" enum:"steps,samples"`
	Runs  int     `json:"runs" doc:"Number of measured runs"`
}

// Pair is the fraction of their speed that jobs of one model keep next to those of another.
type Pair struct {
	Model  string  `json:"model"`
	Beside string  `json:"beside"`
	Speed  float64 `json:"speed" doc:"As a fraction of the speed alone"`
}
