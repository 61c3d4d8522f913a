package engine

import (
	"reflect"
	"testing"

	"github.com/muster-gpu/muster/engine/job"
)

// Two records with one value for Untouched do not differ, but in their specs: each other field is part of the
// value, or makes it that something happened to the job.
func TestUntouched(t *testing.T) {
	was, ok := (&job.Record{}).Untouched()
	if !ok {
		t.Fatal("an empty record is not one of a job that only waited")
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[job.Record]()) {
		if field.Name == "Spec" || field.Anonymous {
			continue
		}
		var r job.Record
		f := reflect.ValueOf(&r).Elem().FieldByIndex(field.Index)
		switch f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Array:
			f.Index(0).SetInt(1)
		case reflect.String:
			f.SetString("x")
		case reflect.Uint8:
			f.SetUint(1)
		default:
			f.SetInt(1)
		}
		if u, ok := r.Untouched(); ok && u == was {
			t.Errorf("%s is not looked at", field.Name)
		}
	}
}
