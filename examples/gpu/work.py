"""Work for a GPU, to measure what jobs that share one lose to each other.

    work.py compute --seconds 10

compute multiplies large matrices, memory copies within the GPU, small starts many short kernels, light multiplies eight
matrices every 33 ms. `hold --gib 30` allocates until it has so much or is refused. `assertion` and `address` wait and
then fail on the GPU: by an assertion in a kernel, and by an address that does not exist. It needs PyTorch with CUDA. Ten
times a second or more it reports a step to Muster; the last line of its output is JSON: how much was done in each second.
"""
import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "clients", "python"))
import muster
import torch


def compute():
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)

    def work():
        torch.matmul(a, b, out=out)
    return work, 16


def memory():
    a = torch.randn(1 << 28, device="cuda")
    b = torch.empty_like(a)

    def work():
        b.copy_(a)
    return work, 32


def small():
    a, b = (torch.randn(256, 256, device="cuda") for _ in range(2))
    out = torch.empty_like(a)

    def work():
        for _ in range(100):
            torch.matmul(a, b, out=out)
    return work, 25


def light():
    work, _ = compute()

    def some():
        begin = time.monotonic()
        for _ in range(8):
            work()
        torch.cuda.synchronize()
        time.sleep(max(0.0, 0.033 - (time.monotonic() - begin)))
    return some, 3


def measure(kind, seconds):
    work, rounds = {"compute": compute, "memory": memory, "small": small, "light": light}[kind]()
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    begin, step, done = time.time(), 0, {}
    while time.time() < begin + seconds:
        for _ in range(rounds):
            work()
        torch.cuda.synchronize()
        step += 1
        second = int(time.time())
        done[second] = done.get(second, 0) + rounds
        muster.progress(step)
    print(json.dumps({"kind": kind, "from": begin, "until": time.time(), "done": done}), flush=True)


def hold(gib):
    had = []
    try:
        while len(had) < gib:
            had.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as e:
        print(str(e).splitlines()[0], flush=True)
    print(json.dumps({"kind": "hold", "asked": gib, "had": len(had)}), flush=True)
    return had


def assertion(seconds):
    torch.zeros(1, device="cuda")
    time.sleep(seconds)
    torch.zeros(4, device="cuda")[torch.tensor([1 << 20], device="cuda")]
    torch.cuda.synchronize()


class Beyond:
    """Claims that an array of one byte is far longer."""

    def __init__(self):
        self.one = torch.zeros(1, dtype=torch.uint8, device="cuda")
        self.__cuda_array_interface__ = {"shape": (1 << 40,), "typestr": "|u1", "data": (self.one.data_ptr(), False),
                                         "version": 2}


def address(seconds):
    x = torch.as_tensor(Beyond(), device="cuda")
    time.sleep(seconds)
    x[1 << 39:(1 << 39) + 4096].sum()
    torch.cuda.synchronize()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("kind", choices=["compute", "memory", "small", "light", "hold", "assertion", "address"])
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--gib", type=int, default=8)
    a = p.parse_args()
    if a.kind == "hold":
        held = hold(a.gib)
        time.sleep(a.seconds)
        del held
    elif a.kind in ("assertion", "address"):
        {"assertion": assertion, "address": address}[a.kind](a.seconds)
    else:
        measure(a.kind, a.seconds)
    muster.done()


if __name__ == "__main__":
    main()
