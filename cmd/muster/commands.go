package main

import "github.com/spf13/cobra"

// groups are the parts of muster help: what people come for.
var groups = []struct{ id, title string }{
	{"run", "Run jobs:"},
	{"look", "Look:"},
	{"change", "Change jobs:"},
	{"operate", "Operate a machine or a cluster:"},
	{"simulate", "Simulate and compare:"},
	{"develop", "Develop, and about this program:"},
}

// subcommand is a line of muster help.
type subcommand struct {
	group string
	make  func() *cobra.Command
}

// subcommands lists every sub-command; within its group each stands where people need it. A new one is a file of its
// own and a line here.
func subcommands() []subcommand {
	return []subcommand{
		{"run", newRun},
		{"run", newSubmit},
		{"run", newExec},
		{"run", newAttach},
		{"run", newLogs},
		{"run", newWait},
		{"run", newSearch},
		{"run", newService},
		{"look", newQueue},
		{"look", newWhy},
		{"look", newShow},
		{"look", newHistory},
		{"look", newTop},
		{"look", newNodes},
		{"look", newQueues},
		{"look", newPartitions},
		{"look", newUsage},
		{"look", newDashboard},
		{"change", newCancel},
		{"change", newHold},
		{"change", newRelease},
		{"change", newRequeue},
		{"change", newSuspend},
		{"change", newResume},
		{"change", newUpdate},
		{"operate", newServe},
		{"operate", newKube},
		{"operate", newPolicy},
		{"operate", newConfig},
		{"operate", newClusterCmd},
		{"operate", newAudit},
		{"operate", newToken},
		{"operate", newLogin},
		{"operate", newLogout},
		{"operate", newDefrag},
		{"operate", newMIG},
		{"operate", newMPS},
		{"operate", newPerf},
		{"operate", newSlurm},
		{"operate", newDrain},
		{"operate", newUndrain},
		{"simulate", newSim},
		{"simulate", newTune},
		{"simulate", newTrace},
		{"simulate", newLearn},
		{"simulate", newReplay},
		{"simulate", newExplain},
		{"simulate", newJournal},
		{"develop", newCheck},
		{"develop", newMan},
		{"develop", newVersion},
	}
}
