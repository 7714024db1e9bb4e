"""params.yaml: read as DVC reads it, checked with clear messages, edited without other changes."""

from pathlib import Path
from typing import Literal

import pytest
from dvc.utils.serialize import parse_yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

from flows.params import checking, editing
from flows.params.files import ParameterError
from tasks.common.config import Config

PARAMS = """\
# all values of the pipeline
dpo:  # preference tuning
  beta: 1e-1   # pull towards the reference
  rate: 1e-3
  loss: sigmoid

  sizes:
    - 1  # first
    - 2  # last
  path:
sft: {epochs: 3, shuffle: true}
"""


class Dpo(Config):
    beta: float = Field(gt=0)
    rate: float
    loss: Literal["sigmoid", "ipo"]
    sizes: list[int]
    path: str | None


class Sft(Config):
    epochs: int = Field(ge=1)
    shuffle: bool


TYPES = {"dpo": Dpo, "sft": Sft}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "params.yaml").write_text(PARAMS)
    return tmp_path


def edit(root: Path, *arguments: str) -> list[str]:
    return editing.edit_params(root, TYPES, [editing.parse_setting(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("argument", "old", "new"),
    [
        ("dpo.beta=0.2", "beta: 1e-1   # pull", "beta: 0.2   # pull"),
        ("dpo.rate=5e-4", "rate: 1e-3", "rate: 5e-4"),
        ("dpo.loss=ipo", "loss: sigmoid", "loss: ipo"),
        ("dpo.path=some/model", "path:\n", "path: some/model\n"),
        ('dpo.path="a: b # c"', "path:\n", 'path: "a: b # c"\n'),
        ("sft.epochs=4", "{epochs: 3,", "{epochs: 4,"),
        ("sft.shuffle=false", "shuffle: true}", "shuffle: false}"),
        ("dpo.sizes=[3]", "\n    - 1  # first\n    - 2  # last", " [3]  # last"),
    ],
)
def test_an_edit_changes_one_value_and_no_other_byte(root: Path, argument: str, old: str, new: str) -> None:
    assert len(edit(root, argument)) == 1
    assert (root / "params.yaml").read_text() == PARAMS.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [("sizes:\n  - 1\n  - 2\n", "sizes: [3]\n"), ("sizes:  # of: all\n    - 1\n", "sizes:  # of: all\n    [3]\n")],
)
def test_a_list_in_lines_of_its_own_becomes_one_in_its_key_s_line(root: Path, old: str, new: str) -> None:
    text = PARAMS.replace("sizes:\n    - 1  # first\n    - 2  # last\n", old)
    (root / "params.yaml").write_text(text)
    edit(root, "dpo.sizes=[3]")
    assert (root / "params.yaml").read_text() == text.replace(old, new)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dpo.beta=high"], "--set dpo.beta: expected a number above 0, got 'high'"),
        (["dpo.beta=-1"], "--set dpo.beta: expected a number above 0, got -1"),
        (["dpo.beta=true"], "--set dpo.beta: expected a number above 0, got true"),
        (["dpo.rate=.nan"], "--set dpo.rate: expected a number, got NaN"),
        (["dpo.rate=.inf"], "--set dpo.rate: expected a number, got Infinity"),
        (["sft.epochs=2.0"], "--set sft.epochs: expected a whole number of at least 1, got 2.0"),
        (["sft.epochs=true"], "--set sft.epochs: expected a whole number of at least 1, got true"),
        (["sft.shuffle=1"], "--set sft.shuffle: expected true or false, got 1"),
        (["sft.shuffle=yes"], "--set sft.shuffle: expected true or false, got 'yes'"),
        (["dpo.loss=sigmoidal"], "--set dpo.loss: expected 'sigmoid' or 'ipo', got 'sigmoidal'"),
        (["dpo.sizes=[1, x]"], "--set dpo.sizes.1: expected a whole number, got 'x'"),
        (["dpo.path=2020"], "--set dpo.path: expected text or null, got 2020"),
        (["dpo.bta=1"], "--set dpo.bta: unknown parameter; did you mean dpo.beta?"),
        (["dp.beta=1"], "--set dp: unknown section; did you mean dpo?"),
        (["sft.beta=1"], "--set sft.beta: unknown parameter; did you mean dpo.beta?"),
        (["dpo.beta.x=1"], '--set dpo.beta: expected a number above 0, got {"x": 1}'),
        (["dpo=1"], "--set dpo=1: expected section.key=value, such as dpo.beta=0.2"),
        (["dpo.beta"], "--set dpo.beta: expected section.key=value, such as dpo.beta=0.2"),
        (["dpo.sizes=[1"], "--set dpo.sizes: not valid YAML (did not find expected ',' or ']')"),
        (["dpo.beta=0.3", "sft.epochs=0"], "--set sft.epochs: expected a whole number of at least 1, got 0"),
    ],
)
def test_a_wrong_edit_is_one_line_and_leaves_the_file(root: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ParameterError) as error:
        edit(root, *arguments)
    assert str(error.value) == message
    assert (root / "params.yaml").read_text() == PARAMS
    assert sorted(path.name for path in root.iterdir()) == ["params.yaml"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("beta: 1e-1", 'beta: "high"', "params.yaml: dpo.beta: expected a number above 0, got 'high'"),
        ("rate: 1e-3", "rte: 1e-3", "params.yaml: dpo.rte: unknown parameter; did you mean dpo.rate?"),
        ("  rate: 1e-3\n", "", "params.yaml: dpo.rate: missing; expected a number"),
        ("sft: {epochs: 3, shuffle: true}\n", "", "params.yaml: sft: missing; expected keys with values"),
        ("rate: 1e-3", "rate: [1", "params.yaml: line 5, column 7: not valid YAML (did not find expected ',' or ']')"),
        (
            "rate: 1e-3",
            "\trate: 1",
            "params.yaml: line 4, column 3: not valid YAML (found character that cannot start any token)",
        ),
        ("rate: 1e-3", "beta: 1", "params.yaml: line 4, column 3: not valid YAML (found duplicate key"),
        (PARAMS, "", "params.yaml: dpo: missing; expected keys with values"),
        (PARAMS, "- 1\n", "params.yaml: expected sections with parameters, got [1]"),
    ],
)
def test_a_wrong_file_is_one_line(root: Path, old: str, new: str, message: str) -> None:
    (root / "params.yaml").write_text(PARAMS.replace(old, new))
    with pytest.raises(ParameterError) as error:
        editing.check_params(root, TYPES)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_files_that_are_not_there_or_not_text(root: Path) -> None:
    (root / "params.yaml").write_bytes(b"dpo: \xff\n")
    with pytest.raises(ParameterError, match=r"^params.yaml: cannot be read as text"):
        editing.check_params(root, TYPES)
    (root / "params.yaml").unlink()
    with pytest.raises(ParameterError, match=r"^params.yaml: not found"):
        editing.check_params(root, TYPES)


