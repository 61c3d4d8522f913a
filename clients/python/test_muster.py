"""Tests of muster.py. Those of Daemon run where MUSTER_SOCKET names one (the
Go test in cmd/muster starts it); the others need nothing."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import muster

HERE = os.path.dirname(os.path.abspath(__file__))


def python(code: str, **env: str) -> "subprocess.Popen[str]":
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MUSTER_")}
    return subprocess.Popen([sys.executable, "-c", code], env={**clean, "PYTHONPATH": HERE, **env}, stdout=subprocess.PIPE, text=True)


class Alone(unittest.TestCase):
    def setUp(self) -> None:
        self.tmp = tempfile.TemporaryDirectory()
        self.dir = self.tmp.name
        self.notes = os.path.join(self.dir, "progress.jsonl")
        self.ckpt = os.path.join(self.dir, "ckpt")

    def tearDown(self) -> None:
        self.tmp.cleanup()

    def told(self) -> list:
        with open(self.notes) as f:
            return [json.loads(line) for line in f]

    def run_job(self, code: str, **env: str) -> "subprocess.Popen[str]":
        return python(code, MUSTER_JOB_ID="7", MUSTER_PROGRESS=self.notes, MUSTER_CHECKPOINT_DIR=self.ckpt, **env)

    def test_outside_a_job_nothing_happens(self) -> None:
        p = python("import muster, os; os.chdir(%r); muster.progress(1); muster.done(); print(muster.in_job(), muster.job_id(), muster.rank(), muster.world_size(), muster.restart_count(), muster.latest_checkpoint())" % self.dir)
        self.assertEqual(p.communicate(timeout=30)[0].split(), ["False", "None", "0", "1", "0", "None"])
        self.assertEqual(os.listdir(self.dir), ["checkpoint"])

    def test_progress_is_limited_but_the_last_step_is_told(self) -> None:
        p = self.run_job("import muster\nfor i in range(1, 10001): muster.progress(i, steps=10000, epoch=i/100)\nmuster.done()")
        p.communicate(timeout=30)
        told = self.told()
        self.assertLess(len(told), 100)
        self.assertEqual(told[0], {"step": 1, "steps": 10000, "epoch": 0.01})
        self.assertEqual(told[-2], {"step": 10000, "steps": 10000, "epoch": 100})
        self.assertEqual(told[-1], {"finished": True})

    def test_a_trial_is_told_and_reports_at_its_marks(self) -> None:
        code = ("import muster\nt = muster.trial()\nprint(t.number, t.config['lr'], t.budget, t.scale, muster.trials() == [t])\n"
                "for i in range(1, t.budget + 1): muster.progress(i, steps=t.budget, every=1e9, metric={'loss': 1 / i if i > 3 else float('nan'), 'acc': i})")
        p = self.run_job(code, MUSTER_TRIAL="4", MUSTER_TRIAL_CONFIG='{"lr": 0.5}', MUSTER_TRIAL_BUDGET="9", MUSTER_TRIAL_SCALE="8", MUSTER_TRIAL_MARKS="3,9")
        self.assertEqual(p.communicate(timeout=30)[0].split(), ["4", "0.5", "9", "8", "True"])
        self.assertEqual([(n["step"], n["metric"]) for n in self.told()][-2:], [(3, {"loss": None, "acc": 3}), (9, {"loss": 1 / 9, "acc": 9})])
        self.assertLessEqual(len(self.told()), 3)

    def test_a_trial_that_strides_over_a_mark_reports_after_it(self) -> None:
        code = ("import muster\nfor i in range(0, 31, 4): muster.progress(i, every=1e9, metric={'loss': i})\n"
                "muster.progress(31, every=1e9)\nmuster.progress(32, every=1e9, metric={'loss': 32})")
        p = self.run_job(code, MUSTER_TRIAL="4", MUSTER_TRIAL_BUDGET="31", MUSTER_TRIAL_MARKS="3,9,31")
        p.communicate(timeout=30)
        self.assertEqual([n["step"] for n in self.told()], [0, 4, 12, 32])

    def test_fused_trials(self) -> None:
        own, old = os.path.join(self.dir, "own"), os.path.join(self.dir, "old")
        os.makedirs(os.path.join(old, "trial-2"))
        path = os.path.join(self.dir, "trials.json")
        with open(path, "w") as f:
            json.dump([{"trial": 2, "config": {"lr": 1}, "budget": 9, "checkpoint_dir": own + "/trial-2", "from": old + "/trial-2"},
                       {"trial": 5, "config": {"lr": 2}, "budget": 9, "checkpoint_dir": own + "/trial-5", "from": old + "/trial-5"}], f)
        code = ("import muster, os\na, b = muster.trials()\nprint(a.number, b.number, a.load_from, b.load_from, os.path.isdir(b.checkpoint_dir))\n"
                "for t in (a, b):\n  for s in (1, 2): muster.progress(s, metric={'loss': s}, trial=t.number)\nopen(a.checkpoint_dir + '/.x.tmp', 'w').close()\nprint(muster.trials()[0].load_from)\nopen(a.checkpoint_dir + '/x', 'w').close()\nprint(muster.trials()[0].load_from)")
        p = self.run_job(code, MUSTER_TRIALS=path, MUSTER_TRIAL="2", MUSTER_TRIAL_SCALE="8")
        self.assertEqual(p.communicate(timeout=30)[0].split(), ["2", "5", old + "/trial-2", "None", "True", old + "/trial-2", "None"])
        self.assertEqual([(n["trial"], n["step"]) for n in self.told()], [(2, 1), (2, 2), (5, 1), (5, 2)])

    def test_outside_of_a_search_there_is_no_trial(self) -> None:
        p = self.run_job("import muster; print(muster.trial(), muster.trials())")
        self.assertEqual(p.communicate(timeout=30)[0].split(), ["None", "[]"])

    def test_a_full_disk_does_not_end_the_training(self) -> None:
        p = python("import muster; muster.progress(1); print('on')", MUSTER_PROGRESS="/dev/full")
        self.assertEqual(p.communicate(timeout=30)[0], "on\n")

    def test_atomic_write(self) -> None:
        path = os.path.join(self.dir, "x")
        with muster.atomic_write(path) as f:
            f.write(b"one")
        with self.assertRaises(KeyError):
            with muster.atomic_write(path) as f:
                f.write(b"tw")
                raise KeyError
        with open(path, "rb") as g:
            self.assertEqual(g.read(), b"one")
        self.assertEqual(os.listdir(self.dir), ["x"])

    def test_latest_checkpoint(self) -> None:
        p = self.run_job("""
