"""Processes that spend from one ledger at once, and one that is killed in the midst of it."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time

import dplateau as dp
from dplateau.ledger import Ledger


def spend(address, log, seed, count):
    """Spend ``count`` times; a line for every release, written only once the ledger has agreed."""
    rng = random.Random(seed)
    ledger = Ledger(address)
    ledger.remaining("patients")  # all is imported and opened
    ready(log, seed).touch()
    for k in range(count):
        epsilon = rng.choice((0.01, 0.02, 0.05))
        try:
            if rng.random() < 0.5:
                number = ledger.spend("patients", epsilon=epsilon)
            else:
                reservation = ledger.reserve("patients", epsilon=epsilon, delta=1e-9)
                number = reservation.entry
        except dp.PlanError:
            continue
        with open(log, "a", encoding="utf-8") as file:  # one write: appended whole or not at all
            file.write(f"{number} {seed}.{k}\n")


def ready(log, seed):
    """The file that says that a process has come to its work."""
    return log.with_name(f"ready-{seed}")


def spenders(address, log, processes, count, first_seed=0):
    """Start so many processes at once, without copying this one's threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dplateau.ledger", "sqlalchemy"])
    started = [
        context.Process(target=spend, args=(address, log, first_seed + k, count))
        for k in range(processes)
    ]
    for process in started:
        process.start()
    return started


def kill_at_random(process, begun, rng, longest):
    """SIGKILL at a random moment of a process's work."""
    while process.is_alive() and not begun.exists():
        time.sleep(0.01)
    time.sleep(rng.random() * longest)
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()


def check(ledger, log):
    """Nothing over the budget, no entry lost, no release without entry."""
    account = ledger.account("patients")
    total = sum(entry.charge.amount for entry in account.live)
    assert total <= account.epsilon * (1 + 1e-9)
    assert sum(entry.charge.failure for entry in account.live) <= account.delta
    released = [line.split() for line in log.read_text().splitlines()]
    numbers = [int(number) for number, _ in released]
    assert len(set(numbers)) == len(numbers)
    assert set(numbers) <= set(account.entries)
    assert sorted(account.entries) == list(range(1, len(account.entries) + 1))
    checks = ledger.verify(prices=False)
    assert all(one.passed for one in checks), checks
    return account
