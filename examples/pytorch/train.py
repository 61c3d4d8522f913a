"""PyTorch training that survives preemption bit for bit, on one GPU or several.

The lines that Muster needs are marked with [muster]; copy clients/python/muster.py
next to the program. One process per GPU, as a gang of Muster's own:

    muster submit --tasks 4 --gpus 1 -- python train.py --epochs 20

or under torchrun, whose workers the signal reaches through muster.py:

    muster submit --gpus 4 -- python muster.py torchrun --nproc-per-node 4 train.py --epochs 20

The same hardware, software and world size are needed for equal bits. With
another world size (an elastic job) training goes on from the same weights and
the same place in the data, but its sums are added up in another order.
"""

import argparse
import os
import random

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with this, set before CUDA begins

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset

import muster  # [muster]


class Waves(Dataset):
    """A made-up data set: guess the phase of a noisy wave."""

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, i: int):
        g = torch.Generator().manual_seed(i)
        phase = torch.rand(1, generator=g) * 2 - 1
        x = torch.sin(torch.linspace(0, 6.28, 64) + phase) + 0.1 * torch.randn(64, generator=g)
        return x, phase


def order(n: int, seed: int, epoch: int, at: int, rank: int, world: int) -> list:
    """This rank's samples of an epoch, from the place `at` in its common order on.

    The order depends on seed and epoch alone, so that a place in it means the
    same after a restart, with any number of ranks.
    """
    g = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    rest = torch.randperm(n, generator=g).tolist()[at:]
    return rest[rank : len(rest) - len(rest) % world : world]


def random_states(device: torch.device) -> dict:
    s = {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}
    if device.type == "cuda":
        s["cuda"] = torch.cuda.get_rng_state(device)
    return s


def set_random_states(s: dict, device: torch.device) -> None:
    random.setstate(s["python"])
    np.random.set_state(s["numpy"])
    torch.set_rng_state(s["torch"])
    if device.type == "cuda" and "cuda" in s:
        torch.cuda.set_rng_state(s["cuda"], device)


class Trainer:
    def __init__(self, args: argparse.Namespace):
        self.args, self.rank, self.world = args, muster.rank(), muster.world_size()
        cuda = torch.cuda.is_available()
        # A task of a Muster gang sees its own GPU only; a worker of torchrun sees all of the job's.
        gpu = int(os.environ.get("LOCAL_RANK", 0)) % max(1, torch.cuda.device_count())
        self.device = torch.device("cuda", gpu) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        if self.world > 1:
            dist.init_process_group("nccl" if cuda else "gloo")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(args.seed + self.rank)
        torch.manual_seed(args.seed)  # the same first weights everywhere
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 1)).to(self.device)
        torch.manual_seed(args.seed + self.rank)  # and another dropout
        self.model = DistributedDataParallel(self.net) if self.world > 1 else self.net
        self.optimiser = torch.optim.AdamW(self.net.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, T_max=args.epochs)
        self.data = Waves()
        self.epoch, self.at, self.step = 0, 0, 0  # at: samples of this epoch that all ranks together have seen

    def any_rank(self, mine: bool) -> bool:
        """Whether it is so on any rank: the signal reaches them at different steps."""
        if self.world == 1:
            return mine
        t = torch.tensor(int(mine), device=self.device)
        dist.all_reduce(t, op=dist.ReduceOp.MAX)
        return bool(t.item())

    def save(self):
        """Called on every rank at the same step; rank 0 writes."""
        states = [random_states(self.device)]
        if self.world > 1:
            states = [None] * self.world
            dist.all_gather_object(states, random_states(self.device))
        path = os.path.join(muster.checkpoint_dir(), "training.pt")  # [muster]
        if self.rank == 0:
            with muster.atomic_write(path) as f:  # [muster]
                torch.save({"model": self.net.state_dict(), "optimiser": self.optimiser.state_dict(), "scheduler": self.scheduler.state_dict(),
                            "random": states, "epoch": self.epoch, "at": self.at, "step": self.step}, f)
            muster.report_checkpoint(path)  # [muster]
        if self.world > 1:
            dist.barrier()  # no rank exits before the checkpoint is on the disk

    def load(self, path: str) -> None:
        # weights_only=False: the file also holds Python's own random state, and only this job writes it.
        c = torch.load(path, map_location="cpu", weights_only=False)
        self.net.load_state_dict(c["model"])
        self.optimiser.load_state_dict(c["optimiser"])
        self.scheduler.load_state_dict(c["scheduler"])
        self.epoch, self.at, self.step = c["epoch"], c["at"], c["step"]
        if len(c["random"]) == self.world:
            set_random_states(c["random"][self.rank], self.device)
        else:  # resized: other random numbers, but not those of the first start again
            torch.manual_seed(self.args.seed + self.rank + 1000 * (self.step + 1))

    def train_epoch(self) -> None:
        mine = order(len(self.data), self.args.seed, self.epoch, self.at, self.rank, self.world)
        # A generator of its own: a loader otherwise draws from the global one when it starts, once more after every restart.
        loader = DataLoader(Subset(self.data, mine), batch_size=self.args.batch, num_workers=self.args.workers, generator=torch.Generator())
        for x, y in loader:
            loss = nn.functional.mse_loss(self.model(x.to(self.device)), y.to(self.device))
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            self.optimiser.step()
            self.step += 1
            self.at += len(x) * self.world
            # [muster] between two steps: reports, and saves and exits if that was asked for
            muster.progress(self.step, steps=self.steps(), epoch=self.epoch + self.at / len(self.data))
        self.epoch, self.at = self.epoch + 1, 0
        self.scheduler.step()
        self.save()  # once per epoch, against crashes
        if self.rank == 0:
            print("epoch %d: loss %.6f" % (self.epoch, loss.item()), flush=True)

    def steps(self) -> int:
        each = len(self.data) // self.world
        return self.args.epochs * ((each + self.args.batch - 1) // self.args.batch)


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch", type=int, default=64, help="of each rank")
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--out", default="model.pt")
    t = Trainer(p.parse_args())

    last = muster.latest_checkpoint()  # [muster]
    if last:
        t.load(last)
    with muster.checkpoint_on_signal(t.save, agree=t.any_rank):  # [muster]
        while t.epoch < t.args.epochs:
            t.train_epoch()

    if t.rank == 0:
        with muster.atomic_write(t.args.out) as f:
            torch.save(t.net.state_dict(), f)
        muster.done()  # [muster]
    if t.world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
