"""What refusals of the ledger advise is done, and then works."""

from __future__ import annotations

import math
import sqlite3

import dp_accounting
import numpy as np
import pytest
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError

import dplateau as dp
from advised import PLAN as SMALL
from advised import obey
from dplateau.accounting.looks import Spread
from dplateau.accounting.record_count import PrivateCount
from dplateau.certificate.bought import Bought
from dplateau.certificate.record import Certificate, Counting
from dplateau.ledger import GaussianQuery, LaplaceQuery, Ledger, store
from dplateau.training.checkpoint import Checkpoint, ResumeFile
from oracles.runs import Run

PLAN = SMALL.replace(records=1000, iterations=30, step_size=1.0, noise_multiplier=80.0)
ADDED = PLAN.replace(neighboring_relation="add_or_remove_one")


def certificate(plan=PLAN, **more):
    return Certificate.of(Run(plan, np.array([0.0, 0.5]), int(plan.iterations)), 1e-6, **more)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "budget.db")
    ledger.init("patients", epsilon=3.0, delta=1e-5)
    return ledger


def spend(ledger, *release, dataset="patients", **options):
    return lambda: ledger.spend(dataset, *release, **options)


def test_more_than_is_left(ledger):
    obey(spend(ledger, epsilon=4.0), "Nothing was released. Ask for less", spend(ledger, epsilon=1))
    ledger.init("patients again", epsilon=9.0, delta=1e-5)  # agreed with whoever keeps it
    obey(
        spend(ledger, epsilon=4.0),
        ", or agree on a larger budget",
        spend(ledger, epsilon=4.0, dataset="patients again"),
    )


def test_what_is_held_back(ledger):
    held = ledger.reserve("patients", epsilon=2.5, delta=1e-6)
    obey(
        spend(ledger, epsilon=1.0),
        "back: wait, settle or refund them",
        lambda: (ledger.refund("patients", held.entry), ledger.spend("patients", epsilon=1.0)),
    )


def test_what_is_no_release(ledger):
    obey(spend(ledger, 3.5), "Give a certificate, a plan, a ", spend(ledger, certificate()))
    for release in (
        PLAN,
        dp_accounting.GaussianDpEvent(80.0),
        [(8.0, 0.01, 5)],
        GaussianQuery(100.0),
        LaplaceQuery(100.0),
    ):
        spend(ledger, release)()
    obey(spend(ledger), "give either a release or its epsilon", spend(ledger, epsilon=0.01))
    event = dp_accounting.NonPrivateDpEvent()
    obey(spend(ledger, event), "an epsilon and a delta for it by hand", spend(ledger, epsilon=0.01))
    loud = PLAN.replace(iterations=math.inf)
    for better in (loud.replace(iterations=3), PLAN.replace(noise_multiplier=500.0)):
        obey(spend(ledger, loud), "Add noise, or limit the ", spend(ledger, better))


def test_relations(tmp_path, ledger):
    other = Ledger(tmp_path / "other.db")
    other.init("patients", epsilon=30.0, delta=1e-4, relation="add_or_remove_one")
    count = Counting(PrivateCount(0.02, 1e-8), 1.0)
    counted = certificate(ADDED, counting=count)
    obey(
        spend(ledger, counted),
        "this release counted its records privately, under ",
        spend(ledger, certificate(PLAN)),
    )
    spend(other, counted)()  # or a budget of that relation
    cyclic = PLAN.replace(batches=dp.Cyclic(100), noise_multiplier=50.0)
    obey(
        spend(other, cyclic),
        "Train with neighboring_relation=",
        spend(other, ADDED.replace(batches=dp.Poisson(100))),
    )
    bought = Bought(scaling=Spread(0.05, "add_or_remove_one"), columns=1)
    sold = certificate(ADDED, bought=bought)
    own = certificate(PLAN, bought=Bought(scaling=Spread(0.05, "replace_one"), columns=1))
    ledger.init("staff", epsilon=3.0, delta=1e-5)
    obey(
        spend(ledger, sold, dataset="staff"),
        "this release states no epsilon under ",
        spend(ledger, own, dataset="staff"),
    )


def test_units(ledger):
    ledger.init("people", epsilon=3.0, delta=1e-5, unit="person")
    person = certificate(PLAN.replace(unit="person"))
    obey(
        spend(ledger, certificate(), dataset="people"),
        "Say who the rows belong to: fit(groups=...), --person COLUMN",
        spend(ledger, person, dataset="people"),
    )
    obey(
        spend(ledger, person),
        "Keep a budget with unit='person' for it",
        spend(ledger, PLAN.replace(unit="person"), dataset="people"),
    )


