// Package network says which links the traffic of a job passes, and how many bytes each carries in an iteration.
//
// The model has no packets: a job alternates between computing and transmitting, and what it transmits is bytes on
// links. Formulas of collectives are those of NCCL's documentation and of Thakur et al., "Optimization of Collective
// Communication Operations in MPICH" (IJHPCA 2005). Package flow plays several such jobs on shared links; package
// traffic decides which job goes first, by which path, and when.
package network
