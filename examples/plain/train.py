"""A training loop without any library that survives preemption bit for bit.

It fits a small polynomial by stochastic gradient descent. What it draws comes
from a generator whose state is in the checkpoint, so a run that was stopped and
started again any number of times ends with the very weights of one that never
was. examples/pytorch/train.py does the same with PyTorch.

    PYTHONPATH=clients/python muster run -- python3 examples/plain/train.py --steps 2000 --out weights.json
"""

import argparse
import json
import os
import random
import struct
import time

import muster

WEIGHTS = 6


class Training:
    """Everything that the next step depends on."""

    def __init__(self, seed: int):
        self.step = 0
        self.weights = [0.0] * WEIGHTS
        self.momentum = [0.0] * WEIGHTS
        self.rng = random.Random(seed)

    def advance(self) -> float:
        """One step on a batch of 16 samples; returns the loss."""
        gradient = [0.0] * WEIGHTS
        loss = 0.0
        for _ in range(16):
            x = self.rng.uniform(-1, 1)
            y = 1 - 2 * x + 3 * x**3 + self.rng.gauss(0, 0.01)
            powers = [x**k for k in range(WEIGHTS)]
            error = sum(w * p for w, p in zip(self.weights, powers)) - y
            loss += error * error / 16
            for k, p in enumerate(powers):
                gradient[k] += error * p / 8
        rate = 0.1 / (1 + self.step / 1000)
        for k in range(WEIGHTS):
            self.momentum[k] = 0.9 * self.momentum[k] - rate * gradient[k]
            self.weights[k] += self.momentum[k]
        self.step += 1
        return loss

    def save(self) -> str:
        """Writes a checkpoint and returns its path."""
        version, numbers, spare = self.rng.getstate()
        path = os.path.join(muster.checkpoint_dir(), "training.json")
        with muster.atomic_write(path) as f:
            f.write(json.dumps({"step": self.step, "weights": exact(self.weights), "momentum": exact(self.momentum),
                                "rng": [version, list(numbers), spare]}).encode())
        return path

    def load(self, path: str) -> None:
        with open(path) as f:
            s = json.load(f)
        self.step, self.weights, self.momentum = s["step"], inexact(s["weights"]), inexact(s["momentum"])
        self.rng.setstate((s["rng"][0], tuple(s["rng"][1]), s["rng"][2]))


def exact(numbers):
    """Floating-point numbers as their bits."""
    return [struct.pack(">d", n).hex() for n in numbers]


def inexact(texts):
    return [struct.unpack(">d", bytes.fromhex(t))[0] for t in texts]


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--every", type=int, default=500, help="steps between periodic checkpoints, against crashes")
    p.add_argument("--pause", type=float, default=0, help="seconds that a step takes longer, to have time to preempt it")
    p.add_argument("--out", default="weights.json")
    args = p.parse_args()

    training = Training(args.seed)
    last = muster.latest_checkpoint()
    if last:
        training.load(last)
    print("begins at step %d, start %d" % (training.step, muster.restart_count() + 1), flush=True)

    with muster.checkpoint_on_signal(training.save):
        while training.step < args.steps:
            loss = training.advance()
            time.sleep(args.pause)
            if training.step % args.every == 0:
                muster.report_checkpoint(training.save())
                print("step %d: loss %.6f" % (training.step, loss), flush=True)
            muster.progress(training.step, steps=args.steps)

    with muster.atomic_write(args.out) as f:
        f.write((json.dumps(exact(training.weights)) + "\n").encode())
    print("finished at step %d" % training.step, flush=True)
    muster.done()


if __name__ == "__main__":
    main()
