package config

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// placed is an error about a key of a file.
type placed struct {
	path []string // keys; in a list, the name of the entry
	err  error
}

func (p *placed) Error() string { return strings.Join(p.path, ": ") + ": " + p.err.Error() }
func (p *placed) Unwrap() error { return p.err }

// At attaches the key of a file to an error; nil stays nil.
func At(err error, path ...string) error {
	if err == nil {
		return nil
	}
	return &placed{path, err}
}

// ofQueue extracts the name of the queue from an error of a package that knows nothing of files.
var ofQueue = regexp.MustCompile(`\b(queue|parent|partition) "?([^\s":]+)"?`)

// Locate adds file and line to an error about the content of a file.
func Locate(name string, data []byte, err error) error {
	if err == nil {
		return nil
	}
	var root yaml.Node
	line := 0
	if yaml.Unmarshal(data, &root) == nil && len(root.Content) > 0 {
		line = lineOf(root.Content[0], err)
	}
	if line == 0 {
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%s:%d: %w", name, line, err)
}

// lineOf is the line that an error is about; 0: unknown.
func lineOf(root *yaml.Node, err error) int {
	var p *placed
	if errors.As(err, &p) {
		return find(root, p.path)
	}
	if m := ofQueue.FindStringSubmatch(err.Error()); m != nil {
		return find(root, []string{map[string]string{"partition": "partitions"}[m[1]], m[2]})
	}
	if strings.Contains(err.Error(), "guarantee") {
		return find(root, []string{"queues"})
	}
	return 0
}

// find follows keys into a file as far as they exist. An entry of a list is found by its name, at any depth; an
// empty key stands for queues.
func find(n *yaml.Node, path []string) (line int) {
	for _, key := range path {
		if key == "" {
			key = "queues"
		}
		next := (*yaml.Node)(nil)
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == key {
					line, next = n.Content[i].Line, n.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(key); err == nil && i < len(n.Content) {
				line, next = n.Content[i].Line, n.Content[i]
				break
			}
			if next = named(n, key); next != nil {
				line = next.Line
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return line
}

// named finds the entry with a name in a list, or among its entries' children.
func named(list *yaml.Node, name string) *yaml.Node {
	for _, n := range list.Content {
		if n.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			switch {
			case n.Content[i].Value == "name" && n.Content[i+1].Value == name:
				return n
			case n.Content[i].Value == "children":
				if found := named(n.Content[i+1], name); found != nil {
					return found
				}
			}
		}
	}
	return nil
}