import muster, os
d = muster.checkpoint_dir()
print(muster.latest_checkpoint())
for i, name in enumerate(["b", "a", ".half"]):
    open(os.path.join(d, name), "w").close(); os.utime(os.path.join(d, name), (i, i))
print(os.path.basename(muster.latest_checkpoint()))
muster.report_checkpoint(os.path.join(d, "b"))
print(os.path.basename(muster.latest_checkpoint()))
os.unlink(os.path.join(d, "b"))
print(os.path.basename(muster.latest_checkpoint()))
""")
        self.assertEqual(p.communicate(timeout=30)[0].split(), ["None", "a", "b", "a"])
        self.assertEqual(self.told(), [{"checkpoint": os.path.join(self.ckpt, "b")}])

    def test_saves_between_steps_and_exits(self) -> None:
        p = self.run_job("""
import muster, os, time
state = {"n": 0, "inside": False}
def save():
    assert not state["inside"], "in the middle of a step"
    path = os.path.join(muster.checkpoint_dir(), "n")
    with muster.atomic_write(path) as f: f.write(str(state["n"]).encode())
    return path
with muster.checkpoint_on_signal(save):
    print("ready", flush=True)
    while True:
        state["inside"] = True; time.sleep(0.01); state["n"] += 1; state["inside"] = False
        muster.progress(state["n"])
""")
        assert p.stdout
        p.stdout.readline()
        p.send_signal(signal.SIGUSR1)
        p.communicate(timeout=30)
        self.assertEqual(p.returncode, muster.EXIT_SAVED)
        self.assertEqual(self.told()[-1], {"checkpoint": os.path.join(self.ckpt, "n")})

    def test_saves_as_often_as_the_daemon_says_and_goes_on(self) -> None:
        code = """
import muster, os, time
n, saves, agreed = 0, [], []
def save():
    saves.append(n)
    path = os.path.join(muster.checkpoint_dir(), "n%%d" %% len(saves))
    with muster.atomic_write(path) as f: f.write(str(n).encode())
    return path
def agree(mine): agreed.append(mine); return mine
print(muster.checkpoint_every())
until = time.monotonic() + 20
with muster.checkpoint_on_signal(save, agree=agree):
    while n < 5 or len(saves) < 2 and %s and time.monotonic() < until:
        time.sleep(0.01); n += 1
        muster.progress(n)
