#!/usr/bin/python3
"""A GPU that is played: who computes on it holds its lock for 250 ms, however busy the machine is: long beside what a
busy machine adds to a request.

    onegpu.py LOCKS serve EXAMPLE ...    the model server of EXAMPLE, with these options, whose models compute there
    onegpu.py LOCKS train                a job that computes there for most of the time
"""
import fcntl
import importlib.util
import os
import sys
import time

lock = os.open(os.path.join(sys.argv[1], os.environ["CUDA_VISIBLE_DEVICES"]), os.O_CREAT | os.O_RDWR, 0o600)


def compute():
    fcntl.flock(lock, fcntl.LOCK_EX)
    time.sleep(0.25)
    fcntl.flock(lock, fcntl.LOCK_UN)


if sys.argv[2] == "train":
    while True:
        compute()
        time.sleep(0.02)

spec = importlib.util.spec_from_file_location("example", sys.argv[3])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)


class Played(example.NumpyModel):
    def __call__(self, rows):
        y = super().__call__(rows)
        with self.turn:
            compute()
        return y


example.NumpyModel = Played
sys.argv = sys.argv[3:]
example.main()
