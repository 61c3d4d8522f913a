package report

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// WriteHTML writes one self-contained page.
func WriteHTML(w io.Writer, title string, runs []Run, sums []Summary) error {
	var b strings.Builder
	if err := WriteTable(&b, sums, TableOptions{Width: 160}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "<!doctype html><meta charset=utf-8><title>%s</title><pre>%s</pre>\n", html.EscapeString(title), html.EscapeString(b.String()))
	return err
}
