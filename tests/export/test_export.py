"""Exports predict the same, carry the digest, and say what the certificate says."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

import dplateau as dp
from dplateau.accounting.looks import Spread
from dplateau.accounting.moments import Moments
from dplateau.accounting.record_count import PrivateCount
from dplateau.accounting.search import Search
from dplateau.accounting.trials import NegativeBinomial
from dplateau.certificate.bought import Bought
from dplateau.certificate.record import Certificate, Counting
from dplateau.export.dp_events import (
    certified_event,
    event_file,
    event_from_dict,
    event_of,
    event_to_dict,
)
from dplateau.export.predictors import MARK, onnx_model, sklearn_model
from dplateau.export.registry import BLANK, registry_entry
from oracles.runs import Run

RNG = np.random.default_rng(1)
X = RNG.normal(size=(200, 3)).clip(-1, 1) / 2
THREE = np.digitize(X[:, 0], [-0.2, 0.2])
FACTS = {"epsilon": 5.0, "delta": 1e-5, "data_norm": 1.0, "steps": 20}
WHITENED = {"epsilon": 20.0, "delta": 1e-5, "steps": 20, "batches": "full"}
MODELS = {
    "two": (dp.PrivateLogisticRegression(classes=[0, 1], **FACTS), (X[:, 0] > 0).astype(int)),
    "three": (dp.PrivateLogisticRegression(classes=[0, 1, 2], **FACTS), THREE),
    "words": (
        dp.PrivateLinearSVC(classes=["no", "yes"], **FACTS),
        np.where(X[:, 0] > 0, "yes", "no"),
    ),
    "numbers": (dp.PrivateLinearRegression(target_bounds=(-2, 4), **FACTS), 2 * X[:, 0] + 1),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    model, y = MODELS[request.param]
    return model.fit(X, y)


def test_a_plain_estimator_predicts_the_same(fitted):
    digest = fitted.certificate_.to_dict()["digest"]
    plain = sklearn_model(fitted, digest)
    assert type(plain).__module__.startswith("sklearn.")
    assert getattr(plain, MARK) == digest
    far = np.vstack([X, 100 * X])  # some predictions of numbers meet their bounds there
    found = plain.predict(far)
    if hasattr(fitted, "target_bounds"):
        np.testing.assert_allclose(found, fitted.predict(far), rtol=1e-12)
        assert set(fitted.target_bounds) <= set(found)
    else:
        assert found.tolist() == fitted.predict(far).tolist()
        np.testing.assert_allclose(
            plain.decision_function(X), fitted.decision_function(X), rtol=1e-12
        )


def test_onnx_predicts_the_same(fitted):
    runtime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    content = onnx_model(fitted, "d" * 64)
    graph = onnx.load_from_string(content)
    assert {p.key: p.value for p in graph.metadata_props}[MARK] == "d" * 64
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"features": X.astype(np.float32)})
    if hasattr(fitted, "target_bounds"):
        np.testing.assert_allclose(outputs[0].ravel(), fitted.predict(X), atol=1e-5)
    else:
        assert outputs[0].tolist() == fitted.predict(X).tolist()
        if hasattr(fitted, "predict_proba"):
            np.testing.assert_allclose(outputs[1], fitted.predict_proba(X), atol=1e-5)


def test_a_whitened_model_is_exported_with_its_map():
    model = dp.PrivateLogisticRegression(
        classes=[0, 1], feature_bounds=[(-3, 1)] * 3, scaling="whiten", **WHITENED
    ).fit(np.tile(X, (40, 1)), np.tile(MODELS["two"][1], 40))
    matrix = model.scaling_[:, 2:]
    assert np.abs(matrix - np.diag(np.diag(matrix))).max() > 0  # some features were mixed
    test_a_plain_estimator_predicts_the_same(model)
    test_onnx_predicts_the_same(model)


# -- dp_accounting --------------------------------------------------------------------------------

PLAN = dp.Plan(
    records=1000,
    batches=dp.FullBatch(),
    iterations=40,
    step_size=0.1,
    noise_multiplier=30.0,
    lipschitz=1.0,
    smoothness=0.25,
)


@pytest.mark.parametrize(
    ("batches", "relation", "noise"),
    [
        (dp.FullBatch(), "replace_one", 30.0),
        (dp.FullBatch(), "replace_special", 30.0),
        (dp.Poisson(50), "add_or_remove_one", 2.0),
        (dp.Poisson(50), "replace_one", 2.0),
        (dp.Cyclic(100), "replace_one", 9.0),
    ],
)
def test_its_accountant_reads_the_composition_price_back(batches, relation, noise):
    plan = PLAN.replace(batches=batches, neighboring_relation=relation, noise_multiplier=noise)
    stored = json.loads(json.dumps(event_to_dict(event_of(plan))))
    event = event_from_dict(stored)
    neighbours = dp_accounting.NeighboringRelation[relation.upper()]
    accountant = PLDAccountant(neighboring_relation=neighbours)
    assert accountant.supports(event)
    found = accountant.compose(event).get_epsilon(1e-5)
    price = dp.account(plan).bounds(1e-5)["composition"]
    assert found == pytest.approx(price, rel=3e-3)
    assert found >= dp.account(plan).epsilon(1e-5) * (1 - 1e-3)


def test_fixed_sizes_are_read_by_the_renyi_accountant():
    plan = PLAN.replace(batches=dp.FixedSize(50), noise_multiplier=8.0)
    event = event_from_dict(event_to_dict(event_of(plan)))
    accountant = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    found = accountant.compose(event).get_epsilon(1e-5)
    assert found >= dp.account(plan).epsilon(1e-5)


def test_an_event_holds_all_that_was_bought_or_is_refused():
    """A look at the columns is in it; what has no event must not be left out of one."""
    weights = np.array([0.25, -0.5])
    look = Bought(scaling=Spread(0.3, "replace_one"), columns=2)
    certificate = Certificate.of(Run(PLAN, weights, 40), 1e-5, bought=look)
    sums = replace(look, moments=Moments(0.4, "replace_one", 1.0))
    assert sums.mu == pytest.approx(0.5)
    both = SimpleNamespace(plan=PLAN, bought=sums, counting=Counting())
    assert certified_event(both).events[0] == dp_event.GaussianDpEvent(2.0 / sums.mu)
    event = event_from_dict(json.loads(event_file(certificate)))
    neighbours = dp_accounting.NeighboringRelation.REPLACE_ONE
    found = PLDAccountant(neighboring_relation=neighbours).compose(event).get_epsilon(1e-5)
    assert found == pytest.approx(certificate.to_dict()["guarantee"]["composition"], rel=3e-3)
    assert found * (1 + 1e-6) >= certificate.epsilon > dp.account(PLAN).epsilon(1e-5)
    counted = PLAN.replace(neighboring_relation="add_or_remove_one")
    counting = Counting(PrivateCount(0.06, 1e-7), 3.0)
    search = Bought(search=Search(NegativeBinomial(1.0, 0.2), (PLAN,), 1.0, 10.0, 0.2))
    for certificate, what in (
        (Certificate.of(Run(counted, weights, 40), 1e-5, counting=counting), "count"),
        (Certificate.of(Run(PLAN, weights, 40), 1e-5, bought=search), "search"),
    ):
        with pytest.raises(dp.PlanError, match=f"private {what}"):
            event_file(certificate)


def test_an_event_of_records_is_none_of_persons(dplateau, tmp_path):
    certificate = Certificate.of(Run(PLAN, np.zeros(2), 40), 1e-5)
    (tmp_path / "event.json").write_text(event_file(certificate))
    init = ("ledger", "init", tmp_path / "b.db", "--dataset", "d", "--epsilon", 500)
    assert dplateau(*init, "--delta", 1e-5, "--unit", "person")[0] == 0
    spend = ("ledger", "spend", tmp_path / "b.db", "--dataset", "d")
    code, _, err = dplateau(*spend, "--event", tmp_path / "event.json")
    assert code == 2
    assert "protects a person; this release protects a record" in err


def test_what_is_no_event_is_refused():
    for stored in ({"class_name": "open"}, {"class_name": "SelfComposedDpEvent"}, [1], {"a": 1}):
        with pytest.raises(dp.DataError):
            event_from_dict(stored)
    with pytest.raises(dp.PlanError, match="composition price"):
        event_of(PLAN.replace(iterations=float("inf"), domain=dp.L2Ball(1.0)))


@pytest.mark.parametrize(
    "fitted",
    [
        "two",
        "numbers",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("three", "words")),
    ],
    indirect=True,
)
def test_an_event_file_goes_into_a_ledger(fitted, tmp_path):
    stored = json.loads(event_file(fitted.certificate_))
    assert stored["certificate"] == fitted.certificate_.to_dict()["digest"]
    ledger = dp.Ledger(tmp_path / "b.db")
    ledger.init("d", epsilon=500.0, delta=1e-5)
    assert ledger.spend("d", event_from_dict(stored)) == 1


# -- the registry ---------------------------------------------------------------------------------


FIELDS = {
    "basic": [
        *("name", "data_curators", "description", "intended_use", "data_product_type"),
        *("data_product_region", "publication_date"),
    ],
    "dp_variant": ["variant_name", "data_domain", "unprotected_quantities"],
    "privacy_loss": [
        *("privacy_unit", "privacy_unit_details", "privacy_parameters"),
        "privacy_parameters_details",
    ],
    "accounting": ["post_processing", "composition"],
    "implementation": [
        *("preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"),
    ],
    "administrative": ["registry_authors"],
}


def test_the_registry_entry_has_the_registrys_fields(fitted):
    yaml = pytest.importorskip("yaml")
    text = registry_entry(fitted.certificate_)
    found = yaml.safe_load(text)
    deployment = found["deployment"]
    assert list(found) == ["url_slug", "status", "tier", "deployment"]
    assert {name: list(one) for name, one in deployment.items() if isinstance(one, dict)} == FIELDS
    assert deployment["deployment_model"] == "Central"
    assert set(deployment) == {*FIELDS, "deployment_model"}
    parameters = deployment["privacy_loss"]["privacy_parameters"]
    assert parameters == {
        "epsilon": fitted.certificate_.epsilon,
        "delta": fitted.certificate_.delta,
    }
    assert "mu = " in deployment["privacy_loss"]["privacy_parameters_details"]
    assert deployment["basic"]["name"].startswith(BLANK)
    assert deployment["administrative"]["registry_authors"][0].startswith(BLANK)
    assert fitted.certificate_.to_dict()["digest"] in text


# -- the command line -----------------------------------------------------------------------------


def test_every_format_from_the_command_line(dplateau, tmp_path):
    lines = "".join(f"{x:.3f},{'yes' if x > 0 else 'no'}\n" for x in X[:, 0])
    (tmp_path / "t.csv").write_text("x,y\n" + lines)
    columns = {
        "x": {"type": "number", "bounds": [-1, 1]},
        "y": {"type": "category", "categories": ["no", "yes"]},
    }
    (tmp_path / "s.json").write_text(json.dumps({"columns": columns}))
    command = ("train", tmp_path / "t.csv", "--schema", tmp_path / "s.json", "--target", "y")
    assert dplateau(*command, "--epsilon", 2, "--delta", 1e-5, "--out", tmp_path / "m")[0] == 0
    digest = json.loads((tmp_path / "m" / "certificate.json").read_text())["digest"]
    for kind in ("registry", "dp_accounting", "sklearn", "onnx"):
        code, out, _ = dplateau("export", tmp_path / "m", "--format", kind, "--json")
        assert code == 0
        content = Path(json.loads(out)["file"]).read_bytes()
        assert digest.encode() in content
    import joblib

    plain = joblib.load(io.BytesIO((tmp_path / "m.model.joblib").read_bytes()))
    assert getattr(plain, MARK) == digest
    code, _, err = dplateau("export", tmp_path / "m", "--format", "pickle")
    assert code == 2
    assert "no format" in err
    assert dplateau("export", tmp_path / "m", "--format", "onnx")[0] == 2  # nothing overwritten
