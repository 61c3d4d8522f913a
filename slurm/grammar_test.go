package slurm

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	for in, want := range map[string]string{"5": "5m0s", "0:30": "1m0s", "0:90": "2m0s", "1:00": "1m0s",
		"10:00": "10m0s", "1:00:00": "1h0m0s", "1-": "24h0m0s", "1-0": "24h0m0s",
		"1-2": "26h0m0s", "1-2:30": "26h30m0s", "2-3:4:5": "51h5m0s", "0": "0s", "-1": "0s", "infinite": "0s",
		"UNLIMITED": "0s", "90": "1h30m0s", "24:00:00": "24h0m0s",
		"": "!", ":": "!", "1:": "!", "-5": "!", "x": "!", "1h": "!", "5.5": "!", " 5": "!", "1:2:3:4": "!",
		"1-2:3:4:5": "!", "1--2": "!", "99999999999999999999": "!", "999999-0": "!", "+5": "!"} {
		d, err := ParseTime(in)
		if got := d.String(); err != nil && want != "!" || err == nil && got != want {
			t.Errorf("ParseTime(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
}

func TestParseMemory(t *testing.T) {
	for in, want := range map[string]int64{"4": 4, "4M": 4, "4MB": 4, "4g": 4096, "4GB": 4096, "1T": 1 << 20,
		"1025K": 2, "1024k": 1, "0": 0,
		"": -1, "-1": -1, "4P": -1, "4.5G": -1, "4GiB": -1, "4B": -1, "G": -1, "4GG": -1, "4x": -1, "99999999T": -1} {
		v, err := ParseMemory(in)
		if err != nil {
			v = -1
		}
		if v != want {
			t.Errorf("ParseMemory(%q) = %d, %v; want %d", in, v, err, want)
		}
	}
}

func TestParseSignal(t *testing.T) {
	for in, want := range map[string]string{"USR1": "USR1 1m0s", "10": "USR1 1m0s", "usr1@": "USR1 1m0s",
		"SIGTERM@30": "TERM 30s", "B:USR1@10": "USR1 10s B", "RB:12": "USR2 1m0s BR",
		"BR:12@0": "USR2 0s BR", "R:USR2@5": "USR2 5s R", "60": "60 1m0s", "B:": "!", "": "!", "0": "!", "FOO": "!",
		"USR1@x": "!", "USR1@65536": "!", "X:USR1": "!", "B:R:10": "!", "65": "!"} {
		s, err := ParseSignal(in)
		got := s.Name + " " + s.Before.String()
		if s.Shell || s.Reservation {
			got += " "
		}
		if s.Shell {
			got += "B"
		}
		if s.Reservation {
			got += "R"
		}
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("ParseSignal(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	if _, err := ParseSignal("URS1"); err == nil || !strings.Contains(err.Error(), `"USR1"`) {
		t.Errorf("a misspelt signal is not told the nearest: %v", err)
	}
}

func TestParseDependency(t *testing.T) {
	for in, want := range map[string]string{"afterok:1": "afterok 1",
		"afterok:1:2,afterany:3": "afterok 1;afterok 2;afterany 3", "after:1+5:2": "after 1 +5m0s;after 2",
		"singleton":            "singleton 0",
		"afterok:1?afterany:2": "afterok 1;afterany 2 any", "aftercorr:3": "aftercorr 3", "afterok:3_4": "afterok 3_4",
		"afterok:3_*": "afterok 3", "12": "afterany 12", "12:13": "afterany 12;afterany 13",
		"AfterOK:1": "afterok 1", "": "!", "bad:1": "!", "afterok": "!", "afterok:": "!", "afterok:x": "!",
		"afterok:0": "!", "singleton:1": "!", "afterok:1+5": "!", "after:1+x": "!",
		"afterok:1,afterok:2?after:3": "!", "afterok:1,": "!", "afterok:1_x": "!"} {
		d, err := ParseDependency(in)
		var parts []string
		for _, x := range d.Terms {
			s := fmt.Sprintf("%s %d", x.Type, x.Job)
			if x.Index >= 0 {
				s += fmt.Sprintf("_%d", x.Index)
			}
			if x.Delay > 0 {
				s += " +" + x.Delay.String()
			}
			parts = append(parts, s)
		}
		got := strings.Join(parts, ";")
		if d.Any {
			got += " any"
		}
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("ParseDependency(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
}

func TestParseWhen(t *testing.T) {
	now := time.Date(2026, 3, 4, 10, 30, 15, 0, time.UTC)
	for in, want := range map[string]string{"now": "03-04 10:30:15", "now+1hour": "03-04 11:30:15",
		"now+90": "03-04 10:31:45", "now+2 days": "03-06 10:30:15", "now-1day": "03-03 10:30:15",
		"now + 1week": "03-11 10:30:15",
		"now+10min":   "03-04 10:40:15", "16:00": "03-04 16:00:00", "09:00": "03-05 09:00:00",
		"9:00PM":   "03-04 21:00:00",
		"12:00 AM": "03-05 00:00:00", "noon": "03-04 12:00:00", "midnight": "03-05 00:00:00",
		"teatime": "03-04 16:00:00", "fika": "03-04 15:00:00", "tomorrow": "03-05 00:00:00", "today": "03-04 00:00:00",
		"tomorrow noon": "03-05 12:00:00", "2026-05-06": "05-06 00:00:00",
		"2026-05-06T07:08": "05-06 07:08:00", "2026-05-06T07:08:09": "05-06 07:08:09", "0506": "05-06 00:00:00",
		"05/06": "05-06 00:00:00", "05/06/26": "05-06 00:00:00", "05.06.26": "05-06 00:00:00",
		"050626":         "05-06 00:00:00",
		"16:00 05/06/26": "05-06 16:00:00",
		"":               "!", "bad": "!", "25:00": "!", "10:60": "!", "now+": "!", "now+1fortnight": "!",
		"2026-13-01": "!", "2026-02-30": "!", "now*2": "!", "16:00 17:00": "!", "5": "!", "now+99999999999": "!",
		"13:00PM": "!"} {
		w, err := ParseWhen(in, now)
		got := w.Format("01-02 15:04:05")
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("ParseWhen(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
}

func TestHosts(t *testing.T) {
	for in, want := range map[string]string{"n1": "n1", "n[1-3]": "n1 n2 n3", "n[01-03,7],x": "n01 n02 n03 n7 x",
		"a[1-2]b[3-4]": "a1b3 a1b4 a2b3 a2b4", "": "", "n[3-1]": "!", "n[1": "!", "n1]": "!", "n[1-99999999]": "!"} {
		h, err := ExpandHosts(in)
		got := strings.Join(h, " ")
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("ExpandHosts(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{"n1": "n1", "n3 n1 n2": "n[1-3]", "n01 n02 n03 n7 x": "n[01-03],n7,x",
		"b a": "a,b", "b1 a3 a1 a2": "a[1-3],b1"} {
		if got := CompressHosts(strings.Fields(in)); got != want {
			t.Errorf("CompressHosts(%q) = %q; want %q", in, got, want)
		}
	}
}

func FuzzParseTime(f *testing.F) {
	f.Add("1-02:03:04")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseTime(s)
		if err != nil {
			return
		}
		if d < 0 || d%time.Minute != 0 {
			t.Fatalf("%q: %v", s, d)
		}
		if again, err := ParseTime(clockText(d)); err != nil || d > 0 && again != d {
			t.Fatalf("%q: %v is shown as %s and read as %v, %v", s, d, clockText(d), again, err)
		}
	})
}

func FuzzParseMemory(f *testing.F) {
	f.Add("12G")
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := ParseMemory(s); err == nil {
			if again, err := ParseMemory(sizeText(v)); err != nil || again != v {
				t.Fatalf("%q: %d, %d, %v", s, v, again, err)
			}
		}
	})
}

func FuzzParseSignal(f *testing.F) {
	f.Add("B:USR1@60")
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := ParseSignal(s); err == nil && (v.Name == "" || v.Before < 0) {
			t.Fatalf("%q: %+v", s, v)
		}
	})
}

func FuzzParseDependency(f *testing.F) {
	f.Add("after:1+5:2_3,singleton")
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseDependency(s); err == nil && len(d.Terms) == 0 {
			t.Fatalf("%q is a dependency on nothing", s)
		}
	})
}

