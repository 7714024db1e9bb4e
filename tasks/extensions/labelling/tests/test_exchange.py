"""Import and export: what is written is read back, others' files are read as their tools write them, faults are one
line.
"""

import json

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.common.errors import DataError
from tasks.extensions.labelling.formats.exchange import TOOLS, export_judgements, load_tool_judgements
from tasks.language.judgements.lines import (
    VERDICTS,
    AnswerScores,
    EditValue,
    Item,
    Judgement,
    PairwiseValue,
    RankingValue,
)
from tests.tasks.language.judgements.samples import AT, item, judgement, record_of, said

PAIR = item("no", "yes")
FOUR = item("a", "b", "c", "d", mode="ranking", prompt="Moon?")
STEPS = item("1 + 1 = 2\n\nso 3\n#### 3", mode="steps", prompt="1 + 1?")
EDIT = item("draft", mode="edit", prompt="Write!")
HELLO = '[{"role": "user", "content": "Hello"}]'
TALK = item("x", "y", prompt="And now?", history=HELLO)
SCORED = RankingValue(ranks=(2, 1, 2, 3), scores=(None, AnswerScores(helpful=5, truthful=4, harmless=5), None, None))
EDITED = judgement(EDIT, "tie").model_copy(update={"value": EditValue.model_validate({"text": "better", "from": 0})})


FIELDS = {"instruction": "Why?", "reply-1": "no", "reply-2": "yes"}
EVERYTHING = record_of(
    *(PAIR, FOUR, STEPS, EDIT),
    judgement(PAIR, "b slightly better"),
    judgement(PAIR, "a significantly better", "bert"),
    judgement(PAIR, "tie", "carl"),
    judgement(PAIR, "both bad", "dora"),
    judgement(PAIR, "a better", repeat=1),
    judgement(FOUR, (3, 3, 2, 1)),
    judgement(FOUR, (4, 3, 2, 1), "bert"),
    judgement(FOUR, (1, 1, 1, 1), "carl").model_copy(update={"value": SCORED}),
    judgement(STEPS, [1, 0, -1]),
    judgement(STEPS, [1, -1, None], "bert"),
    EDITED,
)


def everything_said(record, without_modes=()):
    first = [line for line in record.judgements if line.repeat == 0 and line.mode not in without_modes]
    return said([*record.items.values(), *first])


def back(record, tool, folder):
    export_judgements(record, tool, folder)
    return load_tool_judgements(folder, tool, "nobody", AT)


def test_argilla_keeps_everything(tmp_path):
    lines = back(EVERYTHING, "argilla", tmp_path)
    assert said(lines) == everything_said(EVERYTHING)
    assert record_of(*lines).items.keys() == EVERYTHING.items.keys()


def test_potato_keeps_pairs_and_rankings_without_scores(tmp_path):
    export_judgements(EVERYTHING, "potato", tmp_path)
    found = said(load_tool_judgements(tmp_path, "potato", "nobody", AT))
    expected = everything_said(EVERYTHING, ("steps", "edit"))
    plain = {(*one[:3], RankingValue(ranks=SCORED.ranks) if one[3] == SCORED else one[3]) for one in expected}
    assert found == plain
    assert {file.parent.name for file in tmp_path.rglob("annotated_instances.jsonl")} == {
        "anna",
        "bert",
        "carl",
        "dora",
    }


@pytest.mark.parametrize("tool", ["trl", "trl-chat"])
def test_trl_has_the_pairs_of_which_one_is_better(tool, tmp_path):
    files = export_judgements(EVERYTHING, tool, tmp_path)
    assert [file.name for file in files] == ["preferences.jsonl", "stepwise.jsonl", "completions.jsonl"]
    rows = [json.loads(line) for line in files[0].read_text().splitlines()]
    prompt, sides = "Why?", ("yes", "no")
    if tool == "trl-chat":
        prompt = [{"role": "user", "content": prompt}]
        sides = [[{"role": "assistant", "content": side}] for side in sides]
    assert rows[0] == {
        "prompt": prompt,
        "person": "anna",
        "chosen": sides[0],
        "rejected": sides[1],
        "strength": "slightly better",
    }
    assert len(rows) == 2 + 5 + 6 + 5, "two pairs, and of the rankings the pairs that do not tie"
    [steps, shorter] = [json.loads(line) for line in files[1].read_text().splitlines()]
    assert steps == {
        "prompt": "1 + 1?",
        "person": "anna",
        "completions": ["1 + 1 = 2", "so 3", "#### 3"],
        "labels": [True, True, False],
    }
    assert shorter["labels"] == [True, False]


