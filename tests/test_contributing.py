"""What CONTRIBUTING.md adds, from the page's own blocks: no stage but the new one and the report gets other code or
other params.
"""

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from ruamel.yaml import YAML

from flows.engine import stage_code
from tasks import contract
from tasks.code import registries
from tests import repository
from tests.conftest import PARAMS

pytestmark = pytest.mark.tree
ROOT = repository.ROOT
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
BLOCK = re.compile(r"^   ```(\w+)\n(.*?)^   ```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`(t[\w/]+\.py)`")
SAFE = YAML(typ="safe")
PRESET = repository.preset("tiny")
TINY = {name: {**values, **PRESET.get(name, {})} for name, values in PARAMS.items()}
WORK = {file.relative_to(ROOT).as_posix(): file.read_bytes() for file in repository.files("tasks/**/*")}


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def blocks(title: str, language: str) -> list[tuple[str, str]]:
    """Each block of a section without the indent of its list, with the file that the page names last before it."""
    text = section(title)
    return [
        ((NAMED.findall(text[: block.start()]) or [""])[-1], dedent(block[2]))
        for block in BLOCK.finditer(text)
        if block[1] == language
    ]


def files(title: str) -> dict[str, bytes]:
    """The whole modules of tasks/ that a section shows, by path: a whole one has a docstring."""
    return {
        file: text.encode()
        for file, text in blocks(title, "python")
        if file.startswith("tasks/") and text.startswith('"""')
    }


def yaml_blocks(title: str) -> list[dict[str, Any]]:
    return [SAFE.load(text) for _, text in blocks(title, "yaml")]


def changed(more: dict[str, bytes], params: dict[str, Any], before: dict[str, Any] = TINY) -> set[str]:
    """The stages whose code or own section differ once these files are there and params.yaml says so."""
    old, new = code(WORK, before), code({**WORK, **more}, params)
    sections = {name for name in {*before, *params} if before.get(name) != params.get(name)}
    return sections | {Path(path).stem for path in {*old, *new} if old.get(path) != new.get(path)} - {"sources"}


def code(work: dict[str, bytes], params: dict[str, Any]) -> dict[str, str]:
    return dict(stage_code.compute_stage_code_hashes(work, registries.collect_choices(params)))


def test_a_new_stage_runs_alone():
    stage, params = files("Add a stage"), yaml_blocks("Add a stage")
    assert {*stage} == {"tasks/language/configs/lengths.py", "tasks/language/lengths.py"}
    assert changed(stage, {**TINY, **params[0]}) == {"lengths"}


def test_a_new_reward_runs_nothing_and_then_who_names_it():
    name, [(file, content)] = "brevity", files("Add a reward").items()
    assert changed({file: content}, TINY) == set()
    paid = {**TINY, "grpo": {**TINY["grpo"], "reward": {**TINY["grpo"]["reward"], name: 0.2}}}
    assert changed({file: content}, paid) == {"grpo"}
    with_file = code({**WORK, file: content}, paid)
    edited = code({**WORK, file: content.replace(b"10 / (10", b"9 / (9")}, paid)
    assert {path for path in edited if edited[path] != with_file[path]} == {
        "data/code/grpo.json",
        "data/code/sources.json",
    }


def test_a_new_method_runs_itself_and_the_report():
    title = "Add a method"
    texts = [text for _, text in blocks(title, "python")]
    [config], [stage] = ([text for text in texts if text.startswith(what)] for what in ("class SlicConfig", "CURVES"))
    like = {name: WORK[f"tasks/language/{name}.py"].decode() for name in ("dpo", "configs/dpo")}
    imports = {
        name: re.split(r"^(?=[A-Z]|class )", text, maxsplit=1, flags=re.MULTILINE)[0] for name, text in like.items()
    }
    module = f'{imports["dpo"]}{stage}\n\nif __name__ == "__main__":\n    main(run)\n'
    more = {
        **files(title),
        "tasks/language/configs/slic.py": f"{imports['configs/dpo']}{config}".encode(),
        "tasks/language/slic.py": module.replace("dpo", "slic").replace("Dpo", "Slic").encode(),
    }
    assert len(more) == 3
    shown = {"report": {**TINY["report"], "policies": [*TINY["report"]["policies"], "slic"]}}
    assert changed(more, {**TINY, **yaml_blocks(title)[0], **shown}) == {"slic", "report"}


def test_an_edit_of_a_reward_that_nobody_chose_runs_nothing():
    folder = "tasks/language/rewards/by_name"
    for name, old, new in (("code", b"[math.nan]", b"[0.0]"), ("constraints", b"share == 1", b"share > 0")):
        content = WORK[f"{folder}/{name}.py"]
        assert old in content
        assert changed({f"{folder}/{name}.py": content.replace(old, new)}, TINY) == set()
    verifiable = WORK[f"{folder}/verifiable.py"].replace(b"return verifier(", b"return 2 * verifier(")
    assert "grpo" in changed({f"{folder}/verifiable.py": verifiable}, TINY)


def test_what_the_page_adds_to_dvc_yaml_is_what_the_contract_asks():
    for title, name in (("Add a stage", "lengths"), ("Add a method", "slic")):
        entry = next(block for block in yaml_blocks(title) if "cmd" in block.get(name, {}))
        pipeline = contract.add_code_deps({"stages": {"code": {}, **entry}})
        assert pipeline["stages"][name]["deps"][-1] == f"data/code/{name}.json"
