#!/bin/sh
# A service under real load beside training, on simulated GPUs: the models compute on the CPU, all else is real.
# It ends with Ctrl-C, or after DEMO_ROUNDS rounds of the load. DEMO_RECORD=FILE keeps as lines of JSON which machine it was and
# which load, how many replicas there were each second, how long a request took, and what became of all. DEMO_REQUESTS=FILE is
# another load, DEMO_GATEWAY=ADDRESS where the gateway listens, DEMO_PROGRAMS=DIR where the programs are.
set -eu
cd "$(dirname "$0")/.."
if ! /usr/bin/python3 -c 'import torch; torch.ones(1)' 2>/dev/null; then
	echo "serve-demo: PyTorch is missing; on Debian: apt install python3-torch libopenblas0-pthread" >&2
	exit 1
fi
if ! command -v curl >/dev/null; then
	echo "serve-demo: curl is missing" >&2
	exit 1
fi
bin=${DEMO_PROGRAMS:-.}
gateway_at=${DEMO_GATEWAY:-127.0.0.1:8000}
dir=$(mktemp -d)
requests=${DEMO_REQUESTS:-$dir/requests.yaml}
export MUSTER_SOCKET="$dir/muster.sock"
end() {
	trap - EXIT INT TERM
	"$bin/muster" service delete vision >/dev/null 2>&1 || true
	"$bin/muster" cancel --all >/dev/null 2>&1 || true
	sleep 2
	[ -z "${gateway:-}" ] || kill "$gateway" 2>/dev/null || true
	[ -z "${daemon:-}" ] || kill "$daemon" 2>/dev/null || true
	wait 2>/dev/null || true
	rm -rf "$dir"
}
trap end EXIT
trap 'exit 0' INT TERM

"$bin/muster" serve --state "$dir/state" --socket "$MUSTER_SOCKET" --gpus sim:4xH100-80GB >"$dir/serve.log" 2>&1 &
daemon=$!
for _ in $(seq 100); do
	"$bin/muster" nodes >/dev/null 2>&1 && break
	kill -0 "$daemon" 2>/dev/null || { cat "$dir/serve.log" >&2; exit 1; }
	sleep 0.1
done
"$bin/muster-gateway" --dir "$dir/state/gateway" --listen "$gateway_at" >"$dir/gateway.log" 2>&1 &
gateway=$!

# Training: it counts steps, saves when it has to make room, and goes on from there.
cat >"$dir/train.sh" <<'TRAIN'
#!/bin/sh
n=$(cat "$MUSTER_CHECKPOINT_DIR/step" 2>/dev/null || echo 0)
trap 'echo "$n" >"$MUSTER_CHECKPOINT_DIR/step"; exit 0' USR1
while [ "$n" -lt 20000 ]; do
	n=$((n + 1))
	echo "{\"step\": $n, \"steps\": 20000}" >>"$MUSTER_PROGRESS"
	sleep 0.2
done
TRAIN
chmod +x "$dir/train.sh"
for i in 1 2 3; do
	"$bin/muster" submit --name "training-$i" --gpus 1 --output "$dir/training-$i.log" -- "$dir/train.sh"
done
"$bin/muster" service apply examples/serving/demo.yaml
echo
echo "The dashboard, with the page of services:  $("$bin/muster" dashboard --no-open)"
echo "In another terminal:  export MUSTER_SOCKET=$MUSTER_SOCKET"
echo "                      $bin/muster service show vision; $bin/muster queue"
echo
until curl -sf -o /dev/null "http://$gateway_at/v2/models/vision/ready"; do
	kill -0 "$gateway" 2>/dev/null || { cat "$dir/gateway.log" >&2; exit 1; }
	if "$bin/muster" service why vision | grep "in a row"; then
		"$bin/muster" service logs vision | tail -5
		echo "serve-demo: the model does not start" >&2
		exit 1
	fi
	sleep 0.5
done
load() {
	"$bin/muster" service load --gateway "http://$gateway_at" --services examples/serving/demo.yaml --requests "$@"
}
if [ -z "${DEMO_REQUESTS:-}" ]; then
	echo "Ten seconds of a few requests show how long one takes on this machine; then come as many as are too many for a replica."
	printf 'service: vision\nrate: 4\nfor: 10s\n' >"$requests"
	load "$requests" >/dev/null
	"$bin/muster" service show --json vision | /usr/bin/python3 -c '
import json, sys
one = 1 / json.load(sys.stdin)["variants"][0]["measured"][0]["seconds"]  # requests a second that a replica answers
steps = ", ".join(f"{{at: {at}, rate: {part * one:.3g}}}" for at, part in (("30s", 1.1), ("45s", 1.4), ("75s", 0.3)))
print(f"service: vision\nrate: {0.3 * one:.3g}\nsteps: [{steps}]\nfor: 2m")' >"$dir/next.yaml"
	mv "$dir/next.yaml" "$requests"
fi
# keep writes the record: what make serve-demo needs has Python.
keep() {
	/usr/bin/python3 - "$dir" "$requests" <<'KEEP' >>"$DEMO_RECORD"
import json, os, platform, sys
folder, requests = sys.argv[1], open(sys.argv[2]).read()
model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
print(json.dumps({"command": "DEMO_ROUNDS=1 DEMO_RECORD=FILE make serve-demo", "requests": requests,
                  "machine": f"{os.cpu_count()} cores, {model}"}))
for line in open(f"{folder}/seen"):
    s = json.loads(line)
    print(json.dumps({"wanted": s["wanted"], "answers": s["answers"], "replicas": len(s["replicas"])}))
print(json.dumps({"measured": s["variants"][0].get("measured", [])}))
tally = json.load(open(f"{folder}/load.json"))["services"]["vision"]
print(json.dumps({k: tally[k] for k in ("arrived", "answered", "in_time", "dropped", "refused", "failed")}))
KEEP
}
round=0
while [ "${DEMO_ROUNDS:-0}" -eq 0 ] || [ "$round" -lt "$DEMO_ROUNDS" ]; do
	round=$((round + 1))
	echo "Round $round: two minutes of requests; from 0:30 to 1:15 so many more that it takes a GPU from training."
	if [ -n "${DEMO_RECORD:-}" ]; then
		while sleep 1; do "$bin/muster" service show --json vision >>"$dir/seen"; done &
		watch=$!
		load "$requests" --json >"$dir/load.json"
		kill "$watch"
		wait "$watch" 2>/dev/null || true
		keep
	else
		load "$requests"
	fi
	"$bin/muster" service list
done
