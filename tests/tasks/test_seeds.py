"""The page over seeds, made of what the pipelines of several seeds left."""

import re
import runpy
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from ruamel.yaml import YAML

from tasks.common import plots
from tasks.seeds import __main__ as seeds
from tasks.seeds.__main__ import main
from tests.tasks.language.test_report import CONFIG, Elements, outs, without_answers

SEEDS = {"0": 1, "5": 2, "6": 3}  # seed -> of its random numbers
POLICIES = ["sft", "dpo"]
DRAWN = ("seeds-strict-greedy", "seeds-curves-sft")  # figures that the page has as SVG


def with_params(folder: Path) -> Path:
    YAML(typ="safe").dump({"report": {**CONFIG.model_dump(), "policies": POLICIES}}, folder / "params.yaml")
    return folder


@pytest.fixture(scope="module", autouse=True)
def few_pictures() -> Iterator[None]:
    """Figures other than DRAWN are made, but of their SVG, which takes most of the time, only the titles are
    written.
    """
    write_out = plots.render_svg

    def svg(figure: Figure, name: str) -> str:
        if name in DRAWN:
            return write_out(figure, name)
        titles = "".join(f"<text>{axis.get_title('left')}</text>" for axis in figure.axes)
        return f'<svg id="{name}">{titles}</svg>'

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "render_svg", svg)
        yield


@pytest.fixture(scope="module")
def remembered_seeds() -> Iterator[None]:
    """What a seed's pipeline left is read once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeds, "read_seed_folder", cache(seeds.read_seed_folder))
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What each seed's pipeline left."""
    root = tmp_path_factory.mktemp("seeds")
    for name, number in SEEDS.items():
        outs(root / name / "data", np.random.default_rng(number), POLICIES)
        with_params(root / name)
    return {name: root / name for name in SEEDS}


def arguments(folders: dict[str, Path]) -> list[str]:
    return [f"{name}={folder}" for name, folder in folders.items()]


@pytest.fixture(scope="module")
def page(remembered_seeds: None, folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The page as HTML and as Markdown."""
    out = tmp_path_factory.mktemp("out")
    assert main(["--out", str(out), *arguments(folders)]) == 0
    return (out / "seeds.html").read_text(), (out / "seeds.md").read_text()


def test_the_page_is_self_contained_and_well_formed(page: tuple[str, str]) -> None:
    elements = Elements()
    elements.feed(page[0])
    assert elements.open == []
    assert page[0].count("<dc:format>image/svg+xml</dc:format>") == len(DRAWN)
    assert len(set(elements.ids)) == len(elements.ids)
    assert all(resource.startswith("#") for resource in elements.resources)


def test_every_number_has_both_intervals_and_every_curve_every_seed(page: tuple[str, str]) -> None:
    html, text = page
    assert re.search(r"dpo \|.*\(seeds \+?[\d.]+ to \+?[\d.]+; problems \+?[\d.]+ to \+?[\d.]+\)", text)
    for curve in ("loss", "mean_token_accuracy", "rewards/chosen", "logps/rejected"):
        assert f">{curve}</text>" in html
    assert "Over seeds 0, 5 and 6, sft, on average the best policy on validation problems, answers " in html
    told = "these trainings differ on such problems, but another seed may not"
    assert re.search(rf"dpo: \+20.0 points .*: {told}", text), "one of the three has +0 points"
    assert "△" in text
    assert "▼" in text


def test_the_same_seeds_give_the_same_bytes(
    page: tuple[str, str], folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path), *arguments(folders)]) == 0
    assert (tmp_path / "seeds.html").read_text() == page[0]
    assert capsys.readouterr().out.strip() in page[1]


def test_without_answers_the_loss_is_told(folders: dict[str, Path], tmp_path: Path) -> None:
    given = {
        name: with_params((without_answers(folders[name] / "data", tmp_path / name / "data")).parent)
        for name in ("0", "5")
    }
    assert main(["--out", str(tmp_path / "out"), *arguments(given)]) == 0
    text = (tmp_path / "out/seeds.md").read_text()
    assert "nats a token of the reference responses" in text
    assert "right (greedy answers)" not in text


def test_one_seed_and_a_broken_file_are_one_line(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first by the command, as `python -m` runs it."""
    monkeypatch.setattr(sys, "argv", ["seeds", "--out", str(tmp_path), *arguments(folders)[:1]])
    monkeypatch.delitem(sys.modules, "tasks.seeds.__main__")
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("tasks.seeds", run_name="__main__", alter_sys=True)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "tasks.seeds: expected at least two seeds\n"
    (tmp_path / "params.yaml").write_text("report: {}\n")
    assert main(["--out", str(tmp_path), f"9={tmp_path}", *arguments(folders)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
