// Package deploy has the installation of Muster on a cluster: a Helm chart, and the kustomize base rendered from
// its defaults. The tests apply both to a real API server, and run the scheduler with exactly the rights that it
// is given.
package deploy

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/gateway"
	"github.com/muster-gpu/muster/internal/controlplane/binaries"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/services"
)

// programs are the programs that run on a cluster.
var programs = shared.Programs{Plain: []string{"muster-kube"}}

func TestMain(m *testing.M) {
	code := m.Run()
	planes.End()
	_ = os.RemoveAll(auditDir)
	programs.Remove()
	os.Exit(code)
}

var update = flag.Bool("update", false, "write base and monitoring from the chart")

// helm runs helm and returns its standard output.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("helm is built first")
	}
	shared.Reads(t, "..")
	program, err := binaries.Helm(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), program, args...)
	home := t.TempDir()
	c.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return errs.String(), err
	}
	return out.String(), nil
}

// render renders the chart with its defaults, and further settings if given.
func render(t *testing.T, more ...string) string {
	t.Helper()
	out, err := helm(t, append([]string{"template", "muster", "helm/muster", "--namespace", "muster-system"},
		more...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
}

// The kustomize base equals the chart rendered with its defaults.
func TestBase(t *testing.T) {
	const definition, extra = "templates/queues.yaml", "templates/monitoring.yaml"
	all := render(t)
	queues := render(t, "--show-only", definition)
	for file, text := range map[string]string{
		"base/queues.yaml":           queues,
		"base/muster.yaml":           strings.Replace(all, queues, "", 1),
		"monitoring/monitoring.yaml": render(t, "--show-only", extra, "--set", "monitoring.enabled=true"),
	} {
		text = "# Written by go test ./deploy -update from helm/muster.\n" + text
		if *update {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(file); err != nil || string(have) != text {
			t.Errorf("%s is not what the chart makes (%v): go test ./deploy -update", file, err)
		}
	}
	if !strings.Contains(all, queues) {
		t.Error("the definition of queues is not in what the chart makes of its defaults")
	}
}

// The chart passes helm's own linter, refuses unknown settings, and puts every setting where it belongs.
func TestChart(t *testing.T) {
	if out, err := helm(t, "lint", "--strict", "helm/muster"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := helm(t, "template", "muster", "helm/muster", "--set", "replica=3"); err == nil ||
		!strings.Contains(out, "replica") {
		t.Errorf("an unknown value is taken: %v: %s", err, out)
	}
	out := render(t, "--set",
		"config.scheduler_name=gold,image.repository=example.org/muster,image.tag=v9,replicas=3,priorityClassName=system-cluster-critical",
		"--set", "nodeSelector.pool=infra,podLabels.team=x,podAnnotations.note=y,crds.install=false,networkPolicy.apiServerPorts={8443}")
	for _, want := range []string{"resourceNames: [gold]", `image: "example.org/muster:v9"`, "replicas: 3",
		"priorityClassName: system-cluster-critical",
		"pool: infra", "team: x", "note: \"y\"", "{port: 8443, protocol: TCP}", "scheduler_name: gold"} {
		if !strings.Contains(out, want) && !strings.Contains(out, strings.ReplaceAll(want, `"y"`, "y")) {
			t.Errorf("%q is not in what the chart makes", want)
		}
	}
	rights := []string{"resources: [nodes], verbs: [patch]", "resourceNames: [muster-power], verbs: [get, update]"}
	asleep := render(t, "--set-json", `config.power=[{"selector":{"pool":"batch"}}]`)
	for _, want := range append(rights, "power:\n") {
		if !strings.Contains(asleep, want) {
			t.Errorf("%q is not in what the chart makes where nodes may be switched off", want)
		}
		if strings.Contains(out, want) {
			t.Errorf("%q is in what the chart makes where they may not", want)
		}
	}
	rights = []string{"resources: [nodes], verbs: [patch]", "name: muster-mig-0\n  namespace: gpu-operator",
		"resourceNames: [default-mig-parted-config], verbs: [get, list, watch]",
		"name: muster-mig-1\n  namespace: ops", "resourceNames: [cuts], verbs: [get, list, watch]"}
	cut := render(t, "--set-json",
		`config.mig=[{"selector":{"pool":"shared"}},{"selector":{"pool":"other"},"config_map":"ops/cuts"}]`)
	for _, want := range append(rights, "mig:\n") {
		if !strings.Contains(cut, want) {
			t.Errorf("%q is not in what the chart makes where nodes may be partitioned otherwise", want)
		}
		if strings.Contains(out, want) {
			t.Errorf("%q is in what the chart makes where they may not", want)
		}
	}
	rights = []string{"resources: [deployments/scale, statefulsets/scale], verbs: [get, patch]",
		"resources: [deployments/status, statefulsets/status], verbs: [patch]",
		"resources: [httproutes], verbs: [list, watch, patch]", "name: muster-services",
		"to: [{namespaceSelector: {}}]"}
	served := render(t, "--set-json", `config.services={"period":"10s"}`)
	for _, want := range append(rights, "services:\n") {
		if !strings.Contains(served, want) {
			t.Errorf("%q is not in what the chart makes where services are scaled", want)
		}
		if strings.Contains(out, want) {
			t.Errorf("%q is in what the chart makes where they are not", want)
		}
	}
	marking := render(t, "--set", "agent.enabled=true,agent.namespace=marks,agent.nodeSelector.pool=gpu")
	for _, want := range []string{"kind: DaemonSet", "resources: [pods], verbs: [list, watch]}\n- {apiGroups",
		"resourceNames: [v1.view.muster.sh], verbs: [list, watch]}\n---",
		"namespace: marks", "args: [agent, --cgroups=/host/cgroup]", "pool: gpu"} {
		if !strings.Contains(marking, want) || strings.Contains(out, want) {
			t.Errorf("%q is to be in what the chart makes if it has an agent, and only then", want)
		}
	}
	alone := render(t, "--set", "agent.enabled=true,api.enabled=false")
	if !strings.Contains(alone, "/host/cgroup, --authority=none]") || strings.Contains(alone, "apiservices") {
		t.Error("without the API there is no authority by which an agent could check seals")
	}
	kept := render(t, "--set", "history.claim=past,prometheus.secret=who")
	for _, want := range []string{"--history=/history/history.jsonl", "mountPath: /history", "claimName: past",
		"fsGroup: 65532", "mountPath: /prometheus", "secretName: who"} {
		if !strings.Contains(kept, want) || strings.Contains(out, want) {
			t.Errorf("%q is to be in what the chart makes if it has a claim or a Secret for that, and only then", want)
		}
	}
	if strings.Contains(out, "CustomResourceDefinition") {
		t.Error("crds.install=false installs the definition")
	}
}

// The installed configuration is valid.
func TestConfiguration(t *testing.T) {
	text := configuration(t)
	if !config.IsKube([]byte(text)) {
		t.Errorf("it does not say what it is:\n%s", text)
	}
	if _, err := config.ReadKube("muster.yaml", strings.NewReader(text)); err != nil {
		t.Error(err)
	}
}

// configuration is the configuration in the ConfigMap of the base.
func configuration(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("base/muster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(data), "  muster.yaml: |\n")
	if !found {
		t.Fatal("there is no muster.yaml in the base")
	}
	var lines []string
	for line := range strings.Lines(text) {
		rest, in := strings.CutPrefix(line, "    ")
		if !in {
			break
		}
		lines = append(lines, rest)
	}
	return strings.Join(lines, "")
}

// Alert rules and the dashboard name existing metrics only, of the scheduler, its services and the gateway; of services
// the dashboard has all that people chart.
func TestMetricsAreThere(t *testing.T) {
	m := look.NewMetrics()
	m.Also(new(services.Room))
	m.Also(describer(gateway.Metrics))
	known := map[string]bool{}
	for _, name := range look.MetricNames(m) {
		known[name] = true
	}
	var dashboard any
	data, err := os.ReadFile("helm/muster/dashboard.json")
	if err != nil || json.Unmarshal(data, &dashboard) != nil {
		t.Fatalf("the dashboard is not JSON: %v", err)
	}
	rules, err := os.ReadFile("monitoring/monitoring.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`\bmuster_[a-z_]+`).FindAllString(string(data)+string(rules), -1)
	if len(found) < 20 {
		t.Errorf("only %d metrics are named", len(found))
	}
	for _, want := range []string{"requests_per_second", "latency_seconds", "goal_seconds", "replicas",
		"attainment_ratio"} {
		if !strings.Contains(string(data), "muster_kube_service_"+want+"{") {
			t.Errorf("the dashboard does not show services' %s", want)
		}
	}
	for _, want := range []string{"requests_total", "request_duration_seconds_bucket", "replicas_open",
		"cold_starts_total", "drops_total", "batch_size_sum"} {
		if !strings.Contains(string(data), "muster_gateway_"+want+"{") {
			t.Errorf("the dashboard does not show the gateway's %s", want)
		}
	}
	for _, name := range found {
		base := name
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if known[strings.TrimSuffix(name, suffix)] {
				base = strings.TrimSuffix(name, suffix)
			}
		}
		if !known[base] {
			t.Errorf("there is no metric %s", name)
		}
	}
}

// describer is metrics that are described only.
type describer func(to chan<- *prometheus.Desc)

func (d describer) Describe(to chan<- *prometheus.Desc) { d(to) }

func (d describer) Collect(chan<- prometheus.Metric) {}

// The programs of the Dockerfile need no C libraries, so they are static and run in an empty image.
func TestDockerfile(t *testing.T) {
	data, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 go build .* -o /muster-kube (\S+)$`).FindStringSubmatch(
		string(data))
	if m == nil {
		t.Fatal("there is no line that builds muster-kube")
	}
	c := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{.CgoFiles}}", m[1])
	c.Dir, c.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if !strings.HasSuffix(line, " []\n") {
			t.Errorf("it needs C: %s", line)
		}
	}
	for _, want := range []string{"FROM gcr.io/distroless/static-debian12:nonroot", "USER 65532:65532",
		`ENTRYPOINT ["/muster-kube"]`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the Dockerfile lacks %s", want)
		}
	}
}
