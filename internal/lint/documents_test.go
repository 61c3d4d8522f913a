package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A page of docs/ has at most as many lines as can be read in one sitting.
const maxPage = 250

// longPages may be longer, each for a reason.
var longPages = map[string]string{
	"docs/results/gavel.md":      "generated: a row per published cell",
	"docs/results/comparison.md": "generated: a row per policy and trace",
}

var (
	link    = regexp.MustCompile(`\[[^\]\n]*\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#+ (.*)`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
	mention = regexp.MustCompile(`\bdocs/[a-z0-9_/-]+\.md\b`)
)

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.SplitSeq(withoutCode(text), "\n") {
		if m := heading.FindStringSubmatch(line); m != nil {
			all[strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), ""), " ",
				"-")] = true
		}
	}
	return all
}

// withoutCode leaves out blocks of code.
func withoutCode(text string) string {
	var out []string
	code := false
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "```") {
			code = !code
			continue
		}
		if !code {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// repositoryFiles returns the paths of the repository's files with one of these endings.
func repositoryFiles(t *testing.T, ends ...string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "node_modules" ||
			d.Name() == "testdata") {
			return filepath.SkipDir
		}
		for _, e := range ends {
			if strings.HasSuffix(path, e) && !d.IsDir() {
				files = append(files, path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Every link between the documents leads to an existing page and heading.
func TestLinks(t *testing.T) {
	pages, read := map[string]map[string]bool{}, 0
	for _, path := range repositoryFiles(t, ".md") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Clean(path)] = anchors(string(data))
	}
	for path := range pages {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(withoutCode(string(data)), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			read++
			file, anchor, _ := strings.Cut(m[1], "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", path, m[1])
			} else if anchor != "" && !pages[to][anchor] {
				t.Errorf("%s: %s has no heading #%s", path, to, anchor)
			}
		}
	}
	if read < 100 {
		t.Errorf("only %d links were found", read)
	}
}

// A page that code, a manifest or a document names exists.
func TestNamedPages(t *testing.T) {
	for _, path := range repositoryFiles(t, ".go", ".md", ".yaml", ".py", ".js", ".txt", "Makefile") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range mention.FindAllString(string(data), -1) {
			if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
				t.Errorf("%s names %s, which is not there", path, name)
			}
		}
	}
}

// Pages are short and on a shelf, and the list of pages names each.
func TestPages(t *testing.T) {
	index, err := os.ReadFile("../../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range repositoryFiles(t, ".md") {
		name, err := filepath.Rel("../..", path)
		if err != nil {
			t.Fatal(err)
		}
		rest, isPage := strings.CutPrefix(name, "docs/")
		if !isPage {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(data), "\n"); n > maxPage && longPages[name] == "" {
			t.Errorf("%s has %d lines; at most %d", name, n, maxPage)
		}
		shelf, _, deep := strings.Cut(rest, "/")
		switch {
		// the pages of their folders list them
		case rest == "README.md" || shelf == "results" || strings.HasPrefix(rest, "reference/policies/"):
		case !deep && rest != "performance.md" && rest != "results.md":
			t.Errorf("%s stands on no shelf: guide, howto, reference or design", name)
		case !strings.Contains(string(index), "("+rest+")"):
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}
