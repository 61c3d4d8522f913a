package compat

import "fmt"

// Muri is the world of the simulator of Muri (SIGCOMM'22): 1.5 % on every
// iteration, a stall by model and size, charged at every event of the cluster to
// whoever runs, ends within 1e-9 of each other at one instant.
func Muri() Profile {
	return Profile{Name: "muri", Slower: 1.015, Stall: muriStall, Together: 1e-9}
}

// MuriLevels is Muri's world under its Tiresias-L: a job's service has the
// scheduler asked where the two limits of its levels are, and only ends at
// exactly one instant count as one. Inside a level jobs keep the order of its lists.
func MuriLevels() Profile {
	p := Muri()
	p.Name, p.Together, p.Lists, p.Quiet, p.Asked = "muri-levels", 0, true, true, []float64{3250, 7200}
	return p
}

// MuriGroups is Muri's world where jobs share GPUs: in an order by the service left,
// or had if least. In doubles, which of several pairs of equal efficiency is chosen is
// that simulator's choice; else the policy's.
func MuriGroups(least, doubles bool) Profile {
	p := Muri()
	p.Name, p.Meet, p.sharing = "muri-groups", 1e-4, &muriWorld{least: least, doubles: doubles, periods: map[[muriGroup]int]float64{}}
	return p
}

// muriStalls is seconds by model, at 1, 2, 4, 8, 16 and 32 GPUs.
var muriStalls = map[string][6]float64{
	"vgg16": {7, 7, 8, 9, 9, 10}, "vgg19": {7, 7, 8, 9, 10, 10}, "resnet18": {4, 5, 5, 7, 7, 7}, "shufflenet_v2_x1_0": {4, 4, 5, 5, 7, 8},
	"bert": {10, 10, 10, 10, 10, 10}, "gpt2": {10, 10, 10, 10, 10, 10}, "a2c": {38, 39, 39, 46, 46, 46}, "dqn": {5, 5, 6, 6, 8, 8},
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
