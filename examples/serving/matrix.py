#!/usr/bin/python3
"""A model server for services of Muster: matrices on the CPU or a GPU, by the Open Inference Protocol (version 2).

    matrix.py --port 9000 --name vision --width 2048 --layers 4

The weights are random, which latency does not depend on. A batch takes little longer than one request, since the time
goes into reading the weights. With --task the last layer is fitted to a small task, so that the labels mean something:
of wide models more are right than of narrow ones, and the log and the model's metadata say which part. It needs PyTorch (Debian: python3-torch and libopenblas0-pthread), for --device cuda one
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


def examples(lib, values):
    """Requests and their labels, 1 or -1: the sign of x1 x2 + x3 x4 + x5 x6 + x7 x8."""
    x = values.reshape(-1, FEATURES) * 2 - 1
    return x, lib.sign((x[:, ::2] * x[:, 1::2]).sum(1))


def fit(lib, learn, check, hidden):
    """Fits a last layer to the hidden layers by ridge regression, as random features (Rahimi and Recht, NIPS 2007).

    lib is PyTorch or NumPy; learn and check are examples, hidden computes what the last layer gets. Returns the weights
    and the part of the labels of check that are right.
    """
    (x, y), (unseen, truth) = learn, check
    h = hidden(x)
    ridge = 0.1 * (h * h).sum() / len(h)
    if h.shape[1] < len(h):
        w = lib.linalg.solve(h.T @ h + ridge * lib.eye(h.shape[1]), h.T @ y)
    else:
        w = h.T @ lib.linalg.solve(h @ h.T + ridge * lib.eye(len(h)), y)
    return w, float(((hidden(unseen) @ w > 0) == (truth > 0)).sum()) / len(truth)


LEARN, CHECK = 1000, 1000  # examples


class Model:
    """Layers of width x width with ReLU; one batch at a time."""

    accuracy = None  # without a task

    def __init__(self, width, layers, device):
        import torch
        torch.set_num_threads(1)
        torch.manual_seed(1)
        def linear(n, m):
            return torch.nn.Linear(n, m, device=device)  # drawn there: the weights of a large model are there at once
        self.first, self.last = linear(FEATURES, width), linear(width, 1)
        self.layers = torch.nn.Sequential(*[m for _ in range(layers) for m in (linear(width, width), torch.nn.ReLU())])
        self.torch, self.device, self.turn = torch, device, threading.Lock()

    def learn(self):
        torch = self.torch
        draw = torch.Generator().manual_seed(2)
        learn, check = (examples(torch, torch.rand(n * FEATURES, generator=draw)) for n in (LEARN, CHECK))
        with torch.inference_mode():
            w, self.accuracy = fit(torch, learn, check, lambda x: self.layers(self.first(x.to(self.device))).cpu())
            self.last.weight.copy_(w.reshape(1, -1))
            self.last.bias.zero_()

    def __call__(self, rows):
        x = self.torch.tensor(rows, dtype=self.torch.float32)
        with self.turn, self.torch.inference_mode():
            return self.last(self.layers(self.first(x.to(self.device)))).flatten().tolist()


class NumpyModel:
    """The same layers, without PyTorch."""

    accuracy = None

    def __init__(self, width, layers):
        import numpy
        self.numpy, self.turn = numpy, threading.Lock()
        random = numpy.random.default_rng(1)
        sizes = [FEATURES] + [width] * (layers + 1) + [1]
        self.weights = [random.uniform(-1, 1, (m, n)).astype("float32") / m ** 0.5 for m, n in zip(sizes, sizes[1:])]

    def learn(self):
        draw = self.numpy.random.default_rng(2)
        learn, check = (examples(self.numpy, draw.random(n * FEATURES, "float32")) for n in (LEARN, CHECK))
        w, self.accuracy = fit(self.numpy, learn, check, self.hidden)
        self.weights[-1] = w.reshape(-1, 1).astype("float32")

    def hidden(self, x):
        x = x @ self.weights[0]
        for w in self.weights[1:-1]:
            x = self.numpy.maximum(x @ w, 0)
        return x

    def __call__(self, rows):
        x = self.numpy.array(rows, dtype="float32")
        with self.turn:
            return (self.hidden(x) @ self.weights[-1]).flatten().tolist()


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
                             "parameters": {} if self.model.accuracy is None else {"accuracy": self.model.accuracy},
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
    p.add_argument("--task", action="store_true", help="fit the last layer to a task, and say how accurate it is")
    a = p.parse_args()
    Handler.model = NumpyModel(a.width, a.layers) if a.numpy else Model(a.width, a.layers, a.device)
    Handler.name, Handler.platform = a.name, "numpy on cpu" if a.numpy else f"pytorch on {a.device}"
    accurate = ""
    if a.task:
        Handler.model.learn()
        accurate = f", accuracy {Handler.model.accuracy:.3f}"
    for n in (1, 1, 8):  # the first batches are slow
        Handler.model([[0.0] * FEATURES] * n)
    server = Server(("127.0.0.1", a.port), Handler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"serving {a.name} at port {a.port}: {a.layers} layers of {a.width} x {a.width}, {Handler.platform}{accurate}",
          flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
