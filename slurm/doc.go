// Package slurm provides Slurm's commands on Muster: sbatch, srun, squeue, scancel, sinfo, scontrol, sacct and
// others with the options, formats, codes and environment variables that people and their scripts know. It
// translates and prints; the scheduler is reached through the Service interface.
//
// An option that has no meaning here is named on standard error; one without which something else would run is
// refused. docs/guide/slurm.md lists both.
package slurm
