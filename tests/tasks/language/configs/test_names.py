"""The names of rewards and policies, which are those of files."""

import pytest

from tasks.language.configs.parts.names import OneOf, list_policy_names, list_reward_names


def test_they_are_those_of_the_files():
    by_model = ["outcome", "process", "reward_model"]
    assert {"code", "constraints", "format", "rubric", "verifiable", *by_model} <= {*list_reward_names()}
    trained = ["pretrained", "sft", "rejection_sft", "dpo", "reinforce", "ppo", "grpo"]
    assert {"sft_matched", "sft_flat", *trained} <= {*list_policy_names()}
    assert not {"reward_model", "sft_control", "tokenizer", "report"} & {*list_policy_names()}


def test_a_wrong_name_is_answered_with_the_closest():
    with pytest.raises(ValueError, match=r"^expected dpo or sft \(did you mean sft\?\)$"):
        OneOf(lambda: ["dpo", "sft"]).check("stf")
    with pytest.raises(ValueError, match=r"^expected format or a function such as rewards/mine\.py:politeness$"):
        OneOf(lambda: ["format"], functions=True).check("praise")
    assert OneOf(lambda: ["format"], functions=True).check("rewards/mine.py:f") == "rewards/mine.py:f"