func FuzzParseWhen(f *testing.F) {
	f.Add("now+1hour")
	f.Add("9:00 PM 05/06/26")
	f.Add("2026-05-06T07:08")
	now := time.Date(2026, 3, 4, 10, 30, 15, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		w, err := ParseWhen(s, now)
		if err != nil || w.Year() > 9999 {
			return
		}
		if again, err := ParseWhen(w.Format("2006-01-02T15:04:05"), now); err == nil && !again.Equal(w) {
			t.Fatalf("%q: %v, %v", s, w, again)
		}
	})
}

func FuzzExpandHosts(f *testing.F) {
	f.Add("n[01-03,7],x")
	f.Fuzz(func(t *testing.T, s string) {
		if h, err := ExpandHosts(s); err == nil && len(h) > 0 {
			CompressHosts(h)
		}
	})
}

func FuzzDirectives(f *testing.F) {
	f.Add("#!/bin/sh\n#SBATCH -n 2 --gpus=h100:1 # why\n#MUSTER --share=50\ntrue\n", "--time=5 -c 2")
	f.Add("#!/bin/sh\n#SBATCH --job-name=\"a b\" --mem 4G\n", "--mem-per-cpu=1G")
	svc := newFake()
	f.Fuzz(func(t *testing.T, script, line string) {
		words, err := splitWords(line)
		if err != nil {
			return
		}
		opts, _, err := parseArgs(words, batchOptions, true)
		if err != nil {
			return
		}
		var s settings
		if s.layers("x.sh", script, nil, opts) != nil {
			return
		}
		if s.has("export-file") {
			return // it would read files
		}
		m := machine{now: svc.now, nodes: svc.Nodes, parts: svc.Partitions, jobs: svc.Jobs, job: svc.Job, dir: "/"}
		sub, r, err := s.submission(m)
		if err == nil {
			err = m.refusal(&sub, &r)
		}
		if err != nil {
			return
		}
		if sub.GPUs < 0 || sub.GPUs > 8 && sub.Profile == "" || sub.CPU < 1000 || sub.RAM < 0 || r.tasks < 0 ||
			sub.Limit < 0 {
			t.Fatalf("%q %q: %+v", script, line, sub)
		}
	})
}

// TestProfileOfType: a type may end in the name of a MIG profile, by itself or after an underscore.
func TestProfileOfType(t *testing.T) {
	for typ, want := range map[string]int{"1g.10gb": 0, "7g.80gb+me": 0, "h100_1g.10gb": 5, "a_b_2g.20gb": 4,
		"_3g.40gb": 1,
		"":         -1, "h100": -1, "8g.10gb": -1, "0g.5gb": -1, "11g.10gb": -1, "1g.gb": -1, "1g.1xgb": -1,
		"1g.10gb+mex": -1,
		"1g.10gb_x":   -1, "x1g.10gb": -1, "1g.10": -1, "h100-1g.10gb": -1, "gb": -1, "1g.+me": -1, "1g.5+megb": -1} {
		if got := splitProfile(typ); got != want {
			t.Errorf("%q: %d, not %d", typ, got, want)
		}
	}
}
