"""Muster for Python programs: progress and checkpoints inside a job, submission outside.

One file, the standard library only, Python 3.8 or later: copy it beside your
program. Inside a job it reports progress, saves when the job is preempted and
finds the checkpoint again; outside a job all of that does nothing, so the
same program runs on a laptop. It also submits jobs to the daemon of this
machine.

    import muster

    state = load(muster.latest_checkpoint()) if muster.latest_checkpoint() else fresh()

    def save():
        path = os.path.join(muster.checkpoint_dir(), "state.ckpt")
        with muster.atomic_write(path) as f:
            f.write(state.to_bytes())
        return path

    with muster.checkpoint_on_signal(save):
        while state.step < STEPS:
            train_one_step(state)
            muster.progress(state.step, steps=STEPS)   # saves here and exits, if it was asked to
    muster.done()

Where the network is scheduled (docs/howto/network.md), say where iterations
begin, and when they communicate:

        muster.iteration()
        ...
        with muster.communicating(gradient_bytes):
            all_reduce(gradients)

As a program it runs another one and hands the checkpoint signal on to those of
its processes that want it, wherever they are; launchers such as torchrun start
their workers out of the signal's reach:

    muster run --gpus 4 -- python muster.py torchrun --nproc-per-node 4 train.py

docs/howto/checkpointing.md explains what happens when.
"""

import contextlib
import http.client
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

__all__ = [
    "EXIT_SAVED", "JobError", "NoDaemon", "atomic_write", "cancel", "checkpoint_dir", "checkpoint_every", "checkpoint_on_signal",
    "checkpoint_point", "communicating", "done", "in_job", "iteration", "job", "job_id", "latest_checkpoint", "progress", "rank",
    "Trial", "report_checkpoint", "request", "restart_count", "should_checkpoint", "submit", "trial", "trials", "wait", "why", "world_size",
]

#: The exit code after a checkpoint that was asked for (EX_TEMPFAIL). It is not
#: 0, so that a job that was only warned of its time limit does not look finished.
EXIT_SAVED = 75

_LATEST = "latest"  # names the last complete checkpoint in its folder


# ---- where am I ------------------------------------------------------------


def in_job() -> bool:
    """Whether this process is part of a Muster job."""
    return "MUSTER_JOB_ID" in os.environ


def job_id() -> Optional[int]:
    """Number of the job; None outside a job."""
    return _number("MUSTER_JOB_ID", None)


def rank() -> int:
    """This task's number in its gang, from 0.

    Under a launcher such as torchrun it is the launcher's RANK.
    """
    return _number("RANK", 0) or 0


def world_size() -> int:
    """How many tasks the gang has now.

    An elastic job that is resized is asked for a checkpoint and started again
    with another size: read it at the start, and do not keep it in a checkpoint.
    """
    return _number("WORLD_SIZE", 1) or 1


def restart_count() -> int:
    """How often the job was restarted."""
    return _number("MUSTER_RESTART_COUNT", 0) or 0


def _number(name: str, otherwise: Optional[int]) -> Optional[int]:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return otherwise


# ---- progress --------------------------------------------------------------

_said = float("-inf")  # when the last line was written
_reached = float("-inf")  # step of the last metric that was given


def progress(
    step: float,
    steps: Optional[float] = None,
    epoch: Optional[float] = None,
    samples_per_s: Optional[float] = None,
    every: float = 1.0,
    metric: Optional[Mapping[str, float]] = None,
    trial: Optional[int] = None,
) -> None:
    """Report how far the job is; call it once per step.

    At most one line per `every` seconds is written, so it may be called in
    every step however short; the last step is always written. Inside
    checkpoint_on_signal it is also the point between two steps at which a
    requested checkpoint is written. Outside a job nothing is written.

    metric: what trials of a search are compared by, such as {"loss": 0.3}. The line
    is always written at the first step at or after one at which the search needs it.
    Numbers that are not finite count as the worst. trial: the trial's number, where a
    process runs several (trials()); a checkpoint is then written only when you call checkpoint_point().
    """
    global _said, _reached
    now = time.monotonic()
    due = now - _said >= every or (steps is not None and step >= steps)
    needed = metric is not None and (trial is not None or any(_reached < m <= step for m in _marks()))
    if metric is not None and trial is None:
        _reached = step
    if due or needed:
        _said = now if trial is None else _said
        note = {"step": step, "steps": steps, "epoch": epoch, "samples_per_s": samples_per_s, "trial": trial}
        line = {k: v for k, v in note.items() if v is not None}
        if metric is not None:
            line["metric"] = {k: float(v) if math.isfinite(v) else None for k, v in metric.items()}
        _tell(line)
    if trial is None:
        checkpoint_point()


