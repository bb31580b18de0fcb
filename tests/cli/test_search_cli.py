"""``dplateau search`` and ``train --search``: a choice on disk, verified like any model."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

SCHEMA = {
    "columns": {
        "age": {"type": "number", "bounds": [0, 100], "missing": False},
        "rich": {"type": "category", "categories": ["no", "yes"]},
    }
}


@pytest.fixture
def folder(tmp_path):
    age = np.random.default_rng(0).integers(18, 80, 500)
    table = pd.DataFrame({"age": age, "rich": np.where(age > 50, "yes", "no")})
    table.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return tmp_path


def arguments(folder, command, *more):
    return (
        *(command, folder / "people.csv", "--schema", folder / "schema.json", "--target", "rich"),
        *("--epsilon", 4, "--delta", 1e-5, "--out", folder / "out", "--json", *more),
    )


def test_search_then_verify_and_predict(dplateau, folder) -> None:
    grid = ("--over", "radius=1,10", "--over", "steps=20", "--trials", "3")
    code, out, err = dplateau(*arguments(folder, "search", *grid))
    assert code == 0, err
    found = json.loads(out)
    assert found["chosen"]["radius"] in (1, 10)
    assert found["candidates"] == 2
    assert found["epsilon"] <= 4
    code, out, _ = dplateau("verify", folder / "out", "--json")
    assert code == 0
    assert json.loads(out)["model_checked"]
    assert dplateau("report", folder / "out")[0] == 0
    assert dplateau("predict", folder / "out", folder / "people.csv", "--json")[0] == 0


@pytest.mark.parametrize(
    ("candidates", "grid"),
    [
        (2, ("--search", "radius=0.5,4", "--search", "steps=20")),
        pytest.param(4, ("--search", "radius=0.5,1,2,4"), marks=pytest.mark.slow),  # docs/cli.md
    ],
)
def test_train_with_search(dplateau, folder, candidates, grid) -> None:
    code, out, err = dplateau(*arguments(folder, "train", *grid))
    assert code == 0, err
    assert json.loads(out)["epsilon"] <= 4
    stored = json.loads((folder / "out" / "certificate.json").read_text())
    assert len(stored["search"]["candidates"]) == candidates


@pytest.mark.parametrize(("command", "option"), [("search", "--over"), ("train", "--search")])
def test_what_was_chosen_is_said(dplateau, folder, command, option) -> None:
    words = arguments(folder, command, option, "radius=1,10", option, "steps=20")
    code, out, err = dplateau(*(word for word in words if word != "--json"))
    assert code == 0, err
    assert re.search(r"^Chosen: radius = (1|10), steps = 20\.$", out, re.M)
    assert re.search(r"^Trained 20 steps on [\d,]+ records\. Wrote:$", out, re.M)
    assert out.splitlines()[-1].startswith("Does the schema fit the table? dplateau check ")


@pytest.mark.parametrize("grid", ["radius", "radius=", "=1,2", "epsilon=1,2", "unheard=1"])
def test_bad_grids_are_one_line(dplateau, folder, grid) -> None:
    code, _, err = dplateau(*arguments(folder, "search", "--over", grid))
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert not (folder / "out").exists()
