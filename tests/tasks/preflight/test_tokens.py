"""What is shown of template, mask and lengths; and rewards, time and memory by arithmetic."""

import json

import pytest

from tasks.common import models
from tasks.common.errors import StageError
from tasks.language.data import forms
from tasks.preflight import estimates, rewards, tokens
from tests.conftest import PARAMS, SECTIONS

CONFIGS = {name: kind.model_validate(PARAMS[name]) for name, kind in SECTIONS.items() if name in PARAMS}


def row(*turns, text=""):
    messages = [
        {"role": role, "content": content} for role, content in zip(("user", "assistant") * 2, turns, strict=False)
    ]
    return {"demonstration_id": "a", "messages": forms.as_json(messages) if turns else "", "text": text}


@pytest.fixture(scope="module")
def words(made):
    return models.load_tokenizer(made / "tokenizer")


def test_the_trained_tokens_are_shown(words):
    example = tokens.encode(words, row("2 + 3?", "5")["messages"], "")
    shown = tokens.spans(words, *example)
    assert shown.coloured(False) == "<|user|>2 + 3?<|assistant|>[[5<|end|>]]"
    assert shown.coloured(True) == "<|user|>2 + 3?<|assistant|>\033[32m5<|end|>\033[0m"


def test_lengths_and_masks_are_told(words):
    told = list(tokens.demonstrations(words, [row("2?", "5"), row("2?", "5 5 5 5 5 5 5 5 5")], 12, None))
    assert told[0] == "template and mask: the end token is trained in each of 2 demonstrations"
    assert "; 1 of 2 are longer than sft.max_length or the context = 12" in told[1]


def test_references_that_would_be_cut_off_are_counted(words):
    asked = [{"solution": text} for text in ("5", "5", "5", "5 " * 100, "")]
    told = list(tokens.answers(words, asked, CONFIGS, ["grpo", "evaluate"]))
    cut = [line for line in told if "would cut off" in line]
    assert cut == [
        f"grpo.max_new_tokens = {PARAMS['grpo']['max_new_tokens']} would cut off 1 of 4 references (25 %)",
        f"evaluate.max_new_tokens = {PARAMS['evaluate']['max_new_tokens']} would cut off 1 of 4 references (25 %)",
    ]


def test_a_prompt_that_leaves_no_room_is_found_before_training():
    assert list(tokens.mixed([10], 74, CONFIGS, ["grpo"])) == ["mixture: prompts of 10 to 10, in the middle 10 tokens"]
    with pytest.raises(StageError, match=r"the longest prompt has 11 tokens, with grpo.max_new_tokens = 64 more than"):
        list(tokens.mixed([11], 74, CONFIGS, ["grpo"]))


def test_each_reward_is_tried_on_four_answers():
    problem = {"question": "2 + 3?", "solution": "2 + 3 = 5\n#### 5", "answer": "5", "columns": json.dumps({"a": 1})}
    found = {what: value for what, value, _ in rewards.tried("verifiable", problem, {}, CONFIGS["grpo"])}
    assert found == {"reference": 1.0, "empty": 0.0, "huge": 0.0, "hostile": 0.0}
    [line] = rewards.lines("grpo", CONFIGS["grpo"], [problem])
    assert line.startswith("grpo.reward verifiable: reference 1.00 (")


def test_time_and_memory_by_hand():
    """SFT on 100 rows of 50 tokens: 5,000 tokens are trained, 32 rows at once; 16 bytes a weight in fp32."""
    assert estimates.work("sft", CONFIGS["sft"], 100, 50) == estimates.Work(5000, 0, 1600)
    grpo = estimates.work("grpo", CONFIGS["grpo"], 0, 36)
    answers = 110 * 24 * 8
    assert grpo == estimates.Work(answers * 2 * 100, answers * 100, 96 * 100)
    assert estimates.work("evaluate", CONFIGS["evaluate"], 100, 50) is None
    size = estimates.Size(10**9, 10, 100)
    [line] = estimates.lines(CONFIGS, ["sft"], size, {"sft": 100}, 50)
    assert line.endswith(f"about {(16 * 10**9 + 68 * 1600 * 10 * 100) / 1e9:.1f} GB of memory")
