"""Many processes at once, and processes that die: SQLite and a real PostgreSQL server."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import subprocess
from pathlib import Path

import pytest

import dplateau as dp
from dplateau.ledger import Ledger
from oracles import spender


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a PostgreSQL server of our own, run by an account that is not root."""
    pytest.importorskip("psycopg")
    program = _program("initdb")
    if program is None:
        pytest.skip("no PostgreSQL server is installed (the distribution's package: postgresql)")
    place = Path("/tmp") / f"dplateau-pg-{os.getpid()}"
    place.mkdir(mode=0o700)
    user = None
    if os.geteuid() == 0:
        user = next((n for n in ("postgres", "nobody") if _exists(n)), None)
        if user is None:
            pytest.skip("PostgreSQL does not run as root, and there is no other account here")
        shutil.chown(place, user)

    def run(*command):
        return subprocess.run(
            [str(word) for word in command], user=user, cwd=place, check=True, capture_output=True
        )

    data = place / "data"
    control = _program("pg_ctl")
    try:
        run(program, "-D", data, "-U", "keeper", "--auth", "trust", "-E", "UTF8")
        options = f"-k {place} -c listen_addresses='' -c fsync=on -c max_connections=100"
        run(control, "-D", data, "-w", "-o", options, "-l", place / "log", "start")
    except subprocess.CalledProcessError as trouble:
        shutil.rmtree(place)
        pytest.skip(f"PostgreSQL does not start here: {trouble.stderr[-200:]!r}")
    yield f"postgresql://keeper@/postgres?host={place}"
    run(control, "-D", data, "-m", "immediate", "stop")
    shutil.rmtree(place)


def _program(name):
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = [str(place / name) for place in places if (place / name).exists()]
    return found[0] if found else shutil.which(name)


def _exists(name):
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def emptied(address):
    """A ledger with the budget of these tests, whatever was there before."""
    ledger = Ledger(address)
    with ledger._store._writing() as connection:
        for table in ("dplateau_ledger", "dplateau_head"):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
    ledger.init("patients", epsilon=1.0, delta=1e-5)
    return ledger


def test_a_ledger_in_postgresql(server):
    ledger = emptied(server)
    ledger.spend("patients", epsilon=0.5)
    with ledger.reserve("patients", epsilon=0.5, delta=1e-6):
        assert ledger.remaining("patients").epsilon == 0.0
    assert ledger.remaining("patients").epsilon == 0.5
    assert all(check.passed for check in ledger.verify())
    assert "keeper" in ledger.name
    with ledger._store._writing() as connection:
        connection.exec_driver_sql("DELETE FROM dplateau_ledger WHERE sequence = 2")
    assert not all(check.passed for check in ledger.verify())


def run_at_once(address, tmp_path, processes, count):
    ledger = emptied(address)
    log = tmp_path / "releases"
    log.touch()
    for process in spender.spenders(address, log, processes, count):
        process.join()
        assert process.exitcode == 0
    account = spender.check(ledger, log)
    assert len(account.entries) == len(log.read_text().splitlines())
    while account.remaining().epsilon > 0.011:  # which amount came last is a matter of luck
        ledger.spend("patients", epsilon=0.01)
        account = ledger.account("patients")
    with pytest.raises(dp.PlanError):
        ledger.spend("patients", epsilon=0.02)


def run_killed(address, tmp_path, moments, at_once, longest):
    ledger = emptied(address)
    log = tmp_path / "releases"
    log.touch()
    rng = random.Random(1)
    for start in range(0, moments, at_once):
        group = spender.spenders(address, log, at_once, 200, first_seed=1000 * start)
        for k, process in enumerate(group):
            begun = spender.ready(log, 1000 * start + k)
            spender.kill_at_random(process, begun, rng, longest)
        spender.check(ledger, log)
    assert log.read_text()  # they lived long enough to spend


def test_a_few_processes_at_once(tmp_path):
    run_at_once(str(tmp_path / "budget.db"), tmp_path, 4, 12)


def test_a_few_processes_killed(tmp_path):
    run_killed(str(tmp_path / "budget.db"), tmp_path, 4, 2, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_fifty_processes_at_once(kind, tmp_path, request):
    at = str(tmp_path / "b.db") if kind == "sqlite" else request.getfixturevalue("server")
    run_at_once(at, tmp_path, 50, 4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_at_two_hundred_random_moments(kind, tmp_path, request):
    at = str(tmp_path / "b.db") if kind == "sqlite" else request.getfixturevalue("server")
    run_killed(at, tmp_path, 200, 4, 0.6)
