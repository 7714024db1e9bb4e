"""What the checks let pass, DVC reads: text of bounds, data as plain as JSON's, and paths of files on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dvc.dependency import loads_from
from dvc.parsing.context import Context
from dvc.repo import Repo
from dvc.stage import PipelineStage
from dvc.utils.serialize import parse_yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from flows.params import editing
from flows.params.files import ParameterError, parse_yaml_text
from tasks.common.config import Config, LocalPath, is_path_inside_folder

BRACKETS = 50_000
DEEP = "nested deeper than 50 levels"
MANY = "more than 100000 values"
MERGED = "\n".join(
    ["a0: &a0 {x: 1, y: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}, *a{n - 1}]}}" for n in range(1, 30))]
)
CRASHING = {
    f"a: {'[' * BRACKETS}": DEEP,
    f"a: {'[' * BRACKETS}{']' * BRACKETS}": DEEP,
    f"a: {'{a: ' * BRACKETS}": DEEP,
    f"{'- ' * BRACKETS}1": DEEP,
    "? " * BRACKETS: DEEP,
    "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 60)): DEEP,
    MERGED: MANY,
    "a: &a {<<: *a}": "a value that holds itself",
}
CHILD = """
import json, sys
from pathlib import Path
from flows.params import editing
from flows.params.files import ParameterError

root = Path(sys.argv[1])
places = {
    "params.yaml": lambda text: ((root / "params.yaml").write_text(text), editing.check_params(root, {})),
    "presets/a.yaml": lambda text: (
        (root / "presets/a.yaml").write_text(text), editing.load_preset_edits(root, {}, "a")
    ),
    "--set a.b": lambda text: editing.parse_setting(f"a.b={text}"),
}
for text, expected in json.load(sys.stdin).items():
    for name, act in places.items():
        try:
            act(text)
            print(f"taken from {name}: {text[:60]!r}")
        except ParameterError as error:
            if str(error) != f"{name}: {expected}":
                print(str(error)[:300])
