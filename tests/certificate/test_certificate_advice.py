"""What refusals of certificates, files and signatures advise is done, and then works."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import dplateau as dp
from advised import PLAN as SMALL
from advised import obey
from dplateau._json import digest
from dplateau.certificate.bought import Bought
from dplateau.certificate.evaluation import EVALUATION, read_evaluations
from dplateau.certificate.files import check_directory, check_file, reserved, write_file
from dplateau.certificate.record import Certificate
from dplateau.certificate.sign import private_key, public_keys

PLAN = SMALL
X, Y = np.zeros((60, 2)), np.arange(60) % 2
SCHEMA = {
    "a": {"type": "number", "bounds": [0, 1], "missing": False},
    "b": {"type": "boolean"},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A table, its model, and scores of it."""
    folder = tmp_path_factory.mktemp("advice")
    rows = "\n".join(f"{k % 7 / 7},{k % 2}" for k in range(60))
    (folder / "table.csv").write_text(f"a,b\n{rows}\n")
    (folder / "schema.json").write_text(json.dumps({"columns": SCHEMA}))
    return folder


def trains(dplateau, folder, *more, out="model"):
    place = ["--schema", folder / "schema.json", "--out", folder / out, "--target", "b"]
    budget = ["--epsilon", 8, "--delta", 1e-6]
    return dplateau("train", folder / "table.csv", *place, *budget, *more)


def done(answer):
    code, out, err = answer
    assert code == 0, err
    return out


def refused(answer):
    code, _, err = answer
    assert code == 2
    raise dp.DataError(err)


def test_a_certificate_of_a_version_that_did_not_count_rounding():
    def trained():
        return Certificate.of(dp.release(PLAN, PLAN.loss, X, Y), 1e-6)

    def older():
        record = trained().to_dict()
        return Certificate(json.dumps({**record, "rounding": {"epsilon": 1e-9}}))

    obey(older, "train again with this version", lambda: trained().verify())


