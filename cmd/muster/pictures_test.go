//go:build pictures

package main

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestPictures makes the pictures of the documents: the dashboard of made-up jobs on simulated GPUs, after some minutes
// (make pictures).
func TestPictures(t *testing.T) {
	t.Parallel()
	d := prepareDaemon(t, "8xH100-80GB")
	d.args = []string{"--demo"}
	d.start()
	time.Sleep(4 * time.Minute)
	b := signIn(t, d)
	b.Look(1240, 800, "light")
	b.visit("/")
	b.Settle()
	b.Shoot("overview")
	waits, _, _ := strings.Cut(d.must("queue", "--state", "pending", "--no-header", "-o", "job"), "\n")
	b.visit("/jobs/" + strings.TrimSpace(waits))
	b.Settle()
	b.Shoot("job")
	b.visit("/usage?by=user")
	b.Settle()
	b.Shoot("usage")

	page := filepath.Join(t.TempDir(), "report.html")
	d.must("sim", "--demo", "--html", page)
	b.Do(chromedp.Navigate("file://" + page))
	b.Settle()
	b.Shoot("report")
	for name, height := range map[string]int{"overview": 1200, "job": 900, "usage": 900, "report": 1000} {
		if err := crop(filepath.Join(os.Getenv("MUSTER_SCREENSHOTS"), name+".png"), height); err != nil {
			t.Errorf("MUSTER_SCREENSHOTS names the folder of the pictures: %v", err)
		}
	}
}

// crop keeps the upper part of a picture.
func crop(path string, height int) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	whole, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return err
	}
	r := whole.Bounds()
	r.Max.Y = min(r.Max.Y, r.Min.Y+height)
	part, ok := whole.(interface {
		SubImage(r image.Rectangle) image.Image
	})
	if !ok {
		return fmt.Errorf("%s: %T has no parts", path, whole)
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, part.SubImage(r)); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
