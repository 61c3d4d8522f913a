#!/usr/bin/python3
"""A small language model's server for services of Muster, on the CPU: OpenAI's completions, streamed token by token.

    tokens.py --port 9001 --name chat

The weights are random, so its words mean nothing; what is real is how it computes: continuous batching, one step of a
transformer for all requests that are being answered, each with a cache that grows. It needs PyTorch (Debian:
python3-torch and libopenblas0-pthread).

A prompt may be computed by another process than the answer, with vLLM's parameters for that (kv_transfer_params): the
first writes the prompt's cache to a file in memory, below --handover, and the other reads it.

/metrics has what vLLM's servers publish of requests, with its names.
"""
import argparse
import json
import os
import queue
import re
import secrets
import signal
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before torch is imported
import torch

class Histogram:
    """Seconds, as Prometheus wants them."""

    BOUNDS = [.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10]

    def __init__(self):
        self.counts, self.sum = [0] * (len(self.BOUNDS) + 1), 0.0

    def add(self, seconds):
        self.counts[next((i for i, b in enumerate(self.BOUNDS) if seconds <= b), len(self.BOUNDS))] += 1
        self.sum += seconds

    def text(self, name, label):
        lines, total = [f"# TYPE {name} histogram"], 0
        for bound, n in zip([*self.BOUNDS, "+Inf"], self.counts):
            total += n
            lines.append(f'{name}_bucket{{{label},le="{bound}"}} {total}')
        return "\n".join([*lines, f"{name}_sum{{{label}}} {self.sum}", f"{name}_count{{{label}}} {total}", ""])


class Metrics:
    """What became of requests, with the names of vLLM. The engine's thread alone writes them."""

    def __init__(self):
        self.finished = self.prompts = self.outputs = 0
        self.took, self.first, self.token = Histogram(), Histogram(), Histogram()

    def text(self, name, running, waiting, used):
        label = f'model_name="{name}"'
        values = [("num_requests_running", "gauge", running), ("num_requests_waiting", "gauge", waiting),
                  ("kv_cache_usage_perc", "gauge", used),
                  ("request_success_total", "counter", self.finished), ("prompt_tokens_total", "counter", self.prompts),
                  ("generation_tokens_total", "counter", self.outputs)]
        return "".join(f"# TYPE vllm:{n} {kind}\nvllm:{n}{{{label}}} {v}\n" for n, kind, v in values) + \
            self.took.text("vllm:e2e_request_latency_seconds", label) + \
            self.first.text("vllm:time_to_first_token_seconds", label) + \
            self.token.text("vllm:inter_token_latency_seconds", label)


WORDS = "gpu job queue node gang share slice batch model token cache loss step epoch".split()
MOST = 4096  # tokens of a prompt and its answer


class Request:
    def __init__(self, prompt, tokens):
        self.prompt, self.left, self.out = prompt, tokens, queue.SimpleQueue()
        self.size, self.most = len(prompt), len(prompt) + tokens  # of its cache, in tokens
        self.cache = None  # per layer: keys and values
        self.gone = False
        self.keep = None  # file for the cache of its prompt, if another process makes the answer
        self.took_over = False  # the cache of its prompt came from another process
        self.came = self.last = time.monotonic()


