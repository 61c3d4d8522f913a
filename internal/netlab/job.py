"""A job as a network sees it: it computes (sleeps), then reduces, over and over.

usage: job.py KIND ADDRESS PORT RANK RANKS COMPUTE_S MIB GATE. KIND is what reduces: "gloo" of PyTorch, or "plain" sockets,
of which two ranks exchange as many bytes as gloo's do, in a twentieth of the time to load. It writes "ready", and begins
at the Unix time in the file GATE, as soon as that is there. It writes a line for each iteration: when it began (Unix
time), how long it took without waiting for its slot, how long of that it reduced, and how long it waited before."""

import os
import socket
import sys
import threading
import time

import muster

kind, address, port, rank, ranks, compute, mib, gate = sys.argv[1:]
size = int(float(mib) * 1048576)


def gloo():
    """Returns what reduces with PyTorch."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://%s:%s" % (address, port), rank=int(rank), world_size=int(ranks))
    data = torch.ones(size // 4)
    loss = torch.zeros(1)

    def reduce():
        dist.all_reduce(data)
        loss.fill_(1)
        dist.all_reduce(loss)  # as training does, to report it
        data.fill_(1)

    dist.all_reduce(data)
    dist.barrier()
    return reduce


def plain():
    """Returns what exchanges bytes over a socket, as an all-reduce of two ranks does: halves, then the halves' sums."""
    if ranks != "2":
        raise SystemExit("plain sockets are for two ranks")
    if rank == "0":
        with socket.create_server((address, int(port))) as server:
            other = server.accept()[0]
    else:
        while True:
            try:
                other = socket.create_connection((address, int(port)))
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
    other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = bytearray(size // 2)

    def exchange(n):
        sends = threading.Thread(target=other.sendall, args=(bytes(n),))
        sends.start()
        left = memoryview(data)[:n]
        while left:
            got = other.recv_into(left)
            if got == 0:
                raise SystemExit("the other rank has ended")
            left = left[got:]
        sends.join()

    def reduce():
        for n in (size // 2, size // 2, 4):
            exchange(n)

    reduce()
    return reduce


reduce = {"gloo": gloo, "plain": plain}[kind]()
print("ready", flush=True)
while not os.path.exists(gate):
    time.sleep(0.05)
with open(gate) as f:
    time.sleep(max(0.0, float(f.read()) - time.time()))
while True:
    waited = muster.iteration()
    began, clock = time.time(), time.monotonic()
    time.sleep(float(compute))
    with muster.communicating(size):
        reducing = time.monotonic()
        reduce()
    now = time.monotonic()
    print("%.6f %.6f %.6f %.6f" % (began, now - clock, now - reducing, waited), flush=True)
