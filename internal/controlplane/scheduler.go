package controlplane

// Scheduler starts Kubernetes' own scheduler, for tests that compare with it.
func (p *Plane) Scheduler() {
	p.t.Helper()
	p.run("kube-scheduler", "--kubeconfig", p.Kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=1000", "--kube-api-burst=1000")
}
