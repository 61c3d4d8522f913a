package main

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/controlplane/binaries"
	"github.com/muster-gpu/muster/internal/shared"
)

// The demo shows what it promises.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("a real control plane takes long")
	}
	root, err := binaries.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shared.Reads(t, root)
	var out bytes.Buffer
	programs := shared.Programs{Plain: []string{"muster", "muster-kube"}}
	t.Cleanup(programs.Remove)
	d := &demo{Host: t, root: root, program: programs.Path(t, "muster-kube"), out: &out}
	d.run()
	text := out.String()
	for _, want := range []string{`(?m)^research +32 +33 +52% +2 +1 .*True$`, `(?m)^product +16 +12 +19% +5 +0 .*True$`,
		`research/ablation-0-\w+: queue "research": 8 GPUs asked, 33 used, limit 36`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s is not shown", want)
		}
	}
	if _, rest, _ := strings.Cut(text, "muster --context test why research/ablation\n"); !strings.Contains(rest,
		"limit 36") {
		t.Errorf("muster why does not say what blocks a gang")
	}
	if !regexp.MustCompile(`research/pretrain +research +research +32 +running +\S+ +(gpu-1,gpu-2,gpu-3,gpu-4|gpu-5,gpu-6,gpu-7,gpu-8)\n`).MatchString(text) {
		t.Error("pretraining is not inside one NVLink domain")
	}
	// The commands that it suggests work.
	if out, err := d.try("kubectl", "patch", "queue", "research", "--type", "merge", "-p",
		fmt.Sprintf(`{"spec":{"limit":%d}}`, roomy)); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	d.p.Wait("the gang that waited for its queue runs", func(context.Context) bool {
		out, err := d.try(d.muster("queue", "--state", "running")...)
		return err == nil && strings.Contains(out, "research/ablation")
	})
	if t.Failed() || strings.Contains(text, "rror") {
		t.Errorf("it showed:\n%s", text)
	}
}
