package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/scale"
)

// A replica of a language model learns how its GPUs share it, in its command and its environment; another's command is
// left as it is.
func TestReplicaLearnsItsStages(t *testing.T) {
	command := []string{"vllm", "--port", "{port}", "--tensor-parallel-size", "{tensor}",
		"--pipeline-parallel-size={pipeline}"}
	s := &service.Service{Name: "chat", Variants: []service.Variant{
		{Name: "a", Request: cluster.Request{GPUs: 6}, Command: command,
			Language: &service.Language{Engine: llm.Engine{Stages: 3}}},
		{Name: "b", Request: cluster.Request{GPUs: 2}, Command: command, Language: &service.Language{}},
		{Name: "c", Request: cluster.Request{GPUs: 2}, Command: command}}}
	for i, want := range [][]string{
		{"--tensor-parallel-size 2", "--pipeline-parallel-size=3", "MUSTER_TENSOR=2", "MUSTER_PIPELINE=3"},
		{"--tensor-parallel-size 2", "--pipeline-parallel-size=1", "MUSTER_TENSOR=2", "MUSTER_PIPELINE=1"},
		{"--tensor-parallel-size {tensor}", "--pipeline-parallel-size={pipeline}"}} {
		j := submission(s, "", scale.Kind{Variant: i, Share: cluster.Whole}, 7000)
		got := []string{j.Command[3] + " " + j.Command[4], j.Command[5]}
		for _, e := range j.Env {
			if name, _, _ := strings.Cut(e, "="); name == "MUSTER_TENSOR" || name == "MUSTER_PIPELINE" {
				got = append(got, e)
			}
		}
		if !slices.Equal(got, want) || j.Command[2] != "7000" {
			t.Errorf("%s: %v, want %v", s.Variants[i].Name, got, want)
		}
	}
}