def test_a_value_that_stands_in_two_places_is_not_edited(root: Path) -> None:
    shared = PARAMS.replace("beta: 1e-1", "beta: &shared 0.5").replace("rate: 1e-3", "rate: *shared")
    (root / "params.yaml").write_text(shared)
    with pytest.raises(ParameterError, match=r"dpo.beta: cannot be changed from here; edit the file"):
        edit(root, "dpo.beta=1")
    assert (root / "params.yaml").read_text() == shared
    assert edit(root, "dpo.rate=1"), "where it is only referred to, a value of its own takes the place"
    assert (root / "params.yaml").read_text() == shared.replace("*shared", "1")


def test_an_edit_to_the_same_value_writes_nothing(root: Path) -> None:
    before = (root / "params.yaml").stat().st_mtime_ns
    assert edit(root, "dpo.beta=0.10") == []
    assert (root / "params.yaml").stat().st_mtime_ns == before


def test_of_two_edits_of_one_value_the_last_holds(root: Path) -> None:
    assert edit(root, "dpo.beta=0.2", "dpo.beta=0.3")
    assert (root / "params.yaml").read_text() == PARAMS.replace("1e-1", "0.3")


def test_a_preset_lays_its_values_over_the_file(root: Path) -> None:
    (root / "presets").mkdir()
    (root / "presets/large.yaml").write_text("# larger\nsft:\n  epochs: 9\ndpo:\n  rate: 2e-5\n  sizes: [8]\n")
    changes = editing.edit_params(root, TYPES, editing.load_preset_edits(root, TYPES, "large"))
    assert changes == ["sft.epochs: 3 -> 9", "dpo.rate: 0.001 -> 2e-05", "dpo.sizes: [1, 2] -> [8]"]
    expected = PARAMS.replace("epochs: 3", "epochs: 9").replace("1e-3", "2e-5")
    assert (root / "params.yaml").read_text() == expected.replace("\n    - 1  # first\n    - 2  # last", " [8]  # last")
    assert editing.edit_params(root, TYPES, editing.load_preset_edits(root, TYPES, "large")) == []


def test_a_wrong_preset_is_one_line_and_leaves_the_file(root: Path) -> None:
    (root / "presets").mkdir()
    (root / "presets/large.yaml").write_text("dpo:\n  rate: 2e-5\n  bta: 1\n")
    with pytest.raises(ParameterError) as unknown:
        editing.edit_params(root, TYPES, editing.load_preset_edits(root, TYPES, "large"))
    assert str(unknown.value) == "presets/large.yaml: dpo.bta: unknown parameter; did you mean dpo.beta?"
    with pytest.raises(ParameterError) as absent:
        editing.load_preset_edits(root, TYPES, "huge")
    assert (
        str(absent.value)
        == "preset huge: there is no presets/huge.yaml; `posttrain preset` lists them (there are large)"
    )
    (root / "presets/large.yaml").write_text("just text\n")
    with pytest.raises(ParameterError, match=r"^presets/large.yaml: expected sections"):
        editing.load_preset_edits(root, TYPES, "large")
    assert (root / "params.yaml").read_text() == PARAMS


