"""`make bench-quick` at tiny size, without peers: absent is a valid report, and nothing rots."""

from __future__ import annotations

import json
import math
import shutil

import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution

from benchmarks import (
    accountants,
    datasets,
    driver,
    environments,
    page,
    readings,
    store,
    utility_peers,
)
from benchmarks import output_perturbation as output


@pytest.fixture(autouse=True)
def _no_peers(monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path / "venvs")
    monkeypatch.setattr(environments, "INSTALL", False)
    monkeypatch.setattr(datasets, "CACHE", tmp_path / "data")


@pytest.mark.slow
def test_every_benchmark_runs_and_makes_a_page(tmp_path):
    results = driver.run(list(driver.MODULES), "tiny", tmp_path / "results")
    assert set(results) == set(driver.MODULES)
    for records in results.values():
        for record in records:
            assert record["status"] in ("ok", "absent"), record
            assert {"command", "versions", "machine", "parameters", "numbers"} <= record.keys()
    written = page.write(results, "tiny", tmp_path)
    text = written.read_text()
    for title in ("Where we lose", "Absent", "Accountants", "Training speed", "Utility"):
        assert title in text
    for line in text.splitlines():
        if line.startswith("!["):
            assert (tmp_path / line.split("(")[1].rstrip(")")).exists()


def test_a_stored_measurement_is_not_made_again(tmp_path):
    made = []

    def measure():
        made.append(1)
        return {"value": math.inf}

    task = store.Task("toy", "a thing", {"x": 1}, measure)
    first = store.keep(task, "tiny", tmp_path)
    again = store.keep(task, "tiny", tmp_path)
    assert made == [1]
    assert again == first
    assert first["numbers"] == {"value": "inf"}  # JSON has no infinity
    assert first["source"]  # which state of our code the figure is of
    store.gather([task], "tiny", tmp_path)
    assert store.stored("tiny", tmp_path) == {"toy": [first]}


def test_what_is_not_measured_says_so_and_an_earlier_grid_is_left_out(tmp_path):
    made = store.Task("toy", "made", {"x": 1}, lambda: {"value": 1.0})
    unmade = store.Task("toy", "unmade", {"x": 2}, lambda: {"value": 2.0})
    earlier = store.Task("toy", "earlier", {"x": 3}, lambda: {"value": 3.0})
    for task in (made, earlier):
        store.keep(task, "tiny", tmp_path)
    found = store.gather([unmade, made], "tiny", tmp_path)
    assert [(r["name"], r["status"]) for r in found] == [("unmade", store.UNMADE), ("made", "ok")]


def test_some_measurements_are_made_anew_and_the_others_stay(tmp_path):
    """As in a fresh clone: of the files of single measurements there are none."""
    tasks = [store.Task("toy", name, {"x": 1}, lambda: {"value": 1.0}) for name in ("ours", "peer")]
    for task in tasks:
        store.keep(task, "tiny", tmp_path)
    first = store.gather(tasks, "tiny", tmp_path)
    shutil.rmtree(tmp_path / "raw")
    anew = store.Task("toy", "ours", {"x": 1}, lambda: {"value": 2.0})
    store.keep(anew, "tiny", tmp_path)
    found = store.gather([anew, tasks[1]], "tiny", tmp_path)
    assert found[0]["numbers"] == {"value": 2.0}
    assert found[1] == first[1]


def test_a_page_of_a_run_that_was_interrupted_names_what_is_missing(tmp_path):
    found = driver.run(["utility"], "tiny", tmp_path, match="non-private")
    assert [r["status"] for r in found["utility"]].count("ok") == 1
    text = page.write(found, "tiny", tmp_path).read_text()
    assert "## Not measured" in text
    assert "breast_cancer dplateau replace_one 1" in text


def test_noise_of_opacus_under_replace_one_is_what_dp_accounting_asks_for():
    noise = utility_peers.replace_one_noise(60_000, 59, 1180, 1.0)
    pld = privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=1 / 59,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
        value_discretization_interval=1e-3,
    )
    assert pld.self_compose(1180).get_epsilon_for_delta(1e-5) == pytest.approx(1.0, rel=2e-3)


