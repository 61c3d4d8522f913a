// Package kube drives the engine on a Kubernetes cluster: pods with Muster's
// schedulerName become jobs, its decisions become bindings and evictions.
//
// The API server is the only memory. Each binding carries the plan of its whole
// gang (AnnotationPlan), so that a scheduler that is killed in the middle of a
// gang is followed by one that goes on with the same plan: it builds its engine
// from what it finds bound (begin.go), and compares the two with driver.Diff.
//
// What the engine is told follows the pods level by level, not edge by edge:
// every batch settles the gangs whose pods changed (settle.go), whatever
// happened to them in between.
package kube