def done() -> None:
    """Report that the work is finished.

    A job that ends within the grace of a checkpoint waits again, whatever its
    exit code. After done() and with exit code 0 it is complete nevertheless.
    """
    _tell({"finished": True})


def _tell(note: Mapping[str, Any]) -> None:
    path = os.environ.get("MUSTER_PROGRESS")
    if not path:
        return
    line = (json.dumps(note) + "\n").encode()
    try:  # one write, so that lines of several processes do not mix
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)
    except OSError as err:  # a full disk must not end the training
        print("muster: the progress cannot be written: %s" % err, file=sys.stderr)


# ---- iterations, and the network -------------------------------------------


def iteration() -> float:
    """Begin an iteration; call it at the beginning of each. Returns the seconds that it waited.

    It measures iterations, and reports how long they take. Where the scheduler
    gives the job a slot, so that it communicates while others compute, it waits
    for it: rank 0 does, and the others meet it in the next collective, so that
    no two ranks can choose different slots. It never waits longer than a period,
    and not at all if iterations take longer than that. Outside a job it does nothing.
    """
    return _iterations.begin() if in_job() and rank() == 0 else 0.0


@contextlib.contextmanager
def communicating(bytes: int = 0) -> Iterator[None]:
    """Within the block the iteration communicates and does not compute: put it around the collective, or around waiting for it.

    bytes: what this rank has to reduce or to send, such as the size of the gradients.
    """
    began = _iterations.clock()
    try:
        yield
    finally:
        _iterations.communicated(_iterations.clock() - began, bytes)


