package network

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// figures are facts of a model: bytes of gradients in 32 bits, forward multiplications and additions of a sample
// (10^9; torchvision's documentation) or tokens of a batch, and the batch of one GPU that is assumed.
type figures struct {
	name       string
	parameters int64
	gmac       float64
	batch      float64 // samples, or for language models tokens
	half       bool    // gradients in 16 bits
}

// Counts of parameters are from the layers' sizes; batches are common ones.
var known = []figures{
	{"resnet18", 11689512, 1.81, 128, false},
	{"resnet50", 25557032, 4.09, 128, false},
	{"resnet101", 44549160, 7.8, 64, false},
	{"wide_resnet101_2", 126886696, 22.75, 64, false},
	{"vgg11", 132863336, 7.61, 64, false},
	{"vgg16", 138357544, 15.47, 64, false},
	{"vgg19", 143667240, 19.63, 64, false},
	{"alexnet", 61100840, 0.71, 256, false},
	{"inception_v3", 27161264, 5.71, 64, false},
	{"densenet121", 7978856, 2.83, 64, false},
	{"mobilenet_v2", 3504872, 0.3, 128, false},
	{"bert-base-uncased", 109482240, 0, 32 * 128, false},
	{"bert-large-uncased", 335141888, 0, 16 * 128, true},
	{"roberta-base", 124645632, 0, 32 * 128, false},
	{"gpt2", 124439808, 0, 8 * 1024, true},
	{"gpt2-medium", 354823168, 0, 4 * 1024, true},
	{"gpt2-large", 774030080, 0, 4 * 1024, true},
	{"gpt2-xl", 1557611200, 0, 4 * 1024, true},
	{"llama-2-7b", 6738415616, 0, 2 * 4096, true},
	{"llama-2-13b", 13015864320, 0, 4096, true},
	{"llama-2-70b", 68976648192, 0, 4096, true},
	{"gpt3-175b", 175_000_000_000, 0, 4096, true},
	{"dlrm-mlperf-dense", 2368897, 0, 8192, false}, // its embeddings are exchanged besides: a job's own figures say it
}

// reached is what of arithmetic a GPU is assumed to reach: 0.4 of the 312 TFLOP/s of an A100 in 16 bits.
const reached = 0.4 * 312e12

// Models are the models whose traffic is known without being stated: data parallel training, reduced hierarchically, of
// which two thirds of the computing (the backward pass) overlap with transmission. Computing time is estimated: twice a
// multiplication and addition, thrice for forward and backward, at what a GPU reaches; a job's own measurements replace
// all of it.
func Models() (list []cluster.ModelTraffic) {
	for _, m := range known {
		perUnit := 6 * float64(m.parameters)
		if m.gmac > 0 {
			perUnit = 6 * m.gmac * 1e9
		}
		bytes := m.parameters * 4
		if m.half {
			bytes = m.parameters * 2
		}
		list = append(list, cluster.ModelTraffic{Model: m.name, Traffic: cluster.Traffic{Pattern: cluster.Hierarchical,
			Bytes: bytes, Compute: time.Duration(perUnit * m.batch / reached * 1e9).Round(time.Microsecond),
			Overlap: 667}})
	}
	return list
}
