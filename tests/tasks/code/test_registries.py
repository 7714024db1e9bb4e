"""What params.yaml chooses, and for which stage."""

import pytest

from tasks.code.registries import collect_choices, list_chosen_modules, parse_params_yaml

PARAMS = {
    "seed": 0,
    "problems": {"reward": 1000},
    "grpo": {"reward": {"verifiable": 1.0, "rewards/mine.py:f": 0.5}},
    "ppo": {"reward": {"rubric": 0.0}},
    "mixture": {"datasets": [{"name": "rubric", "reward": "policy"}, {"name": "b", "reward": "code"}]},
}


def test_a_stage_has_the_names_of_its_section_and_of_the_mixture():
    chosen = collect_choices(PARAMS)
    assert chosen == {
        "grpo.reward": ("rewards/mine.py:f", "verifiable"),
        "mixture.datasets": ("code", "policy"),
        "ppo.reward": ("rubric",),
    }
    [(lookup, modules)] = list_chosen_modules("ppo", chosen).items()
    assert lookup == "tasks.language.rewards.reward.load"
    assert [name.rpartition(".")[2] for name in modules] == ["code", "policy", "rubric"]
    assert list_chosen_modules("sft", chosen) == list_chosen_modules("problems", chosen) == {}


def test_params_that_are_no_sections_are_one_line():
    assert parse_params_yaml(None) == parse_params_yaml(b"") == {}
    for content in (b"- 1", b"{", b"\xff\xfe\xff"):
        with pytest.raises(ValueError, match=r"^params\.yaml: expected YAML with sections$"):
            parse_params_yaml(content)
