package slurm

import (
	"bytes"
	"fmt"
	"strings"
)

// directives are the options of a script's #SBATCH and #MUSTER lines.
type directives struct {
	sbatch, muster []string
}

// maxScript is the longest accepted script; Slurm's own default is 4 MiB.
const maxScript = 4 << 20

// checkScript says why a text is not a valid batch script.
func checkScript(text []byte) error {
	switch {
	case len(text) == 0:
		return fmt.Errorf("the batch script is empty")
	case len(text) > maxScript:
		return fmt.Errorf("the batch script is longer than %d bytes", maxScript)
	case len(bytes.TrimSpace(text)) == 0:
		return fmt.Errorf("the batch script contains only whitespace")
	case !bytes.HasPrefix(text, []byte("#!")):
		return fmt.Errorf("this does not look like a batch script: the first line must start with #! and the path of an interpreter, such as #!/bin/sh")
	case bytes.IndexByte(text, 0) >= 0:
		return fmt.Errorf("the batch script contains NUL bytes")
	case bytes.Contains(text, []byte("\r\n")):
		return fmt.Errorf("the batch script has DOS line breaks (\\r\\n) instead of UNIX ones (\\n)")
	}
	return nil
}

// parseDirectives reads a script's option lines: those before the first line
// that is neither empty nor a comment.
func parseDirectives(name, text string) (directives, error) {
	var d directives
	for i, line := range strings.Split(text, "\n") {
		into, rest := &d.sbatch, ""
		var ok bool
		if rest, ok = strings.CutPrefix(line, "#SBATCH"); !ok {
			if rest, ok = strings.CutPrefix(line, "#MUSTER"); ok {
				into = &d.muster
			}
		}
		if !ok {
			if t := strings.TrimSpace(line); t != "" && t[0] != '#' {
				break
			}
			continue
		}
		words, err := splitWords(rest)
		if err != nil {
			return directives{}, fmt.Errorf("%s: line %d: %w", name, i+1, err)
		}
		if into == &d.muster {
			for _, w := range words {
				if len(w) > 1 && w[0] == '-' && w[1] != '-' {
					return directives{},
						fmt.Errorf("%s: line %d: %s: #MUSTER lines take long options only", name, i+1, w)
				}
			}
		}
		*into = append(*into, words...)
	}
	return d, nil
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' }

// splitWords splits a line at white space. Quotes and backslashes protect; # begins a comment, even within a
// word.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote byte
	inWord, escaped := false, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case escaped && (quote != 0 || !blank(c)): // a blank ends the word all the same
			word.WriteByte(c)
			escaped = false
		case c == '\\':
			escaped, inWord = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quote, inWord = c, true
		case c == '#' && inWord:
			return append(words, word.String()), nil
		case c == '#':
			return words, nil
		case blank(c):
			if escaped = false; inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("unmatched %c in [%s]", quote, strings.TrimSpace(line))
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
