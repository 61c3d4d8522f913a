// Package plot embeds uPlot, which draws the figures of the report and of the dashboard in the browser.
package plot

import "embed"

// Version is uPlot's.
const Version = "1.6.32"

// Files are uPlot.iife.min.js, uPlot.min.css and uPlot.LICENSE.
//
//go:embed uPlot.*
var Files embed.FS
