package llm

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Precision is the number format that a model computes in.
type Precision string

// The precisions; weights take 2, 1 and half a byte each.
const (
	BF16 Precision = "bf16"
	FP8  Precision = "fp8"
	FP4  Precision = "fp4"
)

// Precisions lists them.
var Precisions = []string{string(BF16), string(FP8), string(FP4)}

// speed is what a vendor states of a GPU: bandwidth in bytes per second, dense operations per second by
// precision (0: it is not supported).
type speed struct {
	gpu            string
	rate           float64
	bf16, fp8, fp4 float64
}

var speeds = []speed{
	{"V100-16GB", 900e9, 125e12, 0, 0}, {"V100-32GB", 900e9, 125e12, 0, 0}, {"T4-16GB", 320e9, 65e12, 0, 0},
	{"A10-24GB", 600e9, 125e12, 0, 0}, {"A30-24GB", 933e9, 165e12, 0, 0}, {"A40-48GB", 696e9, 149.7e12, 0, 0},
	{"A100-40GB", 1555e9, 312e12, 0, 0}, {"A100-80GB", 2039e9, 312e12, 0, 0}, {"A800-80GB", 2039e9, 312e12, 0, 0},
	{"L4-24GB", 300e9, 121e12, 242e12, 0}, {"L40S-48GB", 864e9, 362.05e12, 733e12, 0},
	{"H100-80GB", 3350e9, 989e12, 1978e12, 0}, {"H100-94GB", 3900e9, 989e12, 1978e12, 0},
	{"H100-96GB", 3350e9, 989e12, 1978e12, 0}, {"GH200-96GB", 4000e9, 989e12, 1978e12, 0},
	{"H200-141GB", 4800e9, 989e12, 1978e12, 0}, {"B200-180GB", 7700e9, 2250e12, 4500e12, 9000e12},
	{"GB200-186GB", 8000e9, 2500e12, 5000e12, 10000e12},
}

// FindGPU returns what is known of a GPU model that cluster.FindModel accepts, at a precision.
func FindGPU(name string, p Precision) (GPU, bool) {
	m, ok := cluster.FindModel(name)
	if !ok {
		return GPU{}, false
	}
	i := slices.IndexFunc(speeds, func(s speed) bool { return s.gpu == m.Name })
	if i < 0 {
		return GPU{}, false
	}
	g := GPU{Memory: float64(m.Memory) * (1 << 20), Rate: speeds[i].rate,
		Flops: map[Precision]float64{BF16: speeds[i].bf16, FP8: speeds[i].fp8, FP4: speeds[i].fp4}[p]}
	return g, g.Flops > 0
}
