package config

import (
	"strings"
	"testing"
	"time"
)

// Loans in the configuration of muster kube, and errors in them.
func TestKubeLoans(t *testing.T) {
	c, err := ReadKube("f.yaml",
		strings.NewReader("timezone: '+01:00'\nloans:\n  - {selector: {pool: serve, gpu: big}, back: {'mon-fri 08:00-20:00': 6, sat: 2}}\n  - {selector: {pool: b}, back: {sun: 1}, zone: UTC}\n"))
	if err != nil {
		t.Fatal(err)
	}
	l := c.Loans[0]
	if l.Loan.Partition != "gpu=big,pool=serve" || l.Selector["gpu"] != "big" || len(l.Loan.Back) != 2 ||
		l.Loan.Back[0].Nodes != 6 || l.Loan.Back[0].From != 8*time.Hour || l.Loan.Clock.Ahead != 3600 ||
		c.Loans[1].Loan.Clock.Ahead != 0 {
		t.Errorf("%+v", c.Loans)
	}
	text := ""
	for _, s := range c.Settings() {
		text += s.Key + ": " + s.Value + "\n"
	}
	if want := "loans[0]: selector gpu=big,pool=serve, back 6 mon,tue,wed,thu,fri 08:00-20:00"; !strings.Contains(text,
		want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
	for _, c := range []struct{ text, want string }{
		{"policy: fifo\nloans: [{}]\n", "f.yaml:2: loans: 0: selector: which nodes are lent?"},
		{"loans: [{partition: p}]\n", "loans: 0: partition: on Kubernetes nodes are chosen by their labels"},
		{"loans: [{selector: {a: b}}]\n", "back: says when"},
		{"loans: [{selector: {a: b}, back: {mon: 0}}]\n", "loans: 0: back: 0 nodes; 1 or more are possible"},
		{"loans: [{selector: {a: b}, back: {monkey: 1}}]\n", "back: "},
		{"loans: [{selector: {a: b}, back: {mon: 1}, zone: Mars}]\n", "zone: "},
		{"loans: [{selector: {a: b}, back: {mon: 1}}, {selector: {a: b}, back: {tue: 1}}]\n",
			"f.yaml:1: loans: 1: selector: the nodes are those of 0"},
		{"loans: [{selector: {a: b}, back: {mon: 1}}, {selector: {a: b, c: d}, back: {tue: 1}}]\n",
			"loans: 1: selector: the nodes are those of 0 (a=b), and a node is of the first: name the narrower selector first"},
		{"loans: [{selector: {a: b}, back: {mon: 1}}]\npower: [{selector: {c: d}}, {selector: {a: b, c: e}}]\n",
			"f.yaml:2: power: 1: selector: the nodes are those of loans: 0 (a=b), and nodes that are lent never sleep"},
		{"loans: [{selektor: {a: b}}]\n", `did you mean "selector"?`},
	} {
		if _, err := ReadKube("f.yaml", strings.NewReader(c.text)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}

// A narrower selector before a wider one has nodes of its own, and so have two that overlap.
func TestKubeSelectors(t *testing.T) {
	for _, text := range []string{
		"loans: [{selector: {a: b, c: d}, back: {mon: 1}}, {selector: {a: b}, back: {tue: 1}}]\n",
		"loans: [{selector: {a: b}, back: {mon: 1}}, {selector: {c: d}, back: {tue: 1}}]\n",
		"power: [{selector: {a: b, c: d}}, {selector: {a: b}}]\nloans: [{selector: {a: b, e: f}, back: {mon: 1}}]\n",
	} {
		if _, err := ReadKube("f.yaml", strings.NewReader(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