def test_a_failure_is_a_result(tmp_path):
    def measure():
        raise ValueError("no such thing")

    record = store.keep(store.Task("toy", "broken", {}, measure), "tiny", tmp_path)
    assert record["status"] == "error"
    assert "no such thing" in json.dumps(record)


def test_a_hanging_script_is_cut_off(tmp_path):
    script = tmp_path / "hang.py"
    script.write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    answer = environments.run_script(environments.sys.executable, script, "x", 0.3, {})
    assert answer.status == "timeout"


def test_a_peer_that_is_not_installed_is_absent():
    with pytest.raises(environments.Absent):
        environments.ask("opacus", "epsilon")


def test_verdicts_tell_nonsense_from_answers():
    def record(name, result, status="ok"):
        parameters = {
            "library": "prv", "method": "PRV", "question": "epsilon", "steps": 1, "sampling": 0.1
        }  # fmt: skip
        numbers = {"result": result, "reference": 1.0}
        return {"name": name, "status": status, "parameters": parameters, "numbers": numbers}

    answers = {
        "good": 1.01,
        "below the truth": 0.5,
        "loose": 3.0,
        "no bound": "inf",
        "nonsense": "nan",
    }
    records = [record(word, answer) for word, answer in answers.items()]
    records += [record("negative", -0.1), record("late", 1.0, status="timeout")]
    found = readings.verdicts(records)
    assert {word: found[word] for word in answers} == {word: word for word in answers}
    assert found["negative"] == "nonsense"
    assert found["late"] == "hangs"


def test_reference_of_full_batches_is_the_gaussian_mechanism():
    once = accountants.reference_epsilon(1, 1.0, 2.0, 1e-6)
    many = accountants.reference_epsilon(100, 1.0, 20.0, 1e-6)
    assert once == pytest.approx(many)
    assert once == pytest.approx(2.28, rel=0.02)  # mu = 1/2


def test_output_perturbation_noise_is_exact_and_its_model_learns():
    assert output.gaussian_noise(1.0, 1e-5) == pytest.approx(3.73, rel=0.01)  # Balle and Wang
    problem = datasets.load("breast_cancer")
    weights = output.fit(problem, 30.0, 1e-5, [0, 1], relation="replace_one")
    assert output.score(problem, weights[0]) > 0.9
    assert (weights[0] != weights[1]).any()


def test_every_row_of_every_data_set_is_bounded():
    for name in ("digits", "breast_cancer", "diabetes", "california_like"):
        problem = datasets.load(name)
        assert float((problem.X_train**2).sum(axis=1).max()) <= 1.0
        if problem.regression:
            assert abs(problem.y_train).max() <= 1.0


@pytest.mark.parametrize("drawn", ["not saved", pytest.param("saved", marks=pytest.mark.slow)])
def test_the_committed_page_is_made_from_the_committed_results(tmp_path, monkeypatch, drawn):
    """Pictures are drawn, but not saved where only the page is looked at: that takes seconds."""
    if drawn == "not saved":
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)
        monkeypatch.setattr("matplotlib.figure.Figure.tight_layout", lambda *_, **__: None)
    written = page.write(store.stored("full"), "full", tmp_path)
    committed = environments.ROOT / "docs" / "benchmarks.md"
    assert written.read_text() == committed.read_text(), "run `python -m benchmarks --no-measure`"


def test_losses_of_both_our_rows_are_listed():
    def scored(contender, score):
        facts = {"data": "made up", "relation": "add_or_remove_one", "epsilon": 1.0}
        numbers = {"measures": [score, score + 0.02]}
        return {
            "status": "ok", "parameters": {**facts, "contender": contender}, "numbers": numbers
        }  # fmt: skip

    records = [
        scored("dplateau", 0.92),
        scored("dplateau, row count public", 0.8),
        scored("Opacus, tuned", 0.9),
    ]
    (line,) = readings.utility_losses(records)
    assert "row count public" in line
