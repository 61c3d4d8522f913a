package report

import (
	"math"
	"strconv"
	"strings"
)

// unit is how a figure is formatted.
type unit uint8

const (
	unitSeconds unit = iota
	unitShare        // 0..1, shown as percent
	unitCount        // whole number
	unitRatio        // three digits
	unitHours        // GPU-hours
	unitMicros       // microseconds
)

var unitNames = [...]string{"seconds", "share", "count", "ratio", "gpu_hours", "micros"}

// human formats a figure in the unit that fits its size.
func (u unit) human(v float64) string {
	switch u {
	case unitSeconds:
		return humanSeconds(v)
	case unitShare:
		return humanShare(v)
	case unitCount:
		return humanCount(v)
	case unitMicros:
		return humanMicros(v)
	}
	return humanRatio(v)
}

// humanSeconds shows seconds as 12ms, 0.4s, 38s, 12m05s, 4h12m, 3d04h or 123d.
func humanSeconds(v float64) string {
	switch {
	case v < 0:
		return "-" + humanSeconds(-v)
	case v == 0:
		return "0s"
	case v < 0.0995:
		return strconv.FormatFloat(v*1000, 'f', 0, 64) + "ms"
	case v < 9.95:
		return strconv.FormatFloat(v, 'f', 1, 64) + "s"
	case v < 59.5:
		return strconv.FormatFloat(v, 'f', 0, 64) + "s"
	case v < 3599.5:
		s := int64(math.Round(v))
		return pair(s/60, "m", s%60, "s")
	case v < 48*3600-30:
		m := int64(math.Round(v / 60))
		return pair(m/60, "h", m%60, "m")
	case v < 100*86400-1800:
		h := int64(math.Round(v / 3600))
		return pair(h/24, "d", h%24, "h")
	}
	return humanCount(v/86400) + "d"
}

func pair(a int64, ua string, b int64, ub string) string {
	if b == 0 {
		return strconv.FormatInt(a, 10) + ua
	}
	t := strconv.FormatInt(b, 10)
	if b < 10 {
		t = "0" + t
	}
	return strconv.FormatInt(a, 10) + ua + t + ub
}

func humanShare(v float64) string {
	p := v * 100
	switch {
	case p == 0:
		return "0%"
	case math.Abs(p) < 0.095:
		return strconv.FormatFloat(p, 'f', 2, 64) + "%"
	case v == 1:
		return "100%"
	case p > 99.9 && p < 100:
		return "99.9%"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + "%"
}

// humanCount formats a whole number with grouped thousands.
func humanCount(v float64) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	var b strings.Builder
	if v < 0 && s != "0" {
		b.WriteByte('-')
	}
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

func humanRatio(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 0.0095:
		return strconv.FormatFloat(v, 'g', 2, 64)
	case a < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return humanCount(v)
}

func humanMicros(v float64) string {
	switch {
	case v < 9.95:
		return strconv.FormatFloat(v, 'f', 1, 64) + "µs"
	case v < 9999.5:
		return humanCount(v) + "µs"
	}
	return humanCount(v/1000) + "ms"
}
