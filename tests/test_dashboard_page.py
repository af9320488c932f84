"""The dashboard's page and a report in a real browser: clicks, drawings, no console errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rlox import cli

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)

playwright = pytest.importorskip("playwright.sync_api", reason="the group browser is not installed")
pytest.importorskip("starlette")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is on this machine")

EVIL = "<img src=x onerror=\"document.title='run'\">"
RED, BLUE = (213, 94, 0), (0, 114, 178)
"""The first two colours of lines, in the order of the groups' names."""


def make_run(folder: Path, **record: Any) -> Path:
    """Write a run folder with a rising and a falling metric."""
    folder.mkdir(parents=True)
    values = {"algorithm": "ppo", "env": "CartPole-v1", "status": "running", "seed": 0}
    values |= {"total_timesteps": 100, "env_steps": 0, "step_unit": "env_steps", **record}
    (folder / "run.json").write_text(json.dumps(values), encoding="utf-8")
    (folder / "config.yaml").write_text("gamma: 0.9\n", encoding="utf-8")
    for step in range(1, 21):
        append(folder, step, {"mean_reward": float(step), "loss": float(-step)})
    return folder


def append(folder: Path, step: int, metrics: dict[str, float]) -> None:
    """Append a row to the log."""
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": "train", "step": step, **metrics}) + "\n")


def film(path: Path) -> None:
    """Write a film of two frames."""
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir()
    frames = [image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    frames[0].save(path, save_all=True, append_images=frames[1:])


@pytest.fixture
def page() -> Iterator[Any]:
    """Return a page of a headless browser; what its console complains of fails the test."""
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.set_default_timeout(20_000)
        complaints: list[str] = []
        kinds = ("error", "warning")
        page.on("console", lambda m: complaints.append(m.text) if m.type in kinds else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
        assert complaints == []
        browser.close()


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Start a dashboard of three runs, one of them a stranger's, and return its address."""
    monkeypatch.chdir(tmp_path)
    make_run(Path("runs/a"))
    (make_run(Path("runs/b"), algorithm="a2c") / "config.yaml").write_text("gamma: 0.5\n")
    make_run(Path("runs") / EVIL.replace("/", ""), env=EVIL, seed=EVIL, algorithm="ppo")
    command = [sys.executable, "-c", "from rlox.cli import main; main()", "dashboard"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]
    finally:
        process.terminate()
        process.communicate()


def drawn(page: Any, place: int = 0) -> int:
    """Return how many pixels of a chart have the colour of a line."""
    count = """(canvas, colours) => {
        const c = canvas.getContext("2d");
        const data = c.getImageData(0, 0, canvas.width, canvas.height).data;
        let found = 0;
        for (let i = 0; i < data.length; i += 4)
            found += colours.some((rgb) => rgb.every((v, k) => Math.abs(v - data[i + k]) < 3))
                && data[i + 3] > 200;
        return found;
    }"""
    return int(page.locator("#charts canvas").nth(place).evaluate(count, [RED, BLUE]))


def test_page_follows_filters_compares_and_shows_runs(address: str, page: Any) -> None:
    """As its user clicks; texts of a stranger's run stay texts."""
    page.goto(address)
    expect = playwright.expect
    expect(page.locator("#runs tbody tr")).to_have_count(3)
    expect(page.locator("#state")).to_have_text("live")
    expect(page.locator("#charts canvas")).to_have_count(2)  # one per env
    page.wait_for_function("() => curves.size === 3")
    page.wait_for_timeout(200)  # a frame that draws
    assert drawn(page) > 200
    assert page.title() == "rlox: 3 runs, 3 running"
    assert page.locator("#runs img, #charts img").count() == 0

    append(Path("runs/a"), 30, {"mean_reward": 99.0, "entropy": 0.5})
    expect(page.locator("#runs tr", has_text="30 of 100")).to_have_count(1)
    expect(page.locator("#metric option[value=entropy]")).to_have_count(1)
    make_run(Path("runs/later"), status="failed")
    expect(page.locator("#runs tbody tr")).to_have_count(4)

    page.locator("#filter").fill("cartpole failed")
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    page.locator("#filter").fill("")
    page.locator("#metric").select_option("loss")
    expect(page.locator("#runs tr", has_text="-20")).to_have_count(4)

    page.locator("th[data-key=algorithm]").click()
    expect(page.locator("#runs tbody tr").first).to_contain_text("a2c")
    for row in (0, 1):
        page.locator("#runs input[type=checkbox]").nth(row).check()
    page.locator("#compare").click()
    expect(page.locator("#details")).to_contain_text("gamma")
    expect(page.locator("#details")).to_contain_text("0.5")

    page.locator("#runs button", has_text="later").click()
    expect(page.locator("#details h2")).to_have_text("later")
    expect(page.locator("#details canvas")).to_have_count(2)
    expect(page.locator("#details pre")).to_contain_text('"mean_reward": 20.0')
    page.locator("#details button", has_text="close").click()
    expect(page.locator("#details")).to_be_hidden()
    page.locator("#runs button", has_text="onerror").click()
    expect(page.locator("#details h2")).to_contain_text("onerror")
    assert page.title().startswith("rlox: ")
    keep(page, "dashboard")

    film(Path("runs/a/videos/step-1-episode-1.gif"))
    page.locator("#details button", has_text="close").click()
    page.locator("#runs button").get_by_text("a", exact=True).click()
    expect(page.locator("#details figcaption")).to_have_text("videos/step-1-episode-1.gif")
    page.wait_for_function("() => document.querySelector('img.film').naturalWidth === 16")


def test_report_opens_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Any
) -> None:
    """Its pictures are drawn, and it asks for nothing."""
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    make_run(Path("runs/a"))
    make_run(Path("runs/b"), env=EVIL, seed=EVIL)
    monkeypatch.setattr(sys, "argv", ["rlox", "report", "runs", "--title", EVIL])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(Path("report.html").absolute().as_uri())
    widths = page.locator("img").evaluate_all("images => images.map((i) => i.naturalWidth)")
    assert widths
    assert min(widths) > 300
    assert [url for url in asked if not url.startswith(("data:", "file:"))] == []
    assert page.title() == EVIL
    keep(page, "report")


def keep(page: Any, name: str) -> None:
    """Keep a picture in the folder that ``RLOX_SCREENSHOTS`` names, if it names one."""
    folder = os.environ.get("RLOX_SCREENSHOTS")
    if folder:
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=Path(folder, f"{name}.png"))
