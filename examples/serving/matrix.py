#!/usr/bin/python3
"""A model server for services of Muster: matrices on the CPU or a GPU, by the Open Inference Protocol (version 2).

    matrix.py --port 9000 --name vision --width 2048 --layers 4

The weights are random, which latency does not depend on. A batch takes little longer than one request, since the time
goes into reading the weights. It needs PyTorch (Debian: python3-torch and libopenblas0-pthread), for --device cuda one
with CUDA; with --numpy, NumPy does the same on the CPU, which takes a tenth of the time to load.
"""
import argparse
import json
import os
import signal
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when PyTorch or NumPy is loaded

FEATURES = 8  # values of a request


class Model:
    """Layers of width x width with ReLU; one batch at a time."""

    def __init__(self, width, layers, device):
        import torch
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.first = torch.nn.Linear(FEATURES, width).to(device)
        self.layers = torch.nn.Sequential(*[
            m for _ in range(layers) for m in (torch.nn.Linear(width, width).to(device), torch.nn.ReLU())])
        self.last = torch.nn.Linear(width, 1).to(device)
        self.torch, self.device, self.turn = torch, device, threading.Lock()

    def __call__(self, rows):
        x = self.torch.tensor(rows, dtype=self.torch.float32)
        with self.turn, self.torch.inference_mode():
            return self.last(self.layers(self.first(x.to(self.device)))).flatten().tolist()


class NumpyModel:
    """The same layers, without PyTorch."""

    def __init__(self, width, layers):
        import numpy
        self.numpy, self.turn = numpy, threading.Lock()
        random = numpy.random.default_rng(1)
        sizes = [FEATURES] + [width] * (layers + 1) + [1]
        self.weights = [random.uniform(-1, 1, (m, n)).astype("float32") / m ** 0.5 for m, n in zip(sizes, sizes[1:])]

    def __call__(self, rows):
        x = self.numpy.array(rows, dtype="float32") @ self.weights[0]
        with self.turn:
            for w in self.weights[1:-1]:
                x = self.numpy.maximum(x @ w, 0)
            return (x @ self.weights[-1]).flatten().tolist()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model, name, platform = None, "", ""

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path in ("/v2/health/ready", "/v2/health/live", f"/v2/models/{self.name}/ready"):
            self.reply(200, {"ready": True})
        elif self.path == f"/v2/models/{self.name}":
            self.reply(200, {"name": self.name, "platform": self.platform,
                             "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, FEATURES]}],
                             "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]},
                                         {"name": "label", "datatype": "INT64", "shape": [-1]}]})
        else:
            self.reply(404, {"error": "no such path"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != f"/v2/models/{self.name}/infer":
            self.reply(404, {"error": "no such path"})
            return
        try:
            x = json.loads(body)["inputs"][0]
            rows = x["data"]
            if not isinstance(rows[0], list):
                rows = [rows[i:i + FEATURES] for i in range(0, len(rows), FEATURES)]
            if len(rows) != x["shape"][0] or any(len(r) != FEATURES for r in rows):
                raise ValueError(f"the input is not of the shape [n, {FEATURES}]")
            y = self.model(rows)
        except (KeyError, IndexError, TypeError, ValueError) as e:
            self.reply(400, {"error": f"{type(e).__name__}: {e}"})
            return
        self.reply(200, {"model_name": self.name,
                         "outputs": [{"name": "y", "datatype": "FP32", "shape": [len(y)], "data": y},
                                     {"name": "label", "datatype": "INT64", "shape": [len(y)],
                                      "data": [int(v > 0) for v in y]}]})

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().server_bind()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--port", type=int, default=int(os.environ.get("PORT", 9000)))
    p.add_argument("--name", default=os.environ.get("MUSTER_SERVICE", "vision"))
    p.add_argument("--width", type=int, default=2048)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--device", default="cpu", help="where PyTorch computes: cpu or cuda")
    p.add_argument("--numpy", action="store_true", help="compute with NumPy instead of PyTorch")
    a = p.parse_args()
    Handler.model = NumpyModel(a.width, a.layers) if a.numpy else Model(a.width, a.layers, a.device)
    Handler.name, Handler.platform = a.name, "numpy on cpu" if a.numpy else f"pytorch on {a.device}"
    for n in (1, 1, 8):  # the first batches are slow
        Handler.model([[0.0] * FEATURES] * n)
    server = Server(("127.0.0.1", a.port), Handler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"serving {a.name} at port {a.port}: {a.layers} layers of {a.width} x {a.width}, {Handler.platform}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
