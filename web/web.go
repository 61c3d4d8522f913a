// Package web is the dashboard: pages, styles and scripts, embedded. They are served as written here, load
// nothing from elsewhere, and use only the interface under /v1/.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/muster-gpu/muster/internal/plot"
)

//go:embed assets
var assets embed.FS

// policy restricts the pages to what this server serves: no inline script or style, no other origin, no framing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var types = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".LICENSE": "text/plain; charset=utf-8"}

// addresses are the routes of the dashboard; each serves the same document, whose script shows the page of the
// address.
var addresses = []string{"/{$}", "/jobs", "/jobs/{id}", "/submit", "/services", "/usage", "/history"}

// Pages returns the dashboard by route. The pages contain nothing secret: they request their data as the
// signed-in user.
func Pages() map[string]http.HandlerFunc {
	pages := map[string]http.HandlerFunc{"GET /assets/{name}": asset}
	// asked for where no page names it
	pages["GET /favicon.ico"] = func(w http.ResponseWriter, r *http.Request) { send(w, r, assets, "assets/icon.svg") }
	for _, p := range addresses {
		pages["GET "+p] = func(w http.ResponseWriter, r *http.Request) { send(w, r, assets, "assets/index.html") }
	}
	return pages
}

// asset sends a file that the document refers to.
func asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if strings.HasPrefix(name, "uPlot.") {
		send(w, r, plot.Files, name)
		return
	}
	send(w, r, assets, "assets/"+name)
}

// send sends a file. Browsers revalidate it on each request, so that pages of a new daemon are never mixed with
// those of an old one.
func send(w http.ResponseWriter, r *http.Request, files embed.FS, name string) {
	text, err := files.ReadFile(name)
	if err != nil {
		w.Header().Set("Content-Type", "application/problem+json") // like every error of the server
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"status":404,"title":"Not Found","detail":"the dashboard has no such file"}`))
		return
	}
	sum := sha256.Sum256(text)
	h := w.Header()
	h.Set("Content-Type", types[path.Ext(name)])
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", `"`+base64.RawURLEncoding.EncodeToString(sum[:12])+`"`)
	http.ServeContent(w, r, path.Base(name), time.Time{}, bytes.NewReader(text))
}
