"""The server by itself: who may ask, and what no question can do to it."""

from __future__ import annotations

import json
import math
import multiprocessing
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

import dplateau as dp
from dplateau.certificate.record import Certificate
from dplateau.errors import CertificateError, DataError
from dplateau.explorer.budgets import check_ledger
from dplateau.explorer.guard import MOST_BYTES
from dplateau.explorer.opened import Opened, open_first
from dplateau.explorer.server import ADDRESS, Explorer
from dplateau.explorer.workers import Limits
from oracles.runs import Run

pytestmark = pytest.mark.xdist_group("browser")  # the explorer of the page's tests


@pytest.fixture
def client(explorer: Explorer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=explorer.url, timeout=60) as made:
        yield made


def ask(client: httpx.Client, **question: Any) -> list[dict[str, Any]]:
    answer = client.post("ask", content=json.dumps(question))
    assert answer.status_code == 200
    return [json.loads(line) for line in answer.text.splitlines()]


def state_of(opened: Opened, **changes: Any) -> dict[str, Any]:
    return {"plan": {**opened.plan.to_dict(), **changes}, "delta": opened.delta}


# -- who may ask ------------------------------------------------------------------------------


def test_only_this_machine_is_listened_to(explorer: Explorer) -> None:
    assert urlsplit(explorer.url).hostname == ADDRESS == "127.0.0.1"
    assert len(urlsplit(explorer.url).path) > 30


@pytest.mark.parametrize("path", ["", "about", "page/explorer.js", "ask", "wrong-token/about"])
def test_without_the_token_nothing_is_answered(explorer: Explorer, path: str) -> None:
    here = urlsplit(explorer.url)
    answer = httpx.get(f"http://{here.netloc}/{path}")
    assert answer.status_code == 403
    assert "token" in answer.json()["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:80"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_sites_and_foreign_names_are_refused(
    client: httpx.Client, headers: dict[str, str]
) -> None:
    for answer in (client.get("about", headers=headers), client.post("ask", headers=headers)):
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_every_answer_forbids_what_it_can(client: httpx.Client) -> None:
    for path in ("", "about", "page/explorer.js", "nowhere"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "set-cookie" not in headers


def test_no_file_outside_the_page_is_served(client: httpx.Client) -> None:
    for path in ("page/..%2fapp.py", "page/%2e%2e/app.py", "page/app.py", "page/__init__.py"):
        assert client.get(path).status_code == 404


def test_the_page_names_no_other_address(client: httpx.Client) -> None:
    for path in ("", "page/explorer.js", "page/figure.js", "page/explorer.css", "page/figure.css"):
        text = client.get(path).text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text


# -- what is asked ----------------------------------------------------------------------------


def test_the_exact_answer_is_the_accountants(client: httpx.Client, small: Opened) -> None:
    for steps in (100, math.inf):
        plan = small.plan.replace(iterations=steps)
        lines = ask(client, ask="exact", state={"plan": plan.to_dict(), "delta": 1e-7})
        found = {key: value for line in lines for key, value in line.items()}
        guarantee = dp.account(plan, 1e-7)
        assert found["epsilon"] == guarantee.epsilon(1e-7)
        assert {k: math.inf if v == "inf" else v for k, v in found["bounds"].items()} == (
            guarantee.bounds(1e-7)
        )
        assert found["bound"] == guarantee.at(1e-7).bound
        assert found["hypotheses"][found["bound"]] == list(guarantee.at(1e-7).hypotheses)


def test_what_is_known_already_is_not_worked_out_again(client: httpx.Client, small: Opened) -> None:
    lines = ask(client, ask="steps", state=state_of(small))
    points = {line["x"]: line["y"] for line in lines if line["kind"] == "point"}
    assert points["inf"]["lower"] <= points["inf"]["forgetting"] <= points["inf"]["paper"]
    again = ask(client, ask="steps", state=state_of(small), have=list(points)[1:])
    assert [line["x"] for line in again if line["kind"] == "point"] == ["inf"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"records": 0}, "records"),
        ({"records": "many"}, "records"),
        ({"iterations": 2.5}, "iterations"),
        ({"batches": {"kind": "cyclic", "size": 10**9}}, "size"),
        ({"batches": {"kind": "spiral"}}, "batches"),
        ({"neighboring_relation": "add_or_remove_one"}, "batches"),
        ({"step_size": 1e3}, "step_size"),
        ({"noise_multiplier": -1}, "noise_multiplier"),
        ({"domain": {"kind": "l2_ball", "radius": 0}}, "radius"),
        ({"smoothness": "inf"}, "smoothness"),
    ],
)
def test_a_refusal_names_its_field(
    client: httpx.Client, small: Opened, changes: dict[str, Any], field: str
) -> None:
    (line,) = ask(client, ask="quick", state=state_of(small, **changes))
    assert line["kind"] == "refused"
    assert line["field"] == field


