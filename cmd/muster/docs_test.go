package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command line of the documents is one that muster takes: the command is
// there, and so is each flag. What runs in place of muster kube has flags of
// its own, which cmd/muster-kube's test compares.
func TestCommandLines(t *testing.T) {
	read := 0
	for _, page := range documents(t) {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandLines(string(data)) {
			read++
			if complaint := understood(line); complaint != "" {
				t.Errorf("%s: %s: %s", page, line, complaint)
			}
		}
	}
	if read < 150 {
		t.Errorf("only %d command lines were found", read)
	}
}

// What the test above finds is what is wrong.
func TestUnderstood(t *testing.T) {
	for line, right := range map[string]bool{
		"muster run --gpus 2 -- python train.py --steps 3": true,
		"muster run --gpu 2 -- python train.py":            false,
		"muster submitt --gpus 2":                          false,
		"muster token create --role viewer":                true,
		"muster token make":                                false,
		"muster queue -o id,name --sort -gpus":             true,
		"muster --context lab queue":                       true,
	} {
		if got := understood(line); (got == "") != right {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// documents returns the pages that people read.
func documents(t *testing.T) []string {
	t.Helper()
	pages := []string{"../../README.md", "../../ARCHITECTURE.md", "../../scenario/README.md"}
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

var inlineCode = regexp.MustCompile("`(muster [^`\n]+)`")

// commandLines returns what a page says to type: in blocks of code and between backquotes.
func commandLines(text string) []string {
	var found []string
	code, shell := false, false
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "```") {
			code, shell = !code, line == "```" || line == "```sh" || line == "```bash"
			continue
		}
		if code && !shell {
			continue
		}
		if !code {
			for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
				found = append(found, m[1])
			}
			continue
		}
		for part := range strings.SplitSeq(line, ";") {
			part = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(part), "$ "), "./")
			part, _, _ = strings.Cut(part, "   ") // what follows describes it
			if strings.HasPrefix(part, "muster ") {
				found = append(found, part)
			}
		}
	}
	return found
}

// understood returns what is wrong with a command line; empty: nothing.
func understood(line string) string {
	root := newRoot()
	words := shellWords(line)[1:]
	if slices.ContainsFunc(words, func(w string) bool { return strings.ContainsAny(w, "|…[]<>") || w == "..." }) &&
		!strings.Contains(line, "--") {
		return "" // alternatives, not a command line
	}
	c, rest, known := root, words, false
	for len(rest) > 0 {
		w := rest[0]
		if w == "--context" {
			rest = rest[min(2, len(rest)):]
			continue
		}
		i := slices.IndexFunc(c.Commands(), func(sub *cobra.Command) bool {
			return sub.Name() == w || slices.Contains(sub.Aliases, w)
		})
		if i < 0 {
			break
		}
		c, rest, known = c.Commands()[i], rest[1:], true
	}
	if len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && !isPlaceholder(rest[0]) &&
		(!known || c.HasSubCommands() && !c.Runnable()) && !isBuiltIn(rest[0]) {
		return "no command " + rest[0]
	}
	if c.DisableFlagParsing || c.Name() == "kube" {
		return ""
	}
	return flagsUnderstood(c, rest)
}

func isPlaceholder(word string) bool {
	return word == strings.ToUpper(word) || strings.ContainsAny(word, "|…,")
}

// isBuiltIn: cobra adds these when it runs.
func isBuiltIn(word string) bool { return word == "help" || word == "completion" || word == "COMMAND" }

var flagName = regexp.MustCompile(`^--?[a-z][a-z0-9-]*$`)

func flagsUnderstood(c *cobra.Command, words []string) string {
	for _, w := range words {
		if w == "--" || w == "|" || w == "&" || w == "&&" || w == ">" {
			break
		}
		name, _, _ := strings.Cut(w, "=")
		switch {
		case !flagName.MatchString(name):
		case name == "--help" || name == "-h" || name == "--version":
		case strings.HasPrefix(name, "--"):
			if f := strings.TrimPrefix(name, "--"); c.Flags().Lookup(f) == nil && c.InheritedFlags().Lookup(f) == nil {
				return "no flag " + name
			}
		case len(name) == 2:
			if f := name[1:]; c.Flags().ShorthandLookup(f) == nil && c.InheritedFlags().ShorthandLookup(f) == nil {
				return "no flag " + name
			}
		}
	}
	return ""
}

// shellWords splits as a shell does, as far as the documents need it, up to a comment.
func shellWords(line string) []string {
	var words []string
	var word strings.Builder
	var quote rune
	begun := false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == '#' && !begun:
			return words
		case r == ' ' || r == '\t':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}
