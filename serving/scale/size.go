package scale

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/service"
)

// sizing is a policy that decides for one service alone, and how large a part of a GPU each of its replicas has where
// the service leaves that open (gpus: auto).
type sizing interface {
	Policy
	// size returns what should run from now on.
	size(v *View) []Want
}

// sizes reports whether replicas of a variant may have any part of a GPU.
func (v *View) sizes(x *service.Variant) bool {
	return v.sizing && x.Auto && !v.Fixed && x.Language == nil
}

// there are the replicas that there are, and those that are coming, by kind.
func (v *View) there() []Want { return v.counted(v.Ready, v.Coming) }

// answering are the replicas that answer, by kind.
func (v *View) answering() []Want { return v.counted(v.Ready) }

// counted is what there is by kind: as listed for variants whose replicas may have any size, else as counted, less what
// waits for GPUs in vain.
func (v *View) counted(numbers ...[]int) (list []Want) {
	for i := range v.Service.Variants {
		x := &v.Service.Variants[i]
		if v.sizes(x) {
			for _, r := range v.Have {
				if r.Variant == i && (r.Answers || len(numbers) > 1) {
					list = with(list, Want{r.Kind, 1})
				}
			}
			continue
		}
		w := Want{Kind: Kind{i, x.Share()}}
		for _, n := range numbers {
			w.Replicas += n[i]
		}
		w.Replicas = min(w.Replicas, v.roomFor(i))
		list = append(list, w)
	}
	return list
}

// with adds replicas of a kind.
func with(list []Want, w Want) []Want {
	if i := slices.IndexFunc(list, func(o Want) bool { return o.Kind == w.Kind }); i >= 0 {
		list[i].Replicas += w.Replicas
		return list
	}
	return append(list, w)
}

// of is the rate that replicas sustain by their profiles, and what they cost each hour.
func (v *View) of(list []Want) (rate, cost float64, replicas int) {
	for _, w := range list {
		x := &v.Service.Variants[w.Variant]
		rate += float64(w.Replicas) * v.sustained(x, w.Share)
		cost += float64(w.Replicas) * x.PerHourOf(w.Share)
		replicas += w.Replicas
	}
	return rate, cost, replicas
}

// trimmed is a list in which replicas that may have any size are as small as a rate permits, the later ones first.
func (v *View) trimmed(list []Want, rate float64) (less []Want) {
	covered, _, _ := v.of(list)
	for k := len(list) - 1; k >= 0; k-- {
		w := list[k]
		x := &v.Service.Variants[w.Variant]
		if !v.sizes(x) {
			less = with(less, w)
			continue
		}
		each := v.sustained(x, w.Share)
		for range w.Replicas {
			share, own := v.least(x, w.Share, each-(covered-rate))
			covered -= each - own
			less = with(less, Want{Kind{w.Variant, share}, 1})
		}
	}
	return less
}

// least is the smallest part of a GPU, up to one, on which a replica of a variant sustains a rate. It is not less than
// the smallest that was measured, on which there was memory enough.
func (v *View) least(x *service.Variant, most cluster.Milli, rate float64) (share cluster.Milli, sustains float64) {
	for share = x.Profile[0].Share; share < most; share = share/shareStep*shareStep + shareStep {
		if own := v.sustained(x, share); own > 0 && own >= rate*(1-1e-9) {
			return share, own
		}
	}
	return most, v.sustained(x, most)
}

// adapted is what runs, less what a rate does not need, more what it lacks: of the cheapest kinds and sizes.
// nil: so many replicas are not permitted, or cost too much.
func (v *View) adapted(now []Want, rate, factor float64) []Want {
	list := slices.Clone(now)
	covered, _, replicas := v.of(list)
	slices.SortStableFunc(list, func(a, b Want) int { return int(b.Share - a.Share) })
	for k := range list {
		w := &list[k]
		each := v.sustained(&v.Service.Variants[w.Variant], w.Share)
		for w.Replicas > 0 && covered-each >= rate && replicas > max(1, v.Service.Replicas.Min) {
			w.Replicas, covered, replicas = w.Replicas-1, covered-each, replicas-1
		}
	}
	if covered < rate {
		rest := *v
		spec := *v.Service
		spec.Replicas = service.Replicas{Max: v.Service.Replicas.Max - replicas}
		rest.Service = &spec
		more, n, full := rest.covering((rate-covered)*factor, factor)
		if !full {
			return nil
		}
		for _, w := range v.trimmed(wants(more, n), rate-covered) {
			list = with(list, w)
		}
	}
	if _, cost, _ := v.of(list); !v.Service.Budget.Affords(cost) {
		return nil
	}
	return slices.DeleteFunc(list, func(w Want) bool { return w.Replicas == 0 })
}

// wants are numbers of replicas of options.
func wants(list []option, n []int) (all []Want) {
	for k := range list {
		if n[k] > 0 {
			all = with(all, Want{list[k].Kind, n[k]})
		}
	}
	return all
}

// resizable reports whether replicas of any variant may have any part of a GPU.
func (v *View) resizable() bool {
	return slices.ContainsFunc(v.Service.Variants, func(x service.Variant) bool { return v.sizes(&x) })
}

// inaccurate reports whether some of what runs is less accurate than the service permits.
func (v *View) inaccurate(now []Want) bool {
	return slices.ContainsFunc(now, func(w Want) bool {
		return w.Replicas > 0 && v.Service.Variants[w.Variant].Accuracy < v.Service.Budget.Accuracy
	})
}

const similar = 1.1 // cost over the least at which replicas keep their sizes: others would have to start first

// resize covers a rate where replicas may have any part of a GPU: what was wanted stays if it is enough and hardly
// dearer than the cheapest, or changed lately; else the cheapest for a little more than the rate, or what runs, with
// fewer replicas or further ones, if that is hardly dearer. Until the first replica answers nothing is known that other
// sizes would be for.
func (m *muster) resize(v *View, rate float64) []Want {
	list, n, full := v.covering(rate*(1+m.spare), m.factor)
	want, now := wants(list, n), m.sized
	rate /= m.factor
	if now == nil {
		now = v.there()
	}
	_, _, answering := v.of(v.answering())
	switch {
	case answering == 0 && v.Replicas() > 0:
		if more := v.adapted(v.there(), rate, m.factor); full && more != nil {
			want = more
		}
		return m.remember(v, want)
	case answering == 0 && v.stated() == 0:
		return m.remember(v, want)
	case slices.ContainsFunc(v.Have, func(r Replica) bool { return r.Stuck }): // a smaller one may fit
		if more := v.adapted(v.answering(), rate, m.factor); more != nil {
			return m.remember(v, more)
		}
	}
	want = v.trimmed(want, rate*(1+m.spare))
	if !full || v.Replicas() < v.Service.Replicas.Min || v.inaccurate(now) {
		return m.remember(v, want)
	}
	covered, cost, replicas := v.of(now)
	_, least, _ := v.of(want)
	if covered >= rate && replicas <= v.Service.Replicas.Max &&
		(cost <= least*hardly || v.Now.Sub(m.sizedAt) < m.recent.window) {
		return now
	}
	if near := v.adapted(now, rate*(1+m.spare), m.factor); near != nil {
		if _, cost, _ := v.of(near); cost <= least*similar {
			want = near
		}
	}
	return m.remember(v, want)
}

// remember remembers what is wanted, and since when.
func (m *muster) remember(v *View, want []Want) []Want {
	if !slices.Equal(m.sized, want) {
		m.sized, m.sizedAt = slices.Clone(want), v.Now
	}
	return want
}