SPELT = ["1e-3", "0.10", "1E5", "017", "0o17", "true", "null", "", "'it''s # one'", '"a: b"', "two words", "yes", "~"]
SPELT += ["[1, 2]", "{a: 1}", "\n    - 1\n    - 2", "\n    deep: 1e-3", "2020-01-01x"]
COMMENTS = st.sampled_from(["", "  # why", " # a: b", "   #", "\t# x"])
KEYS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5, unique=True)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_an_edit_keeps_every_comment_and_every_other_value(tmp_path: Path, data: st.DataObject) -> None:
    keys = {section: data.draw(KEYS) for section in data.draw(KEYS)}
    lines, marked = ["# first line"], {}
    for section, names in keys.items():
        lines.append(f"{section}:{data.draw(COMMENTS)}")
        for name in names:
            marked[section, name] = len(lines)
            lines += f"  {name}: {data.draw(st.sampled_from(SPELT))}{data.draw(COMMENTS)}".split("\n")
            lines += data.draw(st.sampled_from([[], [""], ["  # between"], ["# at the edge"]]))
    section = data.draw(st.sampled_from(list(keys)))
    name = data.draw(st.sampled_from(keys[section]))
    text = data.draw(st.sampled_from([spelt for spelt in SPELT if "\n" not in spelt]))
    path, before = tmp_path / "params.yaml", "\n".join(lines) + "\n"
    path.write_text(before)

    editing.edit_params(tmp_path, {}, [editing.parse_setting(f"{section}.{name}={text}")])

    wanted = parse_yaml(before, path)  # by DVC's own reader
    wanted[section][name] = parse_yaml(f"value: {text}", path)["value"]
    assert parse_yaml(path.read_text(), path) == wanted
    after = path.read_text().split("\n")
    start = marked[section, name]
    end = start + 1
    while end < len(lines) and lines[end].startswith("    "):
        end += 1
    rest = len(lines) - end
    assert after[:start] == lines[:start]
    assert after[len(after) - 1 - rest : -1] == lines[end:]
    assert comments("\n".join(after)) == comments(before)


def comments(text: str) -> list[str]:
    return [line.partition("#")[2] for line in text.replace("'it''s # one'", "").split("\n") if "#" in line]


NINES = "9" * 400
LAUGHS = "\n".join(
    [
        "a0: &a0 [x, x, x, x, x, x, x, x, x, x]",
        *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)),
    ]
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"dpo: {{beta: {NINES}}}", "a number of more than 300 digits"),
        (f"dpo: {{beta: -{NINES}}}", "a number of more than 300 digits"),
        ("dpo: &a {beta: [*a]}", "a value that holds itself"),
        (f"dpo: {'[' * 51}{']' * 51}", "nested deeper than 50 levels"),
        (f"dpo: {'[' * 5000}{']' * 5000}", "nested deeper than 50 levels"),
        (LAUGHS, "more than 100000 values"),
        (
            "dpo: !!python/object/apply:os.system ['touch pwned']",
            "line 1, column 6: not valid YAML (could not determine a",
        ),
    ],
    ids=["digits", "negative", "cycle", "deep", "very deep", "laughs", "object"],
)
def test_what_yaml_can_write_and_no_parameter_can_be_is_one_line(root: Path, text: str, expected: str) -> None:
    (root / "params.yaml").write_text(text)
    for act in (
        lambda: editing.check_params(root, TYPES),
        lambda: editing.edit_params(root, TYPES, [editing.parse_setting("dpo.beta=0.2")]),
    ):
        with pytest.raises(ParameterError) as caught:
            act()
        assert str(caught.value).startswith(f"params.yaml: {expected}")
        assert len(str(caught.value)) < 300
    assert not (root / "pwned").exists()


def test_the_same_on_the_command_line_names_the_key(root: Path) -> None:
    with pytest.raises(ParameterError, match=r"^--set dpo.beta: a number of more than 300 digits$"):
        editing.parse_setting(f"dpo.beta={NINES}")
    with pytest.raises(ParameterError, match=r"^--set dpo.beta: a value that holds itself$"):
        editing.parse_setting("dpo.beta=&a [*a]")


@pytest.mark.parametrize("name", ["../presets/tiny", "../tiny", "/etc/passwd", "", ".", "a/b"])
def test_a_preset_is_a_file_of_its_folder(name: str) -> None:
    with pytest.raises(ParameterError, match=r"there is no presets/.*`posttrain preset` lists them"):
        editing.load_preset_edits(Path(__file__).parents[3], TYPES, name)


def test_a_stage_that_the_running_code_does_not_have_is_one_line(tmp_path: Path) -> None:
    """So in a clone that runs another clone's command, or where the Config has another name."""
    for folder in ("tasks/language", "tasks/language/configs"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "lengths.py").touch()
    told = r"^tasks/language/configs/lengths.py: no class LengthsConfig found; posttrain runs the code in /"
    with pytest.raises(ParameterError, match=told):
        checking.load_config_classes(tmp_path)
