package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program that switches nodes is called with the node's name; what it says is told if it fails.
func TestSwitchNode(t *testing.T) {
	dir := t.TempDir()
	program, told := filepath.Join(dir, "switch"), filepath.Join(dir, "told")
	if err := os.WriteFile(program,
		[]byte("#!/bin/sh\necho \"$1 $MUSTER_NODE\" >>"+told+"\n[ \"$1\" = n1 ] || { echo no such node; exit 3; }\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	if err := switchNode(t.Context(), program, "n1"); err != nil {
		t.Error(err)
	}
	if err := switchNode(t.Context(), program, "n2"); err == nil ||
		!strings.Contains(err.Error(), "exit status 3: no such node") {
		t.Errorf("%v", err)
	}
	text, err := os.ReadFile(told)
	if err != nil || string(text) != "n1 n1\nn2 n2\n" {
		t.Errorf("%v %q", err, text)
	}
}