class _Iterations:
    """Measures iterations, and has them begin in slots: at times that are shift after a multiple of period.

    A beginning may be off by TOLERANCE of the period (CASSINI, NSDI'24); one that is later than that waits for
    the next slot: until it had caught up it would communicate beside another job, and neither would be in time.
    """

    TOLERANCE = 0.05
    TRIES = 8  # that begin in slots before it counts that they take longer than the period
    AGAIN = 60.0  # seconds until that is tried again

    def __init__(self, wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self.wall, self.clock, self.sleep = wall, clock, sleep
        self.began: Optional[float] = None
        self.comm, self.bytes = 0.0, 0  # of the present iteration
        self.last_bytes = 0  # of the one before
        self.takes: List[float] = []  # of the last iterations
        self.comms: List[float] = []  # ... communicating
        self.in_slot = False  # the present iteration began in its slot
        self.held: List[float] = []  # the last iterations that did
        self.given_up: Optional[float] = None  # when iterations were found to take longer than the period
        self.shift, self.period = 0.0, 0.0
        self.version: Any = None  # of the file that says so
        self.said = float("-inf")

    def begin(self) -> float:
        self._ended()
        self._read()
        waited = self._wait() if self.period > 0 else 0.0
        self.began = self.clock()
        self._report()
        return waited

    def communicated(self, seconds: float, bytes: int) -> None:
        self.comm += seconds
        self.bytes += bytes

    def _ended(self) -> None:
        if self.began is None:
            return
        took = self.clock() - self.began
        self.takes = (self.takes + [took])[-16:]
        self.comms = (self.comms + [min(self.comm, took)])[-16:]
        if self.in_slot:
            self.held = (self.held + [took])[-self.TRIES:]
        self.last_bytes, self.comm, self.bytes = self.bytes, 0.0, 0

    def _read(self) -> None:
        """Reads the slot again if it is another than before: it may change while the job runs."""
        path = os.environ.get("MUSTER_NETWORK")
        if not path:
            return
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            st = os.stat(path)
            version = (st.st_ino, st.st_mtime_ns, st.st_size)
            if version == self.version:
                return
            with open(path, encoding="utf-8") as f:
                now = json.load(f)
            shift, period = float(now["shift_s"]), float(now["period_s"])
            if (shift, period) != (self.shift, self.period):
                self.shift, self.period = shift, period if 0 < period < 3600 else 0.0
                self.held, self.given_up = [], None
            self.version = version

    def _wait(self) -> float:
        if self.given_up is not None and self.clock() - self.given_up < self.AGAIN:
            self.in_slot = False
            return 0.0
        if self.given_up is not None:
            self.held, self.given_up = [], None
        own = _median(self.held) if len(self.held) == self.TRIES else 0.0
        if own > self.period * (1 + self.TOLERANCE / self.TRIES):
            self.given_up, self.in_slot = self.clock(), False
            return 0.0
        late = (self.wall() - self.shift) % self.period
        to_next = self.period - late
        self.in_slot = True
        if min(late, to_next) <= self.TOLERANCE * self.period:
            return 0.0
        self.sleep(to_next)
        return to_next

    def _report(self) -> None:
        now = self.clock()
        if not self.takes or now - self.said < 1.0:
            return
        self.said = now
        took = _median(self.takes)
        note: Dict[str, Any] = {"iteration_s": round(took, 6)}
        if any(self.comms):
            # Computing takes what it takes when nothing disturbs it; the rest is the network's.
            computed = sorted(t - c for t, c in zip(self.takes, self.comms))
            note["comm_s"] = round(max(0.0, took - computed[len(computed) // 4]), 6)
        if self.last_bytes:
            note["bytes"] = self.last_bytes
        if self.given_up is not None:
            note["slots"] = "too-short"
        elif self.period > 0 and len(self.held) == self.TRIES:
            note["slots"] = "held"
        _tell(note)


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


_iterations = _Iterations()


# ---- trials of a search ----------------------------------------------------


class Trial(NamedTuple):
    """A trial of a search (docs/howto/search.md)."""

    number: int  #: the trial's number, from 0
    config: Dict[str, Any]  #: its parameters by name
    budget: int  #: the step at which this run ends; the trial continues from there if it is promoted
    scale: int  #: divide the model's width by it; 1: full size
    checkpoint_dir: str  #: where to write its checkpoints
    load_from: Optional[str]  #: the folder of its last run, if that is another one and its own is still empty


def trial() -> Optional[Trial]:
    """The trial that this process runs; None: it is not part of a search.

    Load latest_checkpoint() if there is one, train up to step trial().budget,
    report the metric with progress(step, steps=budget, metric=...), save, and end.
    """
    if "MUSTER_TRIAL" not in os.environ:
        return None
    e = os.environ
    return Trial(int(e["MUSTER_TRIAL"]), json.loads(e.get("MUSTER_TRIAL_CONFIG") or "{}"), int(e.get("MUSTER_TRIAL_BUDGET") or 0),
                 int(e.get("MUSTER_TRIAL_SCALE") or 1), checkpoint_dir(), None)


def trials() -> List[Trial]:
    """The trials that this process runs: those of a fused group, or a single one.

    Each trial of a group has a checkpoint folder of its own. After a promotion
    load_from is the folder of its last run: read from there if checkpoint_dir is
    empty, and write to checkpoint_dir only. Files that atomic_write has not
    finished do not count.
    """
    path = os.environ.get("MUSTER_TRIALS")
    if not path:
        one = trial()
        return [one] if one else []
    with open(path, encoding="utf-8") as f:
        found = json.load(f)
    scale = int(os.environ.get("MUSTER_TRIAL_SCALE") or 1)
    out = []
    for t in found:
        os.makedirs(t["checkpoint_dir"], exist_ok=True)
        source = t.get("from")
        if any(not e.name.startswith(".") for e in os.scandir(t["checkpoint_dir"])) or not (source and os.path.isdir(source)):
            source = None
        out.append(Trial(t["trial"], t["config"], t["budget"], scale, t["checkpoint_dir"], source))
    return out


def _marks() -> List[float]:
    return [float(m) for m in (os.environ.get("MUSTER_TRIAL_MARKS") or "").split(",") if m]


# ---- checkpoints -----------------------------------------------------------


def checkpoint_dir() -> str:
    """The job's folder for checkpoints, which is kept across restarts.

    Outside a job: the folder named in MUSTER_CHECKPOINT_DIR, else
    "checkpoint" in the working directory. It is created if it does not exist.
    """
    path = os.environ.get("MUSTER_CHECKPOINT_DIR") or os.path.abspath("checkpoint")
    os.makedirs(path, exist_ok=True)
    return path


def latest_checkpoint() -> Optional[str]:
    """Path of the last checkpoint in checkpoint_dir(); None: there is none.

    It is the one last passed to report_checkpoint(), else the newest file or
    folder there. A file that atomic_write has not finished is never returned.
    """
    where = checkpoint_dir()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        with open(os.path.join(where, _LATEST), encoding="utf-8") as f:
            path = os.path.join(where, f.read().rstrip("\n"))
        if path != os.path.join(where, "") and os.path.exists(path):
            return path
    found = [e for e in os.scandir(where) if not e.name.startswith(".") and e.name != _LATEST]
    if not found:
        return None
    return max(found, key=lambda e: (e.stat().st_mtime_ns, e.name)).path


def report_checkpoint(path: Union[str, "os.PathLike[str]"]) -> None:
    """Report that a checkpoint is complete: the work up to here is safe.

    latest_checkpoint() returns it from now on, and the scheduler knows that the
    job loses little when it is stopped. In a gang one task reports it for all.
    """
    where, path = checkpoint_dir(), os.path.abspath(os.fspath(path))
    inside = os.path.relpath(path, where)
    with atomic_write(os.path.join(where, _LATEST)) as f:
        f.write(((path if inside.startswith("..") else inside) + "\n").encode())
    _tell({"checkpoint": path})


@contextlib.contextmanager
def atomic_write(path: Union[str, "os.PathLike[str]"]) -> Iterator[BinaryIO]:
    """A file that appears under its name complete, or not at all.

    It is written under another name in the same folder, synced to disk and
    renamed: whatever happens meanwhile, either the old or the new content is there.
    """
    path = os.path.abspath(os.fspath(path))
    folder = os.path.dirname(path)
    fd, tmp = tempfile.mkstemp(prefix="." + os.path.basename(path) + ".", dir=folder)
    try:
        with os.fdopen(fd, "wb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(tmp, 0o666 & ~mask)
        os.replace(tmp, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(tmp)
        raise
    d = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(d)
    finally:
        os.close(d)


_asked = False  # the signal came
_listening: Optional[int] = None  # the signal that is caught
_save: Optional[Callable[[], Any]] = None
_agree: Optional[Callable[[bool], bool]] = None
_saved_at = 0.0  # when the last checkpoint was written, or the work began


def _signal_number() -> int:
    name = os.environ.get("MUSTER_CHECKPOINT_SIGNAL") or "USR1"
    return int(getattr(signal, "SIG" + (name[3:] if name.startswith("SIG") else name), signal.SIGUSR1))


def _on_signal(_number: int, _frame: Any) -> None:
    global _asked
    _asked = True  # nothing else: a handler may run in the middle of anything


def should_checkpoint(agree: Optional[Callable[[bool], bool]] = None) -> bool:
    """Whether a checkpoint was requested; call it once per step, first from the main thread.

    The first call installs the signal handler, so make it before the work
    begins. In a gang the signal reaches the tasks at different steps: give a
    function that takes this task's answer and returns whether any task's is yes
    (for example an all_reduce with MAX), and call this in every step.
    """
    _listen()
    return agree(_asked) if agree else _asked


def _listen() -> Any:
    """Installs the signal handler and returns the previous one."""
    global _listening
    if _listening is not None:
        return None
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("muster: signals can be caught in the main thread only: call should_checkpoint() or enter checkpoint_on_signal() there first")
    _listening = _signal_number()
    return signal.signal(_listening, _on_signal)


@contextlib.contextmanager
def checkpoint_on_signal(save: Callable[[], Any], agree: Optional[Callable[[bool], bool]] = None) -> Iterator[None]:
    """Within the block, a requested checkpoint is written between two steps.

    This happens in progress() or checkpoint_point(), whichever you call once per
    step. save() writes the checkpoint; if it returns a path, that is reported.
    Then the process exits with EXIT_SAVED and the job waits for its next turn.
    agree: as in should_checkpoint. A signal after the last step has no effect.

    If the daemon states how often to save (checkpoint_every()), save() is also
    called between two steps whenever that time has passed, and the work continues.
    """
    global _save, _agree, _listening, _saved_at
    before = _listen()
    outer = (_save, _agree)
    _save, _agree, _saved_at = save, agree, time.monotonic()
    try:
        yield
    finally:
        _save, _agree = outer
        if before is not None and _listening is not None:
            # Not back to what kills: the signal may come while the results are written.
            signal.signal(_listening, signal.SIG_IGN if before == signal.SIG_DFL else before)
            _listening = None


def checkpoint_every() -> Optional[float]:
    """Seconds between checkpoints at which least is lost, to writing them and to interruptions.

    The daemon states it if its configuration has checkpoints; None: it does not.
    """
    every = _number("MUSTER_CHECKPOINT_EVERY", None)
    return float(every) if every is not None and every > 0 else None


def checkpoint_point() -> None:
    """A point between two steps: saves and exits if a checkpoint was requested.

    It also saves, and continues, if the last checkpoint is older than checkpoint_every().
    """
    global _saved_at
    if _save is None:
        return
    asked, every = should_checkpoint(_agree), checkpoint_every()
    if not asked and every is None:
        return
    due = every is not None and time.monotonic() - _saved_at >= every
    if not asked and not (_agree(due) if _agree else due):
        return
    path = _save()
    if path is not None:
        report_checkpoint(path)
    _saved_at = time.monotonic()
    if not asked:
        return
    sys.stdout.flush()
    sys.exit(EXIT_SAVED)


# ---- the daemon ------------------------------------------------------------


class JobError(Exception):
    """The daemon refused; status is the HTTP status."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


class NoDaemon(ConnectionError):
    """No daemon answers at the socket."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str):
        super().__init__("muster")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.connect(self.path)
        except OSError as err:
            self.sock.close()
            raise NoDaemon("no Muster daemon answers at %s: start one with muster serve, or name its socket in MUSTER_SOCKET (%s)" % (self.path, err)) from err


def _socket_path() -> str:
    """The socket, found as the command line finds it."""
    if os.environ.get("MUSTER_SOCKET"):
        return os.environ["MUSTER_SOCKET"]
    if os.getuid() != 0:
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        own = os.path.join(runtime, "muster.sock") if runtime else os.path.expanduser("~/.local/state/muster/muster.sock")
        if os.path.exists(own):
            return own
    return "/run/muster/muster.sock"


def request(method: str, path: str, body: Any = None, headers: Optional[Mapping[str, str]] = None) -> Any:
    """One request to the daemon's API, such as request("GET", "/v1/nodes").

    The daemon describes its API at /openapi.json.
    """
    c = _UnixConnection(_socket_path())
    try:
        send = dict(headers or {})
        if body is not None:
            send["Content-Type"] = "application/json"
        c.request(method, path, None if body is None else json.dumps(body), send)
        answer = c.getresponse()
        text = answer.read()
    finally:
        c.close()
    if answer.status < 400:
        return json.loads(text) if text else None
    try:
        said = json.loads(text)
        words = [said.get("detail") or said.get("title") or ""]
        words += ["%s: %s" % (e.get("location", ""), e["message"]) for e in said.get("errors") or [] if e["message"] not in words[0]]
        why_not = "; ".join(words)
    except (ValueError, KeyError, AttributeError):
        why_not = text.decode(errors="replace").strip()
    raise JobError(answer.status, why_not)


def submit(
    command: Sequence[str],
    gpus: float = 0,
    tasks: int = 1,
    name: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    dir: Optional[str] = None,
    time_limit: Optional[str] = None,
    patience: float = 60,
    **more: Any,
) -> int:
    """Submit a job and return its number.

    command: program and arguments. gpus: of each task, or a fraction below 1.
    env: in addition to this process's environment. time_limit: such as "2h30m".
    more: any other field of a submission in /openapi.json, such as
    tier="critical", queue="nlp", output="train-%j.log", min_tasks=2.

    While no daemon answers (it may be restarting) the request is repeated for
    `patience` seconds; the job is submitted once, however often that happens.
    """
    if isinstance(command, str):
        raise TypeError('muster: command is a list of program and arguments, such as ["python", "train.py"], not one text')
    mask = os.umask(0)
    os.umask(mask)
    body: Dict[str, Any] = {"command": [os.fspath(c) for c in command], "tasks": tasks, "dir": os.path.abspath(dir or os.getcwd()),
                            "env": ["%s=%s" % kv for kv in {**os.environ, **(env or {})}.items()], "umask": "%04o" % mask}
    if 0 < gpus < 1:
        body["gpus"], body["share"] = 1, int(round(gpus * 1000))
    elif gpus == int(gpus):
        body["gpus"] = int(gpus)
    else:
        raise ValueError("muster: gpus=%r: whole GPUs, or a fraction below 1" % (gpus,))
    if name:
        body["name"] = name
    if time_limit:
        body["limit"] = time_limit
    body.update(more)
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    answer = _patiently(lambda: request("POST", "/v1/jobs", body, headers), patience)
    return int(answer["job"]["id"])


def wait(id: int, patience: float = 60) -> Dict[str, Any]:
    """Wait until a job is over and return it as a dict.

    state is then completed, failed, cancelled, timeout, preempted, lost or
    rejected; exit_code is the job's. If the daemon is restarted meanwhile, it
    waits `patience` seconds for it.
    """
    return _patiently(lambda: request("GET", "/v1/jobs/%d/wait" % id), patience)


def job(id: int) -> Dict[str, Any]:
    """The present state of a job: state, devices, progress, and so on."""
    return request("GET", "/v1/jobs/%d" % id)


def why(id: int) -> List[str]:
    """What keeps a job from starting."""
    return request("GET", "/v1/jobs/%d/why" % id)["blockers"]


def cancel(id: int) -> None:
    """End a job, whether it runs or waits."""
    request("POST", "/v1/jobs/%d/cancel" % id)


def _patiently(ask: Callable[[], Any], patience: float) -> Any:
    until, last = None, 0.0  # how long to try while no daemon answers; when it was last tried
    while True:
        try:
            return ask()
        except (OSError, http.client.HTTPException, JobError) as err:
            if isinstance(err, JobError) and err.status != 503 and not (err.status == 409 and "ending" in str(err)):
                raise
            now = time.monotonic()
            if until is None or now - last > 1:  # it answered meanwhile
                until = now + patience
            if now >= until:
                raise
            time.sleep(0.2)
            last = time.monotonic()


# ---- as a program ----------------------------------------------------------


def _catchers(number: int) -> Iterator[int]:
    """The processes of this task, except this one, that handle the signal."""
    mark = ("MUSTER_TASK_ID=" + os.environ.get("MUSTER_TASK_ID", "")).encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as f:
                if mark not in f.read().split(b"\0"):
                    continue
            with open("/proc/%s/status" % name) as f:
                caught = next((line.split()[1] for line in f if line.startswith("SigCgt:")), "0")
        except OSError:
            continue  # gone
        if int(caught, 16) >> (number - 1) & 1:
            yield int(name)


def _main(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: python muster.py COMMAND [ARG...]\n\nRuns the command and hands the checkpoint signal on to those of its processes that catch it.", file=sys.stderr)
        return 0 if argv else 2
    number, group = _signal_number(), os.getpgrp()
    asked = threading.Event()
    signal.signal(number, lambda *_: asked.set())

    def ignore() -> None:  # until it says otherwise: a launcher that knows nothing of it must not die
        signal.signal(number, signal.SIG_IGN)

    try:
        child = subprocess.Popen(list(argv), preexec_fn=ignore)
    except OSError as err:
        print("muster: %s: %s" % (argv[0], err.strerror), file=sys.stderr)
        return 127
    told: set = set()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = child.wait(0.2)
            return code if code >= 0 else 128 - code
        if not asked.is_set() or "MUSTER_TASK_ID" not in os.environ:
            continue
        for pid in _catchers(number):  # again and again: a worker may still be starting
            with contextlib.suppress(OSError):
                if pid not in told and os.getpgid(pid) != group:  # the group had it from the daemon
                    os.kill(pid, number)
                told.add(pid)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
