// Package plain makes untrusted text fit for a terminal: characters that would move the cursor, change colours
// or titles, begin a line, or change the direction of what follows are written as harmless escapes.
package plain

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text escapes what a terminal would act on.
func Text(s string) string { return escape(s, acts) }

// Lines is Text for texts of several lines.
func Lines(s string) string {
	return escape(s, func(r rune) bool { return r != '\n' && r != '\t' && acts(r) })
}

// Acts reports whether a text has a character that a terminal would act on, and which.
func Acts(s string) (r rune, ok bool) {
	i := strings.IndexFunc(s, acts)
	if i < 0 {
		return 0, false
	}
	r, _ = utf8.DecodeRuneInString(s[i:])
	return r, true
}

// acts reports whether a terminal may do something else with a character than show it: control characters, line
// and paragraph separators, format characters such as those that change the direction, and invalid characters.
func acts(r rune) bool {
	switch {
	case r < 0x7f:
		return r < 0x20
	case r == '\u200c', r == '\u200d': // joiners, which some languages and emojis need
		return false
	}
	return r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Cs, unicode.Co)
}

func escape(s string, acts func(rune) bool) string {
	if strings.IndexFunc(s, acts) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == utf8.RuneError:
			b.WriteRune(r)
		case !acts(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += n
	}
	return b.String()
}

// JSON returns a writer of JSON in which characters that a terminal would act on are written as JSON escapes,
// which leaves the data unchanged.
func JSON(w io.Writer) io.Writer { return &jsonWriter{w: w} }

type jsonWriter struct {
	w    io.Writer
	rest []byte // the beginning of a character
}

// Write passes on the complete characters so far.
func (j *jsonWriter) Write(b []byte) (int, error) {
	text := append(j.rest, b...)
	out := make([]byte, 0, len(text))
	for len(text) > 0 && (utf8.FullRune(text)) {
		r, n := utf8.DecodeRune(text)
		switch {
		case r < 0x7f, r != utf8.RuneError && !acts(r): // JSON encoders escape ASCII controls themselves
			out = append(out, text[:n]...)
		case r >= 0x10000:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[n:]
	}
	j.rest = append([]byte(nil), text...)
	if _, err := j.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Clean replaces all texts inside a value by ones that can be shown. v is a pointer.
func Clean(v any) { clean(reflect.ValueOf(v)) }

func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			clean(v.Elem())
		}
	case reflect.Interface:
		if !v.IsNil() && v.CanSet() {
			v.Set(copied(v.Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				clean(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		if k := v.Type().Elem().Kind(); k >= reflect.Bool && k <= reflect.Complex128 {
			return // bytes and numbers
		}
		for i := range v.Len() {
			clean(v.Index(i))
		}
	case reflect.Map:
		cleanMap(v)
	case reflect.String:
		if v.CanSet() {
			v.SetString(Text(v.String()))
		}
	}
}

func copied(v reflect.Value) reflect.Value {
	w := reflect.New(v.Type()).Elem()
	w.Set(v)
	clean(w)
	return w
}

func cleanMap(v reflect.Value) {
	for _, k := range v.MapKeys() {
		value, key := copied(v.MapIndex(k)), copied(k)
		if key.Interface() != k.Interface() {
			v.SetMapIndex(k, reflect.Value{})
		}
		v.SetMapIndex(key, value)
	}
}
