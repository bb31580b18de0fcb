"""What refusals of training advise is done, and then works."""

from __future__ import annotations

import datetime
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import scipy.sparse

import dplateau as dp
from advised import obey
from dplateau.plan.batches import Batches, HitLaw
from dplateau.training import data, scratch
from dplateau.training.checkpoint import Checkpoint, ResumeFile
from dplateau.training.kept import KeptLayout
from dplateau.training.loop import Draws
from dplateau.training.partitions import Part, Partitions, as_partitions
from dplateau.training.scratch import ScratchArray, check_room, scratch_directory

N = 40
LOSS = dp.Logistic()
PLAN = dp.Plan(
    records=N,
    batches=dp.Poisson(8),
    iterations=6,
    step_size=0.5,
    noise_multiplier=1.0,
    loss=LOSS,
    data_norm=1.0,
    domain=dp.L2Ball(2.0),
)
ADDED = PLAN.replace(neighboring_relation="add_or_remove_one")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.where(X[:, 0] > 0, 1, -1)
PEOPLE = np.arange(N) // 2


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dplateau"


def train(plan=PLAN, X=X, y=Y, loss=None, **options):
    return dp.release(plan, loss or plan.loss or LOSS, X, y, **options)


def person(plan=PLAN):
    return plan.replace(unit="person", records=N // 2)


CONSTANT = PLAN.replace(loss=dp.Logistic(intercept=0.5))
ENDLESS = PLAN.replace(iterations=math.inf)


@pytest.mark.parametrize(
    ("refused", "words", "followed"),
    [
        (
            lambda: train(loss=dp.Huber(), y=X[:, 0]),
            "Pass the plan's own loss, or account a plan for this one",
            lambda: (train(), train(PLAN.replace(loss=dp.Huber()), y=X[:, 0])),
        ),
        (
            lambda: train(BENT, loss=LOSS),
            " is not strongly convex by itself; the plan assumes",
            lambda: train(BENT.replace(strong_convexity=0.0, regularization=0.1), loss=LOSS),
        ),
        (
            lambda: train(X=X.astype(str)),
            "Encode other columns with public bounds first (PublicTableEncoder)",
            lambda: train(X=encoded()),
        ),
        (
            lambda: train(X=pd.DataFrame(X, columns=list("abc")).assign(d="x")),
            " do not hold numbers. Encode them",
            lambda: train(X=pd.DataFrame(X, columns=list("abc"))),
        ),
        (
            lambda: train(X=X[:, :0]),
            "Give at least one feature, or the loss an intercept",
            lambda: (train(X=X[:, :1]), train(CONSTANT, X=X[:, :0])),
        ),
        (
            lambda: train(PLAN.replace(dimension=7)),
            "). Set dimension=",
            lambda: train(PLAN.replace(dimension=3)),
        ),
        (
            lambda: train(ADDED.replace(records=9)),
            "Account a plan for more records",
            lambda: train(ADDED.replace(records=99)),
        ),
        (
            lambda: train(PLAN.replace(records=99)),
            "Account a plan for this data set, or use neighboring_relation=",
            lambda: (train(), train(ADDED.replace(records=99))),
        ),
        (
            lambda: train(y=Y[:9]),
            "Compare len(y) and len(X)",
            lambda: train(y=Y),
        ),
        (
            lambda: train(random_state=-1),
            "Leave it out for a run that may be released",
            train,
        ),
        (
            lambda: train(sample_weight=np.full(N, 2.0)),
            "Divide all weights by a public maximum",
            lambda: train(sample_weight=np.full(N, 2.0) / 2.0),
        ),
        (
            lambda: train(person()),
            "the plan's unit is a person: say whose each row is with groups=",
            lambda: train(person(), groups=PEOPLE),
        ),
        (
            lambda: train(groups=PEOPLE),
            "Account a plan with unit='person', whose records is the number of people",
            lambda: train(person(), groups=PEOPLE),
        ),
        (
            lambda: dp.presample(ENDLESS, (X, Y)),
            "Use plan.replace(loss=..., iterations=...)",
            lambda: dp.presample(ENDLESS.replace(iterations=4), (X, Y)).close(),
        ),
        (
            lambda: dp.presample(PLAN, (scipy.sparse.csr_array(X), Y)),
            "Run the plan on them directly",
            lambda: train(X=scipy.sparse.csr_array(X)),
        ),
        (
            lambda: dp.run_many(ENDLESS, LOSS, X, Y, 2),
            "run_many needs a finite number of iterations; found inf. Use plan.replace(iterations=",
            lambda: dp.run_many(ENDLESS.replace(iterations=4), LOSS, X, Y, 2),
        ),
        (
            lambda: train(callback=print),
            "Leave it out, or pass allow_intermediate=True and accept composition's guarantee",
            lambda: (train(), train(callback=lambda *_: None, allow_intermediate=True)),
        ),
        (
            lambda: train(allow_intermediate=True),
            "allow_intermediate=True shows iterates to a callback: pass one",
            lambda: train(callback=lambda *_: None, allow_intermediate=True),
        ),
        (
            lambda: train(ENDLESS),
            "Give time_budget or stop_at, or a finite number of iterations",
            lambda: (
                train(ENDLESS, time_budget=0.05),
                train(ENDLESS, stop_at=datetime.datetime.now() + datetime.timedelta(seconds=0.1)),
                train(),
            ),
        ),
        (
            lambda: train(sample_weight=np.ones(N + 1)),
            "one weight for each row of X. Compare their lengths",
            lambda: train(sample_weight=np.ones(N + 1)[: len(X)]),
        ),
        (
            lambda: train(person(), groups=[*PEOPLE, 7]),
            "name the person of each row of X. Compare their lengths",
            lambda: train(person(), groups=[*PEOPLE, 7][: len(X)]),
        ),
        (
            lambda: next(drawn(Greedy(8))),
            " records and states that a batch has at most ",
            lambda: next(drawn(Honest(8))),
        ),
        (
            lambda: next(drawn(dp.RandomAllocation(8), 3)),
            "on: what was drawn before is not kept. Start where resumable(step) says so",
            lambda: next(drawn(dp.RandomAllocation(8), 5)),
        ),
    ],
)
def test_advice_about_training_works(refused, words, followed):
    obey(refused, words, followed)


BENT = dp.Plan(
    **{f: getattr(PLAN, f) for f in ("records", "batches", "iterations", "domain")},
    step_size=0.5, noise_multiplier=1.0, lipschitz=1.0, smoothness=1.0, strong_convexity=0.1,
)  # fmt: skip


def encoded():
    columns = {"a": {"type": "number", "bounds": [-4, 4]}}
    return dp.PublicTableEncoder({"columns": columns}).transform({"a": X[:, 0].astype(str)})


def drawn(batches, start=0):
    plan = PLAN.replace(batches=batches, neighboring_relation="replace_one")
    return Draws(plan, N).from_step(start, np.random.default_rng(0))


@dataclass(frozen=True)
class Greedy(Batches):
    """Draws more than it says."""

    size: float
    kind: ClassVar[str] = "greedy_of_advice"

    def batch_size(self, records):
        return self.size

    def hits(self, records):
        return HitLaw(chance=1.0)

    def sizes(self, records):
        return 0, 8

    def draws(self, present, records, stream, start=0) -> Iterator[np.ndarray]:
        while True:
            yield np.arange(present)


class Honest(Greedy):
    kind: ClassVar[str] = "honest_of_advice"

    def sizes(self, records):
        return 0, records


# -- resume files ---------------------------------------------------------------------------------


def left_behind(path, plan=PLAN, step=3, weights=(0.0, 0.0, 0.0), words=None):
    """The file that a run leaves which is killed after its last save."""
    file = ResumeFile(Checkpoint(path), plan, words or f"{plan.fingerprint()} {LOSS!r}")
    file.resume((len(weights),))
    file.save(step, np.asarray(weights, float))
    file.close()
    return path


def test_resume_files(tmp_path, state, monkeypatch):
    def resumed(path, plan=PLAN, **options):
        return train(plan, checkpoint=path, **options)

    def afresh(path):
        path.unlink()
        return resumed(path)

    place = left_behind(tmp_path / "a")
    copied = shutil.copy(place, tmp_path / "copy")
    resumed(place)
    obey(
        lambda: resumed(copied),
        "a resume file serves once. Delete it to start the run afresh",
        lambda: afresh(copied),
    )
    place = left_behind(tmp_path / "b")
    place.write_bytes(place.read_bytes()[:-3])
    obey(lambda: resumed(place), " is not a whole checkpoint of this user", lambda: afresh(place))
    longer = PLAN.replace(iterations=9)
    place = left_behind(tmp_path / "c")
    words = "Resume with that one, or delete the file to start this run afresh"
    obey(lambda: resumed(place, longer), words, lambda: resumed(place))
    obey(
        lambda: resumed(left_behind(tmp_path / "d"), longer), words, lambda: afresh(tmp_path / "d")
    )
    place = left_behind(tmp_path / "e")
    obey(
        lambda: resumed(place, X=X[:, :2]),
        "Resume with the data that the run was started on",
        lambda: resumed(place),
    )
    place = left_behind(tmp_path / "f", step=PLAN.iterations + 3)
    obey(lambda: resumed(place), " iterations does not go on. Delete it", lambda: afresh(place))
    place = left_behind(tmp_path / "g", weights=(9.0, 9.0, 9.0))
    obey(lambda: resumed(place), "outside the plan's domain. Delete it", lambda: afresh(place))
    (tmp_path / "h").mkdir()
    obey(
        lambda: resumed(tmp_path / "h"),
        " is not a dplateau checkpoint. Name another file",
        lambda: resumed(tmp_path / "i"),
    )
    obey(
        lambda: resumed(tmp_path / "j", random_state=1),
        "random_state and checkpoint exclude each other",
        lambda: (resumed(tmp_path / "j"), train(random_state=1)),
    )
    (state / "resume.key").write_bytes(b"short")
    obey(
        lambda: resumed(tmp_path / "k"),
        "Delete it; resume ",
        lambda: ((state / "resume.key").unlink(), resumed(tmp_path / "k")),
    )
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    obey(
        lambda: resumed(tmp_path / "l"),
        "Set XDG_STATE_HOME to one that can be written",
        lambda: (
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "new")),
            resumed(tmp_path / "l"),
        ),
    )


