"""The ledger as a whole: reservations, the chain, certificates, the command line."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest

import dplateau as dp
from dplateau.accounting.record_count import PrivateCount
from dplateau.certificate.record import Certificate, Counting
from dplateau.ledger import Ledger, Training
from dplateau.training.checkpoint import Checkpoint, ResumeFile
from oracles.runs import Run

PLAN = dp.Plan(
    records=1000,
    batches=dp.FullBatch(),
    iterations=30,
    step_size=1.0,
    noise_multiplier=80.0,
    loss=dp.Logistic(),
    data_norm=1.0,
)


def certificate(plan=PLAN, weights=(0.0, 0.5), delta=1e-6):
    return Certificate.of(Run(plan, np.array(weights), int(plan.iterations)), delta)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "budget.db")
    ledger.init("patients", epsilon=3.0, delta=1e-5)
    return ledger


def statuses(ledger):
    return [entry.status for entry in ledger.account("patients").entries.values()]


# -- reservations ---------------------------------------------------------------------------------


def test_a_training_is_reserved_bought_and_settled(ledger):
    with ledger.reserve("patients", epsilon=1.0, delta=1e-6) as reservation:
        assert ledger.remaining("patients") == (2.0, 9e-6)
        reservation.confirm(PLAN)
        assert statuses(ledger) == ["running"]
        reservation.settle(certificate())
    assert statuses(ledger) == ["released"]
    assert ledger.account("patients").entries[1].certificate == certificate().to_dict()["digest"]
    assert all(check.passed for check in ledger.verify())


def test_a_reservation_holds_others_off_until_it_is_given_back(ledger):
    with (
        ledger.reserve("patients", epsilon=2.5, delta=1e-6),
        pytest.raises(dp.PlanError, match="still open and held back"),
    ):
        ledger.reserve("patients", epsilon=1.0, delta=1e-6)
    assert statuses(ledger) == ["refunded"]
    ledger.reserve("patients", epsilon=3.0, delta=1e-5)


def test_a_plan_that_costs_more_than_is_left_is_refused_before_it_runs(ledger):
    with (
        pytest.raises(dp.PlanError, match="does not allow"),
        ledger.reserve("patients", epsilon=1.0, delta=1e-6) as reservation,
    ):
        reservation.confirm(PLAN.replace(noise_multiplier=2.0))
    assert statuses(ledger) == ["refunded"]


def test_two_trainings_at_once_share_the_budget(ledger):
    one = ledger.reserve("patients", epsilon=1.0, delta=1e-6)
    two = ledger.reserve("patients", epsilon=1.0, delta=1e-6)
    two.confirm(PLAN)
    one.confirm(PLAN)
    one.settle(certificate())
    two.settle(certificate(weights=(1.0, 0.0)))
    assert ledger.account("patients").tight() < 2.0
    assert all(check.passed for check in ledger.verify())


def test_a_run_that_ended_early_is_settled_as_it_was_run(ledger):
    reservation = ledger.reserve("patients", epsilon=1.0, delta=1e-6)
    reservation.confirm(PLAN)
    reservation.settle(certificate(PLAN.replace(iterations=10)))
    assert ledger.account("patients").entries[1].mechanism["plan"]["iterations"] == 10


def test_a_run_dearer_than_bought_is_not_released(ledger):
    ledger.spend("patients", epsilon=2.0, delta=5e-6)
    reservation = ledger.reserve("patients", epsilon=0.9, delta=1e-6)
    reservation.confirm(PLAN)
    with pytest.raises(dp.PlanError, match="does not allow"):
        reservation.settle(certificate(PLAN.replace(noise_multiplier=10.0)))
    assert statuses(ledger) == ["released", "running"]


def left_by_a_dead_run(path, plan):
    file = ResumeFile(Checkpoint(path), plan, f"{plan.fingerprint()} Logistic()")
    file.resume((2,))
    file.save(3, np.zeros(2))
    file.close()
    return file


def test_a_dead_run_stays_spent_unless_its_checkpoint_proves_it_never_ended(
    ledger, tmp_path, monkeypatch
):
    reservation = ledger.reserve("patients", epsilon=1.0, delta=1e-6)
    reservation.confirm(PLAN)
    with pytest.raises(dp.DataError, match="stays spent"):
        ledger.refund("patients", 1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    other = left_by_a_dead_run(tmp_path / "other", PLAN.replace(iterations=7))
    with pytest.raises(dp.DataError, match="another run"):
        ledger.refund("patients", 1, checkpoint=other.path)
    kept = left_by_a_dead_run(tmp_path / "run", PLAN)
    ledger.refund("patients", 1, checkpoint=kept.path)
    assert not kept.path.exists()
    assert ledger.remaining("patients") == (3.0, 1e-5)
    with pytest.raises(dp.DataError, match="Nothing is released"):
        reservation.settle(certificate())


def test_a_damaged_checkpoint_proves_nothing(ledger, tmp_path):
    ledger.reserve("patients", epsilon=1.0, delta=1e-6).confirm(PLAN)
    (tmp_path / "run").write_bytes(b"no checkpoint at all")
    with pytest.raises(dp.DataError):
        ledger.refund("patients", 1, checkpoint=tmp_path / "run")


def test_what_is_released_is_never_given_back(ledger):
    ledger.spend("patients", certificate())
    with pytest.raises(dp.DataError, match="nothing to give back"):
        ledger.refund("patients", 1)
    with pytest.raises(dp.DataError, match="entered already"):
        ledger.spend("patients", certificate())


def test_a_private_count_cannot_be_taken_back(tmp_path):
    ledger = Ledger(tmp_path / "b.db")
    ledger.init("patients", epsilon=3.0, delta=1e-5, relation="add_or_remove_one")
    with (
        pytest.raises(RuntimeError),
        ledger.reserve("patients", epsilon=1.0, delta=1e-6, counted=True) as reservation,
    ):
        raise RuntimeError
    assert statuses(ledger) == ["reserved"]
    count = PrivateCount(0.02, 1e-8)
    plan = PLAN.replace(neighboring_relation="add_or_remove_one")
    reservation.confirm(plan, Counting(count, 1.0))
    assert ledger.remaining("patients").epsilon > 2.0  # the count costs little, the plan its mu


def test_a_budget_per_person_takes_no_record(ledger, tmp_path):
    ledger.init("people", epsilon=1.0, delta=1e-5, unit="person")
    with pytest.raises(dp.PlanError, match="protects a person"):
        ledger.spend("people", certificate())


# -- estimators -----------------------------------------------------------------------------------


def test_fit_buys_before_it_runs_and_enters_before_it_shows(ledger):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) / 3
    y = (X[:, 0] > 0).astype(int)
    model = dp.PrivateLogisticRegression(
        epsilon=1.0, delta=1e-6, data_norm=1.0, classes=[0, 1], steps=3
    )
    with ledger.reserve("patients", epsilon=1.0, delta=1e-6) as reservation:
        model.fit(X, y, reservation=reservation)
    entry = ledger.account("patients").entries[1]
    assert entry.status == "released"
    assert entry.certificate == model.certificate_.to_dict()["digest"]
    with pytest.raises(dp.PlanError, match="does not allow"):
        ledger.reserve("patients", epsilon=3.0, delta=1e-5)


# -- the chain ------------------------------------------------------------------------------------


def broken(ledger, statement, *values):
    with sqlite3.connect(ledger.name) as connection:
        connection.execute(statement, values)
    checks = ledger.verify(prices=False)
    assert not all(check.passed for check in checks)
    return next(check.found for check in checks if not check.passed)


@pytest.fixture
def spent(ledger):
    for epsilon in (0.1, 0.2, 0.3):
        ledger.spend("patients", epsilon=epsilon)
    assert all(check.passed for check in ledger.verify())
    return ledger


def test_an_edit_is_found(spent):
    change = "UPDATE dplateau_ledger SET body = replace(body, '0.2', '0.1') WHERE sequence = 3"
    assert "event 3 was edited" in broken(spent, change)


def test_a_deletion_is_found(spent):
    found = broken(spent, "DELETE FROM dplateau_ledger WHERE sequence = 3")
    assert "event 3 is missing" in found


def test_the_end_cut_off_is_found(spent):
    found = broken(spent, "DELETE FROM dplateau_ledger WHERE sequence = 4")
    assert "the chain ends at 3" in found


def test_a_reordering_is_found(spent):
    change = "UPDATE dplateau_ledger SET sequence = 7 - sequence WHERE sequence IN (?, ?)"
    with sqlite3.connect(spent.name) as connection:
        connection.execute("UPDATE dplateau_ledger SET sequence = 30 WHERE sequence = 3")
        connection.execute("UPDATE dplateau_ledger SET sequence = 3 WHERE sequence = 4")
    found = broken(spent, change.replace("7 - sequence", "4"), 30, 30)
    assert "edited" in found


def test_a_chain_written_anew_is_found_by_a_noted_hash(spent, tmp_path):
    noted = spent.head()
    assert all(check.passed for check in spent.verify(noted))
    other = Ledger(tmp_path / "other.db")
    other.init("patients", epsilon=3.0, delta=1e-5)
    assert not all(check.passed for check in other.verify(noted))


def test_an_overspending_chain_with_good_hashes_is_found(spent):
    """Whoever can write the table can also compute hashes: the balances are checked as well."""
    forged = {"charge": ["stated", 0.5, 0.0], "requested": [9.0, 0.0]}
    forged |= {"mechanism": {"kind": "stated", "epsilon": 9.0, "delta": 0.0}}
    forged |= {"event": "spend", "dataset": "patients", "entry": 4, "status": "released"}
    spent._store.append(lambda links: forged)
    checks = {check.name: check for check in spent.verify()}
    assert checks["chain"].passed
    assert not checks["balances"].passed
    assert "does not allow" in checks["balances"].found


@pytest.mark.parametrize(
    "change",
    [
        {"entry": 1},  # an entry in another's place
        {"entry": 2, "event": "settle"},  # released once more, cheaper
        {"entry": 1, "event": "refund"},
        {"event": "spend", "status": "refunded"},
        {"event": "spend", "status": "released", "mechanism": None},
        {"event": "gift"},
        {"event": "init"},
        {"entry": 9},
        {"entry": "x"},
        {"charge": 5},
        {"dataset": "unknown"},
        {"dataset": []},
    ],
)
def test_an_event_that_no_ledger_writes_is_refused_even_with_good_hashes(spent, change):
    """Appended by whoever can write the table: a noted head is still in the chain."""
    noted = spent.head()
    body = {"event": "spend", "dataset": "patients", "entry": 4, "status": "released"}
    body |= {"charge": ["stated", 0.0, 0.0], "requested": [0.0, 0.0], "epsilon": 99.0}
    body |= {"mechanism": {"kind": "stated", "epsilon": 0.0, "delta": 0.0}}
    body |= {"delta": 1e-5, "unit": "record", "relation": "replace_one", "plans": "adaptive"}
    spent._store.append(lambda links: {**body, **change})
    checks = {check.name: check.passed for check in spent.verify(noted)}
    assert checks["chain"]
    assert checks["head"]
    assert not checks["balances"]
    for use in (spent.remaining, lambda name: spent.spend(name, epsilon=0.1)):
        with pytest.raises(dp.DataError, match="tampered"):
            use("patients")


@pytest.mark.parametrize(
    "mechanism",
    [{"kind": "gift"}, {"kind": "training"}, {"kind": "stated", "epsilon": "x"}, [1], "stated"],
)
@pytest.mark.parametrize("prices", [True, False])
def test_a_release_that_cannot_be_read_fails_verification(spent, mechanism, prices):
    body = {"event": "spend", "dataset": "patients", "entry": 4, "status": "released"}
    body |= {"charge": ["stated", 0.0, 0.0], "requested": [0.0, 0.0], "mechanism": mechanism}
    spent._store.append(lambda links: body)
    checks = {check.name: check.passed for check in spent.verify(prices=prices)}
    assert checks["chain"]
    assert not checks["rounding"]


@pytest.mark.parametrize("dimension", [0, -1, "x", 2.5])
def test_a_number_of_weights_that_is_none_fails_verification(spent, dimension):
    mechanism = Training(PLAN, 1e-6).to_dict()
    mechanism["plan"]["dimension"] = dimension
    body = {"event": "spend", "dataset": "patients", "entry": 4, "status": "released"}
    body |= {"charge": ["stated", 0.0, 0.0], "requested": [0.0, 0.0], "mechanism": mechanism}
    spent._store.append(lambda links: body)
    assert not all(check.passed for check in spent.verify())
    with pytest.raises(dp.PlanError, match="dimension"):
        spent.account("patients").tight()


def test_nothing_is_entered_in_a_ledger_that_was_edited(spent):
    broken(spent, "UPDATE dplateau_ledger SET body = replace(body, '0.2', '0.1')")
    with pytest.raises(dp.DataError, match="nothing is entered"):
        spent.spend("patients", epsilon=0.1)


def test_the_ledger_holds_no_path_and_no_data(ledger):
    for name in ("/home/x/patients.csv", "a\nb", "", "x" * 101):
        with pytest.raises(dp.PlanError, match="name"):
            ledger.init(name, epsilon=1.0, delta=1e-5)


def test_an_agreed_budget_is_not_changed(ledger):
    with pytest.raises(dp.DataError, match="already"):
        ledger.init("patients", epsilon=300.0, delta=1e-5)
    with pytest.raises(dp.DataError, match="no budget for 'others'"):
        ledger.spend("others", epsilon=1.0)


def test_a_ledger_that_is_not_there_is_named(tmp_path):
    with pytest.raises(dp.DataError, match="there is no ledger"):
        Ledger(tmp_path / "none.db").remaining("patients")
    (tmp_path / "empty.db").touch()
    with pytest.raises(dp.DataError, match="holds no ledger"):
        Ledger(tmp_path / "empty.db").remaining("patients")
    with pytest.raises(dp.DataError, match="postgresql"):
        Ledger("mysql://x/y")


# -- the command line -----------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    age = rng.integers(18, 80, 400)
    rich = np.where(age + rng.normal(0, 9, 400) > 50, "yes", "no")
    lines = "".join(f"{a},{r}\n" for a, r in zip(age, rich, strict=True))
    (tmp_path / "table.csv").write_text("age,rich\n" + lines)
    columns = {
        "age": {"type": "number", "bounds": [0, 100]},
        "rich": {"type": "category", "categories": ["no", "yes"]},
    }
    (tmp_path / "schema.json").write_text(json.dumps({"columns": columns}))
    return tmp_path


def train(table, out, epsilon, *more):
    facts = ["--schema", table / "schema.json", "--target", "rich", "--delta", 1e-5]
    kept = ["--ledger", table / "b.db", "--dataset", "patients"]
    return [
        *("train", table / "table.csv", *facts, "--epsilon", epsilon),
        *("--out", table / out, *kept, *more),
    ]


def test_train_with_a_ledger(dplateau, table):
    code, out, _ = dplateau(
        *("ledger", "init", table / "b.db", "--dataset", "patients"),
        *("--epsilon", 3, "--delta", 1e-5),
    )
    assert code == 0
    assert "epsilon = 3" in out
    for out in ("one", "two"):
        code, _, err = dplateau(*train(table, out, 1))
        assert (code, err) == (0, "")
    code, _, err = dplateau(*train(table, "three", 2.9))
    assert code == 2
    assert "is left of 3 at 1e-05" in err
    assert not (table / "three" / "model.json").exists()
    code, out, _ = dplateau("ledger", "show", table / "b.db", "--json")
    found = json.loads(out)["datasets"][0]
    assert [entry["status"] for entry in found["entries"]] == ["released", "released"]
    assert 1.0 < found["composed"]["epsilon"] < 1.6 < found["sum"]["epsilon"] < 2.1
    certified = json.loads((table / "two" / "certificate.json").read_text())
    assert found["entries"][1]["certificate"] == certified["digest"]
    code, out, _ = dplateau("ledger", "verify", table / "b.db")
    assert code == 0
    assert "This ledger holds." in out
    code, out, _ = dplateau("ledger", "export", table / "b.db")
    assert str(table) not in out
    assert len(json.loads(out)["events"]) == 7


def test_a_training_needs_both_the_ledger_and_the_name(dplateau, table):
    code, _, err = dplateau(*train(table, "one", 1)[:-2])
    assert code == 2
    assert "go together" in err


def test_spending_by_hand(dplateau, table):
    store = table / "b.db"
    dplateau("ledger", "init", store, "--dataset", "d", "--epsilon", 3, "--delta", 1e-5)
    (table / "opacus.json").write_text("[[8.0, 0.01, 100]]")
    spend = ("ledger", "spend", store, "--dataset", "d")
    assert dplateau(*spend, "--laplace", 10, "--sensitivity", 2)[0] == 0
    assert dplateau(*spend, "--opacus", table / "opacus.json", "--note", "a network")[0] == 0
    assert dplateau(*spend, "--gaussian", 20)[0] == 0
    code, _, err = dplateau(*spend, "--gaussian", 0.1)
    assert code == 2
    assert "is left of 3" in err
    assert dplateau(*spend)[0] == 2
    code, out, _ = dplateau("ledger", "show", store)
    assert "a network" in out
    assert "Epsilons added up" in out


class Killed(BaseException):
    """What nothing on the way catches, as SIGKILL."""


def test_a_run_that_died_is_refunded_and_trained_again(dplateau, table, tmp_path, monkeypatch):
    """Its checkpoint, there from the first step on, proves once that nothing was released."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    dplateau(
        *("ledger", "init", table / "b.db", "--dataset", "patients"),
        *("--epsilon", 1.2, "--delta", 1e-5),
    )
    again = (*train(table, "out", 1), "--checkpoint", tmp_path / "run.ckpt")
    with monkeypatch.context() as dying:
        dying.setattr("dplateau.training.session.Session.advance", _die)
        with pytest.raises(Killed):
            dplateau(*again)
    ledger = Ledger(table / "b.db")
    assert statuses(ledger) == ["running"]
    assert (tmp_path / "run.ckpt").stat().st_mode & 0o777 == 0o600
    code, _, err = dplateau(*again)
    assert code == 2
    assert "still open and held back" in err
    assert "--checkpoint" in dplateau(*again[:-2], "--refund")[2]
    code, _, err = dplateau(*again, "--refund")
    assert (code, err) == (0, "")
    assert statuses(ledger) == ["refunded", "released"]
    assert not (tmp_path / "run.ckpt").exists()
    assert all(check.passed for check in ledger.verify())
    code, _, err = dplateau(*train(table, "other", 1), *again[-2:], "--refund")
    assert code == 2
    assert "there is no checkpoint" in err


def _die(*_):
    raise Killed


@pytest.mark.slow
def test_killed_trainings_are_refunded_or_stay_spent(table, tmp_path):
    """SIGKILL at random moments: at most one release, and never one without its entry."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    ledger = Ledger(table / "b.db")
    ledger.init("patients", epsilon=1.2, delta=1e-5)
    command = [sys.executable, "-c", "from dplateau.cli import main; main()"]
    command += [*train(table, "out", 1), "--checkpoint", tmp_path / "run.ckpt"]
    pause = random.Random(2)
    refunded = 0
    for _ in range(12):
        proof = ["--refund"] if (tmp_path / "run.ckpt").exists() else []
        refunded += len(proof)
        run = subprocess.Popen([*map(str, command), *proof], env=environment)
        time.sleep(pause.uniform(1.0, 3.5))
        run.kill()
        run.wait()
        entries = ledger.account("patients").entries.values()
        released = [e for e in entries if e.status == "released"]
        assert len(released) <= 1
        assert sum(e.live for e in entries) <= 1
        if (table / "out" / "model.json").exists():
            assert released
        if any(e.live and e.status != "running" for e in entries):
            break
    assert all(check.passed for check in ledger.verify(prices=False))
