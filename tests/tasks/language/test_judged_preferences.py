"""The stage preferences on people's judgements and on mixtures: how many are waited for, the split, and what is trained
on.
"""

import json
from functools import cache

import pandas as pd
import pytest
from pydantic import ValidationError

from tasks.common import models, tables
from tasks.common.errors import DataError, WaitingError
from tasks.language.configs.preferences import PreferencesConfig
from tasks.language.data import chat
from tasks.language.data.comparisons import ComparisonSet
from tasks.language.preferences import run
from tasks.language.tables.preferences import Annotations, Comparisons, Rankings
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses
from tests.conftest import PARAMS
from tests.tasks.language import judged

CHANGES = {"seed": 3, "criteria": "rubric", "temperature": 2.0, "tie_margin": 0.5, "test_share": 0.25, "minimum": 1}
READ = [
    "prompt_id",
    "prompt",
    "chosen",
    "rejected",
    "chosen_ended",
    "rejected_ended",
    "chosen_tokens",
    "rejected_tokens",
]


@pytest.fixture(scope="module")
def home(made, tmp_path_factory):
    """Four answers with their tokens to each of thirty problems, ranked by the annotator: problems/, responses/,
    annotator/.
    """
    root, words = tmp_path_factory.mktemp("judged"), models.load_tokenizer(made / "pretrained")
    problems = tables.read_table(Problems, made / "problems/train.parquet").head(30)
    tables.write_table(Problems, problems, root / "problems/train.parquet")
    rows = []
    for row in problems.itertuples():
        right = str(row.solution)
        texts = (right, f"#### {row.answer}", right.replace(str(row.answer), f"{row.answer}0"), f"#### {row.answer}0")
        for sample, text in enumerate(texts):
            tokens = chat.encode_response(words, text)
            rows.append(
                {
                    **{"prompt_id": row.problem_id, "prompt": row.question, "sample": sample, "response": text},
                    **{"tokens": tokens, "logps": [-0.5] * len(tokens), "ended": True},
                }
            )
    tables.write_table(Responses, pd.DataFrame(rows), root / "responses/responses.parquet")
    preferences(root, root / "annotator", source="annotator")
    return root


def config(**changes):
    return PreferencesConfig.model_validate({**PARAMS["preferences"], **CHANGES, **changes})


def preferences(home, out, record=None, pairs="no pairs", path="responses", **changes):
    """Run the stage; `record` is the file that people judged into."""
    own = config(**({"judgements": str(record)} if record else {}), **changes)
    return run(own, home / path, home / pairs, record or home / "nobody", home / "problems", out)


@cache
def responses_of(home):
    """The answers to each prompt, in order of the prompts' ids."""
    table = pd.read_parquet(home / "responses/responses.parquet")
    return {prompt_id: tables.list_records(rows) for prompt_id, rows in table.groupby("prompt_id", sort=True)}


def rows_of(home, prompt_id):
    return responses_of(home)[prompt_id]


def ids(home):
    return [*responses_of(home)]


@pytest.fixture(scope="module")
def record(home):
    """The annotator's own rankings, as a person who had them would have written them, in another order of prompts."""
    ranks = tables.read_table(Annotations, home / "annotator/annotations.parquet").set_index(["prompt_id", "sample"])[
        "rank"
    ]
    lines = [line for name in reversed(ids(home)) for line in judged.ranking(rows_of(home, name), ranks.loc[name])]
    return judged.write(home / "judgements/anna.jsonl", lines)


def test_people_with_the_annotator_s_rankings_give_the_annotator_s_pairs(made, home, record, tmp_path):
    """And the same batches of tokens to train on."""
    metrics, words = preferences(home, tmp_path, record, source="people"), models.load_tokenizer(made / "pretrained")
    for name in ("train", "test"):
        ours, theirs = (
            tables.read_table(Comparisons, place / f"{name}.parquet") for place in (tmp_path, home / "annotator")
        )
        assert len(ours) > 10
        for column in READ:
            assert ours[column].map(str).tolist() == theirs[column].map(str).tolist(), column
        assert ours["chosen_score"].tolist() == theirs["chosen_score"].tolist(), "rubric points stand beside"
        assert set(ours["person"]) == {"anna"}
        mine, annotated = (ComparisonSet(table, words) for table in (ours, theirs))
        for part in ("asked", "answers", "owner"):
            assert getattr(mine, part) == getattr(annotated, part)
        assert [[pair[:2] for pair in group] for group in mine.groups] == [
            [pair[:2] for pair in group] for group in annotated.groups
        ]
    assert metrics["judgements"] == {"pairwise": 0, "ranking": 30, "edit": 0}
    assert metrics["people"] == 1
    ours, theirs = (tables.read_table(Rankings, place / "rankings.parquet") for place in (tmp_path, home / "annotator"))
    same = ["prompt_id", "prompt", "held_out", "sample", "response", "ended", "rank", "score"]
    assert ours[same].equals(theirs[same])
    assert ours["tokens"].map(list).tolist() == theirs["tokens"].map(list).tolist()


def test_the_stage_waits_until_there_is_enough(home, record, tmp_path):
    with pytest.raises(WaitingError) as waiting:
        preferences(home, tmp_path / "out", record, source="people", minimum=70)
    assert str(waiting.value) == "waiting for 40 more: posttrain label"
    assert not (tmp_path / "out").exists()
    preferences(home, tmp_path / "out", record, source="people", minimum=30)
    (tmp_path / "record").mkdir()
    with pytest.raises(WaitingError, match=r"^waiting for 30 more: posttrain label$"):
        preferences(home, tmp_path / "none", tmp_path / "record", source="people", minimum=30)


