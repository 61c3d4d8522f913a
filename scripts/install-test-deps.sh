#!/bin/sh
# Installs what the tests need beyond Go: a browser for the report's page,
# PyTorch for the models of services, nftables and iproute2 for a network of
# namespaces, a Prometheus that scrapes them, and a Slurm
# that slurm's test compares us with (it starts daemons of its own).
# Debian, as root; does nothing where they are there already. The Kubernetes
# control plane that kube is tested on is built from its Go modules, once, into
# the user's cache folder: some half an hour of processor time.
set -eu
cd "$(dirname "$0")/.."
go test -vet=off ./internal/controlplane/binaries -run '^TestBuild$' -count=1 -timeout 60m

# The packages of whatever is missing.
want=
[ -x /usr/lib/chromium/chromium-headless-shell ] || [ -x /usr/bin/chromium ] || want="chromium-headless-shell fonts-dejavu-core"
[ -x /usr/sbin/slurmctld ] && [ -x /usr/sbin/slurmd ] && [ -x /usr/sbin/munged ] && [ -x /usr/bin/sbatch ] || want="$want slurm-wlm munge"
[ -d /usr/lib/python3/dist-packages/torch ] || want="$want python3-torch libopenblas0-pthread"
[ -x /usr/sbin/nft ] && [ -x /sbin/tc ] || want="$want nftables iproute2"
[ -x /usr/bin/prometheus ] || want="$want prometheus"
if [ -z "$want" ]; then
	exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "install-test-deps: missing:$(printf ' %s' $want); only root can install them; the tests that need them will be skipped" >&2
	exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# RUNLEVEL: the packages' own services are not to be started; nobody needs them.
if ! { apt-get update && RUNLEVEL=1 apt-get install -y --no-install-recommends $want; } >"$log" 2>&1; then
	cat "$log" >&2
	exit 1
fi
