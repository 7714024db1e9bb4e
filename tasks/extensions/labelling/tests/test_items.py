"""Items: from responses with their tokens, from an arena, from files of one's own."""

import json

import pandas as pd
import pytest

from tasks.common import tables
from tasks.common.errors import DataError
from tasks.extensions.labelling.items import (
    AnsweredPrompt,
    build_judgement_items,
    load_answers_from_evaluations,
    load_answers_from_files,
    load_answers_from_responses,
)
from tasks.language.judgements.lines import PairwiseValue, RankingValue, StepsValue
from tasks.language.tables.evaluation import Generations
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses

TEXTS = {"p1": ["one", "two", "one", "three", "four", "five"], "p2": ["same", "same"], "p3": ["a", "b"]}


@pytest.fixture
def responses(tmp_path):
    rows = [
        {
            "prompt_id": prompt,
            "sample": sample,
            "prompt": f"Ask {prompt}?",
            "response": text,
            "tokens": [5, sample],
            "logps": [-1.0, -2.0],
            "ended": sample % 2 == 0,
        }
        for prompt, texts in TEXTS.items()
        for sample, text in enumerate(texts)
    ]
    tables.write_table(Responses, pd.DataFrame(rows[::-1]), tmp_path / "responses/responses.parquet")
    return tmp_path / "responses"


def texts_of(found):
    return [[answer.text for answer in item.answers] for item in found]


def test_pairs_of_responses_have_different_texts_and_their_tokens(responses):
    found = build_judgement_items(load_answers_from_responses(responses, "sft"), "pairwise", 4, seed=0, per_prompt=9)
    pairs = texts_of(found)
    assert len(pairs) == 3, "p1 has five different texts, so two pairs; p2 none; p3 one"
    first = [text for pair in pairs for text in pair if text in TEXTS["p1"]]
    assert len(first) == len(set(first)) == 4
    for item in found:
        for answer in item.answers:
            assert answer.source == "sft"
            assert TEXTS[item.prompt_id][answer.sample] == answer.text
            assert (answer.tokens, answer.ended) == ((5, answer.sample), answer.sample % 2 == 0)
            assert item.prompt == f"Ask {item.prompt_id}?"


def test_which_answers_come_together_follows_from_the_seed(responses):
    answered = load_answers_from_responses(responses)
    drawn = {seed: texts_of(build_judgement_items(answered, "pairwise", 4, seed, 9)) for seed in range(5)}
    assert drawn[0] == texts_of(build_judgement_items(answered, "pairwise", 4, 0, 9))
    assert len({str(pairs) for pairs in drawn.values()}) > 1
    assert len(build_judgement_items(answered, "pairwise", 4, 0, per_prompt=1)) == 2


def test_rankings_steps_and_edits(responses):
    answered = load_answers_from_responses(responses)
    assert sorted(map(len, texts_of(build_judgement_items(answered, "ranking", 4, 0, 9)))) == [2, 4]
    assert sorted(map(len, texts_of(build_judgement_items(answered, "ranking", 3, 0, 9)))) == [2, 2, 3]
    assert len(build_judgement_items(answered, "steps", 4, 0, 9)) == 5 + 1 + 2
    assert {item.steps for item in build_judgement_items(answered, "steps", 4, 0, 9)} >= {("one",), ("a",)}
    assert sorted(map(len, texts_of(build_judgement_items(answered, "edit", 2, 0, 9)))) == [1, 2, 2]


def evaluated(folder, greedy, sampled, questions=("Q1?", "Q2?")):
    asked = [
        {"problem_id": f"test-{n}", "question": text, "solution": "", "answer": "", "steps": 1}
        for n, text in enumerate(questions)
    ]
    rows = [
        {
            "problem_id": f"test-{n}",
            "temperature": heat,
            "sample": 0,
            "response": text,
            "length": 1,
            "ended": True,
            "steps": True,
        }
        for heat, texts in ((0.0, greedy), (0.7, sampled))
        for n, text in enumerate(texts)
    ]
    tables.write_table(Problems, pd.DataFrame(asked), folder / "asked.parquet")
    tables.write_table(Generations, pd.DataFrame(rows), folder / "generations.parquet")
    return folder


def test_an_arena_sets_two_policies_answers_to_one_problem_side_by_side(tmp_path):
    first = evaluated(tmp_path / "sft", ["a", "b"], ["c", "d"])
    second = evaluated(tmp_path / "dpo", ["A", "b"], ["C", "D"])
    found = build_judgement_items(load_answers_from_evaluations(first, second), "pairwise", 2, seed=0, per_prompt=1)
    assert [(item.prompt, *texts_of([item])[0]) for item in found] == [("Q1?", "a", "A"), ("Q2?", "d", "D")], (
        "equal answers ask nothing"
    )
    assert {tuple(answer.source for answer in item.answers) for item in found} == {("sft", "dpo")}
    assert (
        len(build_judgement_items(load_answers_from_evaluations(first, second), "pairwise", 2, seed=0, per_prompt=2))
        == 3
    )
    other = evaluated(tmp_path / "other", ["x"], ["y"], questions=("Q9?",))
    with pytest.raises(DataError, match="no problem that both policies answered"):
        load_answers_from_evaluations(first, other)
    with pytest.raises(DataError, match="no such file; run the stage that makes it first"):
        load_answers_from_evaluations(first, tmp_path / "none")
    with pytest.raises(DataError, match="no such file; run the stage that makes it first"):
        load_answers_from_responses(tmp_path)


