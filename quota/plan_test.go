package quota

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/cluster"
)

// Tests: C=8; A G=4 B=8; B G=4 B=6.
func TestStand(t *testing.T) {
	for _, c := range []struct {
		what         string
		used, ask    Milli
		limit        Milli
		want         Standing
		alsoUnlimted Standing
	}{
		{"B submits 4", 0, 4, 6, Entitled, Entitled},
		{"B uses 4 and asks 3", 4, 3, 6, Denied, Burst},
		{"B uses 4 and asks 2", 4, 2, 6, Burst, Burst},
	} {
		if got := Stand(c.used, c.ask, 4, c.limit); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
		if got := Stand(c.used, c.ask, 4, cluster.Unlimited); got != c.alsoUnlimted {
			t.Errorf("%s without limit: %v", c.what, got)
		}
	}
}

func job(queue int, tier cluster.Tier, gpus Milli, lost int64, started cluster.Time) Victim {
	return Victim{queue, tier, gpus * gpu, lost, started}
}

func TestPlanReclaim(t *testing.T) {
	const be, std, crit = cluster.BestEffort, cluster.Standard, cluster.Critical
	share := func(used, guarantee Milli, weight int64) Share { return Share{used * gpu, guarantee * gpu, weight} }
	for _, c := range []struct {
		name    string
		shares  []Share
		victims []Victim
		need    Milli
		want    []int
	}{
		// Tests: A runs 8, 4 of them borrowed; B is owed 4.
		{"A gives back 4, best-effort first", []Share{share(8, 4, 4)},
			[]Victim{job(0, std, 2, 1, 1), job(0, std, 2, 2, 2), job(0, be, 2, 99, 3), job(0, std, 2, 3, 4)}, 4,
			[]int{2, 0}},
		{"not below A's guarantee", []Share{share(8, 4, 4)}, []Victim{job(0, std, 4, 0, 0), job(0, std, 4, 0, 0)}, 5,
			nil},
		// Tests: a critical 2-GPU job, all GPUs held by standard.
		{"2 GPUs with least lost work, not the 8", []Share{share(12, 0, 1)},
			[]Victim{job(0, std, 8, 0, 9), job(0, std, 2, 50, 1), job(0, std, 2, 40, 1)}, 2, []int{2}},
		{"in whatever order they come", []Share{share(12, 0, 1)},
			[]Victim{job(0, std, 2, 50, 1), job(0, std, 2, 40, 1), job(0, std, 8, 0, 9)}, 2, []int{1}},
		{"critical is never taken", []Share{share(8, 0, 1)}, []Victim{job(0, crit, 8, 0, 0)}, 1, nil},
		{"the queue that is furthest over", []Share{share(6, 4, 1), share(8, 4, 1)},
			[]Victim{job(0, std, 1, 0, 0), job(1, std, 1, 9, 0)}, 1, []int{1}},
		{"by weight", []Share{share(6, 4, 1), share(8, 4, 4)}, []Victim{job(0, std, 1, 0, 0), job(1, std, 1, 9, 0)}, 1,
			[]int{0}},
		{"looked at again", []Share{share(7, 4, 1), share(8, 4, 1)},
			[]Victim{job(0, std, 2, 0, 0), job(1, std, 2, 0, 0), job(1, std, 2, 1, 0)}, 4, []int{1, 0}},
		{"youngest at equal loss", []Share{share(4, 0, 1)}, []Victim{job(0, std, 1, 5, 1), job(0, std, 1, 5, 2)}, 1,
			[]int{1}},
		{"per GPU", []Share{share(4, 0, 1)}, []Victim{job(0, std, 1, 3, 0), job(0, std, 2, 4, 0)}, 2, []int{1}},
		{"put back", []Share{share(4, 0, 1)}, []Victim{job(0, be, 1, 0, 0), job(0, std, 3, 9, 0)}, 3, []int{1}},
		{"best-effort of another queue first", []Share{share(9, 4, 1), share(5, 4, 1)},
			[]Victim{job(0, std, 1, 0, 0), job(1, be, 1, 9, 0)}, 1, []int{1}},
		{"big first when small ones block it", []Share{share(8, 4, 1)},
			[]Victim{job(0, std, 1, 0, 0), job(0, std, 4, 9, 0), job(0, std, 1, 0, 0)}, 4, []int{1}},
		{"nothing needed", []Share{share(8, 4, 1)}, []Victim{job(0, std, 1, 0, 0)}, 0, nil},
	} {
		if got := PlanReclaim(c.shares, c.victims, c.need*gpu); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// The invariants of the three tiers, against all subsets of the victims.
func TestPlanReclaimInvariants(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		victim := rapid.Custom(func(r *rapid.T) Victim {
			return Victim{rapid.IntRange(0, 2).Draw(r, "queue"), cluster.Tier(rapid.IntRange(0, 2).Draw(r, "tier")),
				rapid.SampledFrom([]Milli{1, 2, 4, 8}).Draw(r, "gpus"), rapid.Int64Range(0, 9).Draw(r, "lost"), 0}
		})
		victims := rapid.SliceOfN(victim, 0, 8).Draw(r, "victims")
		shares := make([]Share, 3)
		for i := range shares {
			shares[i] = Share{0, rapid.Int64Range(0, 8).Draw(r, "guarantee"), rapid.Int64Range(1, 3).Draw(r, "weight")}
		}
		for _, v := range victims {
			shares[v.Queue].Used += v.Milli
		}
		need := rapid.Int64Range(1, 16).Draw(r, "need")

		// legal reports what a set frees, and whether it is allowed.
		legal := func(set uint) (freed Milli, standard, ok bool) {
			var perQueue [3]Milli
			for i, v := range victims {
				if set>>i&1 == 1 {
					if v.Tier == cluster.Critical {
						return 0, false, false
					}
					freed += v.Milli
					perQueue[v.Queue] += v.Milli
					standard = standard || v.Tier == cluster.Standard
				}
			}
			for q, s := range shares {
				if perQueue[q] > 0 && s.Used-perQueue[q] < s.Guarantee {
					return 0, false, false
				}
			}
			return freed, standard, true
		}
		possible, withBestEffort := false, false
		for set := range uint(1) << len(victims) {
			if freed, standard, ok := legal(set); ok && freed >= need {
				possible = true
				withBestEffort = withBestEffort || !standard
			}
		}

		got := PlanReclaim(shares, victims, need)
		if got == nil {
			if possible {
				r.Fatal("no plan, though there is one")
			}
			return
		}
		var set uint
		for _, i := range got {
			set |= 1 << i
		}
		freed, standard, ok := legal(set)
		if !ok || freed < need {
			r.Fatalf("plan %v is not legal or frees only %d of %d", got, freed, need)
		}
		if standard && withBestEffort {
			r.Fatalf("plan %v takes standard, best-effort alone would do", got)
		}
		for _, i := range got {
			if freed-victims[i].Milli >= need {
				r.Fatalf("plan %v is not minimal: %d is not needed", got, i)
			}
		}
	})
}