def test_searches_tell_what_they_try(client: httpx.Client, small: Opened) -> None:
    for solve_for in ("noise_multiplier", "iterations", "radius"):
        *tries, found = ask(
            client, ask="calibrate", state=state_of(small), epsilon=1.5, solve_for=solve_for
        )
        assert len(tries) > 2
        assert all(line["kind"] == "try" for line in tries)
        assert found["epsilon"] <= 1.5
    (refused,) = ask(client, ask="calibrate", state=state_of(small), epsilon=-1, solve_for="radius")
    assert "epsilon must be finite and positive" in refused["message"]


def test_a_table_gets_a_plan(client: httpx.Client) -> None:
    (line,) = ask(client, ask="table", records=2000, features=10, epsilon=1)
    plan = dp.Plan.from_dict(line["plan"])
    assert dp.account(plan).epsilon(line["delta"]) <= 1


# -- what no question can do ------------------------------------------------------------------

NONSENSE: list[Any] = [
    None,
    [],
    {},
    {"ask": "everything"},
    {"ask": "quick"},
    {"ask": "quick", "state": 3},
    {"ask": "quick", "state": {"plan": {}, "delta": 1e-6}},
    {"ask": "quick", "state": {"plan": {"schema": 1, "records": [[]]}, "delta": {}}},
    {"ask": "exact", "state": {"plan": None}},
    {"ask": "steps", "have": {"x": 1}},
    {"ask": ["quick"]},
    {"ask": "table", "records": 1e300, "features": -1, "epsilon": "no"},
]


@pytest.mark.parametrize("question", NONSENSE, ids=json.dumps)
def test_nonsense_is_refused_and_nothing_dies(client: httpx.Client, question: Any) -> None:
    answer = client.post("ask", content=json.dumps(question))
    assert answer.status_code in (200, 400)
    assert json.loads(answer.text)["kind"] in ("refused", "stopped")
    assert client.get("about").status_code == 200


def test_bodies_are_bounded(client: httpx.Client) -> None:
    assert client.post("ask", content=b"x" * (MOST_BYTES + 1)).status_code == 413
    endless = client.post("ask", content=iter([b"[" * 60_000] * 6))  # no length is announced
    assert endless.status_code == 400
    assert client.post("ask", content=b"[" * 100_000).status_code == 400
    assert client.post("ask", content=b"\xff\xfe").status_code == 400


def test_broken_requests_do_not_hurt(client: httpx.Client, explorer: Explorer) -> None:
    port = urlsplit(explorer.url).port
    for sent in (b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"A" * 100_000, b""):
        with socket.create_connection((ADDRESS, port), timeout=5) as raw:
            raw.sendall(sent)
    assert client.get("about").status_code == 200


def test_a_plan_that_takes_long_is_stopped_and_says_so(small: Opened, serving: Any) -> None:
    slow = dp.Plan(
        records=10**6,
        batches=dp.Poisson(1000),
        iterations=4 * 10**6,
        step_size=dp.schedules.Polynomial(1.0, 0.4),
        noise_multiplier=dp.schedules.Polynomial(9.0, 0.01),
        lipschitz=1.0,
        smoothness=0.25,
        domain=dp.L2Ball(3.0),
    )
    with (
        serving(small, limits=Limits(seconds=0.2, workers=1)) as explorer,
        httpx.Client(base_url=explorer.url, timeout=60) as client,
    ):
        line = ask(client, ask="steps", state={"plan": slow.to_dict(), "delta": 1e-6})[-1]
        assert line["kind"] == "stopped"
        assert "0.2 seconds" in line["message"]
        assert client.get("about").status_code == 200


def test_memory_is_bounded_and_said(small: Opened, serving: Any) -> None:
    """A schedule written out in full needs more than the few megabytes allowed here."""
    listed = small.plan.replace(
        iterations=10_000, step_size=[2.0 - 1e-5 * t for t in range(10_000)]
    )
    with (
        serving(small, limits=Limits(seconds=60, megabytes=1, workers=1)) as explorer,
        httpx.Client(base_url=explorer.url, timeout=60) as client,
    ):
        line = ask(client, ask="steps", state={"plan": listed.to_dict(), "delta": 1e-6})[-1]
        assert line["kind"] == "stopped"
        assert "memory" in line["message"]
        assert client.get("about").status_code == 200