def test_a_prompt_keeps_its_side_when_more_are_judged(home, tmp_path):
    """Among the responses' prompts, and among prompts from elsewhere."""
    sides = {}
    for path in ("responses", "elsewhere"):
        for count in (12, 30):
            record = tmp_path / f"{path}-{count}.jsonl"
            names = ids(home)[:count]
            judged.write(record, [line for one in names for line in judged.pair(rows_of(home, one)[:2], "a better")])
            preferences(home, tmp_path / f"{path}-{count}", record, path=path, source="people")
            test = pd.read_parquet(tmp_path / f"{path}-{count}/test.parquet")
            sides[path, count] = [name in set(test["prompt_id"]) for name in ids(home)]
        assert sides[path, 12][:12] == sides[path, 30][:12]
        assert 3 <= sum(sides[path, 30]) <= 13
    assert sides["responses", 30] != sides["elsewhere", 30]


def test_each_person_s_pairs_or_the_majority_s(home, tmp_path):
    record = tmp_path / "record.jsonl"
    for person, said in (("anna", "a better"), ("ben", "a slightly better"), ("carl", "b better")):
        judged.write(record, [line for one in ids(home) for line in judged.pair(rows_of(home, one)[:2], said, person)])
    each, one = (
        preferences(home, tmp_path / way, record, source="people", disagreement=way) for way in ("each", "majority")
    )
    assert (sum(each["pairs"].values()), sum(one["pairs"].values())) == (90, 30)
    assert each["people"] == one["people"] == 3
    assert set(tables.read_table(Comparisons, tmp_path / "majority/train.parquet")["person"]) == {"majority"}


def test_a_mixture_takes_people_s_word_before_the_annotator_s(home, tmp_path):
    """Ten prompts judged by people, the others by the annotator, and files whose first prompt the annotator holds
    out.
    """
    record = tmp_path / "record.jsonl"
    names = ids(home)[:10]
    judged.write(record, [line for one in names for line in judged.pair(rows_of(home, one)[:2], "b better")])
    held = tables.read_table(Comparisons, home / "annotator/test.parquet")
    (home / "mine").mkdir()
    first = next(row["prompt"] for row in tables.list_records(held) if row["prompt_id"] not in names)
    asked = [first, "Why?", "How?", "Who?"]
    given = [{"prompt": text, "chosen": "so", "rejected": "no"} for text in asked]
    (home / "mine/train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    (home / "mine/test.jsonl").write_text(json.dumps({**given[3], "prompt": "What?"}) + "\n")
    shares = {"annotator": 1.0, "people": 1.0, "files": 1.0, "hub": 0.0}
    metrics = preferences(home, tmp_path / "out", record, pairs="mine", source="mixture", mixture=shares)
    table = pd.concat([tables.read_table(Comparisons, tmp_path / f"out/{name}.parquet") for name in ("train", "test")])
    by_people = table[table["person"] == "anna"]
    assert set(by_people["prompt_id"]) == set(names)
    assert not set(names) & set(table[table["person"] == ""]["prompt_id"])
    assert metrics["sources"] == {"annotator": len(table) - 10 - 4, "people": 10, "files": 5}
    assert metrics["leaked"] == 1, "the prompt that the annotator holds out"
    train, test = (set(pd.read_parquet(tmp_path / f"out/{name}.parquet")["prompt"]) for name in ("train", "test"))
    assert not train & test
    assert table["chosen_tokens"].isna().sum() == 4, "of files"
    ranked = tables.read_table(Rankings, tmp_path / "out/rankings.parquet")
    assert set(ranked["person"]) == {"anna", "annotator"}


def test_a_mixture_takes_a_share_of_the_prompts(home, tmp_path):
    shares = {"annotator": 0.5, "people": 0.0, "files": 0.0, "hub": 0.0}
    for out, seed in (("one", 3), ("two", 3), ("three", 4)):
        preferences(home, tmp_path / out, source="mixture", mixture=shares, seed=seed)
    one, two, three = (
        set(pd.concat(pd.read_parquet(tmp_path / out / f"{name}.parquet") for name in ("train", "test"))["prompt_id"])
        for out in ("one", "two", "three")
    )
    assert one == two != three
    assert 13 <= len(one) <= 15


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source": "people"}, "expected data/raw/judgements, or another folder or file, with source people"),
        ({"source": "mixture", "mixture": dict.fromkeys(("annotator", "people", "files", "hub"), 0.0)}, "above 0"),
        ({"source": "mixture", "mixture": dict.fromkeys(("annotator", "people", "files", "hub"), 1.0)}, "people: 0.0"),
        ({"strengths": {"slightly": 2.0, "better": 1.0, "significantly": 3.0}}, "expected at least 2.0"),
    ],
)
def test_what_does_not_fit_is_said(changes, said):
    with pytest.raises(ValidationError, match=said):
        config(**changes)


def test_a_line_that_is_no_judgement_is_named(home, tmp_path):
    file = tmp_path / "record.jsonl"
    file.write_text('{"kind": "judgment"}\n')
    with pytest.raises(DataError, match=r"record\.jsonl:1: kind: expected item, judgement"):
        preferences(home, tmp_path / "out", file, source="people")
