"""``dplateau account`` and ``calibrate`` as a shell sees them."""

from __future__ import annotations

import json
import math
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import dplateau as dp
from dplateau.cli import app
from dplateau.cli.compare import _EXAMPLES
from dplateau.report.comparison import example_settings

OPTIONS = {
    "--records": "2000",
    "--batches": "poisson",
    "--batch-size": "100",
    "--iterations": "5000",
    "--step-size": "2",
    "--noise-multiplier": "30",
    "--lipschitz": "1",
    "--smoothness": "0.25",
    "--diameter": "4",
    "--delta": "1e-6",
}


class Ran(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def told(dplateau):
    """Call a command with the options above, some of them changed or left out."""

    def call(command: str, *flags: str, **changes: str | None) -> Ran:
        options = {**OPTIONS, **{f"--{k.replace('_', '-')}": v for k, v in changes.items()}}
        words = [word for pair in options.items() if pair[1] is not None for word in pair]
        return Ran(*dplateau(command, *words, *flags))

    return call


def test_account_prints_one_json_object(told) -> None:
    ran = told("account", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    plan = dp.Plan(
        records=2000,
        batches=dp.Poisson(100),
        iterations=5000,
        step_size=2.0,
        noise_multiplier=30.0,
        lipschitz=1.0,
        smoothness=0.25,
        domain=dp.L2Ball(2.0),
    )
    assert found["epsilon"] == pytest.approx(dp.account(plan).epsilon(1e-6), rel=1e-9)
    assert found["bound"] in found["bounds"]
    assert found["epsilon"] == pytest.approx(min(found["bounds"].values()), rel=1e-6)
    assert found["lower_bound"] <= found["epsilon"]
    assert set(found) >= {
        "epsilon", "delta", "bound", "last_steps", "bounds", "published", "lower_bound",
        "relation", "hypotheses",
    }  # fmt: skip


def test_account_speaks_to_people(told) -> None:
    ran = told("account", iterations="inf")
    assert ran.returncode == 0, ran.stderr
    assert "(reported)" in ran.stdout
    assert "any number of training" in " ".join(ran.stdout.split())


def test_calibrate_meets_its_target(told) -> None:
    endless = {"iterations": "inf", "batches": "full", "batch_size": None}
    ran = told("calibrate", "--json", noise_multiplier=None, epsilon="1.0", **endless)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["epsilon"] <= 1.0
    assert found["epsilon"] > 0.99
    again = told("account", "--json", noise_multiplier=repr(found["noise_multiplier"]), **endless)
    assert json.loads(again.stdout)["epsilon"] == pytest.approx(found["epsilon"], rel=1e-9)


def test_calibrate_solves_for_iterations(told) -> None:
    full = {"batches": "full", "batch_size": None, "diameter": None}
    ran = told("calibrate", "--json", "--solve-for", "iterations", epsilon="8.0", **full)
    found = json.loads(ran.stdout)
    assert found["epsilon"] <= 8.0
    assert 1 < found["iterations"] < math.inf


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step_size": "9"}, "contraction limit"),
        ({"step_size": "9"}, "or --no-hidden-state to claim"),
        ({"smoothness": None}, "or pass --no-hidden-state"),
        ({"iterations": "0"}, "inf"),
        ({"batches": "shuffled"}, "--batches"),
        ({"batch_size": None}, "--batch-size"),
        ({"iterations": "many"}, "--iterations"),
        ({"delta": "2"}, "delta"),
        ({"records": "50"}, "larger than the data"),
        ({"noise_multiplier": "-3"}, "schedule value"),
        ({"batches": "cyclic", "relation": "add_or_remove_one"}, "do not go with"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_two(told, changes, words) -> None:
    ran = told("account", "--json", **changes)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert words in ran.stderr
    assert "hidden_state=" not in ran.stderr
    assert "math.inf" not in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_a_radius_needs_a_diameter_to_start_from(told) -> None:
    ran = told("calibrate", "--solve-for", "radius", epsilon="1", diameter=None)
    assert ran.returncode == 2
    assert "--diameter" in ran.stderr


def test_the_version_and_the_examples_are_told() -> None:
    runner = CliRunner()
    told = runner.invoke(app, ["--version"])
    assert (told.exit_code, told.output) == (0, f"dplateau {dp.__version__}\n")
    shown = " ".join(runner.invoke(app, ["compare", "--help"]).output.replace("│", " ").split())
    assert f"instead of options: {', '.join(_EXAMPLES)}." in shown
    assert set(_EXAMPLES) == set(example_settings())
