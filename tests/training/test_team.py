"""Two threads in one loop: the same steps as one, and nobody waits for ever."""

import numpy as np
import pytest

import dplateau as dp
from dplateau import run
from dplateau.training.native import kernels
from dplateau.training.native.crew import Crew
from dplateau.training.noise import training_streams
from dplateau.training.session import Session

LOSS = dp.Logistic(intercept=0.5)


def problem(records=80, features=4):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(records, features))
    return X, (X[:, 0] > 0).astype(int)


def plan_for(loss, batches=None):
    return dp.Plan(
        records=80,
        batches=dp.Poisson(20) if batches is None else batches,
        iterations=60,
        step_size=0.1,
        noise_multiplier=1.0,
        loss=loss,
        data_norm=1.0,
        domain=dp.L2Ball(1.0),
    )


@pytest.mark.parametrize("loss", [LOSS, dp.Softmax(classes=2)], ids=["scalar", "softmax"])
@pytest.mark.parametrize("batches", [dp.FullBatch(), dp.Poisson(20)], ids=["full", "poisson"])
def test_two_threads_in_one_loop_take_the_very_steps_of_one(native, monkeypatch, loss, batches):
    X, y = problem()
    plan = plan_for(loss, batches=batches)
    expected = run(plan, loss, X, y, random_state=1)
    monkeypatch.setattr("dplateau.training.native.engine._TEAM_STEP", 0)
    found = []
    for as_team in (True, False):
        monkeypatch.setattr(
            "dplateau.training.native.crew.Crew.as_team", lambda crew, way=as_team: way
        )
        found.append(run(plan, loss, X, y, random_state=1))
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], expected, atol=1e-12)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_member_that_fails_keeps_nobody_waiting(native, monkeypatch, failing):
    X, y = problem()
    monkeypatch.setattr("dplateau.training.native.engine._TEAM_STEP", 0)
    session = Session(plan_for(LOSS), LOSS, X, y)
    session.engine._crew.as_team = lambda: True
    advance, (streams,) = kernels.advance_in_halves, training_streams(1, 1)

    def fail(*arguments):
        if arguments[-1] == failing:
            raise MemoryError
        advance(*arguments)

    monkeypatch.setattr(kernels, "advance_in_halves", fail)
    with pytest.raises(MemoryError):
        session.advance(20, streams)


def test_a_crew_works_the_way_that_is_faster(monkeypatch):
    now, crew = [0.0], Crew(able=True)
    monkeypatch.setattr("dplateau.training.native.crew.time.monotonic", lambda: now[0])
    ways = []
    for _ in range(400):
        way, began = crew.as_team(), now[0]
        now[0] += 0.3 if way else 0.1  # among other work a team is slower
        crew.record(way, 1000, began)
        ways.append(way)
    assert ways[:6] == 3 * [True, False]
    assert 4 <= sum(ways) <= 7  # tried again, less and less often
    assert not Crew(able=False).as_team()
