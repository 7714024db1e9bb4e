"""What a file of the user's is, by its columns, and the parameters with which a run uses it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.common.errors import StageError
from tasks.preflight.previews import describe_size
from tasks.preflight.recipes import Recipe
from tasks.preflight.recognition import combine_recipes, recognize_file

TURNS = [{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5."}]
ENVIRONMENT = "class Guess:\n    def reset(self, seed): ...\n    def step(self, action): ...\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository's folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recognize(name: str, *rows: dict[str, Any], kind: str = "") -> Recipe:
    """What a file of these rows is."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return recognize_file(Path(name), kind)


def recognize_python(name: str, text: str) -> Recipe:
    """What a file of Python is."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)
    return recognize_file(Path(name))


@pytest.mark.parametrize(
    ("row", "kind", "preset"),
    [
        ({"messages": TURNS}, "chats", "chat"),
        ({"messages": TURNS[:1]}, "prompts", ""),
        ({"prompt": "2?", "chosen": "2.", "rejected": "3."}, "pairs", "pairs"),
        ({"prompt": "2 + 3?", "answer": "5"}, "prompts", ""),
        ({"prompt": "2?", "completion": "It is two, as everybody who has learned to count will say."}, "chats", "chat"),
        ({"text": "Once upon a time."}, "text", ""),
    ],
)
def test_the_columns_say_what_rows_are(row: dict[str, Any], kind: str, preset: str) -> None:
    recipe = recognize("mine.jsonl", row, row)
    assert (recipe.kind, recipe.preset) == (kind, preset)
    assert recipe.reason.startswith("column")


def test_the_same_rows_are_a_test_set_by_the_files_name_or_as_one_says() -> None:
    row = {"question": "2 + 3?", "answer": "5"}
    assert recognize("test.jsonl", row).kind == "test"
    assert recognize("mine.jsonl", row, kind="test").settings == [
        (("evaluate", "source"), "files"),
        (("evaluate", "path"), "mine.jsonl"),
    ]
    assert recognize("mine.jsonl", row, kind="chats").settings == [(("demonstrations", "path"), "mine.jsonl")]


def test_prompts_with_answers_are_paid_by_the_verifier_and_are_a_data_set_of_their_own() -> None:
    recipe = recognize("own.jsonl", *[{"prompt": f"{n} + 1?", "answer": str(n + 1)} for n in range(3)])
    settings = dict(recipe.settings)
    assert settings["mixture", "path"] == "own.jsonl"
    [dataset] = settings["mixture", "datasets"]
    assert (dataset["name"], dataset["source"], dataset["location"]) == ("own", "file", "")
    assert settings["grpo", "reward"] == {"verifiable": 1.0}
    assert recipe.target == "grpo"


def test_a_folder_of_problems_is_halved_between_sft_and_the_policies(folder: Path) -> None:
    """80 training problems: 8 to validate on, and of the other 72 the first 36 are demonstrations."""
    for name, count in (("train", 80), ("test", 20)):
        recognize(
            f"problems/{name}.jsonl", *[{"question": f"{n}?", "answer": f"So {n}.\n#### {n}"} for n in range(count)]
        )
    recipe = recognize_file(Path("problems"))
    assert dict(recipe.settings) == {
        ("problems", "source"): "files",
        ("problems", "path"): "problems",
        ("problems", "validation"): 8,
        ("sft", "demonstrations"): 36,
        ("sft_control", "skip"): 36,
        ("responses", "skip"): 36,
        ("mixture", "skip"): 36,
    }


def test_a_file_of_python_is_a_reward_or_an_environment_and_is_never_run(folder: Path) -> None:
    reward = "open('ran', 'w')\ndef polite(prompts, responses, **columns): ...\ndef _helper(): ...\n"
    recipe = recognize_python("rewards/mine.py", reward)
    assert (recipe.kind, recipe.target) == ("reward", "grpo")
    assert dict(recipe.settings) == {
        ("grpo", "reward"): {"rewards/mine.py:polite": 1.0},
        ("grpo", "reward_files"): "rewards/mine.py",
    }
    recipe = recognize_python(
        "environments/guess.py", f"open('ran', 'w')\n{ENVIRONMENT}    def best_action(self): ...\n"
    )
    assert (recipe.kind, recipe.target) == ("environment", "agents")
    assert dict(recipe.settings)["branches", "expert_episodes"]["guess"]["kind"] == "environments/guess.py:Guess"
    assert not (folder / "ran").exists()


def test_a_model_is_a_folder_with_a_config(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text("{}")
    assert dict(recognize_file(Path("model")).settings)["pretrained", "path"] == "model"


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("none.jsonl", "", "none.jsonl: "),
        ("odd.jsonl", '{"colour": "red"}\n', "columns colour; expected rows of conversations"),
        ("torn.jsonl", '{"messages": [', "torn.jsonl"),
        (
            "mine.py",
            "def polite(prompts, responses): ...",
            "a reward; expected it below rewards/: cp mine.py rewards/mine.py",
        ),
        ("game.py", ENVIRONMENT, "an environment; expected it below environments/: cp game.py environments/game.py"),
        ("empty.py", "x = 1", "empty.py: defines nothing; expected def my_reward("),
        ("games.hdf5", "", "recorded episodes; expected the parameters of docs/your_own_data.md"),
    ],
)
def test_a_file_that_no_run_uses_is_one_line(name: str, text: str, error: str) -> None:
    Path(name).write_text(text)
    with pytest.raises(StageError) as stopped:
        recognize_file(Path(name))
    assert error in str(stopped.value)
    assert "\n" not in str(stopped.value)
    with pytest.raises(StageError, match="no such file or folder"):
        recognize_file(Path("absent"))


def test_files_that_make_no_run_together_are_one_line() -> None:
    pairs = recognize("pairs.jsonl", {"prompt": "2?", "chosen": "2.", "rejected": "3."})
    chats = recognize("chats.jsonl", {"messages": TURNS})
    with pytest.raises(StageError, match=r"pairs.jsonl and chats.jsonl need other values of the same parameters"):
        combine_recipes([pairs, chats])
    with pytest.raises(StageError, match="are both chats"):
        combine_recipes([chats, chats._replace(path="more.jsonl")])
    unanswered = recognize("prompts.jsonl", {"prompt": "Who are you?"})
    with pytest.raises(StageError, match=r"posttrain use prompts.jsonl rewards/mine.py"):
        combine_recipes([unanswered])
    reward = recognize_python("rewards/mine.py", "def polite(prompts, responses): ...")
    assert [recipe.kind for recipe in combine_recipes([unanswered, reward])] == ["prompts", "reward"]


@pytest.mark.parametrize(
    ("learned", "held_out", "beginning", "end"),
    [
        (24, 6, "30 rows: enough to see", "on 6 held-out rows has a 95 % interval of up to ±40 points"),
        (240, 60, "300 rows: only large differences", "on 60 held-out rows has a 95 % interval of up to ±13 points"),
        (2400, 600, "3,000 rows: enough to compare", "on 600 held-out rows has a 95 % interval of up to ±4 points"),
        (9, 1, "10 rows: enough to see", "on 1 held-out row has a 95 % interval of up to ±98 points"),
        (5, 0, "5 rows, none of them held out: ", "says nothing of how well it does on new rows"),
    ],
)
def test_what_so_many_rows_can_show(learned: int, held_out: int, beginning: str, end: str) -> None:
    """98 points over the root of the held-out rows: 98 / sqrt(6) = 40."""
    sentence = describe_size(learned, held_out)
    assert sentence.startswith(beginning)
    assert sentence.endswith(end)