def test_a_cancelled_question_costs_nothing(client: httpx.Client, small: Opened) -> None:
    """The page goes away in the middle of a long answer: the worker on it is killed at once."""
    readme = client.get("about").json()["presets"][0]
    state = {"plan": readme["plan"], "delta": 1e-6}
    ask(client, ask="exact", state=state_of(small))  # both kinds of workers are up
    before = set(multiprocessing.active_children())
    question = json.dumps({"ask": "steps", "state": state})
    with client.stream("POST", "ask", content=question) as answer:
        assert next(answer.iter_lines())
    for _ in range(100):
        if not all(child.is_alive() for child in before):
            break
        time.sleep(0.05)
    else:
        pytest.fail("every worker is still at work")
    (line,) = ask(client, ask="quick", state=state)
    assert line["kind"] == "quick"


# -- what it opens with -----------------------------------------------------------------------


def test_a_released_certificate_is_opened_and_says_what_else_it_would_have_cost(
    tmp_path: Path, small: Opened, serving: Any
) -> None:
    run = Run(small.plan, np.array([0.5, 1.0]), iterations_run=5000, seeded=False)
    certificate = Certificate.of(run, 1e-6)
    certificate.write(tmp_path / "certificate.json")
    opened = open_first(certificate=tmp_path)
    assert opened.plan == small.plan
    assert opened.released is not None
    assert opened.released["epsilon"] == pytest.approx(certificate.epsilon)
    assert opened.released["beside"] == []
    edited = (tmp_path / "certificate.json").read_text().replace("5000", "5001")
    (tmp_path / "certificate.json").write_text(edited)
    with pytest.raises(CertificateError, match="does not hold"):
        open_first(certificate=tmp_path)


def test_what_else_a_certificate_paid_for_is_said(tmp_path: Path) -> None:
    X, y = np.zeros((50, 1)), np.arange(50) % 2
    facts = {"epsilon": 4.0, "delta": 1e-6, "data_norm": 1.0, "classes": [0, 1], "steps": 3}
    private = {"neighboring_relation": "add_or_remove_one", "intervals": True}
    model = dp.PrivateLogisticRegression(**facts, **private).fit(X, y)
    model.certificate_.write(tmp_path / "certificate.json")
    opened = open_first(certificate=tmp_path)
    assert opened.released is not None
    assert opened.released["beside"] == ["a count of the records", "confidence intervals"]


def test_a_plan_is_opened_from_its_file(tmp_path: Path, small: Opened) -> None:
    file = tmp_path / "plan.json"
    file.write_text(small.plan.to_json())
    assert open_first(plan=file).plan == small.plan
    with pytest.raises(DataError, match="not both"):
        open_first(plan=file, certificate=tmp_path)
    with pytest.raises(DataError, match="cannot read a plan"):
        open_first(plan=tmp_path / "nothing.json")
    file.write_text("{")
    with pytest.raises(dp.PlanError, match="not the JSON of a plan"):
        open_first(plan=file)


def test_the_ledger_is_shown_and_only_the_one_that_was_named(
    tmp_path: Path, small: Opened, client: httpx.Client, serving: Any
) -> None:
    ledger_room = pytest.importorskip("dplateau.ledger", reason="there is no ledger yet")
    refused = client.post("ask", json={"ask": "ledger", "path": str(tmp_path / "other.db")})
    assert refused.status_code == 404
    file = tmp_path / "budget.db"
    ledger = ledger_room.Ledger(file)
    ledger.init("patients", epsilon=3.0, delta=1e-5)
    for epsilon in (0.5, 0.25):
        ledger.spend("patients", epsilon=epsilon, delta=1e-6)
    before = file.read_bytes()
    with (
        serving(small, limits=Limits(seconds=60, workers=1), ledger=file) as explorer,
        httpx.Client(base_url=explorer.url, timeout=60) as asking,
    ):
        budget, sums = ask(asking, ask="ledger", path="elsewhere.db")
    assert (budget["dataset"], budget["epsilon"]) == ("patients", 3.0)
    assert [release["epsilon"] for release in budget["releases"]] == [0.5, 0.25]
    assert sums["left"] == pytest.approx(2.25)
    assert sums["plain"] == pytest.approx(0.75)
    assert sums["tight"] <= 0.76
    assert file.read_bytes() == before


def test_only_readable_ledgers_are_opened(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no ledger"):
        check_ledger(tmp_path / "none.db")