def given(tmp_path, *rows):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_of_ones_own_in_all_its_forms(tmp_path):
    talk = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    path = given(
        tmp_path,
        {"prompt": "p", "answers": ["x", "y"]},
        {
            "id": 7,
            "prompt": talk,
            "responses": [{"text": "x", "source": "m1", "tokens": [1]}, {"text": "y", "ended": False}],
        },
        {"prompt": "p", "chosen": "x", "rejected": "y", "prompt_id": "own"},
        {"prompt": "p", "response": "1\n2"},
    )
    plain, chat, pair, single = load_answers_from_files(path)
    assert (plain.prompt_id, plain.prompt, plain.history) == ("mine-0", "p", "")
    assert [(answer.text, answer.source, answer.ended, answer.tokens) for answer in plain.answers] == [
        ("x", "", True, None),
        ("y", "", True, None),
    ]
    assert (chat.prompt_id, chat.prompt, json.loads(chat.history)) == ("7", "q", talk[:1])
    assert [(answer.source, answer.ended, answer.tokens) for answer in chat.answers] == [
        ("m1", True, (1,)),
        ("", False, None),
    ]
    assert pair.prompt_id == "own"
    assert {answer.source: answer.text for answer in pair.answers} == {"chosen": "x", "rejected": "y"}
    assert [answer.text for answer in single.answers] == ["1\n2"]


@pytest.mark.parametrize(
    ("mode", "answers", "gold", "value"),
    [
        ("pairwise", ["x", "y"], "a slightly better", PairwiseValue(strength="a slightly better")),
        ("pairwise", ["x", "y"], {"strength": "both bad"}, PairwiseValue(strength="both bad")),
        ("ranking", ["x", "y", "z"], "C > A = B", RankingValue(ranks=(2, 2, 1))),
        ("steps", ["1\n2"], [1, -1], StepsValue(labels=(1, -1))),
    ],
)
def test_gold_judgements(mode, answers, gold, value, tmp_path):
    [item] = build_judgement_items(
        load_answers_from_files(given(tmp_path, {"prompt": "p", "answers": answers, "gold": gold})), mode, 4, 0, 1
    )
    assert item.gold == value
    assert texts_of([item]) == [answers], "as they are"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"question": "p"}, "expected columns prompt with responses or answers or completions"),
        ({"prompt": "", "answers": ["x"]}, "field 'prompt' is empty"),
        ({"prompt": "p", "answers": "x"}, "field 'answers' is str; expected a list of answers"),
        ({"prompt": "p", "answers": ["x", 7]}, "answer 1 is '7'; expected text, or an object"),
        ({"prompt": "p", "answers": [{"source": "m"}]}, "answer 0 is "),
        ({"prompt": "p", "answers": ["x", "y"], "gold": "A > C"}, "expected a letter of A, B, got 'C'"),
        ({"prompt": "p\ud800", "answers": ["x", "y"]}, "half a character"),
    ],
)
def test_a_fault_names_file_line_and_field(row, words, tmp_path):
    path = given(tmp_path, {"prompt": "p", "answers": ["x", "y"]}, row)
    with pytest.raises(DataError) as stopped:
        load_answers_from_files(path)
    assert words in str(stopped.value)
    assert str(stopped.value).startswith(f"{path}: line 2: ")


def test_what_makes_no_item_is_told(tmp_path):
    [one] = load_answers_from_files(given(tmp_path, {"prompt": "p", "answers": ["x", "x"]}))
    with pytest.raises(
        DataError, match="no items of mode pairwise: expected prompts with two answers or more that differ"
    ):
        build_judgement_items([one], "pairwise", 2, 0, 1)
    with pytest.raises(DataError, match="no items of mode steps: expected prompts with answers that have a line"):
        build_judgement_items([AnsweredPrompt("1", "p", "", (), None)], "steps", 1, 0, 1)
    with pytest.raises(
        DataError, match="prompt mine-0: gold: expected a value of mode ranking, got one of mode pairwise"
    ):
        build_judgement_items(
            load_answers_from_files(given(tmp_path, {"prompt": "p", "answers": ["x", "y"], "gold": "tie"})),
            "ranking",
            4,
            0,
            1,
        )
    with pytest.raises(DataError, match="no rows; expected prompt with"):
        load_answers_from_files(given(tmp_path))
