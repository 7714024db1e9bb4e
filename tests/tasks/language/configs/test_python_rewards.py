"""Names of rewards in Python, and what can be said of a function without running it."""

import json
from pathlib import Path

import pytest

from tasks.language.configs.parts.python_rewards import (
    PYTHON_REWARD,
    contains_reward_file,
    find_reward_function_fault,
    is_python_reward,
)


@pytest.mark.parametrize("name", ["rewards/mine.py:f", "rewards/a-b/c_d/mine2.py:_f2"])
def test_what_is_a_name_of_a_function(name):
    assert is_python_reward(name)


@pytest.mark.parametrize(
    "name",
    [
        "mine.py:f",
        "rewards/mine:f",
        "rewards/../mine.py:f",
        "/rewards/mine.py:f",
        "rewards/mine.py",
        "rewards/mine.py:2f",
        "rewards/mine.py:f:g",
        "rewards/mine.py:f\n",
        "rewards/mi ne.py:f",
        "rewards//mine.py:f",
        "x/rewards/mine.py:f",
        "rewards/mine.pyc:f",
    ],
)
def test_what_is_no_name_of_a_function(name):
    assert not is_python_reward(name)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("def f(prompts, responses, **columns): ...", ""),
        ("def f(completions, answer=None): ...", ""),
        ("def f(**columns): ...", ""),
        ("from elsewhere import f", ""),
        ("from elsewhere import g as f", ""),
        ("if True:\n def f(responses): ...", ""),
        (
            "def f(prompts): ...",
            "rewards/mine.py:1: f takes no responses; expected def f(prompts, responses, **columns)",
        ),
        ("\ndef f(responses, /): ...", "rewards/mine.py:2: f has parameters before a /, but all are given by name; "),
        ("async def f(responses): ...", "rewards/mine.py:1: f is an async function; expected a plain one"),
        ("def g(responses): ...\ndef h(): ...", "rewards/mine.py has no function f (there are g, h)"),
        ("def ff(responses): ...\ndef h(): ...", "rewards/mine.py has no function f (did you mean ff?)"),
        ("", "rewards/mine.py has no function f"),
        ("def f(responses):\n return [", "rewards/mine.py:2: not valid Python: '[' was never closed"),
        ("x = '\x00'", "rewards/mine.py"),
        *(
            (
                f"def f(responses):\n return {expression}",
                "rewards/mine.py: not valid Python: an expression or a statement is ",
            )
            for expression in ("+".join(["1"] * 20_000), "-" * 100_000 + "1", "a" + ".b" * 20_000)
        ),
        (None, "rewards/mine.py does not exist"),
    ],
)
def test_what_can_be_said_without_running_it(tmp_path, text, wrong):
    (tmp_path / "rewards").mkdir()
    if text is not None:
        (tmp_path / "rewards/mine.py").write_text(text)
    found = find_reward_function_fault(tmp_path, "rewards/mine.py:f")
    assert found.startswith(wrong)
    assert bool(found) == bool(wrong)


def test_a_link_that_leads_out_of_the_project_is_refused(tmp_path):
    (tmp_path / "home/rewards").mkdir(parents=True)
    (tmp_path / "mine.py").write_text("def f(responses): ...")
    (tmp_path / "home/rewards/mine.py").symlink_to(tmp_path / "mine.py")
    assert "is a link to a file outside this folder" in find_reward_function_fault(
        tmp_path / "home", "rewards/mine.py:f"
    )


def test_names_are_those_of_the_schema_that_editors_read():
    schema = json.loads((Path(__file__).parents[4] / "params.schema.json").read_text())
    names = schema["properties"]["grpo"]["properties"]["reward"]["propertyNames"]
    assert names["anyOf"][1]["pattern"] == PYTHON_REWARD.pattern


@pytest.mark.parametrize(
    ("files", "held"),
    [
        ("rewards/a/b.py", True),
        ("rewards/a", True),
        ("rewards", True),
        ("rewards/", True),
        ("./rewards/a", True),
        ("rewards/none", False),
        ("rewards/a/b", False),
        ("rewards/b.py", False),
        ("", False),
        (".", False),
    ],
)
def test_which_paths_hold_a_function(files, held):
    assert contains_reward_file(files, "rewards/a/b.py:f") == held