# -- batches that are kept --------------------------------------------------------------------


def test_kept_batches(tmp_path):
    def laid(where, plan=PLAN, X=X, **options):
        dp.presample(plan, (X, Y), where=where, **options).close()
        return True

    def kept(name):
        dp.presample(PLAN, (X, Y), where=tmp_path / name)  # as left by a process that was killed
        return tmp_path / name

    def deleted(where, **options):
        shutil.rmtree(where)
        return laid(where, **options)

    home, more = kept("home"), PLAN.replace(iterations=9)
    obey(
        lambda: laid(home, more),
        " holds the batches of another plan. Delete it",
        lambda: deleted(home, plan=more),
    )
    home = kept("changed")
    obey(
        lambda: laid(home, X=2 * X),
        "Delete them to draw others from the table as it is",
        lambda: deleted(home, X=2 * X),
    )
    home = kept("open")
    home.chmod(0o755)
    obey(
        lambda: laid(home),
        "(mode 700). Name another place for the batches",
        lambda: laid(tmp_path / "another"),
    )
    home = kept("copied")
    shutil.copytree(home, tmp_path / "copy")
    laid(home)
    obey(
        lambda: laid(tmp_path / "copy"),
        "using them. Delete them to draw others.",
        lambda: deleted(tmp_path / "copy"),
    )
    home = kept("edited")
    manifest = home / "layout.json"
    manifest.write_text(manifest.read_text().replace('"key": ', '"key": 1'))
    obey(lambda: laid(home), "Delete the directory to draw other batches", lambda: deleted(home))
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    (mine / "letter.txt").write_text("x")
    obey(
        lambda: KeptLayout(mine, "plan"),
        " holds other files. Name a place for the batches that ",
        lambda: KeptLayout(tmp_path / "not there yet", "plan"),
    )
    obey(
        lambda: laid(tmp_path / "seeded", random_state=1),
        "random_state and batches that are kept exclude each other",
        lambda: laid(tmp_path / "seeded"),
    )


