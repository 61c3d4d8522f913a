package compat

import "fmt"

// Muri is the world of Muri's simulator (SIGCOMM'22): iterations take 1.5 % longer, every cluster
// event charges each running job a stall by model and size, and ends within 1e-9 of each other are
// one instant.
func Muri() Profile {
	return Profile{Name: "muri", Slower: 1.015, Stall: muriStall, Together: 1e-9}
}

// MuriLevels is Muri's world under its Tiresias-L: the scheduler runs when a job's service reaches
// one of the two limits of its levels, and only ends at exactly the same instant count as one.
// Within a level jobs keep the order of its lists.
func MuriLevels() Profile {
	p := Muri()
	p.Name, p.Together, p.Lists, p.Quiet, p.Asked = "muri-levels", 0, true, true, []float64{3250, 7200}
	return p
}

// MuriGroups is Muri's world with shared GPUs: jobs are ordered by remaining service, or by
// received service if least. With doubles, ties between pairs of equal efficiency are broken as in
// that simulator; otherwise by the policy.
func MuriGroups(least, doubles bool) Profile {
	p := Muri()
	p.Name, p.Meet, p.sharing = "muri-groups", 1e-4,
		&muriWorld{least: least, doubles: doubles, periods: map[[muriGroup]int]float64{}}
	return p
}

// muriStalls are seconds by model, for 1, 2, 4, 8, 16 and 32 GPUs.
var muriStalls = map[string][6]float64{
	"vgg16": {7, 7, 8, 9, 9, 10}, "vgg19": {7, 7, 8, 9, 10, 10}, "resnet18": {4, 5, 5, 7, 7, 7},
	"shufflenet_v2_x1_0": {4, 4, 5, 5, 7, 8},
	"bert":               {10, 10, 10, 10, 10, 10}, "gpt2": {10, 10, 10, 10, 10, 10}, "a2c": {38, 39, 39, 46, 46, 46},
	"dqn": {5, 5, 6, 6, 8, 8},
}

func muriStall(gpus int, model string) (float64, error) {
	for i := range 6 {
		if gpus != 1<<i {
			continue
		}
		if s, ok := muriStalls[model]; ok {
			return s[i], nil
		}
		return 10, nil
	}
	return 0, fmt.Errorf("%d GPUs: this world knows 1, 2, 4, 8, 16 and 32", gpus)
}
