"""What is shown of template, mask and lengths; and rewards, time and memory by arithmetic."""

import json

import pytest

from tasks.common import models
from tasks.common.errors import StageError
from tasks.language.data import forms
from tasks.memory import shapes, terms
from tasks.memory.workloads import MemoryOptions, build_workload
from tasks.preflight import estimates, rewards, tokens
from tests.conftest import PARAMS, SECTIONS

CONFIGS = {name: kind.model_validate(PARAMS[name]) for name, kind in SECTIONS.items() if name in PARAMS}


def row(*turns, text=""):
    messages = [
        {"role": role, "content": content} for role, content in zip(("user", "assistant") * 2, turns, strict=False)
    ]
    return {"demonstration_id": "a", "messages": forms.dump_messages_json(messages) if turns else "", "text": text}


@pytest.fixture(scope="module")
def words(made):
    return models.load_tokenizer(made / "tokenizer")


def test_the_trained_tokens_are_shown(words):
    example = tokens.encode_demonstration(words, row("2 + 3?", "5")["messages"], "", learn_end=True)
    shown = tokens.split_into_spans(words, *example)
    assert shown.mark_trained_text(False) == "<|user|>2 + 3?<|assistant|>[[5<|end|>]]"
    assert shown.mark_trained_text(True) == "<|user|>2 + 3?<|assistant|>\033[32m5<|end|>\033[0m"
    assert tokens.Spans([("\x1b[2Ja\nb", False)]).mark_trained_text(True) == "\\x1b[2Ja\nb", (
        "a file of somebody's has no power over the terminal"
    )


SFT, DPO = CONFIGS["sft"], CONFIGS["dpo"]
LONG = "5 5 5 5 5 5 5 5 5"


def limited(config, tokens):
    return config.model_copy(update={"max_length": tokens})


def test_lengths_and_masks_are_told(words):
    rows = [row("2?", "5"), row("2?", LONG)]
    lengths, told = tokens.measure_demonstration_lengths(words, rows, limited(SFT, 12), 12)
    assert lengths == [6, 12], "a longer one is cut off at max_length"
    assert told[0] == "template and mask: the end token is trained in each of 2 demonstrations"
    assert told[1].endswith("; 1 of 2 are longer than sft.max_length = 12 and would be cut off at the end")
    assert tokens.measure_demonstration_lengths(words, rows, SFT, None)[1][1].endswith(" tokens")
    endless = SFT.model_copy(update={"learn_end": False})
    assert "the model does not learn to stop" in tokens.measure_demonstration_lengths(words, rows, endless, None)[1][0]


def test_examples_beyond_the_context_are_found_before_training(words, monkeypatch):
    """As the stages do: they cut nothing off that no max_length asks for, and read more than the rows that are looked
    at.
    """
    monkeypatch.setattr(tokens, "LOOKED_AT", 5)
    rows = [row("2?", "5")] * 6 + [row("2?", LONG)]
    for context in (12, 13):
        with pytest.raises(StageError, match=rf"^sft: the longest example has 14 tokens, and the model {context} pos"):
            tokens.measure_demonstration_lengths(words, rows, SFT, context)
    assert tokens.measure_demonstration_lengths(words, rows, SFT, 14)
    pair = {"prompt_id": "a", "prompt": "2?", "chosen": LONG, "rejected": "5", "strength": "a better"}
    pairs = [pair | {"chosen_ended": True, "rejected_ended": True}]
    with pytest.raises(StageError, match=r"^dpo: .* expected dpo.max_length = 13 or less"):
        tokens.measure_pair_lengths(words, pairs, "dpo", DPO, 13)
    lengths, told = tokens.measure_pair_lengths(words, pairs, "dpo", limited(DPO, 13), 13)
    assert (lengths, told.endswith("1 of 1 are longer than dpo.max_length = 13 and would be left out")) == ([13], True)


def test_references_that_would_be_cut_off_are_counted(words):
    rows = [{"question": "2?", "history": "", "solution": text} for text in ["5"] * 3 + ["5 " * 100]]
    sections = {name: CONFIGS[name] for name in ("grpo", "evaluate")}
    _, told = tokens.measure_prompt_lengths(words, "prompts", rows, sections, None)
    assert told[1:] == [
        f"{name}.max_new_tokens = {PARAMS[name]['max_new_tokens']} would cut off 1 of 4 references (25 %)"
        for name in sections
    ]
    assert len(tokens.measure_prompt_lengths(words, "prompts", rows[:3], sections, None)[1]) == 1


def test_a_prompt_that_leaves_no_room_is_found_before_training(words):
    rows = [{"question": "2" * length, "solution": ""} for length in (8, 9)]
    assert tokens.measure_prompt_lengths(words, "prompts", rows[:1], {"grpo": CONFIGS["grpo"]}, 74) == (
        [10],
        ["prompts: 10 to 10, in the middle 10 tokens"],
    )
    with pytest.raises(StageError, match=r"the longest has 11 tokens, with grpo.max_new_tokens = 64 more than the mod"):
        tokens.measure_prompt_lengths(words, "prompts", rows, {"grpo": CONFIGS["grpo"]}, 74)
    room = 10 + CONFIGS["evaluate"].max_new_tokens
    _, told = tokens.measure_prompt_lengths(words, "test problems", rows, {"evaluate": CONFIGS["evaluate"]}, room)
    assert told[1].startswith(f"1 of 2 test problems have with evaluate.max_new_tokens = {room - 10} more than")


