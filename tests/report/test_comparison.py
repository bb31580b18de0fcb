"""The numbers behind the pictures."""

import json
import math

import pytest
from typer.testing import CliRunner

import dplateau as dp
from dplateau.report import comparison
from dplateau.report.comparison import ACCOUNTANTS, BOK, COMPOSITION, LOWER, OURS, PAPER, compare

PLAN = dp.Plan(
    records=1000,
    batches=dp.FullBatch(),
    iterations=math.inf,
    step_size=1.0,
    noise_multiplier=60.0,
    lipschitz=1.0,
    smoothness=1.0,
    domain=dp.L2Ball(0.25),
)


@pytest.fixture(scope="module")
def found():
    return compare(PLAN, 1e-6, values=[1, 10, 100, 10_000], strongest=False)


def test_the_order_that_must_hold(found):
    for i in range(len(found.values)):
        at = {name: curve[i] for name, curve in found.epsilons.items()}
        assert at[LOWER] <= at[OURS] * (1 + 1e-9)
        assert at[OURS] <= at[COMPOSITION] * (1 + 1e-6)
        assert at[OURS] <= at[PAPER]
        assert at[OURS] <= at[BOK] * (1 + 1e-6)


def test_burn_in_is_where_growth_ends(found):
    steps = int(comparison.burn_in(PLAN, 1e-6))
    forever = dp.account(PLAN).epsilon(1e-6)
    assert found.burn_in == steps
    assert dp.account(PLAN.replace(iterations=steps)).epsilon(1e-6) >= 0.999 * forever
    assert dp.account(PLAN.replace(iterations=steps // 2)).epsilon(1e-6) < 0.99 * forever
    assert comparison.burn_in(PLAN.replace(domain=dp.Everywhere()), 1e-6) is None
    assert comparison.burn_in(PLAN.replace(hidden_state=False), 1e-6) is None


def test_survives_a_round_trip(found):
    again = comparison.Comparison.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.plan == found.plan
    assert again.epsilons == found.epsilons
    assert again.values == found.values


@pytest.mark.parametrize(("along", "values"), [("diameter", [0.1, 0.5]), ("step_size", [0.5, 1.0])])
def test_other_axes(along, values):
    curves = compare(
        PLAN, 1e-6, along=along, values=values, accountants=[OURS, LOWER], strongest=False
    ).epsilons
    assert all(low <= up for low, up in zip(curves[LOWER], curves[OURS], strict=True))
    assert curves[OURS][0] != curves[OURS][1]


def test_a_value_that_no_theorem_covers_is_left_out():
    curve = compare(PLAN, 1e-6, along="step_size", values=[1.0, 100.0], accountants=[OURS])
    assert math.isnan(curve.epsilons[OURS][1])
    assert curve.to_dict()["epsilons"][OURS][1] is None


def test_default_ranges():
    trained = PLAN.replace(batches=dp.FixedSize(100), iterations=500)
    for along in comparison.AXES:
        curve = compare(trained, 1e-6, along=along, points=3, accountants=[COMPOSITION])
        assert len(curve.values) >= 3
        assert list(curve.values) == sorted(curve.values)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"along": "colour"}, "along"),
        ({"accountants": ["gut"]}, "accountants"),
        ({"along": "batch_size"}, "full batches"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(dp.PlanError, match=words):
        compare(PLAN, 1e-6, **options)


def test_no_domain_has_no_diameter_to_vary():
    with pytest.raises(dp.PlanError, match="no domain"):
        compare(PLAN.replace(domain=dp.Everywhere()), 1e-6, along="diameter")


def test_examples_are_covered_by_the_theorems():
    for plan in comparison.example_settings().values():
        assert plan.hidden_state
        assert plan.iterations == math.inf


# -- the command ----------------------------------------------------------------------------------

OPTIONS = ["compare", "--records", "1000", "--batches", "full", "--step-size", "1"]
OPTIONS += ["--noise-multiplier", "60", "--lipschitz", "1", "--smoothness", "1"]
OPTIONS += ["--diameter", "0.5", "--values", "1,100", "--delta", "1e-6"]


@pytest.fixture(scope="module")
def run():
    import dplateau.cli.compare  # noqa: F401 (registers the command)
    from dplateau.cli import app

    return lambda *options: CliRunner().invoke(app, list(options))


def test_json_is_one_object(run, tmp_path):
    picture = tmp_path / "picture.svg"
    result = run(*OPTIONS, "--json", "--out", str(picture))
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert set(shown["epsilons"]) == set(ACCOUNTANTS)
    assert shown["values"] == [1, 100]
    assert picture.read_text().startswith("<svg")


def test_table_for_people(run):
    result = run(*OPTIONS)
    assert result.exit_code == 0, result.output
    assert "dplateau" in result.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["compare", "--records", "5"], "--batches"),
        (["compare", "--example", "none"], "--example"),
        (["compare", "--example", "convex", "--records", "5"], "leave out --records"),
        ([*OPTIONS[:-4], "--values", "1,x"], "--values"),
    ],
)
def test_bad_options_are_refused(run, options, words):
    result = run(*options)
    assert isinstance(result.exception, dp.PlanError)
    assert words in str(result.exception)