@pytest.mark.parametrize("tool", ["trl", "trl-chat"])
def test_trl_rows_are_read_back(tool, tmp_path):
    lines = back(EVERYTHING, tool, tmp_path / "once")
    again = back(record_of(*lines), tool, tmp_path / "twice")
    assert said(again) == said(lines)
    pairs = {one for one in said(lines) if isinstance(one[3], PairwiseValue) and one[1] == "Why?"}
    assert {(who, value.strength) for who, _, _, value in pairs} == {
        ("anna", "b slightly better"),
        ("bert", "a significantly better"),
    }
    assert {texts for _, _, texts, _ in pairs} == {("no", "yes")}, "one item, whoever prefers which"
    assert len(pairs) == 2


def test_turns_before_the_prompt_need_messages(tmp_path):
    record = record_of(TALK, judgement(TALK, "b better"))
    with pytest.raises(DataError, match="turns before the prompt; expected the conversational form"):
        export_judgements(record, "trl", tmp_path)
    for tool in ("trl-chat", "argilla", "potato"):
        [found] = [line for line in back(record, tool, tmp_path / tool) if isinstance(line, Item)]
        assert (found.prompt, found.history) == (TALK.prompt, TALK.history)


def test_steps_with_turns_before_the_prompt_have_no_row_in_trl_s_form(tmp_path):
    steps = item("1 + 1 = 2\n#### 2", mode="steps", prompt="1 + 1?", history=HELLO)
    record = record_of(steps, judgement(steps, [1, 1]))
    with pytest.raises(DataError, match="turns before the prompt, for which TRL's stepwise form has no column"):
        export_judgements(record, "trl-chat", tmp_path)


def test_reading_a_file_in_twice_counts_once(tmp_path):
    lines = back(EVERYTHING, "argilla", tmp_path)
    record = record_of(*lines, *load_tool_judgements(tmp_path, "argilla", "nobody", AT))
    assert len(record.judgements) == len([line for line in lines if isinstance(line, Judgement)])


@pytest.mark.parametrize(
    ("tool", "rows", "words"),
    [
        ("trl", [{"prompt": "p"}], "expected prompt with chosen and rejected"),
        ("trl", [{"prompt": "p", "chosen": "x", "rejected": "x"}], "are one text; expected two answers"),
        (
            "trl",
            [{"prompt": "p", "chosen": "x", "rejected": "y", "strength": "huge"}],
            "field 'strength' is 'huge'; expected",
        ),
        ("trl", [{"prompt": "p", "completions": ["x"], "labels": [True, False]}], "should be lists of one length"),
        ("argilla", [{"prompt": "p"}], "field 'fields' is NoneType; expected an object"),
        ("argilla", [{"fields": {"x": "y"}}], "expected one of prompt, instruction"),
        (
            "argilla",
            [{"fields": FIELDS, "responses": {"ranking": [{"value": ["reply-1"], "user_id": "u"}]}}],
            "expected the fields reply-1, reply-2",
        ),
        ("argilla", [{"fields": FIELDS, "responses": {"ranking": ["reply-1"]}}], "without user_id and value"),
        (
            "argilla",
            [{"fields": {"prompt": "p"}, "responses": {"edit": [{"value": 7, "user_id": "u"}]}}],
            "text: expected to be a valid string",
        ),
    ],
)
def test_a_fault_names_file_line_and_field(tool, rows, words, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError) as stopped:
        load_tool_judgements(path, tool, "anna", AT)
    assert words in str(stopped.value)
    assert str(stopped.value).startswith(f"{path}: line 1: ")


def test_nothing_to_export_and_nothing_to_import(tmp_path):
    for tool in TOOLS:
        with pytest.raises(DataError, match="nothing to export"):
            export_judgements(record_of(PAIR, judgement(PAIR, "tie", repeat=1)), tool, tmp_path)
    with pytest.raises(DataError, match="expected a folder with annotation_output/PERSON"):
        load_tool_judgements(tmp_path, "potato", "anna", AT)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@hypothesis_settings(max_examples=25)
@given(
    prompt=TEXT,
    texts=st.lists(TEXT, min_size=2, max_size=4, unique=True),
    verdict=st.sampled_from(VERDICTS),
    ranks=st.lists(st.integers(1, 3), min_size=4, max_size=4),
)
def test_any_text_comes_back_from_argilla_and_potato(prompt, texts, verdict, ranks, tmp_path_factory):
    pair, ranking = item(*texts[:2], prompt=prompt), item(*texts, mode="ranking", prompt=prompt)
    dense = tuple(sorted(set(ranks[: len(texts)])).index(rank) + 1 for rank in ranks[: len(texts)])
    record = record_of(pair, ranking, judgement(pair, verdict), judgement(ranking, dense))
    for tool in ("argilla", "potato"):
        folder = tmp_path_factory.mktemp(tool)
        assert said(back(record, tool, folder)) == everything_said(record)
