#!/usr/bin/env python3
"""Services that share a real GPU under MPS: how long their batches take on parts of it, and what policies make of that.

It starts `muster serve` and `muster-gateway` for this user with the first GPU, measures two models of
examples/serving/matrix.py on parts of it, and plays the same requests under each policy for the real services, and in
the simulator without and with what was learnt of neighbours: Markdown. Goals and rates follow from what was measured.
It needs a GPU that nobody uses and PyTorch with CUDA. With --simulated all of it runs on the CPU, with MPS played by
a program (--mps-program), and says so: the figures then mean nothing.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "clients", "python"))
import muster

MODEL = os.path.join(ROOT, "examples", "serving", "matrix.py")
PARTS = (0.2, 0.5, 1)
BATCHES = (1, 8, 32)
FEATURES = 8
WARM = 20  # seconds in the simulator, in which the first replicas start
GATEWAY = "127.0.0.1:8765"


def infer(port, name, n):
    """Seconds that a batch of n takes, over HTTP as the gateway sends it."""
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [n, FEATURES], "data": [0.5] * n * FEATURES}]})
    begin = time.monotonic()
    req = urllib.request.Request("http://127.0.0.1:%d/v2/models/%s/infer" % (port, name), body.encode(),
                                 {"Content-Type": "application/json"})
    with urllib.request.urlopen(req) as r:
        r.read()
    return time.monotonic() - begin


def measure(seconds, model):
    """Runs in a job: prints the median of each size's batches (seconds)."""
    port = 18765
    server = subprocess.Popen([sys.executable, MODEL, "--port", str(port), "--name", "m", *model])
    try:
        while True:
            try:
                infer(port, "m", 1)
                break
            except OSError:
                if server.poll() is not None:
                    sys.exit("the model ended")
                time.sleep(0.1)
        took = {}
        for n in BATCHES:
            end, times = time.monotonic() + seconds, []
            while time.monotonic() < end or len(times) < 5:
                times.append(infer(port, "m", n))
            took[n] = sorted(times)[len(times) // 2]
        print(json.dumps(took), flush=True)
    finally:
        server.terminate()
        server.wait()


class Bench:
    def __init__(self, a):
        self.a, self.dir = a, tempfile.mkdtemp(prefix="bench-gpu-serving-")
        self.processes, self.state = [], ""
        device = "cpu" if a.simulated else "cuda"
        layers = 1 if a.simulated else 8
        widths = (256, 512) if a.simulated else (12288, 16384)  # 5 and 9 GB, read for each batch
        self.models = {n: ["--width", str(w), "--layers", str(layers), "--device", device]
                       for n, w in zip("ab", widths)}

    def run(self, *args, **more):
        return subprocess.run([self.a.muster, *args], check=True, capture_output=True, text=True, cwd=ROOT, **more).stdout

    def serve(self):
        self.state = os.path.join(self.dir, "state")
        os.makedirs(self.state)
        config = os.path.join(self.dir, "config.yaml")
        with open(config, "w") as f:
            f.write("sharing: {shares: mps%s}\n" % (", mps_program: " + self.a.mps_program if self.a.mps_program else ""))
        os.environ["MUSTER_SOCKET"] = os.path.join(self.dir, "socket")
        gpus = "sim:1xH100-80GB" if self.a.simulated else "0"
        self.begin("serve", self.a.muster, "serve", "--config", config, "--state", self.state, "--socket",
                   os.environ["MUSTER_SOCKET"], "--listen", "none", "--sample-every", "2s", "--gpus", gpus)
        for _ in range(200):
            if os.path.exists(os.environ["MUSTER_SOCKET"]):
                break
            time.sleep(0.1)
        self.begin("gateway", self.a.gateway, "--dir", os.path.join(self.state, "gateway"), "--listen", GATEWAY)

    def begin(self, name, *args):
        with open(os.path.join(self.dir, name + ".log"), "w") as log:
            self.processes.append(subprocess.Popen(args, stdout=log, stderr=log, cwd=ROOT))

    def end(self):
        for p in reversed(self.processes):
            p.send_signal(signal.SIGTERM)
            p.wait()
        for folder, _, _ in os.walk(os.path.join(self.state, "mps")):  # the control daemons outlive the daemon, as jobs do
            if folder.endswith("/pipe"):
                subprocess.run([self.a.mps_program or "nvidia-cuda-mps-control"], input=b"quit\n",
                               env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder}, check=False)

    def profile(self):
        """What was measured of each model on each part: {model: {part: {batch: seconds}}}."""
        print("| model | part | %s |\n|---|---|%s" % (" | ".join("batch of %d" % n for n in BATCHES), "---|" * len(BATCHES)))
        took = {}
        for name, model in self.models.items():
            took[name] = {}
            for part in PARTS:
                out = os.path.join(self.dir, "%s-%g.out" % (name, part))
                id = muster.submit([sys.executable, os.path.abspath(__file__), "--measure", str(self.a.seconds / 10), *model],
                                   gpus=part, name=name, output=out, no_requeue=True)
                state, lines = muster.wait(id), open(out).read().splitlines()
                said = [x for x in lines if x.startswith("{")]
                if not said:
                    sys.exit("job %d: %s; %s" % (id, state.get("reason") or state["state"], "\n".join(lines[-5:])))
                took[name][part] = {int(n): t for n, t in json.loads(said[-1]).items()}
                print("| %s | %g | %s |" % (name, part, " | ".join("%.2f ms" % (1e3 * took[name][part][n]) for n in BATCHES)),
                      flush=True)
        return took

    def files(self, took):
        """The services, their requests, and these after a time in which the first replicas start. A goal is five batches
        of eight on half of the GPU, the rate a part of what the smallest part of the GPU does in the largest batches, and
        after half of the time twice that."""
        python = sys.executable
        services, loads = [], {0: [], WARM: []}
        for name, model in self.models.items():
            goal = max(0.01, 5 * took[name][0.5][8])
            rate = self.a.rate * BATCHES[-1] / took[name][PARTS[0]][BATCHES[-1]]
            rows = "".join("      - {share: %g, batch: %d, latency: %.3fms}\n" % (p, n, 1e3 * t)
                           for p in PARTS for n, t in sorted(took[name][p].items()))
            services.append("name: %s\nlatency: %.0fms\npercentile: 95\nreplicas: {min: 1, max: 4}\nvariants:\n"
                            "  - name: %s\n    gpus: auto\n    startup: 8s\n    command: [%s]\n    profile:\n%s"
                            % (name, 1e3 * goal, name, ", ".join(json.dumps(x) for x in [python, MODEL, *model]), rows))
            for after in loads:
                steps = [(after, rate), (after + self.a.seconds / 2, 2 * rate)]
                loads[after].append("service: %s\nrate: %.0f\nsteps: [%s]\nfor: %gs\nseed: %d\n" % (
                    name, 1 if after else rate, ", ".join("{at: %gs, rate: %.0f}" % s for s in steps if s[0]),
                    after + self.a.seconds, len(services)))
            print("%s: %.0f ms at 95 %%, %.0f requests a second, then %.0f" % (name, 1e3 * goal, rate, 2 * rate))
        for after in loads:
            with open(os.path.join(self.dir, "load-%d.yaml" % after), "w") as f:
                f.write("---\n".join(loads[after]))
        return services

    def write(self, services, policy):
        path = os.path.join(self.dir, "services-%s.yaml" % policy)
        with open(path, "w") as f:
            f.write("---\n".join(s.replace("percentile:", "scaling: %s\npercentile:" % policy) for s in services))
        return path

    def live(self, path):
        """What became of the requests of each service, the GPU-seconds that its replicas held, and how much longer its
        batches took beside another's."""
        self.run("service", "apply", path)
        held, over = {n: 0.0 for n in self.models}, threading.Event()

        def shown(n):
            return json.loads(self.run("service", "show", n, "--json"))
        while not all(shown(n)["answers"] > 0 for n in self.models):
            time.sleep(0.5)

        def watch():
            before = time.monotonic()
            while not over.wait(1):
                now = time.monotonic()
                for n in self.models:
                    held[n] += (now - before) * shown(n)["cost_per_hour"]  # its GPUs, as no variant states a cost
                before = now
        t = threading.Thread(target=watch)
        t.start()
        said = json.loads(self.run("service", "load", "--services", path, "--requests", os.path.join(self.dir, "load-0.yaml"),
                                   "--gateway", "http://" + GATEWAY, "--json"))
        over.set()
        t.join()
        slower = {}
        for n in self.models:
            for v in shown(n)["variants"]:
                for o in v.get("beside", []):
                    slower["%s/%s" % (n, o["other"].split("/")[0])] = o["factor"]
            print("%s: %s" % (n, self.run("service", "why", n).splitlines()[0]), file=sys.stderr)
            self.run("service", "delete", n)
        while muster.request("GET", "/v1/jobs?state=active").get("jobs"):
            time.sleep(0.5)
        return said["services"], held, slower

    def simulated(self, path, slower):
        """The same in the simulator."""
        out, table = os.path.join(self.dir, "sim.json"), os.path.join(self.dir, "pairs.yaml")
        with open(table, "w") as f:
            f.write("pairs: {%s}\n" % ", ".join("%s: %.3f" % (pair, 1 / by) for pair, by in slower.items()))
        self.run("sim", "--services", path, "--requests", os.path.join(self.dir, "load-%d.yaml" % WARM), "--cluster",
                 "1x1xH100-80GB", "--policies", "fifo", "--perf", table, "--json", out)
        with open(out) as f:
            said = json.load(f)
        span = said["jobs"][0]["makespan"]
        return {s["service"]: (s["attainment"], 3600 * s["gpu_hours"] / span) for s in said["services"]}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--muster", default=os.path.join(ROOT, "muster"), help="the program")
    p.add_argument("--gateway", default=os.path.join(ROOT, "muster-gateway"), help="the program")
    p.add_argument("--policies", default="muster,gpulet,inss")
    p.add_argument("--seconds", type=float, default=40, help="how long the requests of each policy take")
    p.add_argument("--rate", type=float, default=0.25, help="part of what the smallest part of the GPU does")
    p.add_argument("--simulated", action="store_true", help="try the script without a GPU")
    p.add_argument("--mps-program", help="plays nvidia-cuda-mps-control")
    p.add_argument("--measure", type=float, help=argparse.SUPPRESS)
    a, model = p.parse_known_args()
    if a.measure:
        return measure(a.measure, model)
    b = Bench(a)
    try:
        if a.simulated:
            print("All of it was computed on the CPU, and MPS was played: the figures mean nothing.\n")
        else:
            print(subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=True,
                                 capture_output=True, text=True).stdout.splitlines()[0] + "\n")
        b.serve()
        services = b.files(b.profile())
        print("\n| policy | service | requests | in time | GPUs, in the mean | longer beside the other | in the simulator: in time | "
              "GPUs | without neighbours: in time |\n|" + "---|" * 9)
        for policy in a.policies.split(","):
            path = b.write(services, policy)
            said, held, slower = b.live(path)
            played, alone = b.simulated(path, slower), b.simulated(path, {})
            for n in b.models:
                by = [f for pair, f in slower.items() if pair.startswith(n + "/")]
                print("| %s | %s | %d | %.1f %% | %.2f | %s | %.1f %% | %.2f | %.1f %% |" % (
                    policy, n, said[n]["arrived"], 100 * said[n]["in_time"] / said[n]["arrived"], held[n] / a.seconds,
                    "%.2f" % by[0] if by else "", 100 * played[n][0], played[n][1], 100 * alone[n][0]), flush=True)
    finally:
        b.end()
        if sys.exc_info()[0] is None:
            shutil.rmtree(b.dir)
        else:
            print("bench-gpu-serving: logs are in " + b.dir, file=sys.stderr)


if __name__ == "__main__":
    main()
