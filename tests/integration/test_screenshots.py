"""The pictures of the documentation can be taken again."""

from __future__ import annotations

import os
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from testkit.servers.airflow import AirflowServer

ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG\r\n\x1a\n"

pytestmark = [pytest.mark.late, pytest.mark.timeout(1800)]


def test_screenshots_are_taken(airflow: AirflowServer, chromium: str, tmp_path: Path) -> None:
    loader = SourceFileLoader("screenshots", str(ROOT / "bin" / "screenshots"))
    spec = spec_from_loader("screenshots", loader)
    assert spec is not None
    script: Any = module_from_spec(spec)
    loader.exec_module(script)
    script.make_archive(tmp_path)
    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=sandbox)
        script.take_report(browser, tmp_path, tmp_path / "report.png")
        script.take_terminal(browser, tmp_path, tmp_path / "terminal.png")
        script.take_form(browser, airflow, tmp_path / "airflow.png")
        browser.close()
    taken = {picture.name: picture.read_bytes() for picture in tmp_path.glob("*.png")}
    assert taken.keys() == {picture.name for picture in (ROOT / "docs" / "screenshots").iterdir()}
    assert all(data.startswith(PNG) and len(data) > 20_000 for data in taken.values())
