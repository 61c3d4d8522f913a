package engine_test

import (
	"reflect"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/place"
)

// Every fact of a job, all that it received and all that it has survives a restart: whatever field there is has a
// value, and has it afterwards.
func TestFactsSurvive(t *testing.T) {
	spec, err := cluster.ParseShort("1x8xT4")
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{Spec: *spec}
	if cfg.Policy, err = newPolicy("scatter"); err != nil { // under policies that plan, more of it counts
		t.Fatal(err)
	}
	if cfg.Placer, err = place.New("best-fit"); err != nil {
		t.Fatal(err)
	}
	tasks := []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}
	r := engine.JobRecord{Spec: &cluster.Job{Tasks: tasks}}
	fill(reflect.ValueOf(&r.Facts).Elem())
	fill(reflect.ValueOf(&r.Account).Elem())
	fill(reflect.ValueOf(&r.Holdings).Elem())
	// a job that is over is restored as it is, without the nodes that it ran on, and is not in line
	r.State, r.Eligible = engine.Done, false
	e, err := engine.Restore(cfg, &engine.Snapshot{Now: 100, Next: 1, Jobs: []engine.JobRecord{r}})
	if err != nil {
		t.Fatal(err)
	}
	got := e.Record(0)
	if !reflect.DeepEqual(got.Facts, r.Facts) {
		t.Errorf("facts\n%+v, were\n%+v", got.Facts, r.Facts)
	}
	if !reflect.DeepEqual(got.Account, r.Account) {
		t.Errorf("account\n%+v, was\n%+v", got.Account, r.Account)
	}
	if !reflect.DeepEqual(got.Holdings, r.Holdings) {
		t.Errorf("holdings\n%+v, were\n%+v", got.Holdings, r.Holdings)
	}
	for i := range got.Account.Among { // a record shares no memory with the engine
		got.Account.Among[i] = 99
	}
	if again := e.Record(0); !reflect.DeepEqual(again.Account, r.Account) {
		t.Errorf("the engine's own account changes with its record: %+v", again.Account)
	}
}

// fill gives every field of a struct a value.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		set(v.Field(i), i+1)
	}
}

// set gives a field a value.
func set(v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Struct:
		fill(v)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		set(v.Index(0), n)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(1)
	case reflect.String:
		v.SetString("x")
	default:
		v.SetInt(int64(n))
	}
}
