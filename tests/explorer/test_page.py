"""The page in a real browser: contract tests, one story each."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

import dplateau as dp
from dplateau.explorer.server import Explorer
from dplateau.plan.plan import Plan

pytestmark = pytest.mark.xdist_group("browser")  # one explorer and one browser for all of them


def exact_epsilon(page: Any) -> str:
    page.wait_for_selector('#epsilon[data-status="exact"]')
    return page.text_content("#epsilon").removeprefix("ε = ")


def plan_on(page: Any) -> Plan:
    page.press("#tab-json", "Enter")  # a mouse may miss it while answers move the page
    page.wait_for_selector('#tab-json[aria-selected="true"]')
    return Plan.from_json(page.text_content("#text"))


def settle(page: Any) -> None:
    """Wait until the exact answer to the latest change is shown."""
    page.wait_for_timeout(300)
    page.wait_for_selector('#epsilon[data-status="exact"]')


def finished(page: Any) -> None:
    """Wait until every figure is exact."""
    page.wait_for_selector('#headline[data-busy="false"]')


def set_field(page: Any, name: str, value: str) -> None:
    page.fill(f"#f-{name}", value)


def test_a_plan_is_set_and_its_steps_dragged_to_infinity(look: Any) -> None:
    page = look()
    set_field(page, "records", "20000")
    set_field(page, "iterations", "5000")
    set_field(page, "noise_multiplier", "7.5")
    settle(page)
    plan = plan_on(page)
    assert (plan.records, plan.iterations) == (20_000, 5000)
    assert float(exact_epsilon(page)) == pytest.approx(dp.account(plan).epsilon(1e-6), rel=1e-4)
    box = page.locator("#s-iterations").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    for part in (0.6, 0.7, 0.8, 0.9, 1.0):
        page.mouse.move(box["x"] + part * box["width"] + 5 * (part == 1), box["y"] + 5)
    page.mouse.up()
    settle(page)
    plan = plan_on(page)
    assert plan.iterations == math.inf
    shown, account = exact_epsilon(page), dp.account(plan).epsilon(1e-6)
    assert f"{float(shown):.4g}" == f"{account:.4g}"
    assert float(shown) >= account  # rounded up, never down
    assert page.complaints == []


def test_a_wrong_field_is_explained_in_the_words_of_the_refusal(look: Any) -> None:
    page = look()
    plan = plan_on(page)
    set_field(page, "step_size", "99")
    page.wait_for_selector("#e-step_size:not(:empty)")
    with pytest.raises(dp.PlanError) as refusal:
        plan.replace(step_size=99.0)
    assert page.text_content("#e-step_size") == str(refusal.value)
    assert page.get_attribute("#f-step_size", "aria-invalid") == "true"
    set_field(page, "step_size", "many")
    page.wait_for_selector("#e-step_size:has-text(\"found 'many'\")")
    set_field(page, "step_size", "2")
    page.wait_for_selector("#e-step_size:empty", state="attached")
    settle(page)


def test_calibration_is_cancelled_and_found(look: Any) -> None:
    page = look()
    before = plan_on(page).fingerprint()
    page.select_option("#preset", "readme")  # a slow plan, so that there is time to cancel
    page.fill("#target", "0.5")
    page.click("#find")
    page.wait_for_selector("#cancel:not([disabled])")
    page.click("#cancel")
    assert "Cancelled" in page.text_content("#back-said")
    assert page.is_hidden("#use")
    page.select_option("#preset", "")
    page.fill("#target", "1")
    page.click("#find")
    page.wait_for_selector("#use:visible")
    assert page.locator("#tries li").count() > 2
    page.click("#use")
    settle(page)
    plan = plan_on(page)
    assert plan.fingerprint() != before
    assert 0.99 < dp.account(plan).epsilon(1e-6) <= 1


def test_the_link_restores_the_state(look: Any) -> None:
    page = look()
    set_field(page, "noise_multiplier", "12.5")
    set_field(page, "delta", "1e-7")
    settle(page)
    shown, plan = exact_epsilon(page), plan_on(page)
    again = look(page.url)
    assert exact_epsilon(again) == shown
    assert plan_on(again) == plan
    assert again.input_value("#f-delta") == "1e-7"


def test_no_request_leaves_the_machine_and_no_cookie_is_kept(look: Any, explorer: Explorer) -> None:
    page = look()
    finished(page)
    assert len(page.requested) > 8
    assert all(url.startswith(explorer.url) for url in page.requested)
    assert page.context.cookies() == []
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0


def test_a_page_of_another_site_cannot_read_or_ask(browser: Any, explorer: Explorer) -> None:
    page = browser.new_page()
    page.goto("data:text/html,<title>elsewhere</title>")
    asked = page.evaluate(
        """(url) => fetch(url + "ask", {method: "POST", body: "{}"})
             .then((r) => "read " + r.status, (e) => "blocked")""",
        explorer.url,
    )
    assert asked == "blocked"
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "options"),
    [(1280, {}), (390, {"color_scheme": "dark"}), (640, {"device_scale_factor": 2})],
    ids=["1280", "390 dark", "200 %"],
)
def test_nothing_is_cut_off(look: Any, width: int, options: dict[str, Any]) -> None:
    page = look(width=width, **options)  # 1280 pixels at 200 % are 640 of the page's
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for name in ("steps", "noise", "attack"):
        cut = page.evaluate(
            """(id) => {
                const svg = document.querySelector(`#figure-${id} .stage svg`);
                const frame = svg.getBoundingClientRect();
                return [...svg.querySelectorAll("text")].filter((t) => {
                    const b = t.getBoundingClientRect();
                    return b.left < frame.left - 1 || b.right > frame.right + 1;
                }).map((t) => t.textContent);
            }""",
            name,
        )
        assert cut == []


@pytest.mark.slow
def test_the_keyboard_alone_will_do(look: Any) -> None:
    page = look()
    page.focus("#s-iterations")
    page.keyboard.press("Home")
    settle(page)
    assert plan_on(page).iterations == 1
    page.focus("#s-iterations")
    page.keyboard.press("End")
    settle(page)
    assert plan_on(page).iterations == math.inf
    page.focus("#figure-steps .stage")
    page.keyboard.press("End")
    assert re.match(r"After ∞ steps: .*reported", page.text_content("#figure-steps .readout"))
    page.keyboard.press("ArrowLeft")
    assert "composition" in page.text_content("#figure-steps .readout")
    page.focus("#tab-python")
    page.keyboard.press("ArrowRight")
    assert page.text_content("#text").startswith("dplateau account --records")
    # Everything that can be used has a name that is read out.
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select")].filter((e) =>
             !(e.textContent.trim() || e.labels?.length || e.getAttribute("aria-label"))).length"""
    )
    assert nameless == 0


@pytest.mark.slow
def test_lines_are_told_apart_without_colour(look: Any) -> None:
    page = look()
    finished(page)
    looks = page.evaluate(
        """() => [...document.querySelectorAll("#figure-steps .legend button")].map((b) => [
             b.textContent, b.querySelector(".line").getAttribute("stroke-dasharray"),
             b.querySelector(".line").classList.contains("strong"),
             b.querySelector(".marker")?.getAttribute("d") ?? ""])"""
    )
    assert len(looks) >= 5
    assert len({json.dumps(look[1:]) for look in looks}) == len(looks)
    names = {look[0] for look in looks}
    assert {"composition", "the paper", "shift", "forgetting", "lower bound", "reported"} <= names


@pytest.mark.slow
def test_pictures_are_saved(look: Any) -> None:
    page = look()
    with page.expect_download() as download:
        page.click('[data-save="svg"][data-figure="steps"]')
    text = download.value.path().read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert "training steps" in text
    assert "var(" not in text  # colours are written out
    with page.expect_download() as download:
        page.click('[data-save="png"][data-figure="attack"]')
    assert download.value.path().read_bytes()[:4] == b"\x89PNG"