"""


def test_what_would_crash_the_parser_is_refused_before_it(tmp_path: Path) -> None:
    """In a process of its own, which a stack without bounds would end."""
    (tmp_path / "presets").mkdir()
    command, text = [sys.executable, "-c", CHILD, str(tmp_path)], json.dumps(CRASHING)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2020-01-01", "expected text, a number, true, false or null, got a value of type date; in quotes it is text"),
        (
            "{b: !!timestamp '2020-01-01T10:00:00Z'}",
            "b: expected text, a number, true, false or null, got a value of type datetime",
        ),
        (
            "[1, !!timestamp '2001-12-14 21:59:43']",
            "expected text, a number, true, false or null, got a value of type datetime",
        ),
        ("!!binary aGk=", "expected text, a number, true, false or null, got a value of type bytes"),
        ("!!set {x}", "expected text, a number, true, false or null, got a value of type set"),
        ("!!pairs [x: 1]", "expected text, a number, true, false or null, got a value of type tuple"),
        ('"a\\e[31m"', r"expected text without control characters, got 'a\x1b[31m'"),
        ('{"a\\e[31m": 1}', r"expected text without control characters, got 'a\x1b[31m'"),
        ('"a\\x85b"', r"expected text without control characters, got 'a\x85b'"),
        ("{1: x}", "expected text as a key, got 1; in quotes it is text"),
        ("{b: {true: x}}", "b: expected text as a key, got True; in quotes it is text"),
        ("{~: x}", "expected text as a key, got None; in quotes it is text"),
        ("{2020-01-01: x}", "expected text as a key, got 2020-01-01; in quotes it is text"),
        ("!!bool x", "a value that YAML cannot read (KeyError: 'x'); in quotes it is text"),
        ("!!int ''", "a value that YAML cannot read (IndexError: string index out of range); in quotes it is text"),
        ("2020-99-99", "a value that YAML cannot read (ValueError: month must be in 1..12); in quotes it is text"),
    ],
)
def test_what_json_has_not_is_one_line_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "params.yaml").write_text(f"a: {text}\n")
    with pytest.raises(ParameterError) as in_file:
        editing.check_params(tmp_path, {})
    place = "" if message.startswith("a value that YAML") else "a: " if message[:8] == "expected" else "a."
    assert str(in_file.value).startswith(f"params.yaml: {place}{message}")
    with pytest.raises(ParameterError) as on_command_line:
        editing.parse_setting(f"a.b={text}")
    assert str(on_command_line.value).startswith(f"--set a.b: {message}")


FRAGMENTS = [
    *"[]{}~|>#=.",
    ": ",
    ", ",
    "- ",
    "? ",
    "\n",
    "\n  ",
    " ",
    "&a ",
    "*a",
    "<<: *a",
    "<<: ",
    "!!str ",
    "!!bool ",
]
FRAGMENTS += ["!!int ", "!!float ", "!!set ", "!!omap ", "!x ", "'", '"', "'y'", '"\\u0085"', '"\\ud83d\\ude00"', "\\"]
FRAGMENTS += [
    "a",
    "b: 1",
    "yes",
    "off",
    "null",
    "1e5",
    ".5",
    "0o17",
    "017",
    "0x1F",
    "1_000",
    "12:30:45",
    "+.inf",
    ".nan",
]
FRAGMENTS += ["2020-01-01", "2001-12-14t21:59:43.10-05:00", "-0", "1" * 320, "\t", "\x85", "\u2028", "\ufeff", "---\n"]
FRAGMENTS += ["...\n", "%YAML 1.1\n---\n", "${x}", "é"]


def read(text: str) -> tuple[Any, str]:
    """The data, or why they are refused."""
    try:
        return parse_yaml_text(text, "x"), ""
    except ParameterError as error:
        return None, str(error)


@settings(max_examples=300)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
@example("a: &a {b: 1}\nc: {<<: *a}\n")
@example("%YAML 1.1\n---\na: [yes, 017, 1_000, 12:30:45]\n")
def test_whatever_is_taken_dvc_reads_in_the_same_way(text: str) -> None:
    data, refusal = read(text)
    assert "\n" not in refusal
    assert len(refusal) < 300
    if refusal:
        return
    assert repr(parse_yaml(text, "x")) == repr(data or {})
    if isinstance(data, dict):
        assert repr(Context(data).value) == repr(data)


class Named(Config):
    path: LocalPath


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repo]:
    folder = tmp_path_factory.mktemp("repository")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_SITE_CACHE_DIR", str(folder / ".site"))
        patch.chdir(folder)
        with Repo.init(str(folder), no_scm=True) as made:
            yield made


REMOTE = ["s3://bucket/x", "S3:x", " s3://x", "s3\n://x", "remote://name/x", "ssh:x", "https://host/x", "run:1", "//[x"]


@pytest.mark.parametrize(
    "text", ["", "a\0b", "a\nb", "a\x1b[31m", "a\x85", "\u2028", "x" * 256, "é" * 128, "a/" * 501, *REMOTE]
)
def test_what_is_no_path_of_a_file_here_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="expected the path of a file or folder on this machine"):
        Named.parse_section({"path": text})


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.sampled_from("a.:/\\ ~$*?[]{}#%@-é\u00a0s3\n\0\t"), max_size=12) | st.text(max_size=300))
@example("x" * 255)
@example("~/x")
@example("${problems.path}")
@example("C:/x")
@example("data/raw/problems:x")
def test_every_path_that_is_taken_dvc_can_look_for(repo: Repo, text: str) -> None:
    try:
        path = Named.parse_section({"path": text}).path
    except ValidationError:
        return
    [dep] = loads_from(PipelineStage(repo), [path])
    assert dep.protocol == "local"
    assert dep.exists == os.path.lexists(path)
    Path(path).exists()


def test_a_place_below_a_folder_can_be_one() -> None:
    assert is_path_inside_folder("")
    assert is_path_inside_folder("a/b.jsonl")
    assert not any(map(is_path_inside_folder, ["/etc", "../x", "a\0b", "x" * 256]))


def test_a_preset_may_share_values_by_a_merge_key(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("a: {x: 1, y: {z: 1, w: 5}}\nb: {x: 1, y: {z: 1, w: 5}}\n")
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets/p.yaml").write_text("a: &a {x: 2, y: {z: 3}}\nb:\n  <<: *a\n  x: 4\n")
    types: dict[str, Any] = dict.fromkeys("ab", Section)
    editing.edit_params(tmp_path, types, editing.load_preset_edits(tmp_path, types, "p"))
    merged = {"a": {"x": 2, "y": {"z": 3, "w": 5}}, "b": {"x": 4, "y": {"z": 3, "w": 5}}}
    assert parse_yaml((tmp_path / "params.yaml").read_text(), "params.yaml") == merged


class Inner(Config):
    z: int
    w: int


class Section(Config):
    x: int
    y: Inner