def test_each_reward_is_tried_on_four_answers():
    problem = {"question": "2 + 3?", "solution": "2 + 3 = 5\n#### 5", "answer": "5", "columns": json.dumps({"a": 1})}
    found = {
        what: value for what, value, _ in rewards.iterate_reward_trials("verifiable", problem, {}, CONFIGS["grpo"])
    }
    assert found == {"reference": 1.0, "empty": 0.0, "huge": 0.0, "hostile": 0.0}
    [line] = rewards.iterate_reward_trial_lines("grpo", CONFIGS["grpo"], [problem])
    assert line.startswith("grpo.reward verifiable: reference 1.00 (")
    other = {**problem, "solution": "", "answer": "", "reward": "format"}
    [line] = rewards.iterate_reward_trial_lines("grpo", CONFIGS["grpo"], [other, problem | {"reward": "policy"}])
    assert line.startswith("grpo.reward verifiable: reference 1.00 ("), "the prompt is one that the reward is for"
    [line] = rewards.iterate_reward_trial_lines("grpo", CONFIGS["grpo"], [other | {"reward": "policy"}])
    assert line.startswith("grpo.reward verifiable: empty none ("), "without a reference none is tried"
    program = {**problem, "solution": "def f():\n    return 5"}
    tests = {"tests": ["assert f() == 5"]}
    found = {what: value for what, value, _ in rewards.iterate_reward_trials("code", program, tests, CONFIGS["grpo"])}
    assert found == {"reference": 1.0, "empty": 0.0, "huge": 0.0, "hostile": 0.0}


def test_time_and_memory_by_hand():
    """SFT on 100 rows of 50 tokens, twice: 10,000 tokens are trained.

    Memory is the sum that `posttrain plan-memory` has.
    """
    twice = CONFIGS["sft"].model_copy(update={"epochs": 2})
    assert estimates.estimate_stage_work("sft", twice, 100, 50) == estimates.StageWork(10000, 0)
    grpo = estimates.estimate_stage_work("grpo", CONFIGS["grpo"], 0, 36)
    answers = 50 * 24 * 8
    assert grpo == estimates.StageWork(answers * 2 * 100, answers * 100)
    assert estimates.estimate_stage_work("evaluate", CONFIGS["evaluate"], 100, 50) is None
    shape = shapes.estimate_shape_from_size("50M")
    sft, grpo = estimates.iterate_cost_estimate_lines(
        CONFIGS, ["sft", "grpo", "dpo"], shape, {"sft": (100, 50), "grpo": (9, 36)}, {"grpo": "2 to 4 min"}
    )
    assert sft.startswith("sft: at least ")
    assert grpo.startswith("grpo: about 2 to 4 min on this device (cpu), ")
    for line, section, sequence in ((sft, "sft", 50), (grpo, "grpo", 36 + CONFIGS["grpo"].max_new_tokens)):
        planned, _ = terms.compute_peak_memory(
            terms.list_memory_terms(build_workload(section, shape, CONFIGS, MemoryOptions(sequence=sequence)))
        )
        assert planned > 16 * shape.weights
        assert line.endswith(f"about {planned / 1e9:.1f} GB of memory")


def compared(chosen, rejected, prompt_id="a"):
    ends = {"chosen_ended": True, "rejected_ended": True, "strength": "a better", "comparison_id": prompt_id}
    return {"prompt_id": prompt_id, "prompt": "2 + 3?", "history": "", "chosen": chosen, "rejected": rejected, **ends}


def test_a_pair_is_shown_as_it_is_learned(words):
    """Each side's response is trained, to its end token, and cut where the stage cuts it."""
    plain = [
        side.mark_trained_text(False) for side in tokens.encode_first_fitting_pair(words, [compared("5", "six")], DPO)
    ]
    asked = "<|user|>2 + 3?<|assistant|>"
    assert plain == [f"{asked}[[5<|end|>]]", f"{asked}[[six<|end|>]]"]
    rows = [compared(LONG, "5"), compared("5", "6", "b")]
    length = len(words.encode("<|user|>2 + 3?<|assistant|>5<|end|>", add_special_tokens=False))
    [chosen, rejected] = tokens.encode_first_fitting_pair(words, rows, limited(DPO, length))
    assert (chosen.mark_trained_text(False), rejected.mark_trained_text(False)) == (
        f"{asked}[[5<|end|>]]",
        f"{asked}[[6<|end|>]]",
    )
    cut = limited(DPO, length).model_copy(update={"truncation": "right"})
    [chosen, _] = tokens.encode_first_fitting_pair(words, [compared(LONG, "6")], cut)
    assert (
        chosen.mark_trained_text(False)
        == f"{asked}[[{words.decode(words.encode(LONG, add_special_tokens=False)[:2])}]]"
    )
    assert tokens.encode_first_fitting_pair(words, rows, limited(DPO, 2)) == [], (
        "the stage itself says that none is left"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "less than a second of arithmetic"),
        (0.04, "less than a second of arithmetic"),
        (0.99, "less than a second of arithmetic"),
        (1.0, "at least 1.0 s"),
        (90.0, "at least 1.5 min"),
        (5400.0, "at least 1.5 h"),
        (216_000.0, "at least 2.5 days"),
    ],
)
def test_a_time_is_said_as_people_say_it(seconds, words):
    assert estimates.format_least_time(seconds) == words


def test_no_model_needs_no_memory():
    assert [estimates.format_memory_size(size) for size in (40_000, 2.6e6, 1.55e9)] == ["1 MB", "3 MB", "1.6 GB"]