muster.done()
print(len(saves), saves == sorted(saves), len(agreed) == n * %d)
"""
        p = self.run_job(code % (True, 2), MUSTER_CHECKPOINT_EVERY="1")
        self.assertEqual((p.communicate(timeout=30)[0], p.returncode), ("1.0\n2 True True\n", 0))
        told = [t["checkpoint"] for t in self.told() if "checkpoint" in t]
        self.assertEqual(told, [os.path.join(self.ckpt, "n1"), os.path.join(self.ckpt, "n2")])
        p = self.run_job(code % (False, 1))
        self.assertEqual(p.communicate(timeout=30)[0], "None\n0 True True\n")

    def test_the_signal_that_the_job_chose_and_agreement(self) -> None:
        p = self.run_job("""
import muster, time
seen = []
def agree(mine): seen.append(mine); return mine
muster.should_checkpoint(agree)
print("ready", flush=True)
while not muster.should_checkpoint(agree): time.sleep(0.01)
print(seen[0], seen[-1])
""", MUSTER_CHECKPOINT_SIGNAL="USR2")
        assert p.stdout
        p.stdout.readline()
        p.send_signal(signal.SIGUSR2)
        self.assertEqual(p.communicate(timeout=30)[0], "False True\n")

    def test_too_late_for_the_last_step_changes_nothing(self) -> None:
        p = self.run_job("""
