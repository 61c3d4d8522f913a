package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every cluster file in the documentation can be read as it is.
func TestDocumentation(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../docs/*.md", "../docs/*/*.md", "../docs/*/*/*.md"} {
		list, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, list...)
	}
	if len(files) < 60 {
		t.Fatalf("%d pages", len(files))
	}
	read := 0
	for _, f := range append(files, "../README.md") {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(data), "```yaml\n")[1:] {
			text, _, _ := strings.Cut(block, "```")
			switch {
			case filepath.Base(f) == "config.md",
				strings.Contains(text, "interface:") && strings.Contains(text, "hosts:"):
				_, err = ReadServe(f, strings.NewReader(text))
			case strings.Contains(text, "speed:"):
				_, err = ReadPerf(f, []byte(text))
			case strings.Contains(text, "queues:") || strings.Contains(text, "nodes:"):
				if !strings.Contains(text, "nodes:") {
					text = "nodes: [{name: 'n[1-8]', model: H100, gpus: 8}]\n" + text
				}
				s, e := Read(f, strings.NewReader(text))
				if err = e; e == nil {
					err = Validate(s)
				}
			default:
				continue
			}
			read++
			if err != nil {
				t.Errorf("%s, YAML block %d: %v", f, i+1, err)
			}
		}
	}
	if read < 4 {
		t.Errorf("only %d YAML blocks were found", read)
	}
}
