"""A training that a search can run: `muster search run examples/search/asha.yaml`.

It fits a line by gradient descent, so each configuration has a loss that falls
with the steps, faster or slower. What a program must do for a search is in
main(): take the configuration, go on from its checkpoint, stop at its budget,
report the metric, save. It runs fused groups, too: several trials in one process.
"""

import argparse
import json
import math
import os
import time

import muster


class Model:
    """y = a*x + b, fitted to y = 2x - 1 by gradient descent with momentum."""

    def __init__(self, lr, momentum):
        self.lr, self.momentum = lr, momentum
        self.step = 0
        self.a = self.b = self.va = self.vb = 0.0

    def advance(self):
        xs = [i / 8 for i in range(-8, 9)]
        errors = [(self.a * x + self.b) - (2 * x - 1) for x in xs]
        self.va = self.momentum * self.va - self.lr * sum(e * x for e, x in zip(errors, xs)) / len(xs)
        self.vb = self.momentum * self.vb - self.lr * sum(errors) / len(xs)
        self.a, self.b, self.step = self.a + self.va, self.b + self.vb, self.step + 1

    def loss(self):
        try:
            return ((self.a - 2) ** 2 + (self.b + 1) ** 2) or 0.0
        except OverflowError:
            return math.inf

    def save(self, folder):
        path = os.path.join(folder, "model.json")
        with muster.atomic_write(path) as f:
            f.write(json.dumps([self.step, self.a, self.b, self.va, self.vb]).encode())
        return path

    def load(self, path):
        with open(path) as f:
            self.step, self.a, self.b, self.va, self.vb = json.load(f)


def one(lr, momentum, pause):
    """A trial in this process, or a run outside of any search."""
    trial = muster.trial()
    budget = trial.budget if trial else 27
    model = Model(lr, momentum)
    last = muster.latest_checkpoint()
    if last:
        model.load(last)
    print("trial %s begins at step %d of %d" % (trial.number if trial else "-", model.step, budget), flush=True)
    with muster.checkpoint_on_signal(lambda: model.save(muster.checkpoint_dir())):
        muster.progress(model.step, steps=budget, metric={"loss": model.loss()})
        while model.step < budget:
            model.advance()
            time.sleep(pause)
            if model.step == budget:
                muster.report_checkpoint(model.save(muster.checkpoint_dir()))
            muster.progress(model.step, steps=budget, metric={"loss": model.loss()})
    muster.done()


def fused(trials, pause):
    """Several trials side by side; a real program would batch them on the GPU."""
    models = {}
    for t in trials:
        models[t.number] = Model(t.config["lr"], t.config["momentum"])
        for folder in (t.checkpoint_dir, t.load_from):
            if folder and os.path.exists(os.path.join(folder, "model.json")):
                models[t.number].load(os.path.join(folder, "model.json"))
                break
    print("trials %s begin" % ", ".join("%d at %d" % (n, m.step) for n, m in models.items()), flush=True)
    budget = trials[0].budget
    while any(m.step < budget for m in models.values()):
        for m in models.values():
            if m.step < budget:
                m.advance()
        time.sleep(pause)
    for t in trials:
        models[t.number].save(t.checkpoint_dir)
        muster.progress(models[t.number].step, metric={"loss": models[t.number].loss()}, trial=t.number)
    muster.done()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--momentum", type=float, default=0.5)
    p.add_argument("--pause", type=float, default=0, help="seconds that a step takes longer")
    args = p.parse_args()
    if "MUSTER_TRIALS" in os.environ:
        fused(muster.trials(), args.pause)
    else:
        one(args.lr, args.momentum, args.pause)


if __name__ == "__main__":
    main()
