"""Names that are markup, formulas or escapes: shown as they are spelled, wherever they end up."""

from __future__ import annotations

import csv
import json
import sys
from html.parser import HTMLParser

import pytest

SCRIPT = "</script><script>document.title='owned'</script>"
NAMES = {
    "script": SCRIPT,
    "image": "\"><img src=x onerror=document.title='owned'>",
    "attribute": "' onmouseover=alert(1) style=display:none x='",
    "refresh": '<meta http-equiv=refresh content="0;url=https://example.org">',
    "base": "<base href=https://example.org/><form action=/x><style>*{display:none}</style>",
    "comment": "--><svg onload=alert(1)><!--",
    "template": "{{7*7}}${7*7}%s{0}\\u003cscript\\u003e",
    "escape": "a\x1b[2J\x1b[1;1H\u202eb",
}
FOREIGN = {"img", "form", "base", "iframe", "object", "embed", "link", "input", "video", "audio"}


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.metas, self.wrong, self.text = 0, [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        if tag == "meta":
            self.metas.append(dict(attrs))
        if tag in FOREIGN or any(name.startswith("on") for name, _ in attrs):
            self.wrong.append((tag, attrs))
        self.wrong += [(tag, name) for name, value in attrs if "example.org" in (value or "")]

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def trained(dplateau, folder, name, label):
    columns = {
        name: {"type": "number", "bounds": [0, 1]},
        f"{name} too": {"type": "category", "categories": [label, "plain"]},
        f"target {name}": {"type": "category", "categories": [label, "other"]},
    }
    (folder / "s.json").write_text(json.dumps({"columns": columns}))
    table = folder / f"table {name.replace('/', '|')[:60]}.csv"
    with table.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(columns)
        writer.writerows([k % 5 / 5, label, (label, "other")[k % 2]] for k in range(60))
    budget = ("--epsilon", 1, "--delta", 1e-4, "--out", "m")
    found = dplateau("train", table, "--schema", "s.json", "--target", f"target {name}", *budget)
    assert found[0] == 0, found[2]
    return table, found


@pytest.mark.parametrize(
    "kind",
    [kind if kind == "script" else pytest.param(kind, marks=pytest.mark.slow) for kind in NAMES],
)
def test_no_name_is_more_than_a_name(dplateau, place, monkeypatch, kind):
    name = NAMES[kind]
    table, found = trained(dplateau, place, name, name)
    said = [*found]
    said += dplateau("keys", "new", "key", "--comment", name.replace("\x1b", "\\x1b"))
    said += dplateau("sign", "m", "--key", "key")
    said += dplateau("check", table, "--schema", "s.json", "--out", "check.html")
    said += dplateau("evaluate", "m", table, "--epsilon", 1)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    said += dplateau("predict", "m", table)
    init = ("ledger", "init", "b.db", "--dataset", name, "--epsilon", 3, "--delta", 1e-5)
    said += dplateau(*init)
    said += dplateau("ledger", "show", "b.db")
    said += dplateau("verify", "m", "--public-key", "key.pub")
    said += dplateau("report", "m", "--public-key", "key.pub")
    assert not [word for word in said if isinstance(word, str) and "\x1b" in word]
    assert not [word for word in said if isinstance(word, int) and word not in (0, 2)], said
    for file in (place / "m" / "report.html", place / "check.html"):
        text = file.read_text()
        page = Page(text)
        assert not page.wrong, (file.name, page.wrong)
        assert page.scripts <= 1
        assert not any(meta.get("http-equiv") == "refresh" for meta in page.metas)
        policy = next(m["content"] for m in page.metas if "content-security" in str(m).lower())
        assert "base-uri 'none'" in policy
        assert "form-action 'none'" in policy
        assert "default-src 'none'" in policy
        assert SCRIPT not in text
        assert "\x1b" not in text
        assert "\u202e" not in text


@pytest.mark.parametrize(
    "formula", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "\rx"]
)
def test_no_prediction_is_a_formula(dplateau, place, formula):
    """Spreadsheets run what begins like this; labels and names of people come from outside."""
    table, _ = trained(dplateau, place, "x", formula)
    code, _, err = dplateau("predict", "m", table, "--out", "p.csv")
    assert code == 0, err
    with (place / "p.csv").open(newline="") as stored:
        cells = {cell for row in csv.reader(stored) for cell in row}
    assert not {cell for cell in cells if cell[:1] in "=+-@\t\r" and not _number(cell)}


def _number(cell):
    try:
        float(cell)
    except ValueError:
        return cell == ""
    return True
