"""A job as a network sees it: it computes (sleeps), then reduces, over and over.

usage: job.py ADDRESS PORT RANK RANKS COMPUTE_S MIB GATE. It writes "ready", and begins at the Unix time in the file GATE,
as soon as that is there. It writes a line for each iteration: when it began (Unix time), how long it took without
waiting for its slot, how long of that it reduced, and how long it waited before."""

import os
import sys
import time

import torch
import torch.distributed as dist

import muster

address, port, rank, ranks, compute, mib, gate = sys.argv[1:]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="tcp://%s:%s" % (address, port), rank=int(rank), world_size=int(ranks))
data = torch.ones(int(float(mib) * 262144))
loss = torch.zeros(1)
dist.all_reduce(data)
dist.barrier()
print("ready", flush=True)
while not os.path.exists(gate):
    time.sleep(0.05)
with open(gate) as f:
    time.sleep(max(0.0, float(f.read()) - time.time()))
while True:
    waited = muster.iteration()
    began, clock = time.time(), time.monotonic()
    time.sleep(float(compute))
    with muster.communicating(data.numel() * 4):
        reducing = time.monotonic()
        dist.all_reduce(data)
        loss.fill_(1)
        dist.all_reduce(loss)  # as training does, to report it
    now = time.monotonic()
    data.fill_(1)
    print("%.6f %.6f %.6f %.6f" % (began, now - clock, now - reducing, waited), flush=True)