def test_places(tmp_path, ledger, dplateau):
    place = tmp_path / "new.db"
    budget = ["--dataset", "patients", "--epsilon", 1, "--delta", 1e-6]

    def init(path=place):
        assert dplateau("ledger", "init", path, *budget)[0] == 0
        return Ledger(path).accounts()

    obey(
        lambda: ledger.account("staff"),
        " keeps no budget for ",
        lambda: dplateau("ledger", "init", ledger.name, "--dataset", "staff", *budget[2:]),
    )
    assert ledger.account("staff").epsilon == 1
    obey(lambda: Ledger(place).accounts(), "there is no ledger at ", init)
    bare = tmp_path / "bare.db"
    sqlite3.connect(bare).close()
    obey(lambda: Ledger(bare).accounts(), " holds no ledger. Make one", lambda: init(bare))
    obey(lambda: Ledger(tmp_path), "Name a file for the ledger", lambda: Ledger(tmp_path / "a.db"))
    obey(
        lambda: Ledger(tmp_path / "gone" / "budget.db").init("a", epsilon=1, delta=1e-6),
        "Check the address and its rights",
        lambda: Ledger(tmp_path / "there.db").init("a", epsilon=1, delta=1e-6),
    )
    obey(
        lambda: ledger.init("patients", epsilon=9, delta=1e-5),
        "See it with `dplateau ledger show`",
        lambda: dplateau("ledger", "show", ledger.name)[1].index("patients"),
    )


def test_rights(ledger, monkeypatch):
    done = Connection.exec_driver_sql

    def read_only(connection, statement, *rest):
        if statement.startswith("BEGIN"):
            raise OperationalError(statement, {}, sqlite3.OperationalError("readonly database"))
        return done(connection, statement, *rest)

    def refused():  # the database says no, for a superuser may write whatever the rights say
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "exec_driver_sql", read_only)
            ledger.spend("patients", epsilon=0.1)

    obey(refused, "cannot be written. Check the rights of the file ", spend(ledger, epsilon=0.1))


def test_locks(ledger, monkeypatch):
    monkeypatch.setattr(store, "_WAIT", 0.1)
    waiting = Ledger(ledger.name)
    other = sqlite3.connect(ledger.name, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    def later():
        other.execute("ROLLBACK")
        return waiting.spend("patients", epsilon=0.1)

    obey(spend(waiting, epsilon=0.1), "Nothing was changed; try again", later)
    other.close()


def test_runs_that_died(ledger, tmp_path, monkeypatch, dplateau):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    dead = ledger.reserve("patients", epsilon=1.0, delta=1e-6)
    dead.confirm(PLAN)
    file = ResumeFile(Checkpoint(tmp_path / "run"), PLAN, f"{PLAN.fingerprint()} Logistic()")
    file.resume((2,))
    file.save(3, np.zeros(2))
    file.close()
    obey(
        lambda: ledger.refund("patients", dead.entry),
        "proves otherwise: pass --checkpoint FILE",
        lambda: ledger.refund("patients", dead.entry, checkpoint=tmp_path / "run"),
    )

    def again():
        with ledger.reserve("patients", epsilon=1.0, delta=1e-6) as reservation:
            reservation.confirm(PLAN)
            reservation.settle(certificate())

    obey(lambda: dead.settle(certificate()), "Nothing is released. Start the training again", again)
    file = ResumeFile(Checkpoint(tmp_path / "other"), PLAN, f"{PLAN.fingerprint()} Logistic()")
    file.resume((2,))
    file.save(3, np.zeros(2))
    file.close()
    obey(
        lambda: ledger.refund_dead("patients", tmp_path / "other"),
        " belongs to no open entry of ",
        lambda: dplateau("ledger", "show", ledger.name)[1].index("released"),
    )


@pytest.mark.parametrize(
    ("event", "words", "fields"),
    [
        ({"event": "settle"}, "this one was tampered with. See `dplateau ledger verify`", {}),
        ({"event": "init"}, " is opened twice: this ledger was tampered with", {}),
        ({"event": "spend", "charge": None}, "it was tampered with. See `dplateau ledger ", {}),
    ],
)
def test_tampering(ledger, dplateau, event, words, fields):
    body = {"dataset": "patients", "entry": 1, "status": "released", "requested": [0.0, 0.0]}
    body |= {"mechanism": {"kind": "stated", "epsilon": 0.0, "delta": 0.0}, "epsilon": 1.0}
    body |= {"charge": ["stated", 0.0, 0.0], "delta": 1e-5, "unit": "record"}
    body |= {"relation": "replace_one", "plans": "adaptive"}
    ledger._store.append(lambda links: {**body, **event, **fields})
    code = obey(
        lambda: ledger.account("patients"), words, lambda: dplateau("ledger", "verify", ledger.name)
    )[0]
    assert code == 1


def test_edits(ledger, dplateau):
    with sqlite3.connect(ledger.name) as database:
        database.execute("UPDATE dplateau_ledger SET body = replace(body, '3.0', '9.0')")
    verified = obey(
        spend(ledger, epsilon=0.1),
        "in it. See `dplateau ledger verify`",
        lambda: dplateau("ledger", "verify", ledger.name),
    )
    assert verified[0] == 1


@pytest.mark.advice("give exactly one of {}; found {}.")
def test_options(dplateau, ledger):
    place = ["ledger", "spend", ledger.name, "--dataset", "patients"]
    for options in ([], ["--epsilon", 0.1, "--gaussian", 9]):
        code, _, err = dplateau(*place, *options)
        assert code == 2
        assert "give exactly one of --certificate, --epsilon" in err
    assert dplateau(*place, "--epsilon", 0.1)[0] == 0
