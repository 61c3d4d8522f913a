// Package scenario reads and runs scenarios: short texts, readable by an operator, that state the
// scheduler's input and its expected behaviour. The same parser and runner serve `go test
// ./scenario` and `muster check FILE`. README.md describes the language.
//
// A scenario is static: everything is parsed and every name is looked up before anything runs.
// Mistakes in it are of type *Error and name file and line; behaviour of Muster that differs from
// the text is data, a Failure.
package scenario
