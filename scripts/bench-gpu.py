#!/usr/bin/env python3
"""What jobs that share a real GPU lose to each other, and what keeps them apart: measured, as Markdown.

It starts `muster serve` for this user with the first GPU and submits examples/gpu/work.py to it: each kind of work alone, in
parts of the GPU under MPS, and in pairs with half of the GPU each, in turns and under MPS; then a job that allocates
more than its part, and jobs that fail beside another. It needs a GPU that nobody uses and PyTorch with CUDA. As root
Muster puts the GPU into exclusive-process mode while MPS is used, and back; any other user will do as well.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "clients", "python"))
import muster

WORK = os.path.join(ROOT, "examples", "gpu", "work.py")
KINDS = ("compute", "memory", "small", "light")
PAIRS = (("compute", "compute"), ("compute", "memory"), ("memory", "small"), ("compute", "small"), ("compute", "light"))
PARTS = (0.1, 0.25, 0.5)


class Bench:
    def __init__(self, program, seconds, record):
        self.program, self.seconds, self.record = program, seconds, record
        self.dir = tempfile.mkdtemp(prefix="bench-gpu-")
        self.daemon, self.count, self.alone = None, 0, {}

    def serve(self, shares):
        """Starts the daemon, in a state of its own for each way of sharing."""
        state = os.path.join(self.dir, shares)
        os.makedirs(state)
        config = os.path.join(self.dir, shares + ".yaml")
        with open(config, "w") as f:
            f.write("sharing: {shares: %s}\n" % shares)
        os.environ["MUSTER_SOCKET"] = os.path.join(self.dir, shares + ".sock")
        self.daemon = subprocess.Popen([self.program, "serve", "--config", config, "--state", state, "--socket",
                                        os.environ["MUSTER_SOCKET"], "--listen", "none", "--sample-every", "2s", "--gpus", "0"],
                                       stderr=open(os.path.join(self.dir, shares + ".log"), "w"))

    def end(self):
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait()
            self.daemon = None
        for folder, _, _ in os.walk(os.path.join(self.dir, "mps", "mps")):  # the control daemons outlive it, as jobs do
            if folder.endswith("/pipe"):
                subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n",
                               env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder}, check=False)

    def start(self, kind, gpus, *more, **submission):
        self.count += 1
        out = os.path.join(self.dir, "%d.out" % self.count)
        id = muster.submit([sys.executable, WORK, kind, *more], gpus=gpus, name=kind, model=kind, output=out, no_requeue=True,
                           **submission)
        return id, out

    def ended(self, job):
        """The state of a job that is over, and what its output says last."""
        state, lines = muster.wait(job[0]), open(job[1]).read().splitlines()
        said = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None
        return state, said

    def together(self, kinds, gpus):
        """How much each job does in a second while all of them work."""
        jobs = [self.start(k, gpus, "--seconds", str(self.seconds)) for k in kinds]
        said = []
        for j in jobs:
            state, s = self.ended(j)
            if s is None:
                sys.exit("job %d: %s; %s" % (j[0], state.get("reason") or state["state"], open(j[1]).read()[-500:]))
            said.append(s)
        begin, end = max(s["from"] for s in said), min(s["until"] for s in said)
        rates = []
        for s in said:
            done = [n for at, n in s["done"].items() if int(at) >= begin and int(at) + 1 <= end]
            rates.append(sum(done) / len(done))
        return rates

    def note(self, **what):
        if self.record:
            self.record.write(json.dumps(what) + "\n")
            self.record.flush()

    def whole(self):
        print("| work | in a second, alone |\n|---|---|")
        for k in KINDS:
            self.alone[k], = self.together([k], 1)
            self.note(kind=k, alone=self.alone[k])
            print("| %s | %.0f |" % (k, self.alone[k]), flush=True)

    def parts(self):
        print("\n| work, of its speed alone | %s |\n|---|%s" % (" | ".join("%g" % p for p in PARTS), "---|" * len(PARTS)))
        for k in KINDS[:2]:
            kept = []
            for p in PARTS:
                rate, = self.together([k], p)
                kept.append(rate / self.alone[k])
                self.note(kind=k, part=p, kept=kept[-1])
            print("| %s | %s |" % (k, " | ".join("%.2f" % v for v in kept)), flush=True)

    def pairs(self, shares):
        print("\n| %s | keeps | keeps |\n|---|---|---|" % shares)
        for pair in PAIRS:
            kept = [r / self.alone[k] for k, r in zip(pair, self.together(pair, 0.5))]
            for i in (0, 1):
                self.note(shares=shares, kind=pair[i], beside=pair[1 - i], kept=kept[i])
            print("| %s, %s | %.2f | %.2f |" % (*pair, *kept), flush=True)

    def memory(self, shares):
        state, said = self.ended(self.start("hold", 0.25, "--gib", "30", "--seconds", "5"))
        self.note(shares=shares, gib_asked=said["asked"], gib_had=said["had"])
        print("\n%s: of %d GiB a job with a quarter of the GPU had %d" % (shares, said["asked"], said["had"]), flush=True)

    def faults(self):
        print("\n| under MPS | it ends | the other, meanwhile | ends |\n|---|---|---|---|")
        for how in ("assertion", "address", "killed"):
            other = self.start("compute", 0.4, "--seconds", "10")
            one = self.start("compute" if how == "killed" else how, 0.4, "--seconds", "4" if how != "killed" else "30")
            if how == "killed":
                time.sleep(9)
                subprocess.run(["pkill", "-KILL", "-f", WORK + " compute --seconds 30"], check=False)
            state, _ = self.ended(one)
            after, said = self.ended(other)
            rates = list(said["done"].values())[1:-1] if said else []
            text = "%.0f to %.0f in a second" % (min(rates), max(rates)) if rates else "nothing"
            self.note(fault=how, one=state["state"], other=after["state"], rates=rates)
            print("| %s | %s | %s | %s |" % (how, state.get("reason") or state["state"], text,
                                             after.get("reason") or after["state"]), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--muster", default=os.path.join(ROOT, "muster"), help="the program")
    p.add_argument("--seconds", type=float, default=8, help="how long each measurement takes")
    p.add_argument("--record", help="file for what was measured, as lines of JSON")
    a = p.parse_args()
    b = Bench(a.muster, a.seconds, open(a.record, "w") if a.record else None)
    try:
        name = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=True,
                              capture_output=True, text=True).stdout.splitlines()[0]
        print(name + "\n")
        b.note(gpu=name)
        b.serve("time-slicing")
        b.whole()
        b.pairs("time-slicing")
        b.memory("time-slicing")
        b.end()
        if shutil.which("nvidia-cuda-mps-control"):
            b.serve("mps")
            b.parts()
            b.pairs("mps")
            b.memory("mps")
            b.faults()
    finally:
        b.end()
        if sys.exc_info()[0] is None:
            shutil.rmtree(b.dir)
        else:
            print("bench-gpu: logs are in " + b.dir, file=sys.stderr)


if __name__ == "__main__":
    main()
