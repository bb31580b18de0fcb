"""What refusals of tables and schemas advise is done, and then works."""

from __future__ import annotations

import json
import shlex

import pytest

import dplateau as dp

AGES = "\n".join(
    f"{age},{'no' if age < 50 else 'yes'},w{age},{'abc'[age % 3]}" for age in range(20, 80)
)
HEADED = f"age,old,key,grade\n{AGES}\n"
SCHEMA = {
    "age": {"type": "number", "bounds": [0, 100]},
    "old": {"type": "category", "categories": ["no", "yes"]},
    "key": {"type": "ignore"},
    "grade": {"type": "category", "categories": ["a", "b", "c"]},
}


@pytest.mark.parametrize(
    ("wrong", "words", "followed"),
    [
        ({"key": {"type": "category", "categories": []}}, "set the type to 'ignore'", SCHEMA),
        ({"age": {"type": "number"}}, "Fill it in from a codebook", SCHEMA),
        ({"age": {"type": "number", "bounds": [9, 1]}}, "the lower one first", SCHEMA),
        (
            {"age": {"type": "number", "bounds": [0, 9], "bins": 10**5}},
            "a few dozen serve well",
            {"age": {"type": "number", "bounds": [0, 9], "bins": 36}},
        ),
        ({"key": {"type": "word"}}, "'ignore'", SCHEMA),
        ({"here": SCHEMA["age"]}, "mark the column as 'ignore'", {"here": {"type": "ignore"}}),
    ],
)
def test_advice_about_schemas_works(wrong, words, followed):
    table = {"age": [1, 2], "old": ["no", "yes"], "key": ["a", "b"], "grade": ["a", "b"]}
    with pytest.raises(ValueError, match=words):
        dp.PublicTableEncoder({"columns": {**SCHEMA, **wrong}}).transform(table)
    encoder = dp.PublicTableEncoder({"columns": {**SCHEMA, **wrong, **followed}})
    assert encoder.transform(table).shape[0] == 2


@pytest.fixture
def files(tmp_path):
    (tmp_path / "words.csv").write_text("name,kind\na,b\nc,d\n")
    (tmp_path / "bare.csv").write_text(AGES)
    (tmp_path / "mended.csv").write_text(HEADED)
    (tmp_path / "semicolon.csv").write_text(HEADED.replace(",", ";"))
    (tmp_path / "wide.csv").write_bytes(HEADED.encode("utf-16"))
    (tmp_path / "narrow.csv").write_bytes(
        (tmp_path / "wide.csv").read_bytes().decode("utf-16").encode()
    )
    (tmp_path / "unmarked.csv").write_bytes(HEADED.encode("utf-16-le"))
    (tmp_path / "latin.csv").write_bytes(f"{HEADED}50,yes,\u00e9,a\n".encode("latin-1"))
    (tmp_path / "plain.csv.gz").write_text(HEADED)
    (tmp_path / "plain.csv").write_text(HEADED)
    lines = HEADED.splitlines()
    indexed = "\n".join(f"{k or ''},{line}" for k, line in enumerate(lines))
    (tmp_path / "index.csv").write_text(indexed)
    (tmp_path / "schema.json").write_text(json.dumps({"columns": SCHEMA}))
    return tmp_path


@pytest.mark.advice("{} is {} text; UTF-8 is read. Save it as UTF-8")
@pytest.mark.parametrize(
    ("wrong", "words", "followed"),
    [
        (["words.csv"], "pass --header", ["words.csv", "--header"]),
        (["bare.csv"], "Write a line of column names above it", ["mended.csv"]),
        (["semicolon.csv"], "Pass --separator ';'", ["semicolon.csv", "--separator", ";"]),
        (["mended.csv", "--separator", "::"], "such as ';'", ["semicolon.csv", "--separator", ";"]),
        (["wide.csv"], "iconv -f UTF-16 -t UTF-8", ["narrow.csv"]),
        (["unmarked.csv"], "iconv -f UTF-16LE -t UTF-8", ["narrow.csv"]),
        (["latin.csv"], "iconv -f WINDOWS-1252 -t UTF-8", ["narrow.csv"]),
        (["plain.csv.gz"], "Rename it, without .gz", ["plain.csv"]),
        (["index.csv"], "unless it is told index=False", ["mended.csv"]),
        (["gone.csv"], "Check the path", ["mended.csv"]),
    ],
)
def test_advice_about_files_works(dplateau, files, wrong, words, followed):
    def draft(file, *more):
        return dplateau("schema", files / file, *more)

    code, _, err = draft(*wrong)
    assert code == 2
    assert words in err
    assert draft(*followed)[0] == 0


TRAIN = {"--epsilon": 8, "--delta": 1e-6, "--target": "old"}


@pytest.mark.parametrize(
    ("wrong", "words", "followed"),
    [
        ({"--model": "linear"}, "Choose 'logistic' or 'svm'", {"--model": "svm"}),
        ({"--quantile": 0.9}, "--model quantile", {"--model": "quantile", "--target": "age"}),
        ({"--records": 60}, "Leave --records out", {"--records": None}),
        ({"--records": 60}, "--relation add_or_remove_one", {"--relation": "add_or_remove_one"}),
        ({"--delta": 0.1}, "Choose delta=", {"--delta": 1e-6}),
        ({"--model": "svm", "--target": "grade"}, "Choose 'logistic'", {"--model": "logistic"}),
        ({"--target": "key"}, "a number with its bounds", {"--target": "age"}),
        ({"--intervals": 1.5}, "True for 0.3", {"--intervals": 0.3}),
    ],
)
def test_advice_about_training_works(dplateau, files, wrong, words, followed):
    def train(options):
        given = [
            word for name, value in options.items() if value is not None for word in (name, value)
        ]
        place = ["--schema", files / "schema.json", "--out", files / "out"]
        return dplateau("train", files / "mended.csv", *place, *given)

    code, _, err = train({**TRAIN, **wrong})
    assert code == 2
    assert words in err
    code, _, err = train({**TRAIN, **wrong, **followed})
    assert code == 0, err


def test_the_check_that_training_points_to_can_be_run(dplateau, files, monkeypatch):
    monkeypatch.chdir(files)
    (files / "my table.csv").write_text((files / "semicolon.csv").read_text())
    place = ["--schema", "schema.json", "--separator", ";", "--header", "--out", "out"]
    options = [word for pair in TRAIN.items() for word in pair]
    code, out, err = dplateau("train", "my table.csv", *place, *options)
    assert code == 0, err
    program, *words = shlex.split(out.splitlines()[-1].partition("? ")[2])
    assert program == "dplateau"
    assert dplateau(*words)[0] == 0
