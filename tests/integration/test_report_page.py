"""The page of `report` in a browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from streamvault import export_stream, write_report
from testkit.small_archives import NAME, Vault

SCREENS: list[tuple[str, dict[str, Any]]] = [
    ("light", {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}),
    ("dark", {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"}),
    ("phone", {"viewport": {"width": 360, "height": 740}, "color_scheme": "light"}),
]
BACKGROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vault = Vault(tmp_path_factory.mktemp("report"))
    vault.make(60, largest=2_000)
    vault.export("chunks")
    vault.add(b"more", b"events")
    vault.export("chunks")
    export_stream(vault.uri(), f"{vault.root}/second", master="inline")
    file = vault.folder / "page.html"
    write_report(vault.root, output=file)
    return file


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    # a browser of root's, as in a container, has no sandbox
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        yield browser
        browser.close()


@pytest.mark.parametrize(("name", "screen"), SCREENS, ids=[name for name, _ in SCREENS])
def test_page_is_drawn_without_errors_and_without_a_network(
    page: Path, browser: Browser, name: str, screen: dict[str, Any]
) -> None:
    with browser.new_context(**screen) as context:
        opened = context.new_page()
        said: list[str] = []
        requests: list[str] = []
        opened.on("console", lambda message: said.append(message.text))
        opened.on("pageerror", lambda error: said.append(str(error)))
        opened.on("request", lambda request: requests.append(request.url))
        opened.goto(page.as_uri())
        scheme = screen["color_scheme"]
        opened.wait_for_selector(f"html[data-drawn={scheme}]")
        assert (said, requests) == ([], [page.as_uri()])
        # two archives: one with three charts, one of a single generation without a heat map
        assert opened.locator(".chart svg.marks").count() == 5
        marks = {
            chart: opened.locator(f"#{chart} .mark-rect.role-mark path").count()
            for chart in ("a0-heat-map", "a0-generations", "a0-segments")
        }
        assert marks["a0-heat-map"] > 5
        assert marks["a0-generations"] == 2
        assert marks["a0-segments"] == 7
        assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == BACKGROUNDS[scheme]
        # nothing is wider than the screen: only tables scroll, in their own boxes
        assert opened.evaluate("document.documentElement.scrollWidth") == screen["viewport"]["width"]
        assert f"{NAME}" in opened.inner_text("#index")


def test_tooltip_and_button_work_and_the_page_follows_the_theme(page: Path, browser: Browser) -> None:
    with browser.new_context(color_scheme="light", viewport={"width": 1280, "height": 900}) as context:
        opened = context.new_page()
        opened.goto(page.as_uri())
        opened.wait_for_selector("html[data-drawn=light]")
        opened.locator("#a0-heat-map .mark-rect.role-mark path").last.hover()
        opened.wait_for_selector("#vg-tooltip-element.visible")
        shown = opened.inner_text("#vg-tooltip-element")
        assert all(word in shown for word in ("segment", "generations", "events", "cut"))
        button = opened.locator(".command button").first
        button.click()
        opened.wait_for_function("document.querySelector('.command button').textContent !== 'copy'")
        opened.emulate_media(color_scheme="dark")
        opened.wait_for_selector("html[data-drawn=dark]")
