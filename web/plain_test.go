package web

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Other users' texts appear in pages and in the window's title without characters that change the direction of
// text or are invisible.
func TestPlain(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node, which runs the function, is not installed")
	}
	text, err := os.ReadFile("assets/lib.js")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "export function plain")
	if !ok {
		t.Fatal("there is no function plain")
	}
	body, _, _ := strings.Cut(rest, "\n}\n")
	script := "function plain" + body +
		"\n}\nprocess.stdout.write(plain(\"a\\u202eb\\u0007\\u009b\\u001b\\ud83d\\ude00\\u00e9 训\\n\"))"
	out, err := exec.Command(node, "-e", script).CombinedOutput()
	if want := `a\u202eb\u0007\u009b\u001b😀é 训` + "\n"; err != nil || string(out) != want {
		t.Errorf("%q, not %q (%v)", out, want, err)
	}
	for _, path := range []string{"assets/main.js", "assets/lib.js"} {
		script, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(node, "--input-type=module", "--check")
		cmd.Stdin = strings.NewReader(string(script))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
}
