"""Resume files: whole or absent, private, authentic, of use once; a killed run goes on."""

import json
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import dplateau as dp
from dplateau import run
from dplateau.plan.checks import weights_in_domain
from dplateau.training.checkpoint import MARK, Checkpoint, ResumeFile
from dplateau.training.run import release

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


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """A user whose key and tokens are the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dplateau"


def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    return X, np.where(X[:, 0] > 0, 1, -1)


def left_behind(path, step, weights, fingerprint=FINGERPRINT):
    """The file that a run leaves which is killed after its last save."""
    file = ResumeFile(Checkpoint(path), PLAN, fingerprint)
    assert file.resume((3,)) is None
    file.save(step, np.asarray(weights, float))
    file.close()
    return file


def reopened(path, shape=(3,)):
    return ResumeFile(Checkpoint(path), PLAN, FINGERPRINT).resume(shape)


def test_a_checkpoint_is_private_and_carries_no_random_state(tmp_path, state):
    path = tmp_path / "run.ckpt"
    left_behind(path, 17, [0.1, 0.2, 0.3])
    assert path.stat().st_mode & 0o777 == 0o600
    head = json.loads(path.read_bytes().split(b"\n")[0])
    assert set(head) == {"mark", "plan", "step", "shape", "run", "once"}
    assert head["mark"] == MARK
    assert "PRIVATE" in MARK
    assert (state / "resume.key").stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700
    step, found = reopened(path)
    assert step == 17
    np.testing.assert_array_equal(found, [0.1, 0.2, 0.3])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run.ckpt", "state"]


def test_a_damaged_file_is_refused_wherever_the_damage_is(tmp_path):
    path = tmp_path / "run.ckpt"
    left_behind(path, 17, [0.1, 0.2, 0.3])
    whole = path.read_bytes()
    for cut in range(0, len(whole), 29):
        path.write_bytes(whole[:cut])
        with pytest.raises(dp.DataError, match="cut short"):
            reopened(path)
    for place in range(0, len(whole), 23):
        edited = bytearray(whole)
        edited[place] ^= 1
        path.write_bytes(edited)
        with pytest.raises(dp.DataError, match="edited"):
            reopened(path)


def test_a_file_sealed_by_anybody_else_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    left_behind(path, 17, [0.1, 0.2, 0.3])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    with pytest.raises(dp.DataError, match="somebody else"):
        run(PLAN, LOSS, *problem(), checkpoint=path)


@pytest.mark.parametrize("step", [0, -1, 200, 10**9, 17.0, True, "17"])
def test_a_planted_step_releases_nothing(tmp_path, step):
    path = tmp_path / "run.ckpt"
    left_behind(path, step, [0.1, 0.2, 0.3])
    with pytest.raises(dp.DataError, match="step"):
        run(PLAN, LOSS, *problem(), checkpoint=path)
    assert path.exists()


@pytest.mark.parametrize("weights", [[3.0, 0.0, 0.0], [np.nan, 0.0, 0.0], [np.inf, 0.0, 0.0]])
def test_planted_weights_outside_the_domain_release_nothing(tmp_path, weights):
    path = tmp_path / "run.ckpt"
    left_behind(path, 17, weights)
    with pytest.raises(dp.DataError, match="domain"):
        run(PLAN, LOSS, *problem(), checkpoint=path)


def test_a_file_serves_once_and_so_does_its_copy(tmp_path):
    path, copy = tmp_path / "run.ckpt", tmp_path / "copy.ckpt"
    left_behind(path, 150, [0.1, 0.1, 0.1])
    shutil.copy(path, copy)
    release(PLAN, LOSS, *problem(), checkpoint=path)
    assert not path.exists()
    with pytest.raises(dp.DataError, match="serves once"):
        release(PLAN, LOSS, *problem(), checkpoint=copy)


def test_a_resumed_file_is_spent_before_the_first_step(tmp_path):
    path, copy = tmp_path / "run.ckpt", tmp_path / "copy.ckpt"
    left_behind(path, 150, [0.1, 0.1, 0.1])
    shutil.copy(path, copy)
    alive = ResumeFile(Checkpoint(path), PLAN, FINGERPRINT)
    assert alive.resume((3,))[0] == 150
    for other in (path, copy):  # while it is alive, and after it was killed
        with pytest.raises(dp.DataError, match="still going on"):
            reopened(other)
    alive.close()
    with pytest.raises(dp.DataError, match="serves once"):
        reopened(copy)
    assert reopened(path)[0] == 150


def test_a_foreign_file_is_refused(tmp_path):
    X, y = problem()
    path = tmp_path / "run.ckpt"
    left_behind(path, 17, [0.1, 0.2, 0.3], fingerprint="another plan")
    with pytest.raises(dp.PlanError, match="another plan"):
        run(PLAN, LOSS, X, y, checkpoint=path)
    path.unlink()
    left_behind(path, 17, [0.1, 0.2, 0.3, 0.4])
    with pytest.raises(dp.DataError, match="shape"):
        run(PLAN, LOSS, X, y, checkpoint=path)
    path.write_text("my notes")
    with pytest.raises(dp.DataError, match="not a whole checkpoint"):
        run(PLAN, LOSS, X, y, checkpoint=path)
    assert path.read_text() == "my notes"
    with pytest.raises(dp.DataError, match="not a dplateau checkpoint"):
        run(PLAN, LOSS, X, y, checkpoint="/dev/zero")


def test_a_run_resumes_and_removes_its_file_and_token(tmp_path, state):
    path = tmp_path / "run.ckpt"
    left_behind(path, 150, [0.1, 0.1, 0.1])
    outcome = release(PLAN, LOSS, *problem(), checkpoint=path)
    assert outcome.iterations_run == 200
    assert outcome.plan == PLAN
    assert not path.exists()
    assert list((state / "runs").iterdir()) == []


def test_resuming_twice_draws_fresh_noise(tmp_path):
    found = []
    for _ in range(2):
        left_behind(tmp_path / "run.ckpt", 199, [0.1, 0.1, 0.1])
        found.append(run(PLAN, LOSS, *problem(), checkpoint=tmp_path / "run.ckpt"))
    assert np.all(found[0] != found[1])


def test_a_key_that_others_can_read_is_refused(tmp_path, state):
    left_behind(tmp_path / "run.ckpt", 17, [0.1, 0.2, 0.3])
    (state / "resume.key").chmod(0o644)
    with pytest.raises(dp.PlanError, match="mode 600"):
        run(PLAN, LOSS, *problem(), checkpoint=tmp_path / "run.ckpt")


def test_random_allocation_is_resumed_at_the_beginning_of_an_epoch(tmp_path, monkeypatch):
    plan = PLAN.replace(batches=dp.RandomAllocation(8, max_overflow=1.0), step_size=0.1)
    steps = []
    monkeypatch.setattr(ResumeFile, "save", lambda file, step, weights: steps.append(step))
    release(plan, LOSS, *problem(), checkpoint=Checkpoint(tmp_path / "run.ckpt", every=0.0))
    assert steps
    assert all(step % 5 == 0 for step in steps)


def test_a_seeded_run_keeps_no_checkpoint(tmp_path):
    with pytest.raises(dp.PlanError, match="exclude"):
        run(PLAN, LOSS, *problem(), checkpoint=tmp_path / "run.ckpt", random_state=1)
    with pytest.raises(dp.PlanError, match="no directory"):
        run(PLAN, LOSS, *problem(), checkpoint=tmp_path / "nowhere" / "run.ckpt")


def test_weights_are_in_the_domain_but_for_their_grid():
    inside = PLAN.domain.project(np.array([3.0, -1.0, 2.0]))
    for grid in (0.0, 2.0**-6, 0.25):
        rounded = inside if grid == 0 else np.rint(inside / grid) * grid
        assert weights_in_domain(PLAN, rounded, grid)
        assert not weights_in_domain(PLAN, rounded * 1.5, grid)
    for domain in (dp.Box(-1, 1), dp.L1Ball(1.0), dp.Simplex(1.0), dp.Everywhere()):
        plan = PLAN.replace(domain=domain, dimension=3)
        assert weights_in_domain(plan, domain.project(np.array([3.0, -1.0, 2.0])))
        assert weights_in_domain(plan, np.full(3, 5.0)) == (domain == dp.Everywhere())


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


@pytest.mark.slow
def test_a_run_killed_at_a_random_moment_resumes_and_ends_with_its_plan(tmp_path):
    script, path = tmp_path / "killed.py", tmp_path / "run.ckpt"
    script.write_text(textwrap.dedent(KILLED))
    steps = 60_000
    plan = PLAN.replace(iterations=steps)
    command = [sys.executable, str(script), str(path), plan.to_json()]
    chance, progress = random.Random(5), []
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout.readline() == "ready\n"
            limit = time.monotonic() + 120
            reached = progress[-1] if progress else 0
            while _step_of(path) <= reached and time.monotonic() < limit:
                time.sleep(0.002)
            time.sleep(chance.random() * 0.05)
            child.send_signal(signal.SIGKILL)
        progress.append(_step_of(path))
    assert progress == sorted(set(progress))
    assert 0 < progress[0] < progress[-1] < steps
    last = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert last.stdout.split() == ["ready", str(steps)]
    assert not path.exists()


def _step_of(path):
    """What the file says, whole as it is at every moment; nothing is claimed by looking."""
    return json.loads(path.read_bytes().split(b"\n")[0])["step"] if path.exists() else 0