import muster, os, signal
with muster.checkpoint_on_signal(lambda: None): muster.progress(1)
os.kill(os.getpid(), signal.SIGUSR1)
print("written")
""")
        self.assertEqual((p.communicate(timeout=30)[0], p.returncode), ("written\n", 0))

    def test_the_launcher_hands_the_signal_on(self) -> None:
        worker = "import muster, time; muster.should_checkpoint(); print('ready', flush=True)\nwhile not muster.should_checkpoint(): time.sleep(0.01)\nprint('asked', flush=True)"
        launcher = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', %r], start_new_session=True) + 3)" % worker
        env = {**os.environ, "PYTHONPATH": HERE, "MUSTER_TASK_ID": "test.%d" % os.getpid()}
        p = subprocess.Popen([sys.executable, os.path.join(HERE, "muster.py"), sys.executable, "-c", launcher],
                             env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert p.stdout
        self.assertEqual(p.stdout.readline(), "ready\n")
        os.killpg(p.pid, signal.SIGUSR1)
        self.assertEqual((p.communicate(timeout=30)[0], p.returncode), ("asked\n", 3))


class Slots(unittest.TestCase):
    """Iterations that begin in slots, by a clock that passes only when something takes time."""

    def setUp(self) -> None:
        self.tmp = tempfile.TemporaryDirectory()
        self.file, self.notes = os.path.join(self.tmp.name, "network.json"), os.path.join(self.tmp.name, "notes")
        self.now, self.slept = 1000.0, []  # type: ignore[var-annotated]
        os.environ.update(MUSTER_NETWORK=self.file, MUSTER_PROGRESS=self.notes)
        self.i = muster._Iterations(lambda: self.now, lambda: self.now, self.sleep)

    def tearDown(self) -> None:
        del os.environ["MUSTER_NETWORK"], os.environ["MUSTER_PROGRESS"]
        self.tmp.cleanup()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def slot(self, shift: float, period: float) -> None:
        with open(self.file + ".new", "w") as f:
            json.dump({"class": 0, "shift_s": shift, "period_s": period}, f)
        os.replace(self.file + ".new", self.file)

    def run_one(self, compute: float = 0.15, comm: float = 0.09) -> float:
        """Runs an iteration, and returns by how much it began late in its slot."""
        self.i.begin()
        late = (self.now - self.i.shift + self.i.period / 2) % self.i.period - self.i.period / 2 if self.i.period else 0.0
        self.now += compute + comm
        self.i.communicated(comm, 2 << 20)
        return late

    def last_note(self) -> dict:
        with open(self.notes) as f:
            return json.loads(f.readlines()[-1])

    def test_without_a_slot_nothing_waits_and_times_are_told(self) -> None:
        for _ in range(20):
            self.run_one()
        self.assertEqual(self.slept, [])
        note = self.last_note()
        self.assertEqual((round(note["iteration_s"], 3), round(note["comm_s"], 3), note["bytes"]), (0.24, 0.09, 2 << 20))
        self.assertNotIn("slots", note)

    def test_a_slot_is_held_and_changes_while_it_runs(self) -> None:
        self.run_one()
        self.slot(0.12, 0.25)
        for shift in (0.12, 0.03):
            self.slot(shift, 0.25)
            for _ in range(100):
                self.assertLessEqual(abs(self.run_one()), 0.05 * 0.25 + 1e-6)
        self.assertLessEqual(max(self.slept), 0.25)
        self.assertEqual(self.last_note()["slots"], "held")
        self.slot(0, 0)
        n = len(self.slept)
        self.run_one()
        self.assertEqual(len(self.slept), n)

    def test_one_that_is_late_waits_for_the_next_slot(self) -> None:
        self.slot(0.12, 0.25)
        for _ in range(20):
            self.run_one()
        self.run_one(compute=0.19)  # the next will be late by some 30 ms
        n = len(self.slept)
        self.assertLessEqual(abs(self.run_one()), 1e-6)
        self.assertEqual(len(self.slept), n + 1)

    def test_rank_0_alone_waits(self) -> None:
        self.slot(0.0, 0.25)
        self.now += 0.1
        before, muster._iterations = muster._iterations, self.i
        try:
            os.environ["MUSTER_JOB_ID"] = "7"
            for number in ("1", "0"):
                os.environ["RANK"] = number
                self.assertEqual(muster.iteration() > 0, number == "0")
            del os.environ["MUSTER_JOB_ID"]
            self.now += 0.1
            self.assertEqual(muster.iteration(), 0)
        finally:
            muster._iterations = before
            os.environ.pop("MUSTER_JOB_ID", None)
            os.environ.pop("RANK", None)

    def test_small_drift_is_left_alone(self) -> None:
        self.slot(0.0, 0.25)
        self.run_one(compute=0.16)
        n = len(self.slept)
        for extra in (0.005, -0.01, 0.01, -0.005):
            self.run_one(compute=0.16 + extra)
        self.assertEqual(len(self.slept), n)

    def test_iterations_longer_than_the_period_are_not_held(self) -> None:
        self.slot(0.0, 0.2)
        for _ in range(60):
            self.run_one()
        n = len(self.slept)
        self.assertLessEqual(n, muster._Iterations.TRIES + 1)
        self.assertEqual(self.last_note()["slots"], "too-short")
        for _ in range(100):
            self.run_one()
        self.assertLessEqual(len(self.slept), n + 1)
        self.now += muster._Iterations.AGAIN
        for _ in range(60):
            self.run_one(compute=0.1)  # it is tried again, and fits now
        self.assertEqual(self.last_note()["slots"], "held")

    def test_a_clock_that_jumps_and_a_file_that_is_broken_do_no_harm(self) -> None:
        self.slot(0.0, 0.25)
        for _ in range(20):
            self.run_one()
        self.i.wall = lambda: self.now - 1e6 + 0.1
        for _ in range(20):
            self.run_one()
        self.assertLessEqual(max(self.slept), 0.25)
        with open(self.file, "w") as f:
            f.write('{"shift_s": "x"')
        self.run_one()
        self.assertEqual(self.i.period, 0.25)
        os.unlink(self.file)
        self.run_one()
        self.assertEqual(self.i.period, 0.25)


@unittest.skipUnless("MUSTER_SOCKET" in os.environ, "no daemon")
class Daemon(unittest.TestCase):
    def test_submit_and_wait(self) -> None:
        with tempfile.TemporaryDirectory() as d:
            id = muster.submit(["sh", "-c", "echo $WORLD_SIZE $RANK $X; exit 4"], gpus=1, name="from-python", env={"X": "y"}, dir=d, output="out")
            j = muster.wait(id)
            self.assertEqual((j["state"], j["exit_code"], j["submission"]["name"]), ("failed", 4, "from-python"))
            with open(os.path.join(d, "out")) as f:
                self.assertEqual(f.read(), "1 0 y\n")

    def test_why_and_cancel(self) -> None:
        id = muster.submit(["sleep", "100"], hold=True)
        self.assertIn("held", " ".join(muster.why(id)))
        self.assertEqual(muster.job(id)["state"], "pending")
        muster.cancel(id)
        self.assertEqual(muster.wait(id)["state"], "cancelled")

    def test_no(self) -> None:
        with self.assertRaises(muster.JobError) as e:
            muster.submit(["true"], gpus=100)
        self.assertEqual(e.exception.status, 422)
        with self.assertRaisesRegex(muster.JobError, "no such job"):
            muster.job(999999)
        with self.assertRaises(TypeError):
            muster.submit("true")
        with self.assertRaises(ValueError):
            muster.submit(["true"], gpus=1.5)

    def test_nobody_answers(self) -> None:
        before = os.environ["MUSTER_SOCKET"]
        os.environ["MUSTER_SOCKET"] = "/nonexistent/socket"
        try:
            began = time.monotonic()
            with self.assertRaisesRegex(muster.NoDaemon, "muster serve"):
                muster.submit(["true"], patience=0)
            self.assertLess(time.monotonic() - began, 30)
        finally:
            os.environ["MUSTER_SOCKET"] = before


if __name__ == "__main__":
    unittest.main()
