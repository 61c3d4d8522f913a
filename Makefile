# What people type. CI calls `make test` and nothing else.
GO ?= go
export CGO_CFLAGS = -O2 -g -Wno-deprecated-declarations # of NVML's header

.PHONY: run sim kube-demo serve-demo test vet hashes build lint bench bench-kube bench-gateway bench-serving bench-network bench-gpu soak results pictures

# Without an NVIDIA driver the devices are simulated; the jobs are real processes.
GPUS ?= $(shell nvidia-smi -L >/dev/null 2>&1 || echo --gpus sim:8xH100-80GB)

run: build ## the service of this machine with its dashboard; README.md says what to type next
	./muster serve $(GPUS)

sim: build ## replay a sample cluster under all policies and write report.html
	./muster sim --demo --policies all --html report.html
	@echo
	@echo "Open report.html in a browser for the plots. Then try:"
	@echo "  ./muster policy list                                   what can be selected, and its knobs"
	@echo "  ./muster sim --demo --policies fifo,srtf --backfill easy --cluster 3x8xH100-80GB   fewer machines"
	@echo "  ./muster trace inspect YOUR-TRACE                      what your own history holds (docs/reference/traces.md)"
	@echo "  ./muster sim --trace YOUR-TRACE --load 0.9 --policies all"

kube-demo: build ## a Kubernetes control plane of this machine, Muster installed on it, a team's worth of work
	$(GO) build -o muster-kubedemo ./internal/kubedemo # go run would call Ctrl-C a failure
	./muster-kubedemo

serve-demo: build ## a service under real load beside training, on the CPU: scripts/serve-demo.sh says what it does
	./scripts/serve-demo.sh

build: ## the muster binary, and the small programs beside it that start faster for what is started often
	$(GO) build -o muster ./cmd/muster
	CGO_ENABLED=0 $(GO) build -o muster-shim ./cmd/muster-shim
	CGO_ENABLED=0 $(GO) build -o muster-slurm ./cmd/muster-slurm
	CGO_ENABLED=0 $(GO) build -o muster-kube ./cmd/muster-kube
	CGO_ENABLED=0 $(GO) build -o muster-gateway ./cmd/muster-gateway

# Packages that fill two cores for minutes, and measure what is in time, run beside each other only; while the first
# runs, two compilers build the second. Of the rest four run at a time, as some mostly wait, and vet beside them; those
# that take longest begin first.
FULL = ./cmd/muster ./kube
LONG = ./kube/services ./cmd/muster-kube ./deploy ./engine ./sim ./local ./internal/lint ./slurm ./gateway ./report ./serving

test: export GOGC = 400 # a tenth less time for a gigabyte more of memory
test: export MUSTER_VET = $(shell $(GO) env GOTOOLDIR)/vet
# A seventh less time of compiling, as no test reads what is for debuggers; scripts/tool.sh saves more.
test: export GOFLAGS += '-ldflags=-s -w' '-gcflags=all=-c=1 -dwarf=false' -toolexec=$(CURDIR)/scripts/tool.sh
test: export MUSTER_PROGRAMS = $(CURDIR)/.programs.tmp
test: ## everything that CI checks; installs the browser that the report is tested in
	@rm -rf $(MUSTER_PROGRAMS)
	./scripts/install-test-deps.sh
	$(GO) test -vet=off -timeout 40m -p 3 $(FULL)
	rest=$$($(GO) list ./... | grep -vxF "$$($(GO) list $(FULL))") || exit; \
	$(MAKE) --no-print-directory vet & $(GO) test -vet=off -timeout 40m -p 4 $(LONG) $$rest; tested=$$?; wait $$! && exit $$tested
	cd experiments && $(GO) test -vet=off -timeout 40m ./results ./... # not beside the others: those that wait for clocks would be late
	@rm -rf $(MUSTER_PROGRAMS)
	@test -d ../shared/traces || echo "note: the recorded traces are not beside the repository; tests on them were skipped"

vet: ## go vet of both modules
	$(GO) vet -vettool=$(CURDIR)/scripts/vet.sh ./...
	cd experiments && $(GO) vet -vettool=$(CURDIR)/scripts/vet.sh ./...

hashes: ## every decision hash of the scenarios and of recorded traces, compared with scenario/testdata/hashes.txt; some minutes
	$(GO) test ./scenario -run 'TestHashes$$' -hashes -count 1 -v -timeout 30m

lint: ## the linters of .golangci.yml
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run

bench: ## the figures of docs/performance.md
	$(GO) test -run xxx -bench . -benchmem ./engine ./sim ./trace ./quota
	$(GO) test -run xxx -bench Beside -benchtime 1x -timeout 30m ./slurm

bench-kube: ## schedulers on a real Kubernetes control plane, side by side (half an hour)
	$(GO) test -run xxx -bench 'Cluster|Backlog' -benchtime 1x -timeout 90m ./kube

bench-serving: ## a model on the CPU: what batches gain at the same goal, and how soon a step in load is met (two idle cores)
	$(GO) test -run xxx -bench 'Batching|Step' -benchtime 1x -timeout 30m ./cmd/muster

bench-network: ## jobs that share a narrow link, under policies for their traffic: iteration times side by side (root; twenty minutes)
	$(GO) test -run xxx -bench Network -benchtime 1x -timeout 60m ./cmd/muster

bench-gpu: build ## what jobs and services that share a real GPU lose to each other (needs one that nobody uses, and PyTorch)
	scripts/bench-gpu.py
	scripts/bench-gpu-serving.py

bench-gateway: ## the gateway beside net/http's reverse proxy and nginx, with wrk; what it adds to latencies; ten thousand streams
	$(GO) test -run xxx -bench . -benchtime 5x -timeout 30m ./cmd/muster-gateway

soak: ## a million random events per policy, with all invariants; a thousand deaths of the daemon, 600 of a cluster's scheduler; each fuzz target for half a minute
	MUSTER_SOAK=1000000 $(GO) test -timeout 6h -run 'Random|Twin|Facts|Repartitions|MIGEvents|Defrag|Compact|Promises' -v ./engine ./driver/... ./quota
	MUSTER_SOAK=1000 $(GO) test -timeout 1h -run 'TestCrash$$|TestHashes$$|TestPhilly$$|TestPoliciesLive$$|TestLearn$$' -v ./cmd/muster
	MUSTER_SOAK=200 $(GO) test -timeout 2h -run 'TestGarbage|TestKube$$/^(deaths|many|scenarios)$$' -v ./kube
	MUSTER_SOAK=8 $(GO) test -timeout 1h -run 'TestKube$$/^faults$$/^paused$$' -v ./kube
	MUSTER_SOAK=50 $(GO) test -timeout 2h -run 'TestDifferential' -v ./kube
	MUSTER_SOAK=1 $(GO) test -timeout 2h ./sim ./solve ./policy ./forward ./learn ./serving/... ./network/...
	cd experiments && MUSTER_SOAK=1 $(GO) test -timeout 2h ./...
	./scripts/fuzz.sh 30s

pictures: ## the pictures of docs/img, of made-up jobs
	MUSTER_SCREENSHOTS=$(CURDIR)/docs/img $(GO) test -tags pictures -run TestPictures ./cmd/muster

results: ## replay the published experiments and write docs/results.md and its pages (an hour)
	cd experiments && $(GO) run . --traces ../../shared/traces --out ../docs
