#!/bin/sh
# A service under real load beside training, on simulated GPUs: the models compute on the CPU, all else is real.
# It ends with Ctrl-C, or after DEMO_ROUNDS rounds of the load. DEMO_RECORD=FILE keeps what was seen of the service each
# second, and what became of the requests, as lines of JSON.
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
dir=$(mktemp -d)
export MUSTER_SOCKET="$dir/muster.sock"
end() {
	trap - EXIT INT TERM
	./muster service delete vision >/dev/null 2>&1 || true
	./muster cancel --all >/dev/null 2>&1 || true
	sleep 2
	[ -z "${gateway:-}" ] || kill "$gateway" 2>/dev/null || true
	[ -z "${daemon:-}" ] || kill "$daemon" 2>/dev/null || true
	wait 2>/dev/null || true
	rm -rf "$dir"
}
trap end EXIT
trap 'exit 0' INT TERM

./muster serve --state "$dir/state" --socket "$MUSTER_SOCKET" --gpus sim:4xH100-80GB >"$dir/serve.log" 2>&1 &
daemon=$!
for _ in $(seq 100); do
	./muster nodes >/dev/null 2>&1 && break
	kill -0 "$daemon" 2>/dev/null || { cat "$dir/serve.log" >&2; exit 1; }
	sleep 0.1
done
./muster-gateway --dir "$dir/state/gateway" --listen 127.0.0.1:8000 >"$dir/gateway.log" 2>&1 &
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
	./muster submit --name "training-$i" --gpus 1 --output "$dir/training-$i.log" -- "$dir/train.sh"
done
./muster service apply examples/serving/demo.yaml
echo
echo "The dashboard, with the page of services:  $(./muster dashboard --no-open)"
echo "In another terminal:  export MUSTER_SOCKET=$MUSTER_SOCKET"
echo "                      ./muster service show vision; ./muster queue"
echo
until curl -sf -o /dev/null localhost:8000/v2/models/vision/ready; do
	kill -0 "$gateway" 2>/dev/null || { cat "$dir/gateway.log" >&2; exit 1; }
	if ./muster service why vision | grep "in a row"; then
		./muster service logs vision | tail -5
		echo "serve-demo: the model does not start" >&2
		exit 1
	fi
	sleep 0.5
done
round=0
while [ "${DEMO_ROUNDS:-0}" -eq 0 ] || [ "$round" -lt "$DEMO_ROUNDS" ]; do
	round=$((round + 1))
	echo "Round $round: two minutes of requests; from 0:30 to 1:15 four times as many, which takes a GPU from training."
	if [ -n "${DEMO_RECORD:-}" ]; then
		while sleep 1; do ./muster service show --json vision >>"$DEMO_RECORD"; done &
		watch=$!
		./muster service load --services examples/serving/demo.yaml --requests examples/serving/demo-load.yaml --json >"$dir/load.json"
		kill "$watch"
		cat "$dir/load.json" >>"$DEMO_RECORD"
	else
		./muster service load --services examples/serving/demo.yaml --requests examples/serving/demo-load.yaml
	fi
	./muster service list
done
