package terms

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/gpus"
)

// A deadline is a time, or a length of time from the creation of the oldest of the gang's
// pods and owners on; anything else says what would be right.
func TestDeadlineText(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"2026-03-01T18:00:00+01:00": "2026-03-01T17:00:00Z", "2h30m": "2026-03-01T13:30:00Z",
		"":                     "",
		"tomorrow":             `annotation muster.sh/deadline of pod p: "tomorrow" is neither a time such as`,
		"2026-03-01":           "is neither a time such as 2026-12-24T18:00:00+01:00 nor a length of time from creation on such as 6h",
		"0s":                   "above 0",
		"-3h":                  "annotation muster.sh/deadline of pod p",
		"1931-03-01T18:00:00Z": "out of range",
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.NewTime(now),
			Annotations: map[string]string{AnnotationDeadline: text}}}
		owner := &metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}
		origins := []gangs.Origin{{Meta: p, What: "pod p"}, {Meta: owner, What: "Job j"}}
		at, err := deadlineFor(&Gang{Sources: origins, Created: func() time.Time { return Created(origins, nil) }})
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case at > 0:
			got = time.Unix(0, int64(at)).UTC().Format(time.RFC3339)
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// What is said of a gang is read from its pods and owners, the nearest first; the first that makes no sense is named.
func TestRead(t *testing.T) {
	rules := &Rules{Labels: &gpus.Labels{Stated: gpus.Stated{Rack: "rack"}},
		Classes: map[string]cluster.Tier{"vip": cluster.Critical},
		Repair:  true, MinSpeed: 500_000}
	for _, c := range []struct {
		pod, job map[string]string
		class    string
		priority int64
		want     string // part of the terms, or of the error
	}{
		{nil, nil, "", 0, "Tier:standard"},
		{nil, nil, "", -1, "Tier:best-effort"},
		{nil, nil, "vip", -1, "Tier:critical"},
		{map[string]string{LabelTier: "standard"}, map[string]string{LabelTier: "critical"}, "vip", 0, "Tier:standard"},
		{nil, map[string]string{AnnotationLoss: LossRequeue}, "", 0, "Repair:false"},
		{nil, nil, "", 0, "Repair:true"},
		{nil, nil, "", 0, "Least:500000"},
		{map[string]string{AnnotationSpeed: "0.8"}, nil, "", 0, "Least:800000"},
		{map[string]string{AnnotationCores: "30%"}, nil, "", 0, "Cores:300"},
		{map[string]string{AnnotationCores: "30"}, nil, "", 0, "of pod p: \"30\" is not a part of a GPU's compute"},
		{map[string]string{AnnotationMovable: "no"}, nil, "", 0, "\"no\" is neither true nor false"},
		{nil, map[string]string{AnnotationRunTime: "soon"}, "", 0, "muster.sh/run-time of Job j"},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: c.pod}}
		job := &metav1.ObjectMeta{Annotations: c.job}
		origins := []gangs.Origin{{Meta: p, What: "pod p"}, {Meta: job, What: "Job j"}}
		terms, err := rules.Read(&Gang{Sources: origins, Priority: c.priority, Class: c.class}, p)
		got := fmt.Sprintf("%+v", terms)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%v, %v: %s, want %s", c.pod, c.job, got, c.want)
		}
	}
}

// Annotations of services, which controllers copy to pods, do not keep these waiting; a slip of the pen still does.
func TestServiceKeys(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{AnnotationService: "name: x",
		AnnotationVariant: "x", AnnotationStatus: "{}"}}}
	if err := CheckPod(p); err != nil {
		t.Error(err)
	}
	p.Annotations["muster.sh/services"] = "x"
	if err := CheckPod(p); err == nil {
		t.Error("muster.sh/services is taken")
	}
}
