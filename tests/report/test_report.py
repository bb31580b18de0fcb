"""The report: one self-contained page, looked at in a real browser where there is one."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import dplateau as dp
from dplateau.certificate.record import Certificate
from dplateau.errors import CertificateError
from dplateau.report.page import render, write_report
from oracles.runs import Run

sys.path.insert(0, str(Path(__file__).parent))
from chromium import PROGRAM, Browser

needs_browser = pytest.mark.skipif(PROGRAM is None, reason="Debian's chromium is not installed")

LEAST_LETTERS = 10.5  # pixels, for axis labels on a telephone
LEAST_CONTRAST = 4.5  # WCAG 2.1, level AA


def certificate_of(*, remarks=(), seeded=False, **changes):
    fields = {
        "records": 1000,
        "batches": dp.FullBatch(),
        "iterations": 2000,
        "step_size": 1.0,
        "noise_multiplier": 100.0,
        "lipschitz": 1.0,
        "smoothness": 1.0,
        "domain": dp.L2Ball(1.0),
    }
    plan = dp.Plan(**{**fields, **changes})
    steps = 2000 if math.isinf(plan.iterations) else plan.iterations
    run = Run(plan, np.array([0.25, -0.5]), iterations_run=steps, seeded=seeded)
    return Certificate.of(run, 1e-6, remarks=remarks)


def page_of(**changes):
    return render(certificate_of(**changes).verify([0.25, -0.5]))


@pytest.fixture(scope="module")
def certificate():
    return certificate_of()


@pytest.fixture(scope="module")
def page(certificate, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    certificate.write(folder / "certificate.json")
    return write_report(folder)


def test_it_is_one_small_file_without_external_assets(page):
    text = page.read_text(encoding="utf-8")
    assert page.name == "report.html"
    assert page.stat().st_size < 2_000_000
    (script,) = re.findall(r"<script[^>]*>(.*?)</script>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text, "only the page's own script may run"
    text = text.replace(script, "")
    assert "://" not in script.replace("http://www.w3.org/2000/svg", "")
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#)", without_names)
    assert "://" not in re.sub(r"<!DOCTYPE[^>]*>", "", without_names)
    assert "$" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL), "a blank was left open"


def test_it_says_what_the_certificate_says(page, certificate):
    text = page.read_text(encoding="utf-8")
    record = certificate.to_dict()
    assert "Fit for release" in text
    assert record["digest"] in text
    assert record["model"]["sha256"] in text
    for hypothesis in record["guarantee"]["hypotheses"]:
        assert f"<li>{_first_words(hypothesis)}" in text
    assert text.count("<svg") == 2
    assert "dplateau verify" in text


def test_adding_up_is_shown_only_where_it_says_something_else(page):
    text = page.read_text(encoding="utf-8")
    assert "what adding up all steps would say" in text
    assert "ahead of guessing" in text
    alike = page_of(domain=dp.Everywhere(), iterations=3)  # nothing is forgotten in three steps
    assert "what adding up all steps would say" not in alike
    assert "buys: nothing at this length" in alike
    assert alike.count("<svg") == 1


def _first_words(sentence):
    return re.split(r"[<>&'\"\-]", sentence)[0][:40]


def test_words_from_outside_are_escaped():
    text = page_of(remarks=["<img src=x onerror=alert(1)> & more"])
    assert "<img" not in text
    assert "&lt;img" in text
    assert "Remarks of the issuer, which nobody checked" in text
    assert "not all was checked" in text


def test_a_broken_certificate_gets_no_report(certificate, tmp_path):
    edited = certificate.to_json().replace('"delta": 1e-06', '"delta": 2e-06')
    (tmp_path / "certificate.json").write_text(edited)
    with pytest.raises(CertificateError, match="does not hold"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(CertificateError, match="cannot read"):
        write_report(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "changes",
    [
        {"iterations": math.inf},
        {"iterations": 3, "step_size": [1.0, 0.5, 0.25]},
        {"iterations": 1},
        {"noise_multiplier": 0.0},
        {"hidden_state": False, "smoothness": None, "domain": dp.Everywhere()},
    ],
    ids=["endless", "explicit", "one step", "no noise", "composition"],
)
def test_every_kind_of_plan_can_be_reported(changes):
    text = page_of(**changes)
    assert ("Not for release" in text) is ("noise_multiplier" in changes)


def test_a_weak_guarantee_is_not_headed_fit_for_release():
    text = page_of(noise_multiplier=25.0)
    assert "Weak guarantee" in text
    assert "WEAK GUARANTEE" in text
    assert "Fit for release" not in text
    assert "tells almost the same" not in text


def test_a_seeded_run_is_marked():
    assert "Not for release" in page_of(seeded=True)


# What the browser is asked: the least height of a letter, the widest content, the least contrast.
LETTERS = """
(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let least = 99;
  while (walker.nextNode()) {
    const node = walker.currentNode, host = node.parentElement;
    if (!node.data.trim() || host.closest('style,defs')) continue;
    const svg = host.closest('svg');
    let size = parseFloat(getComputedStyle(host).fontSize);
    if (svg) size *= svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    least = Math.min(least, size);
  }
  return least;
})()
"""
CONTRAST = """
(() => {
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const behind = element => {
    for (; element; element = element.parentElement) {
      const found = numbers(getComputedStyle(element).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  let least = 99;
  for (const element of document.querySelectorAll('h1,h2,h3,p,li,th,td,b,span,code,figcaption')) {
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(behind(element))];
    least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return least;
})()
"""
PICTURES = """
[...document.querySelectorAll('figure svg.drawing')].map(svg => {
  const box = svg.getBoundingClientRect();
  const line = getComputedStyle(svg.querySelector('.line.strong')).stroke;
  return [box.width, box.height, svg.querySelectorAll('path').length, line];
})
"""


@pytest.fixture(scope="module")
def browser():
    with Browser() as running:
        yield running


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_it_is_readable_in_a_real_browser(browser, page, width, dark, tmp_path):
    browser.show(page.as_uri(), width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(LETTERS) >= LEAST_LETTERS
    assert browser.evaluate(CONTRAST) >= LEAST_CONTRAST
    pictures = browser.evaluate(PICTURES)
    assert len(pictures) == 2
    for wide, high, paths, _ in pictures:
        assert wide > 300
        assert high > 200
        assert paths > 10
    assert browser.screenshot(tmp_path / "page.png").stat().st_size > 20_000


@needs_browser
def test_its_pictures_answer_where_scripts_are_allowed_and_are_still_where_not(browser, page):
    """With the script, arrow keys read values out; without, the same lines are drawn and named."""
    lines = "document.querySelectorAll('figure .stage .line').length"
    browser.show(page.as_uri(), 1400)
    alive = browser.evaluate(lines)
    stage = "document.querySelector('.drawn figure .stage')"
    browser.evaluate(f"{stage}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'End'}}))")
    said = browser.evaluate("document.querySelector('.drawn figure .readout').textContent")
    assert re.match(r"After 200k steps: composition .* reported 2\.\d+", said)
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.show(page.as_uri(), 1400)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)  # from the next page on
    names = "[...document.querySelectorAll('figure text')].map(t => t.textContent).join()"
    assert browser.evaluate("document.querySelectorAll('figure .readout').length") == 0
    assert browser.evaluate(lines) > alive  # the legend's samples are part of the picture
    still = browser.evaluate(names)
    assert all(name in still for name in ("composition", "reported", "lower bound", "this run"))
    assert browser.complaints() == []


@needs_browser
def test_it_prints_on_white_paper(browser, page):
    browser.show(page.as_uri(), 800, dark=True)
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", media="print", features=[dark])
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)"
    assert browser.evaluate(CONTRAST) >= LEAST_CONTRAST
    pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])
    assert 1 <= len(re.findall(rb"/Type /Page\b(?!s)", pdf)) <= 8
