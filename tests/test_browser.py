"""The dashboard of three training runs in a real browser, and the picture that README shows of it.

OPTKIT_SCREENSHOT=notebooks/images/dashboard.png python -m pytest -m slow tests/test_browser.py
makes that picture anew.
"""

import io
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import summaries
from optkit import demo

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
OPTIMIZERS = ("Adam", "Momentum", "ProximalAdagrad")
RUNS = [f"demo-{optimizer}-1" for optimizer in OPTIMIZERS]
FILTER = "^OptimizeLoss/(loss|learning_rate|global_norm)|test/|gradients/hidden/weights"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    logdir = tmp_path_factory.mktemp("runs")
    digits = demo.load()
    for name in OPTIMIZERS:
        settings = demo.Settings(optimizer=name, decay="cosine", clip=0.3)
        run = demo.train(settings, digits, logdir).directory
        with summaries.SummaryWriter(run) as writer:
            writer.hparams({"optimizer": name, "learning_rate": settings.learning_rate})
    with summaries.dashboard(logdir, show=False, reload_interval=0.5) as board:
        end = time.monotonic() + 60
        while len(board.query("data/plugin/histograms/tags")) < len(OPTIMIZERS):
            assert time.monotonic() < end, "the runs are not loaded"
        yield board


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser, board):
    """A page, and after the test a look at what went wrong in it."""
    page = browser.new_page(viewport={"width": 1360, "height": 1180})
    page.set_default_timeout(60_000)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda entry: errors.append(entry.text) if entry.type == "error" else None)
    yield page
    page.close()
    assert errors == []


def settled(page):
    """The page as a PNG, when several looks at it are the same."""
    page.wait_for_load_state("networkidle")
    page.wait_for_function("!document.querySelector('mat-spinner, mat-progress-spinner')")
    end = time.monotonic() + 60
    looks = [page.screenshot()]
    while len(looks) < 4 or len({*looks[-4:]}) > 1:
        assert time.monotonic() < end, "the page does not come to rest"
        looks.append(page.screenshot())
    return looks[-1]


def opened(png):
    return Image.open(io.BytesIO(png)).convert("RGB")


def count_colours(png):
    pixels = np.asarray(opened(png)).astype(np.int64)
    return len(np.unique(pixels @ [1, 256, 65536]))


def test_the_time_series_are_drawn(board, page, tmp_path):
    page.goto(f"{board.url}?tagFilter={FILTER}&smoothing=0#timeseries")
    page.wait_for_selector("histogram-card")
    page.get_by_text("Enable step selection and data table").click()
    page.get_by_role("button", name="Settings").first.click()
    page.wait_for_function("document.querySelectorAll('scalar-card').length == 6")
    assert page.locator("histogram-card").count() == len(RUNS)
    names = page.locator("runs-data-table, runs-table").first.inner_text()
    assert [run for run in RUNS if run in names] == RUNS
    picture = settled(page)
    path = Path(os.environ.get("OPTKIT_SCREENSHOT", tmp_path / "dashboard.png"))
    opened(picture).quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    assert path.stat().st_size < 200_000
    assert count_colours(picture) > 100


def test_the_layout_has_four_charts(board, page):
    page.goto(f"{board.url}#custom_scalars")
    page.wait_for_selector("text=global norm before and after clipping")
    for title, lines in (("loss", 6), ("learning rate", 3), ("gradient norms", 12)):
        assert page.get_by_text(title, exact=True).count() >= 1
        assert page.get_by_text(f"Matches ({lines})").count() >= 1
    assert count_colours(settled(page)) > 100


def test_hyper_parameters_are_a_row_for_each_run(board, page):
    page.goto(f"{board.url}#hparams")
    for run, name in zip(RUNS, OPTIMIZERS, strict=True):
        page.wait_for_selector(f"text={run}")
        assert page.get_by_text(name, exact=True).count() >= 1


def test_histograms_have_their_descriptions(board, page):
    page.goto(f"{board.url}#histograms")
    page.wait_for_selector("text=gradient of hidden/weights")


def test_readme_shows_a_picture_of_these_runs():
    picture = (ROOT / "notebooks" / "images" / "dashboard.png").read_bytes()
    assert "notebooks/images/dashboard.png" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert count_colours(picture) > 100
