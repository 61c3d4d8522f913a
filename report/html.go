package report

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"html"
	"io"
	"strings"

	"github.com/muster-gpu/muster/internal/plot"
)

//go:embed assets
var assets embed.FS

// scripts are the page's own, in order; they share one function scope.
var scripts = []string{"base.js", "summary.js", "plots.js", "queues.js", "links.js", "services.js", "gantt.js",
	"main.js"}

func asset(name string) string { return embedded(assets, "assets/"+name) }

func embedded(files embed.FS, name string) string {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err) // embedded, so it exists
	}
	return strings.TrimRight(string(b), "\n")
}

// inlineHash is the source expression that permits one inline element.
func inlineHash(s string) string {
	h := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(h[:]) + "'"
}

// WriteHTML writes the runs as one self-contained page: data, styles and scripts are embedded, and
// its policy forbids loading or sending anything.
func WriteHTML(w io.Writer, title string, runs []Run, sums []Summary) error {
	if title == "" {
		title = "Muster report"
	}
	// json.Marshal escapes <, > and &: no name can end the element
	data, err := json.Marshal(newPage(title, runs, sums))
	if err != nil {
		return err
	}
	var table strings.Builder
	if err := WriteTable(&table, sums, TableOptions{Width: 100}); err != nil {
		return err
	}
	var own strings.Builder
	own.WriteString("(function () {\n\"use strict\";\n")
	for _, name := range scripts {
		own.WriteString(asset(name) + "\n")
	}
	own.WriteString("})();")
	draw := "/*\nuPlot " + plot.Version + "\n" + embedded(plot.Files, "uPlot.LICENSE") + "\n*/\n" +
		embedded(plot.Files, "uPlot.iife.min.js")
	style := embedded(plot.Files, "uPlot.min.css") + "\n" + asset("page.css")
	policy := "default-src 'none'; script-src " + inlineHash(draw) + " " + inlineHash(own.String()) +
		"; style-src " + inlineHash(style) + "; img-src data:; base-uri 'none'; form-action 'none'"
	var b bytes.Buffer
	b.WriteString("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
	b.WriteString("<meta http-equiv=\"Content-Security-Policy\" content=\"" + policy + "\">\n")
	b.WriteString("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n")
	b.WriteString("<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n")
	b.WriteString("<link rel=\"icon\" href=\"data:,\">\n<title>" + html.EscapeString(clean(title)) +
		"</title>\n<style>" + style + "</style>\n</head>\n<body>\n")
	b.WriteString(asset("page.html") + "\n<noscript><pre>" + html.EscapeString(table.String()) + "</pre></noscript>\n")
	b.WriteString("<script id=\"data\" type=\"application/json\">")
	b.Write(data)
	b.WriteString("</script>\n<script>" + draw + "</script>\n<script>" + own.String() + "</script>\n</body>\n</html>\n")
	_, err = w.Write(b.Bytes())
	return err
}
