"""What the accountant costs, as ratios within one run (issue: plan, accountant, command line).

    python -m benchmarks.accounting

Prints one line per measurement: the goal and what was found. `measurements` is what the driver
stores.
"""

from __future__ import annotations

import functools
import gc
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution

import dplateau as dp


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """The least CPU time of several runs, whatever was remembered forgotten before each."""
    times = []
    for _ in range(repeats):
        for each in gc.get_objects():
            if type(each) is functools._lru_cache_wrapper and "dplateau.acc" in each.__module__:
                each.cache_clear()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def poisson_plan(iterations: float, domain: dp.L2Ball | dp.Everywhere) -> dp.Plan:
    return dp.Plan(
        records=60_000,
        batches=dp.Poisson(600),
        iterations=iterations,
        step_size=4.0,
        noise_multiplier=2.0,
        lipschitz=1.0,
        smoothness=0.25,
        domain=domain,
        neighboring_relation="add_or_remove_one",
    )


def measurements(size: str = "full") -> Iterator[dict[str, Any]]:
    """Every measurement as a dictionary: name, goal, found, and the raw numbers."""
    repeats = {"tiny": 1, "quick": 3, "full": 7}[size]
    steps = 10_000 if size == "tiny" else 1_000_000
    yield from _long_runs(repeats)
    yield _explicit_schedule(steps, repeats)
    yield _renyi(repeats)
    yield from _against_dp_accounting(repeats)
    yield from _calibrations(size)
    yield _import_time(repeats)


def _long_runs(repeats: int) -> Iterator[dict[str, Any]]:
    """Every answer at 10^9 steps against the same one at 10^4, by family of plans."""
    replaced = {"neighboring_relation": "replace_one"}
    kinds: dict[str, dict[str, Any]] = {
        "Poisson": {},
        "Poisson, replace one": replaced,
        "Poisson, hard hits": {"noise_multiplier": 0.7},
        "Poisson, hard hits, replace one": {"noise_multiplier": 0.7, **replaced},
        "Poisson, soft hits": {"noise_multiplier": 8.0},
        "Poisson, penalty": {"regularization": 0.002},
        "Poisson, capped": {"records": 6_000, "batches": dp.Poisson(60), "step_size": 5.5},
        "fixed size": {"batches": dp.FixedSize(600), **replaced},
        "fixed size, hard hits": {
            "batches": dp.FixedSize(600),
            "noise_multiplier": 1.0,
            **replaced,
        },
        "cyclic": {"batches": dp.Cyclic(600), **replaced},
        "full": {"batches": dp.FullBatch(), "noise_multiplier": 200.0},
        "allocation": {"batches": dp.RandomAllocation(600)},
    }
    domains = {"everywhere": dp.Everywhere(), **{f"ball {r:g}": dp.L2Ball(r) for r in (0.3, 1, 5)}}
    for name, domain in domains.items():
        seconds = {}
        for kind, changes in kinds.items():
            plans = [poisson_plan(t, domain).replace(**changes) for t in (10**4, 10**9)]
            seconds[kind] = _in_turns(repeats, plans)
        yield {
            "name": f"account at T = 1e9 against T = 1e4, domain {name}, the worst",
            "goal": "ratio at most 1.2",
            "found": max(long / short for short, long in seconds.values()),
            "seconds": seconds,
        }


def _in_turns(repeats: int, plans: Sequence[dp.Plan]) -> list[float]:
    """The least CPU time of one answer each, asked by turns: a machine's pace drifts."""
    rounds = [
        [best_of(1, lambda plan=plan: dp.account(plan).epsilon(1e-6)) for plan in plans]
        for _ in range(repeats)
    ]
    return [min(times) for times in zip(*rounds, strict=True)]


def _explicit_schedule(steps: int, repeats: int) -> dict[str, Any]:
    eta = np.linspace(4.0, 1.0, steps)
    found = {}
    for batches in (dp.FullBatch(), dp.Cyclic(600), dp.Poisson(600)):
        plan = poisson_plan(1, dp.L2Ball(1.0)).replace(
            batches=batches, iterations=steps, step_size=eta, neighboring_relation="replace_one"
        )
        found[batches.kind] = best_of(
            min(repeats, 3), lambda plan=plan: dp.account(plan).epsilon(1e-6)
        )
    return {
        "name": f"explicit schedule of {steps} steps",
        "goal": "under 3 seconds",
        "found": max(found.values()),
        "seconds": found,
    }


def _renyi(repeats: int) -> dict[str, Any]:
    guarantee = dp.account(poisson_plan(10_000, dp.Everywhere()))
    orders = np.linspace(1.25, 64, 100)
    guarantee.rdp(orders)
    return {
        "name": "RDP at 100 orders",
        "goal": "under 1 ms",
        "found": best_of(10 * repeats, lambda: guarantee.rdp(orders)),
    }


def _against_dp_accounting(repeats: int) -> Iterator[dict[str, Any]]:
    kinds = {
        "Poisson": {},
        "Poisson, replace one": {"neighboring_relation": "replace_one"},
        "Poisson, no domain": {"domain": dp.Everywhere()},
        "fixed size": {"batches": dp.FixedSize(600), "neighboring_relation": "replace_one"},
        "cyclic": {"batches": dp.Cyclic(600), "neighboring_relation": "replace_one"},
        "full": {"batches": dp.FullBatch(), "noise_multiplier": 200.0},
        "allocation": {"batches": dp.RandomAllocation(600), "domain": dp.Everywhere()},
    }
    for iterations in (1000, 10_000, 100_000):

        def theirs(iterations: int = iterations) -> float:
            step = privacy_loss_distribution.from_gaussian_mechanism(2.0, sampling_prob=0.01)
            return float(step.self_compose(iterations).get_epsilon_for_delta(1e-6))

        peer = best_of(repeats, theirs)
        for kind, changes in kinds.items():
            plan = poisson_plan(iterations, dp.L2Ball(1.0)).replace(**changes)
            ours = best_of(repeats, lambda plan=plan: dp.account(plan).epsilon(1e-6))
            yield {
                "name": f"epsilon(delta) against one dp_accounting PLD, T = {iterations}, {kind}",
                "goal": "ratio at most 3",
                "found": ours / peer,
                "seconds": {"ours": ours, "dp_accounting": peer},
                "epsilon": {"ours": dp.account(plan).epsilon(1e-6), "dp_accounting": theirs()},
            }