def test_batches_serve_once():
    with dp.presample(PLAN, (X, Y)) as found:
        obey(
            lambda: train(PLAN.replace(iterations=3), X=found, y=None),
            "these batches were drawn for another plan or loss. Draw others",
            lambda: dp.presample(PLAN.replace(iterations=3), (X, Y)).close(),
        )
        train(X=found, y=None)
        with dp.presample(PLAN, (X, Y)) as others:
            obey(
                lambda: train(X=found, y=None),
                "as every account assumes. Draw others",
                lambda: train(X=others, y=None),
            )
    with dp.presample(PLAN, (X, Y)) as found:
        soon = datetime.datetime.now() + datetime.timedelta(seconds=5)
        obey(
            lambda: train(X=found, y=None, stop_at=soon),
            "Use time_budget=, which begins when they are laid out",
            lambda: train(X=dp.presample(PLAN, (X, Y)), y=None, time_budget=5),
        )


def test_partitions_bring_their_targets():
    parts = Partitions((lambda: Part(X, Y),), 3)
    obey(
        lambda: as_partitions(parts, Y),
        "partitions bring their targets and weights: leave y out",
        lambda: as_partitions(parts, None),
    )


# -- scratch space and memory --------------------------------------------------------------------


def test_scratch_space(tmp_path, monkeypatch):
    obey(
        lambda: scratch_directory(tmp_path / "gone", None),
        " is no directory that can be written to. Name one",
        lambda: scratch_directory(tmp_path, None),
    )
    obey(
        lambda: check_room(tmp_path, 1e30, "the table"),
        "Name a larger disk with --scratch (scratch=)",
        lambda: check_room(tmp_path, 1.0, "the table"),
    )

    def spooled(place="TemporaryFile", of=None):
        with pytest.MonkeyPatch.context() as patched:
            if of is not None:
                patched.setattr(of, place, _raised)
            found = ScratchArray(tmp_path, np.dtype(float), 2)
            found.append(np.ones((3, 2)))
            return found.mapped()

    obey(
        lambda: spooled(of=scratch.tempfile),
        "another disk with --scratch (scratch=)",
        spooled,
    )
    obey(lambda: spooled("memmap", np), "address space. Raise the limit (ulimit -v)", spooled)


def _raised(*arguments, **options):
    raise OSError(28, "No space left on device")


def test_memory_and_files(tmp_path, monkeypatch):
    groups = {"plan": person(), "groups": PEOPLE}

    def little():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(data, "memory_left", lambda: 0.0)
            patched.setattr(data, "mapped_bytes", lambda matrix: 1e12)
            train(**groups)

    obey(little, "more than there is left. Use a machine with more memory", lambda: train(**groups))
    bare, right = tmp_path / "bare.parquet", tmp_path / "right.parquet"
    parquet.write_table(pa.table({"y": Y}), bare)
    parquet.write_table(pa.table({"a": X[:, 0], "y": Y}), right)
    obey(
        lambda: train(X=bare, y="y"),
        "the table has no rows, or no features. Check that it is the right one",
        lambda: train(X=right, y="y"),
    )
