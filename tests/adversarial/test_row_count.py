"""Where the number of rows is private, nothing that is raised or warned tells it."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import scipy.sparse

import dplateau as dp

ROWS, OTHER = 7919, 7907  # primes: neither is said by chance
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 3)) / 3
BUDGET = {"epsilon": 1.0, "delta": 1e-6, "neighboring_relation": "add_or_remove_one"}
MODELS = {
    "logistic": lambda **k: dp.PrivateLogisticRegression(
        classes=[0, 1], data_norm=1.0, **BUDGET, **k
    ),
    "svc": lambda **k: dp.PrivateLinearSVC(classes=[0, 1], data_norm=1.0, **BUDGET, **k),
    "linear": lambda **k: dp.PrivateLinearRegression(
        target_bounds=(0, 1), data_norm=1.0, **BUDGET, **k
    ),
    "quantile": lambda **k: dp.PrivateQuantileRegressor(
        target_bounds=(0, 1), data_norm=1.0, **BUDGET, **k
    ),
}


def labels(rows):
    return np.arange(rows) % 2


def hostile(kind):
    """Calls of ``fit`` that something is wrong with, by name."""
    short = labels(OTHER)
    yield "fewer targets", (X, short), {}
    yield "a column of targets", (X, labels(ROWS)[:, None]), {}
    yield "two columns of targets", (X, np.stack([labels(ROWS)] * 2, axis=1)), {}
    yield "targets of one number", (X, 1.0), {}
    yield "flat features", (X[:, 0], labels(ROWS)), {}
    yield "a cube", (X[:, :, None], labels(ROWS)), {}
    yield "text", (X.astype(str).astype(object) + "x", labels(ROWS)), {}
    yield "complex", (X + 1j, labels(ROWS)), {}
    yield "no features", (X[:, :0], labels(ROWS)), {}
    yield "sparse", (scipy.sparse.csr_array(X), short), {}
    yield "sparse columns", (scipy.sparse.csc_matrix(X), short), {}
    yield "weights", (X, labels(ROWS)), {"sample_weight": np.ones(OTHER)}
    yield "many weights", (X, labels(ROWS)), {"sample_weight": np.ones((ROWS, 2))}
    yield "large weights", (X, labels(ROWS)), {"sample_weight": np.full(ROWS, 9.0)}
    yield "groups", (X, labels(ROWS)), {"groups": np.arange(OTHER)}
    yield "groups of lists", (X, labels(ROWS)), {"groups": np.zeros((ROWS, 2))}
    yield "strange labels", (X, np.arange(ROWS)), {}
    yield "lists", ([*X.tolist()[:-1], [1.0]], labels(ROWS)), {}


def told(call):
    """Everything that a call says: its error and its warnings."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            call()
            said = ""
        except Exception as trouble:
            said = f"{type(trouble).__name__}: {trouble}"
            while trouble.__cause__ is not None or (
                trouble.__context__ is not None and not trouble.__suppress_context__
            ):
                trouble = trouble.__cause__ or trouble.__context__
                said += f" <- {trouble}"
    return said + " ".join(str(one.message) for one in heard)


def silent(said):
    numbers = {int(n) for n in re.findall(r"\d+", said.replace(",", ""))}
    near = {n for n in numbers if abs(n - ROWS) < 3 or abs(n - OTHER) < 3 or n == ROWS - OTHER}
    assert not near, said


@pytest.mark.parametrize(
    "name", ["logistic", *(pytest.param(n, marks=pytest.mark.slow) for n in list(MODELS)[1:])]
)
@pytest.mark.parametrize("stated", [{}, {"records": 8000}], ids=["counted", "stated"])
def test_no_refusal_of_a_fit_tells_the_number_of_rows(name, stated):
    for what, arguments, options in hostile(name):
        model = MODELS[name](steps=3, **stated)
        said = told(lambda model=model, a=arguments, o=options: model.fit(*a, **o))
        try:
            silent(said)
        except AssertionError as trouble:
            raise AssertionError(f"{what}: {trouble}") from None


@pytest.mark.parametrize("records", [100, 7918])
def test_more_rows_than_stated_are_refused_without_saying_how_many(records):
    model = MODELS["logistic"](steps=3, records=records)
    said = told(lambda: model.fit(X, labels(ROWS)))
    assert said
    assert str(ROWS) not in said.replace(",", "")
    plan = dp.Plan(records=records, batches=dp.FullBatch(), iterations=3, step_size=0.5,
                   noise_multiplier=20.0, loss=dp.Logistic(), data_norm=1.0,
                   neighboring_relation="add_or_remove_one")  # fmt: skip
    said = told(lambda: dp.run(plan, dp.Logistic(), X, labels(ROWS)))
    assert said
    assert str(ROWS) not in said.replace(",", "")


def test_no_refusal_of_a_search_or_a_score_tells_it():
    search = dp.PrivateSearch(
        dp.PrivateLogisticRegression(
            classes=[0, 1], data_norm=1.0, steps=3, neighboring_relation="add_or_remove_one"
        ),
        {"radius": [1.0, 2.0]}, epsilon=1.0, delta=1e-6,
    )  # fmt: skip
    silent(told(lambda: search.fit(X, labels(OTHER))))
    model = MODELS["logistic"](steps=3, records=8000).fit(X, labels(ROWS))
    silent(told(lambda: model.score_private(X, labels(OTHER), epsilon=1.0)))
    silent(told(lambda: model.score_private(X[:, :2], labels(ROWS), epsilon=1.0)))
    silent(told(lambda: model.score_private(X, labels(ROWS)[:, None], epsilon=1.0)))
    bounded = dp.PrivateLogisticRegression(
        classes=[0, 1], feature_bounds=[(-1, 1)] * 2, steps=3, **BUDGET
    )
    silent(told(lambda: bounded.fit(X, labels(ROWS))))
    sure = MODELS["logistic"](steps=30, records=8000, intervals=True)
    silent(told(lambda: sure.fit(X, labels(OTHER))))


def test_no_refusal_of_a_run_tells_it(tmp_path):
    plan = dp.Plan(records=8000, batches=dp.Poisson(100), iterations=3, step_size=0.5,
                   noise_multiplier=20.0, loss=dp.Logistic(), data_norm=1.0,
                   neighboring_relation="add_or_remove_one")  # fmt: skip
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    person = plan.replace(unit="person")
    for call in (
        lambda: dp.run(plan, dp.Logistic(), X, labels(OTHER)),
        lambda: dp.run(plan, dp.Logistic(), mapped, labels(OTHER)),
        lambda: dp.run(plan, dp.Logistic(), scipy.sparse.csr_array(X), labels(OTHER)),
        lambda: dp.run(plan, dp.Logistic(), X, labels(ROWS), sample_weight=np.ones(OTHER)),
        lambda: dp.run(person, dp.Logistic(), X, labels(ROWS), groups=np.arange(OTHER)),
        lambda: dp.run(plan, dp.Logistic(), X[:, 0], labels(ROWS)),
        lambda: dp.run(plan, dp.Logistic(), X, labels(ROWS)[:, None]),
        lambda: dp.run(plan, dp.Logistic(), X, np.arange(ROWS)),
    ):
        said = told(call)
        assert said
        silent(said)
