"""``dplateau check``: a page for the table's owner."""

from __future__ import annotations

import json
import stat

SCHEMA = {
    "columns": {
        "pay": {"type": "number", "bounds": [0, 100]},
        "rate": {"type": "number", "bounds": [0, 1]},
    }
}


def test_the_page_is_the_owners_alone(dplateau, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("pay,rate\n5,5%\n500,7%\n")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    code, out, err = dplateau("check", "t.csv", "--schema", "schema.json")
    assert (code, err) == (0, "")
    assert out == "Wrote check.html. Not for release: this page never leaves this machine.\n"
    page = tmp_path / "check.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text()
    assert "They look like percentages" in text
    assert "100.0%" in text
    code, _, err = dplateau("check", "t.csv", "--schema", "schema.json")
    assert code == 2
    assert "--force" in err
    code, out, _ = dplateau("check", "t.csv", "--schema", "schema.json", "--json")
    assert json.loads(out)["columns"]["pay"]["clipped"] == 0.5