class Engine:
    """Answers requests together: each step computes one token of every request, or the prompt of a new one."""

    def __init__(self, width, layers, heads, at_once, memory):
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.width, self.heads, self.at_once, self.memory = width, heads, at_once, memory
        self.next = None  # the first that waits, which does not fit
        self.words = torch.nn.Embedding(len(WORDS), width)
        self.layers = [[torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width),
                        torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)] for _ in range(layers)]
        self.last = torch.nn.Linear(width, len(WORDS))
        self.coming, self.active, self.metrics = queue.SimpleQueue(), [], Metrics()
        threading.Thread(target=self.loop, daemon=True).start()

    def waiting(self):
        return self.coming.qsize() + (self.next is not None)

    def used(self):
        """The part of the memory for keys and values that caches take."""
        return sum(r.size for r in list(self.active)) / self.memory

    def take(self):
        """The next request, if there is room for it; while nothing is computed it waits for one."""
        if self.active and (len(self.active) >= self.at_once or self.waiting() == 0):
            return None
        r = self.next or self.coming.get()
        fits = not self.active or sum(a.most for a in self.active) + r.most <= self.memory
        self.next = None if fits else r
        return r if fits else None

    def step(self, r, tokens):
        """Computes tokens of a request after those in its cache, and returns the next one."""
        x = self.words(torch.tensor(tokens))
        n, d = len(tokens), self.width // self.heads
        caches = r.cache or [None] * len(self.layers)
        r.cache = []
        for (qkv, o, up, down), cache in zip(self.layers, caches):
            q, k, v = (t.view(n, self.heads, d).transpose(0, 1) for t in qkv(x).split(self.width, dim=1))
            if cache is not None:
                k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
            r.cache.append((k, v))
            scores = q @ k.transpose(1, 2) / d ** 0.5
            if n > 1:
                scores = scores + torch.full((n, k.shape[1]), float("-inf")).triu(1 + k.shape[1] - n)
            x = x + o((scores.softmax(-1) @ v).transpose(0, 1).reshape(n, self.width))
            x = x + down(up(x).relu())
            x = x / (1 + x.abs().mean())
        return int(self.last(x[-1]).argmax())

    def loop(self):
        with torch.inference_mode():
            while True:
                while r := self.take():
                    if r.keep:
                        self.step(r, r.prompt[:-1] or r.prompt)
                        self.hand_over(r)
                        continue
                    r.token = self.step(r, r.prompt[-1:] if r.took_over else r.prompt)
                    self.emit(r)
                for r in list(self.active):
                    r.token = self.step(r, [r.token])
                    self.emit(r)

    def hand_over(self, r):
        """Writes the cache of all of a prompt but its last token, which the other process computes."""
        try:
            torch.save(r.cache, r.keep + ".part")
            os.rename(r.keep + ".part", r.keep)
        except OSError as e:
            print(f"{r.keep}: {e}", flush=True)  # the other process computes the prompt itself
        r.out.put(None)

    def take_over(self, r, path):
        """Reads what another process wrote; a file serves once."""
        try:
            r.cache = torch.load(path, weights_only=True)
            os.unlink(path)
        except OSError:
            return
        r.took_over = len(r.prompt) > 1
        if not r.took_over:
            r.cache = None

    def count(self, r, now):
        """Counts a token of an answer."""
        m = self.metrics
        if r.last == r.came:
            m.first.add(now - r.came)
            m.prompts += len(r.prompt)
        else:
            m.token.add(now - r.last)
        m.outputs += 1
        if r.left <= 0:
            m.took.add(now - r.came)
            m.finished += 1
        r.last = now

    def emit(self, r):
        r.left -= 1
        r.size += 1
        self.count(r, time.monotonic())
        r.out.put(WORDS[r.token])
        if r.left <= 0 or r.gone:
            r.out.put(None)
            if r in self.active:
                self.active.remove(r)
        elif r not in self.active:
            self.active.append(r)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine, name, handover = None, "", ""

    def reply(self, status, value, kind="application/json"):
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/health":
            self.reply(200, {"ready": True})
        elif self.path == "/v1/models":
            self.reply(200, {"object": "list", "data": [{"id": self.name, "object": "model"}]})
        elif self.path == "/metrics":
            e = self.engine
            self.reply(200, e.metrics.text(self.name, len(e.active), e.waiting(), e.used()), "text/plain")
        else:
            self.reply(404, {"error": "no such path"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            q = json.loads(body)
            if self.path == "/v1/chat/completions":
                text = " ".join(str(m["content"]) for m in q["messages"])
            elif self.path == "/v1/completions":
                text = str(q["prompt"])
            else:
                self.reply(404, {"error": "no such path"})
                return
            prompt = [zlib.crc32(w.encode()) % len(WORDS) for w in text.split()] or [0]
            tokens = int(q.get("max_tokens") or 16)
            if not 0 < tokens or len(prompt) + tokens > MOST:
                raise ValueError(f"prompt and answer have at most {MOST} tokens")
        except (KeyError, TypeError, ValueError) as e:
            self.reply(400, {"error": f"{type(e).__name__}: {e}"})
            return
        r = Request(prompt, tokens)
        moved = q.get("kv_transfer_params") or {}
        if moved.get("do_remote_decode"):
            name = secrets.token_hex(16)
            r.keep = os.path.join(self.handover, name)
            self.engine.coming.put(r)
            r.out.get()
            self.reply(200, {"object": "text_completion", "model": self.name, "choices": [],
                             "usage": {"prompt_tokens": len(prompt), "completion_tokens": 0},
                             "kv_transfer_params": {"do_remote_prefill": True, "remote_file": name}})
            return
        if moved.get("do_remote_prefill") and re.fullmatch("[0-9a-f]{32}", str(moved.get("remote_file"))):
            self.engine.take_over(r, os.path.join(self.handover, moved["remote_file"]))
        self.engine.coming.put(r)
        words = iter(r.out.get, None)
        chat = self.path.endswith("/chat/completions")
        if not q.get("stream"):
            text = " ".join(words)
            choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            self.reply(200, {"object": "chat.completion" if chat else "text_completion", "model": self.name,
                             "created": int(time.time()), "choices": [{"index": 0, "finish_reason": "length", **choice}],
                             "usage": {"prompt_tokens": len(prompt), "completion_tokens": tokens},
                             "took_over": r.took_over})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for w in words:
                piece = {"delta": {"content": w + " "}} if chat else {"text": w + " "}
                self.wfile.write(f"data: {json.dumps({'model': self.name, 'choices': [{'index': 0, **piece}]})}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            r.gone = True  # the client has left

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--port", type=int, default=int(os.environ.get("PORT", 9001)))
    p.add_argument("--name", default=os.environ.get("MUSTER_SERVICE", "chat"))
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--at-once", type=int, default=16)
    p.add_argument("--memory", type=int, default=16 * MOST, help="tokens of all requests that are answered together")
    p.add_argument("--handover", default=f"/dev/shm/tokens-{os.getuid()}")
    a = p.parse_args()
    os.makedirs(a.handover, mode=0o700, exist_ok=True)
    if os.stat(a.handover).st_uid != os.getuid():
        raise SystemExit(f"{a.handover} belongs to another user")
    Handler.handover = a.handover
    Handler.engine, Handler.name = Engine(a.width, a.layers, 4, a.at_once, a.memory), a.name
    server = Server(("127.0.0.1", a.port), Handler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"serving {a.name} at port {a.port}: a transformer of {a.layers} layers, on CPU", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
