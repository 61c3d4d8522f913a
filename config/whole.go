package config

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// DecodeNode decodes a part of a file. A fraction where a whole number is expected is an error that names its
// line: YAML's decoder would truncate it, so that a budget of 0.9 would be none.
func DecodeNode(n *yaml.Node, into any) error {
	if err := wholeNumbers(n, reflect.TypeOf(into), ""); err != nil {
		return err
	}
	return n.Decode(into)
}

var (
	yamlReader = reflect.TypeFor[yaml.Unmarshaler]()
	textReader = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// wholeNumbers searches for fractions where a value of the type has a whole number. Types with their own decoder
// are left to check themselves.
func wholeNumbers(n *yaml.Node, t reflect.Type, key string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
		n = n.Content[0]
	}
	for t.Kind() == reflect.Pointer {
		if t.Implements(yamlReader) || t.Implements(textReader) {
			return nil
		}
		t = t.Elem()
	}
	if p := reflect.PointerTo(t); p.Implements(yamlReader) || p.Implements(textReader) {
		return nil
	}
	switch kind := t.Kind(); {
	case reflect.Int <= kind && kind <= reflect.Uint64:
		return wholeNumber(n, key)
	case kind == reflect.Slice || kind == reflect.Array:
		return wholeElements(n, t, key)
	case kind == reflect.Map || kind == reflect.Struct:
		return wholeFields(n, t)
	}
	return nil
}

func wholeNumber(n *yaml.Node, key string) error {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!float" {
		return nil // the decoder reports other errors
	}
	if v, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64); err == nil && v == math.Trunc(v) &&
		math.Abs(v) < 1<<53 {
		return nil // 1e3
	}
	if key != "" {
		key += ": "
	}
	return fmt.Errorf("line %d: %s%s is not a whole number", n.Line, key, n.Value)
}

func wholeElements(n *yaml.Node, t reflect.Type, key string) error {
	if n.Kind != yaml.SequenceNode {
		return nil
	}
	for _, e := range n.Content {
		if err := wholeNumbers(e, t.Elem(), key); err != nil {
			return err
		}
	}
	return nil
}

func wholeFields(n *yaml.Node, t reflect.Type) error {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		of := t
		if key.ShortTag() != "!!merge" { // merged mappings have the same fields
			if of = fieldType(t, key.Value); of == nil {
				continue // an unknown key, which the decoder reports
			}
		}
		if err := wholeNumbers(value, of, key.Value); err != nil {
			return err
		}
	}
	return nil
}

// fieldType is the type of the value of a key of a mapping; nil: the type has no such key.
func fieldType(t reflect.Type, key string) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if !f.Anonymous && name == key {
			return f.Type
		}
	}
	return nil
}
