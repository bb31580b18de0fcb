"""Resume files: whole or absent, private, bound to their plan; a killed run goes on."""

import json
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import dplateau as dp
from dplateau.training.checkpoint import MARK, Checkpoint
from dplateau.training.run import release, run

LOSS = dp.Logistic()
PLAN = dp.Plan(
    records=40,
    batches=dp.Poisson(8),
    iterations=200,
    step_size=0.5,
    noise_multiplier=1.0,
    loss=LOSS,
    data_norm=1.0,
    domain=dp.L2Ball(2.0),
)
FINGERPRINT = f"{PLAN.fingerprint()} {LOSS!r}"


def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    return X, np.where(X[:, 0] > 0, 1, -1)


def test_a_checkpoint_is_private_and_carries_no_random_state(tmp_path):
    keeper = Checkpoint(tmp_path / "run.ckpt")
    weights = np.arange(6.0).reshape(3, 2)
    keeper.save(FINGERPRINT, 17, weights)
    assert keeper.path.stat().st_mode & 0o777 == 0o600
    head = json.loads(keeper.path.read_bytes().split(b"\n")[0])
    assert set(head) == {"mark", "plan", "step", "shape"}
    assert "PRIVATE" in head["mark"]
    assert head["mark"] == MARK
    step, found = keeper.load(FINGERPRINT, (3, 2))
    assert step == 17
    np.testing.assert_array_equal(found, weights)
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]


def test_a_damaged_file_is_refused_wherever_the_damage_is(tmp_path):
    keeper = Checkpoint(tmp_path / "run.ckpt")
    keeper.save(FINGERPRINT, 17, np.arange(3.0))
    whole = keeper.path.read_bytes()
    for cut in range(0, len(whole), 7):
        keeper.path.write_bytes(whole[:cut])
        with pytest.raises(dp.DataError, match="cut short"):
            keeper.load(FINGERPRINT, (3,))
    for place in range(0, len(whole), 5):
        edited = bytearray(whole)
        edited[place] ^= 1
        keeper.path.write_bytes(edited)
        with pytest.raises(dp.DataError, match="edited"):
            keeper.load(FINGERPRINT, (3,))


def test_a_foreign_file_is_refused(tmp_path):
    X, y = problem()
    path = tmp_path / "run.ckpt"
    Checkpoint(path).save("another plan", 17, np.arange(3.0))
    with pytest.raises(dp.PlanError, match="another plan"):
        run(PLAN, LOSS, X, y, checkpoint=path)
    Checkpoint(path).save(FINGERPRINT, 17, np.arange(4.0))
    with pytest.raises(dp.DataError, match="shape"):
        run(PLAN, LOSS, X, y, checkpoint=path)
    path.write_text("my notes")
    with pytest.raises(dp.DataError, match="not a whole checkpoint"):
        run(PLAN, LOSS, X, y, checkpoint=path)
    assert path.read_text() == "my notes"


def test_a_run_resumes_and_removes_its_file(tmp_path):
    X, y = problem()
    path = tmp_path / "run.ckpt"
    Checkpoint(path).save(FINGERPRINT, 150, np.full(3, 0.1))
    outcome = release(PLAN, LOSS, X, y, checkpoint=path)
    assert outcome.iterations_run == 200
    assert outcome.plan == PLAN
    assert list(tmp_path.iterdir()) == []


def test_resuming_twice_draws_fresh_noise(tmp_path):
    X, y = problem()
    found = []
    for _ in range(2):
        Checkpoint(tmp_path / "run.ckpt").save(FINGERPRINT, 199, np.full(3, 0.1))
        found.append(run(PLAN, LOSS, X, y, checkpoint=tmp_path / "run.ckpt"))
    assert np.all(found[0] != found[1])


def test_a_seeded_run_keeps_no_checkpoint(tmp_path):
    with pytest.raises(dp.PlanError, match="exclude"):
        run(PLAN, LOSS, *problem(), checkpoint=tmp_path / "run.ckpt", random_state=1)
    with pytest.raises(dp.PlanError, match="no directory"):
        run(PLAN, LOSS, *problem(), checkpoint=tmp_path / "nowhere" / "run.ckpt")


KILLED = """
import sys
import numpy as np
import dplateau as dp
from dplateau.training.checkpoint import Checkpoint
from dplateau.training.run import release

plan = dp.Plan.from_json(sys.argv[2])
rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3))
y = np.where(X[:, 0] > 0, 1, -1)
print("ready", flush=True)
outcome = release(plan, plan.loss, X, y, checkpoint=Checkpoint(sys.argv[1], every=0.0))
print(outcome.iterations_run)
"""


def test_a_run_killed_at_a_random_moment_resumes_and_ends_with_its_plan(tmp_path):
    script, path = tmp_path / "killed.py", tmp_path / "run.ckpt"
    script.write_text(textwrap.dedent(KILLED))
    steps = 3_000_000
    plan = PLAN.replace(iterations=steps)
    command = [sys.executable, str(script), str(path), plan.to_json()]
    chance, progress = random.Random(5), []
    keeper = Checkpoint(path)
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout.readline() == "ready\n"
            limit = time.monotonic() + 60
            reached = progress[-1] if progress else 0
            while _step_of(keeper, plan) <= reached and time.monotonic() < limit:
                time.sleep(0.01)
            time.sleep(chance.random() * 0.05)
            child.send_signal(signal.SIGKILL)
        progress.append(_step_of(keeper, plan))
    assert progress == sorted(set(progress))
    assert progress[0] > 0
    assert progress[-1] < steps
    last = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert last.stdout.split() == ["ready", str(steps)]
    assert not path.exists()


def _step_of(keeper, plan):
    return keeper.load(f"{plan.fingerprint()} {plan.loss!r}", (3,))[0]
