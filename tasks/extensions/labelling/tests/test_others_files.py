"""Argilla's and Potato's files as these tools write them."""

import json

import pytest

from tasks.common.errors import DataError
from tasks.extensions.labelling.formats import potato
from tasks.extensions.labelling.formats.exchange import load_tool_judgements
from tasks.language.judgements.lines import Judgement, PairwiseValue, RankingValue
from tests.tasks.language.judgements.samples import AT, said

# What Argilla writes: version 2 by `to_json`, version 1 as a FeedbackDataset's records.
FIELDS = {"instruction": "Why?", "reply-1": "no", "reply-2": "yes"}
USER = "0c2a0a34-1a39-4a1f-8b3b-3f2f4b8f3f10"
SECOND = {
    "id": "r1",
    "fields": FIELDS,
    "metadata": {},
    "suggestions": {"ranking": {"value": ["reply-1"], "score": None, "agent": "m"}},
    "vectors": {},
}
FIRST = {"fields": FIELDS, "external_id": None, "metadata": {}, "suggestions": []}


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (
            {**SECOND, "responses": {"ranking": [{"value": ["reply-2", "reply-1"], "user_id": USER}]}},
            RankingValue(ranks=(2, 1)),
        ),
        (
            {**SECOND, "responses": {"best": [{"value": "reply-2", "user_id": USER}]}},
            PairwiseValue(strength="b better"),
        ),
        (
            {
                **SECOND,
                "responses": {
                    "reply-1-rating": [{"value": 2, "user_id": USER}],
                    "reply-2-rating": [{"value": 4, "user_id": USER}],
                },
            },
            RankingValue(ranks=(2, 1)),
        ),
        ({**SECOND, "responses": {"comment": [{"value": "fine", "user_id": USER}]}}, None),
        (
            {
                **FIRST,
                "responses": [
                    {
                        "user_id": USER,
                        "status": "submitted",
                        "values": {
                            "ranking": {"value": [{"value": "reply-1", "rank": 1}, {"value": "reply-2", "rank": 1}]}
                        },
                    }
                ],
            },
            RankingValue(ranks=(1, 1)),
        ),
        (
            {
                **FIRST,
                "responses": [
                    {
                        "user_id": USER,
                        "status": "discarded",
                        "values": {
                            "ranking": {"value": [{"value": "reply-1", "rank": 1}, {"value": "reply-2", "rank": 2}]}
                        },
                    }
                ],
            },
            None,
        ),
        ({**FIRST, "responses": []}, None),
    ],
)
def test_argillas_own_records(record, value, tmp_path):
    (tmp_path / "records.json").write_text(json.dumps([record]))
    found = said(load_tool_judgements(tmp_path / "records.json", "argilla", "nobody", AT))
    assert found == (set() if value is None else {(USER, "Why?", ("no", "yes"), value)})


LINE = {
    "id": "7",
    "displayed_text": "A. no B. yes",
    "span_annotations": {},
    "behavioral_data": {"time_string": "Time spent: 0d 0h 1m 13s "},
}


@pytest.mark.parametrize(
    ("labels", "value"),
    [
        ({"preference": {"selection": "A"}}, PairwiseValue(strength="a better")),
        ({"preference": {"selection": "tie"}}, PairwiseValue(strength="tie")),
        ({"scale": {"scale_value": "-2"}}, PairwiseValue(strength="a slightly better")),
        ({"scale": {"scale_value": "3"}}, PairwiseValue(strength="b better")),
        ({"scale": {"scale_value": "9"}}, PairwiseValue(strength="b significantly better")),
        ({"scale": {"scale_value": "0"}}, PairwiseValue(strength="tie")),
        ({"order": {"rank_order": "B,A"}}, RankingValue(ranks=(2, 1))),
        ({"order": {"rank_order": "B=A"}}, RankingValue(ranks=(1, 1))),
        ({"bws": {"best": "B", "worst": "A"}}, RankingValue(ranks=(2, 1))),
        ({"quality_1": {"scale_4": "true"}, "quality_2": {"scale_2": "true"}}, RankingValue(ranks=(1, 2))),
        ({"quality A": {"4": "true"}, "quality B": {"4": "true"}}, RankingValue(ranks=(1, 1))),
        ({"consent": {"Yes": "true"}}, None),
    ],
)
def test_potatos_own_files(labels, value, tmp_path):
    (tmp_path / "items.jsonl").write_text(json.dumps({"id": 7, "prompt": "Why?", "responses": ["no", "yes"]}) + "\n")
    folder = tmp_path / "annotation_output/anna@example.org&1"
    folder.mkdir(parents=True)
    pages = [
        {**LINE, "label_annotations": labels},
        {**LINE, "id": "consent.html", "label_annotations": {"ok": {"Yes": "true"}}},
    ]
    (folder / "annotated_instances.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    lines = load_tool_judgements(tmp_path, "potato", "nobody", AT)
    assert said(lines) == (set() if value is None else {("anna@example.org_1", "Why?", ("no", "yes"), value)})
    assert [line.seconds for line in lines if isinstance(line, Judgement)] == [73.0] * (value is not None)


def test_the_best_and_the_worst_of_four_leave_two_between():
    assert potato._parse_judgement_value({"bws": {"best": "C", "worst": "A"}}, 4) == (
        "ranking",
        RankingValue(ranks=(3, 2, 1, 2)),
    )


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"p": {"selection": "C"}}, "field 'selection' is 'C'; expected A, B or tie"),
        ({"p": {"scale_value": "much"}}, "field 'scale_value' is 'much'; expected a number"),
        ({"p": {"rank_order": "A,C"}}, "expected a letter of A, B, got 'C'"),
        ({"p": {"best": "A", "worst": "A"}}, "expected two of A, B"),
        ({"p": {"best": "", "worst": "A"}}, "expected two of A, B"),
        ({"p": {"best": "A", "worst": "AB"}}, "expected two of A, B"),
        (7, "field 'label_annotations' is int"),
    ],
)
def test_a_fault_in_potatos_files_names_file_and_line(labels, words, tmp_path):
    (tmp_path / "items.jsonl").write_text(
        json.dumps({"id": "7", "prompt": "Why?", "left": "no", "right": "yes"}) + "\n"
    )
    (tmp_path / "annotation_output").mkdir()
    (tmp_path / "annotation_output/annotated_instances.jsonl").write_text(
        json.dumps({**LINE, "label_annotations": labels}) + "\n"
    )
    with pytest.raises(DataError, match=": line 1: ") as stopped:
        load_tool_judgements(tmp_path, "potato", "anna", AT)
    assert words in str(stopped.value)
