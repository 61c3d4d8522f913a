// Package slurm lets Slurm's habits work on Muster: sbatch, srun, squeue,
// scancel, sinfo, scontrol and sacct with the options, formats, codes and
// environment variables that people and their scripts know. It translates and
// prints; who runs the jobs stands behind the Service interface.
//
// An option that has no meaning here is named on standard error; one without
// which something else would run is refused. docs/guide/slurm.md lists both.
package slurm
