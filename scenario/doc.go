// Package scenario reads and runs scenarios: short texts, readable by an
// operator, that say what the scheduler is given and what it does with it. The
// same parser and runner serve `go test ./scenario` and `muster check FILE`.
// The language is described in README.md beside this file.
//
// A scenario is static: everything is parsed and every name is looked up before
// anything runs. Mistakes in it are of type *Error and name file and line;
// a Muster that does something else than the text says is data, a Failure.
package scenario
