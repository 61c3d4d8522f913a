package reports

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/internal/controlplane"
)

// A pod is told whom to trust if it has a token to report with.
func TestHasToken(t *testing.T) {
	p := controlplane.Pod("a", 1, nil)
	with := func(audience string) *v1.Pod {
		q := p.DeepCopy()
		q.Spec.Volumes = []v1.Volume{
			{Name: "t", VolumeSource: v1.VolumeSource{
				Projected: &v1.ProjectedVolumeSource{
					Sources: []v1.VolumeProjection{
						{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: audience}}}}}}}
		return q
	}
	if HasToken(p) || HasToken(with("vault")) || !HasToken(with("muster")) {
		t.Error("which pods report is told otherwise")
	}
}
