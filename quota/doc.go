// Package quota is the arithmetic of the queue tree: guarantees, limits, lending, borrowing,
// reclaim, caps, budgets, decayed usage and the fair-share rules of well-known schedulers (Kueue,
// Volcano, KAI, Slurm).
//
// It makes no decisions and its only state is usage. There is no clock, no randomness, no I/O and
// no goroutine; every number in a decision is an integer and every order ends in an index, so that
// no tie is left open.
//
// Units: GPU amounts are milli-GPU, weights are thousandths, wall-clock
// arguments are local seconds (Unix seconds + Spec.Zone), usage is
// milli-GPU × milliseconds.
package quota
