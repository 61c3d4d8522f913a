package look

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// usageBy are the ways to add up what was used.
var usageBy = []string{"user", "queue", "job", "model"}

// CheckBy says that there is no such way to add up what was used.
func CheckBy(by string) error {
	if slices.Contains(usageBy, by) {
		return nil
	}
	return &ask.FieldError{Field: "by", Text: cluster.Unknown("way to add up", by, usageBy).Error()}
}

// Usage reports what gangs used since a time, from the scheduler's own books:
// they begin when it begins to lead. What GPUs computed is not measured here.
func (l *Sight) Usage(by string, since time.Time, zone *time.Location) (show.Usage, error) {
	u := show.Usage{Since: since.UTC(), By: by, Rows: []show.UsageRow{}, Waste: []show.Waste{}, Load: []show.Load{},
		Score: show.Score{Off: []show.Off{}}}
	if err := CheckBy(by); err != nil {
		return u, err
	}
	u.Until = *Instant(l.At)
	sums, all := map[string]*sum{}, &sum{}
	for _, r := range l.Choose(ask.Filter{Since: since.UnixNano()}) {
		j := r.Job(l.At)
		key := usageKey(&j, by)
		if sums[key] == nil {
			sums[key] = &sum{}
		}
		sums[key].add(&j)
		all.add(&j)
	}
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		u.Rows = append(u.Rows, sums[key].row(key))
	}
	slices.SortStableFunc(u.Rows, func(a, b show.UsageRow) int { return cmp.Compare(b.GPUHours, a.GPUHours) })
	u.Total = all.row("all")
	u.Notes = []string{fmt.Sprintf("from the scheduler's memory: it leads since %s, and knows nothing of gangs that were over by then; utilisation, energy and CPU time are not measured here",
		Instant(l.Since).Format("2006-01-02 15:04:05 MST"))}
	if len(l.Past) == l.Most {
		u.Notes = append(u.Notes, fmt.Sprintf("only the last %d gangs that ended are remembered", l.Most))
	}
	l.load(&u, zone)
	return u, nil
}

func usageKey(j *show.Job, by string) string {
	switch by {
	case "queue":
		return cmp.Or(j.Submission.Queue, "default")
	case "job":
		return j.Submission.Name
	case "model":
		return cmp.Or(j.Submission.Model, "none stated")
	}
	return j.User
}

// sum adds jobs up.
type sum struct {
	out    show.UsageRow
	waited time.Duration
}

func (s *sum) add(j *show.Job) {
	s.out.Jobs++
	s.out.GPUHours += j.GPUHours
	s.out.Preemptions += j.Preemptions
	s.waited += time.Duration(j.Waited)
}

func (s *sum) row(key string) show.UsageRow {
	r := s.out
	r.Key = key
	if r.Jobs > 0 {
		r.Waited = ask.Duration(s.waited / time.Duration(r.Jobs))
	}
	return r
}

// load is what became of the GPUs, hour by hour or day by day, and by the hours
// of the week.
func (l *Sight) load(u *show.Usage, zone *time.Location) {
	u.Week = make([]show.WeekHour, 7*24)
	u.Daily = u.Until.Sub(u.Since) > 14*24*time.Hour
	for _, h := range l.Hours {
		at := time.Unix(0, int64(h.At)).In(zone)
		if at.Add(time.Hour).Before(u.Since) {
			continue
		}
		w := &u.Week[int(at.Weekday())*24+at.Hour()]
		w.Total, w.Held = w.Total+h.Total.Hours(), w.Held+h.Held.Hours()
		if u.Daily {
			at = time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, zone)
		}
		if n := len(u.Load); n == 0 || u.Load[n-1].At != at.Unix() {
			u.Load = append(u.Load, show.Load{At: at.Unix()})
		}
		last := &u.Load[len(u.Load)-1]
		last.Total, last.Held = last.Total+h.Total.Hours(), last.Held+h.Held.Hours()
	}
}