def _calibrations(size: str) -> Iterator[dict[str, Any]]:
    """CPU seconds of every search: batch kinds, with and without domain, penalty and hiding."""
    forever = {"iterations": math.inf, "domain": dp.L2Ball(1.0)}
    replaced = {"neighboring_relation": "replace_one"}
    fixed = {"batches": dp.FixedSize(600), **replaced}
    plain = poisson_plan(6000, dp.Everywhere()).replace(step_size=2.0)
    falling = plain.replace(iterations=3000, step_size=np.linspace(4.0, 1.0, 3000))
    allocated = plain.replace(batches=dp.RandomAllocation(600), iterations=2000)
    noise = {
        "Poisson": (plain, 1.0),
        "Poisson, epsilon .1": (plain, 0.1),
        "Poisson, epsilon 8": (plain, 8.0),
        "Poisson, all shown": (plain.replace(hidden_state=False), 1.0),
        "Poisson, schedule": (falling, 1.0),
        "Poisson, penalty, T = inf": (
            plain.replace(regularization=0.002, iterations=math.inf),
            1.0,
        ),
        "Poisson, ball, T = inf": (plain.replace(**forever), 1.0),
        "Poisson, ball, T = inf, epsilon 8": (plain.replace(**forever), 8.0),
        "Poisson, ball, T = inf, replace one": (plain.replace(**forever, **replaced), 1.0),
        "Poisson, ball, penalty, T = inf": (plain.replace(**forever, regularization=0.002), 1.0),
        "fixed size": (plain.replace(**fixed), 1.0),
        "fixed size, ball, T = inf": (plain.replace(**fixed, **forever), 8.0),
        "cyclic, ball, T = inf": (
            plain.replace(batches=dp.Cyclic(600), **forever, **replaced),
            1.0,
        ),
        "full, ball, T = inf": (plain.replace(batches=dp.FullBatch(), **forever), 1.0),
        "allocation": (allocated, 1.0),
        "allocation, hard hits, all shown": (
            allocated.replace(records=2_000_000, hidden_state=False, **replaced),
            8.0,
        ),
    }
    quiet = plain.replace(noise_multiplier=1.5)
    steps = {
        "Poisson": (quiet, 1.0),
        "Poisson, ball": (quiet.replace(domain=dp.L2Ball(1.0)), 2.0),
        "Poisson, ball, replace one": (quiet.replace(domain=dp.L2Ball(0.3), **replaced), 3.0),
        "Poisson, hard hits": (quiet.replace(noise_multiplier=0.7), 6.0),
        "fixed size, ball": (quiet.replace(domain=dp.L2Ball(1.0), **fixed), 3.0),
        "cyclic": (
            quiet.replace(batches=dp.Cyclic(600), noise_multiplier=6.0, **replaced),
            2.0,
        ),
        "allocation": (allocated.replace(noise_multiplier=1.5), 2.0),
    }
    endless = plain.replace(noise_multiplier=3.0, **forever)
    radius = {
        "Poisson, T = inf": (endless, 2.0),
        "Poisson, T = inf, replace one": (endless.replace(**replaced), 3.0),
        "Poisson, T = 1e5": (endless.replace(iterations=10**5), 2.0),
        "Poisson, hard hits": (endless.replace(noise_multiplier=1.0), 6.0),
        "Poisson, penalty": (endless.replace(noise_multiplier=2.0, regularization=5e-4), 1.0),
        "Poisson, schedule": (falling.replace(domain=dp.L2Ball(1.0)), 1.0),
        "fixed size, T = inf": (endless.replace(**fixed), 4.0),
    }
    searches = {"noise_multiplier": noise, "iterations": steps, "radius": radius}
    for solve_for, cases in searches.items():
        seconds = {
            name: best_of(1, functools.partial(dp.calibrate, *case, 1e-6, solve_for=solve_for))
            for name, case in list(cases.items())[: 1 if size == "tiny" else None]
        }
        yield {
            "name": f"calibration of {solve_for}, the slowest",
            "goal": "at most 3 CPU seconds",
            "found": max(seconds.values()),
            "seconds": seconds,
        }


def _import_time(repeats: int) -> dict[str, Any]:
    heavy = "matplotlib", "dask", "torch", "pandas", "sklearn", "numba"
    script = f"import dplateau, sys; print([m for m in {heavy!r} if m in sys.modules])"
    seconds, printed = math.inf, ""
    for _ in range(repeats):
        start = time.perf_counter()
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        seconds, printed = min(seconds, time.perf_counter() - start), ran.stdout.strip()
    return {
        "name": "import dplateau (and the interpreter)",
        "goal": "under 1 second, nothing heavy loaded",
        "found": seconds,
        "heavy modules loaded": printed,
    }


def main() -> None:
    for each in measurements(sys.argv[1] if len(sys.argv) > 1 else "full"):
        rest = {k: v for k, v in each.items() if k not in {"name", "goal", "found"}}
        print(f"{each['name']:70s} {each['found']:10.4g}   ({each['goal']})   {rest or ''}")


if __name__ == "__main__":
    main()
