package notices

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
)

// waits is a pod with what its condition says.
func waits(name, says string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Message: says}}}}
}

// Pods are told what is news, those that are new or missed it what the others know, and nothing twice.
func TestSay(t *testing.T) {
	var told Told
	now := cluster.Time(0)
	told.Since(now, time.Second)
	for i, c := range []struct {
		stem, text string
		pods       []*v1.Pod
		careful    bool
		missed     bool // one could not be told the last time
		want       string
	}{
		{"full", "full: a", []*v1.Pod{waits("p", ""), waits("q", "")}, false, false,
			"p=full: a news; q=full: a news; "},
		{"full", "full: b", []*v1.Pod{waits("p", "full: a"), waits("q", "full: a")}, false, false, ""},
		{"full", "full: b", []*v1.Pod{waits("p", ""), waits("q", "full: a")}, false, false, ""},
		{"full", "full: b", []*v1.Pod{waits("p", ""), waits("q", "full: a")}, false, true, "p=full: a; "},
		{"full", "full: b", []*v1.Pod{waits("p", ""), waits("q", "full: a")}, true, false, "p=full: a; "},
		{"full", "full: b", []*v1.Pod{waits("r", ""), waits("q", "full: a")}, false, false, "r=full: a; "},
		{"quota", "quota", []*v1.Pod{waits("r", "full: a"), waits("q", "full: a")}, false, false,
			"r=quota news; q=quota news; "},
	} {
		if c.missed {
			told.Missed(now)
		}
		got := ""
		for _, l := range told.Say(c.stem, c.text, c.pods, c.careful) {
			news := ""
			if l.News {
				news = " news"
			}
			got += fmt.Sprintf("%s=%s%s; ", l.Pod.Name, l.Text, news)
		}
		if got != c.want || told.Text() != c.stem {
			t.Errorf("%d: %q, not %q", i, got, c.want)
		}
	}
	for told.every < tellRefresh {
		told.Again(now)
	}
	pods := []*v1.Pod{waits("r", "quota"), waits("q", "quota")}
	if list := told.Say("quota", "quota: tomorrow", pods, false); len(list) != 2 || list[0].News {
		t.Errorf("after a while what is no news is not told: %v", list)
	}
}

// What a scheduler before this one said is not said again.
func TestSaidBefore(t *testing.T) {
	var told Told
	if told.Began() || told.Any() {
		t.Error("it was told before it was")
	}
	told.Since(0, time.Second)
	list := told.Say("full", "full: b", []*v1.Pod{waits("p", "full: a"), waits("q", "full: a")}, false)
	if len(list) != 0 || !told.Began() || !told.Any() || told.Text() != "full" {
		t.Errorf("%v; %q", list, told.Text())
	}
}

// It is looked at less and less often, down to every few minutes, and soon when a pod was missed.
func TestAgain(t *testing.T) {
	var told Told
	told.Since(0, time.Second)
	if told.Next != cluster.Time(time.Second) {
		t.Errorf("first at %v", told.Next)
	}
	last := time.Duration(0)
	for range 20 {
		told.Again(0)
		if d := time.Duration(told.Next); d < last || d > tellLast {
			t.Fatalf("after %v, then after %v", last, d)
		}
		last = time.Duration(told.Next)
	}
	if told.Missed(7); last != tellLast || told.Next != 7 {
		t.Errorf("at last after %v; at %v once it was missed", last, told.Next)
	}
}