def test_places_of_files(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")

    def write(name, force=False):
        return write_file(tmp_path / name, "text", force=force)

    obey(lambda: write("full"), " is a directory. Name a file.", lambda: write("another"))
    obey(lambda: write("file"), " exists. Choose another name, or pass --force", lambda: write("b"))
    obey(
        lambda: check_file(tmp_path / "file", force=False),
        "pass --force",
        lambda: write("file", True),
    )
    obey(
        lambda: write("gone/file"),
        "there is no directory of that name. Create it first",
        lambda: ((tmp_path / "gone").mkdir(), write("gone/file")),
    )
    obey(
        lambda: check_directory(tmp_path / "file", force=False),
        " is a file. Name a directory",
        lambda: check_directory(tmp_path / "new", force=False),
    )
    obey(
        lambda: check_directory(tmp_path / "full", force=False),
        " is not empty. Choose another directory, or pass --force",
        lambda: (
            check_directory(tmp_path / "new", force=False),
            check_directory(tmp_path / "full", force=True),
        ),
    )


def test_places_in_use(tmp_path):
    def take(name):
        with reserved(tmp_path / name):
            return True

    with reserved(tmp_path / "out"):
        obey(lambda: take("out"), "Wait for it, or choose another directory", lambda: take("other"))
    assert take("out")

    def removed():
        with reserved(tmp_path / "lost") as place:
            shutil.rmtree(tmp_path / "lost")
            place.publish({"model.json": "{}", "certificate.json": "{}"})

    obey(removed, " was removed or replaced while the model was trained", lambda: take("lost"))


def test_certificates(tmp_path):
    place = tmp_path / "c.json"
    release = {"X": X, "y": Y, "certificate": place}
    obey(
        lambda: dp.release(PLAN, PLAN.loss, **release),
        "a certificate states epsilon at a delta: pass delta as well",
        lambda: dp.release(PLAN, PLAN.loss, **release, delta=1e-3),
    )
    stored = json.loads(place.read_text())
    obey(
        lambda: Certificate(json.dumps({**stored, "schema": 99})).plan,
        "Use the version that wrote it, or a newer one",
        lambda: Certificate(place.read_text()).plan,
    )
    both = {"search": object(), "moments": object()}
    obey(
        lambda: Bought(**both),
        "a search with confidence intervals is not priced. Choose one of them",
        lambda: Bought(moments=both["moments"]),
    )


def test_models(trained, dplateau):
    model = trained / "model"

    def predict():
        return dplateau("predict", model, trained / "table.csv")

    obey(
        lambda: refused(predict()),
        "Name the directory that `dplateau train --out` wrote, or its model.json",
        lambda: (done(trains(dplateau, trained)), done(predict())),
    )
    for words, text in (
        ("holds no JSON object. Train again", "[]"),
        ("lacks a part of the model. Train again", '{"format": 1}'),
    ):
        (model / "model.json").write_text(text)
        with pytest.raises(dp.DataError, match=words):
            dp.load_model(model)
        done(trains(dplateau, trained, "--force"))
        assert dp.load_model(model)


@pytest.mark.advice(
    "holds no JSON object. Train again",
    " lacks a part of the model. Train again",
    "is not what its certificate was issued for (",
)
def test_models_of_other_certificates(trained, dplateau):
    done(trains(dplateau, trained, out="one"))
    done(trains(dplateau, trained, out="two"))
    kept = (trained / "one" / "model.json").read_text()
    (trained / "one" / "model.json").write_text((trained / "two" / "model.json").read_text())
    with pytest.raises(dp.DataError, match="Get both from where they were trained"):
        dp.load_model(trained / "one")
    (trained / "one" / "model.json").write_text(kept)
    assert dp.load_model(trained / "one")


def test_evaluations(trained, dplateau):
    model = trained / "scored"
    done(trains(dplateau, trained, out="scored"))
    place = model / EVALUATION

    def evaluate():
        return dplateau("evaluate", model, trained / "table.csv", "--epsilon", 1)

    def read():
        return read_evaluations(
            model, dp.load_model(model).certificate.to_dict()["model"]["sha256"]
        )

    def away_and_again():
        place.unlink()
        done(evaluate())
        return read()

    done(evaluate())
    (kept,) = json.loads(place.read_text())["evaluations"]

    def holds(**changes):
        body = {**kept, **changes}
        body.pop("digest")
        place.write_text(json.dumps({"evaluations": [{**body, "digest": digest(body)}]}))
        return read()

    def edited():
        place.write_text(json.dumps({"evaluations": [{**kept, "epsilon": 0.1}]}))
        return read()

    def nothing():
        place.write_text("{}")
        return read()

    again = away_and_again
    assert obey(edited, "its digest does not fit. Evaluate again", again)
    assert obey(lambda: holds(records=-1), "holds what no evaluation can. Evaluate again", again)
    assert obey(lambda: holds(epsilon=0.1), "states another cost than its own", again)
    assert obey(lambda: holds(model="0" * 64), "is about another model. Move it away", again)
    assert obey(nothing, "holds no evaluations. Move it away", again)


def test_costs_of_scores(trained, dplateau):
    done(trains(dplateau, trained, out="costs"))
    score = ["evaluate", trained / "costs", trained / "table.csv"]
    words = "say either what the scores may cost (--epsilon 0.1), or that the table is --public"
    for more in (["--epsilon", 0.1], ["--public"]):
        obey(
            lambda: refused(dplateau(*score)),
            words,
            lambda more=more: done(dplateau(*score, *more)),
        )


def test_keys(tmp_path, dplateau):
    (tmp_path / "no.key").write_text("no key")

    def new(name):
        done(dplateau("keys", "new", tmp_path / name))
        return tmp_path / name

    obey(
        lambda: private_key(tmp_path / "no.key"),
        "Make one with: dplateau keys new FILE",
        lambda: private_key(new("my.key")),
    )
    obey(
        lambda: public_keys(tmp_path / "no.key"),
        "Give the .pub file that `dplateau keys new` or",
        lambda: public_keys(new("other.key").with_suffix(".key.pub")),
    )


def test_signatures(trained, dplateau):
    done(trains(dplateau, trained, out="signed"))
    done(dplateau("keys", "new", trained / "key"))
    bare = trained / "bare"
    bare.mkdir()
    shutil.copy(trained / "signed" / "certificate.json", bare)
    sign = ["--key", trained / "key"]
    words = "Sign the directory that holds the model too, or pass --allow-unchecked"
    for place, more in ((trained / "signed", []), (bare, ["--allow-unchecked"])):
        obey(
            lambda: refused(dplateau("sign", bare, *sign)),
            words,
            lambda place=place, more=more: done(dplateau("sign", place, *sign, *more)),
        )
