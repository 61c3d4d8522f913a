// Package traffic says what is written to pods of how the network treats what they send: classes, marks and slots, for
// agents on their nodes, and the variables of their libraries.
package traffic

import (
	"cmp"
	"maps"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/kube/terms"
)

// Marks is by what traffic is marked.
type Marks struct {
	QoS *config.QoS
	// Sign makes the seal of an annotation of a pod, by which an agent knows that the scheduler wrote it; nil: none.
	Sign func(obj *v1.Pod, annotation, text string, now time.Time) string
	Now  func() time.Time
}

// Notes are what can change while a pod runs: the class and the slots. Agents check the seal of the DSCP.
func (m *Marks) Notes(obj *v1.Pod, t *cluster.Treatment) map[string]string {
	notes := map[string]string{terms.AnnotationClass: strconv.Itoa(t.Class), terms.AnnotationDSCP: "cs0",
		terms.AnnotationSlots: strings.TrimSpace(string(config.Slots(t)))}
	if mark, marked := m.QoS.Mark(t.Class); marked {
		notes[terms.AnnotationDSCP] = config.DSCPText(mark.DSCP)
	}
	if m.Sign != nil {
		notes[terms.AnnotationDSCP+terms.SealSuffix] = m.Sign(obj, terms.AnnotationDSCP, notes[terms.AnnotationDSCP],
			m.Now())
	}
	return notes
}

// AtStart are what is written to a pod with its binding: that, and what its libraries read when they start. Each
// variable has the library's default where nothing is decided: an empty one is a mistake to NCCL.
func (m *Marks) AtStart(obj *v1.Pod, t *cluster.Treatment) map[string]string {
	notes := m.Notes(obj, t)
	set := map[string]string{}
	for _, kv := range m.QoS.Variables(t, nil) {
		name, value, _ := strings.Cut(kv, "=")
		set[name] = value
	}
	class := cmp.Or(set["NCCL_IB_TC"], "0")
	maps.Copy(notes, map[string]string{
		terms.AnnotationTC:   class,
		terms.AnnotationFIFO: cmp.Or(set["NCCL_IB_FIFO_TC"], class),
		terms.AnnotationSL:   cmp.Or(set["NCCL_IB_SL"], "0"),
		terms.AnnotationQPs:  cmp.Or(set["NCCL_IB_QPS_PER_CONNECTION"], "1"),
	})
	if name := set["NCCL_SOCKET_IFNAME"]; name != "" {
		notes[terms.AnnotationIface] = name
	}
	return notes
}

// StartedWith is of the treatment of pods what one of them was told for good.
func (m *Marks) StartedWith(pods []*v1.Pod) (t cluster.Treatment) {
	for _, p := range pods {
		tc, known := p.Annotations[terms.AnnotationTC]
		if !known {
			continue
		}
		t.Spread, _ = strconv.Atoi(p.Annotations[terms.AnnotationQPs])
		for class := 1; t.Class == 0 && class <= cluster.MaxClasses; class++ {
			if mark, marked := m.QoS.Mark(class); marked && strconv.Itoa(int(mark.TC)) == tc {
				t.Class = class
			}
		}
		break
	}
	return t
}
