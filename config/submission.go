package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
)

// Submission reads the fields of a submission from a part of a file.
func Submission(path string, node *yaml.Node, s *ask.Submission) error {
	keys, fields := submissionKeys(), node.Content
	for i := 0; i+1 < len(fields); i += 2 {
		name, line := fields[i].Value, fields[i].Line
		if keys[name] == "" {
			return fmt.Errorf("%s:%d: %w", path, line, cluster.Unknown("field", name, fieldNames()))
		}
		var v any
		if err := fields[i+1].Decode(&v); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", path, line, name, err)
		}
		one, err := json.Marshal(map[string]any{name: v})
		if err != nil {
			return fmt.Errorf("%s:%d: %s: %w", path, line, name, err)
		}
		if err := json.NewDecoder(bytes.NewReader(one)).Decode(s); err != nil {
			var wrong *json.UnmarshalTypeError
			if errors.As(err, &wrong) {
				err = fmt.Errorf("a %s is needed, not a %s", keys[name], wrong.Value)
			}
			return fmt.Errorf("%s:%d: %s: %w", path, line, name, err)
		}
	}
	s.Env = append(os.Environ(), s.Env...)
	return nil
}

// submissionKeys are the names of a submission's fields with their types.
func submissionKeys() map[string]string {
	keys := map[string]string{}
	t := reflect.TypeFor[ask.Submission]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		keys[name] = t.Field(i).Type.String()
	}
	return keys
}

func fieldNames() (names []string) {
	t := reflect.TypeFor[ask.Submission]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
