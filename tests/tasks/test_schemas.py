import pandas as pd
import pandera.errors
import pytest

from tasks import schemas

GOOD = {
    schemas.Problems: {
        "problem_id": "test-0",
        "question": "Ada has 3 pens and buys 4. How many has she?",
        "solution": "3 + 4 = 7\n#### 7",
        "answer": "7",
        "steps": 1,
    },
    schemas.Demonstrations: {"problem_id": "train-0", "prompt": "How many?", "response": "#### 7"},
    schemas.Documents: {"kind": "facts", "text": "3 + 4 = 7"},
    schemas.Prompts: {
        "prompt_id": "problems/train-0",
        "dataset": "problems",
        "question": "How many?",
        "solution": "3 + 4 = 7\n#### 7",
        "answer": "7",
        "reward": "policy",
    },
    schemas.Responses: {
        "prompt_id": "train-0",
        "sample": 0,
        "prompt": "How many?",
        "response": "7",
        "tokens": [5, 2],
        "logps": [-0.5, 0.0],
        "ended": True,
    },
    schemas.Annotations: {
        "prompt_id": "train-0",
        "sample": 0,
        "correctness": 5,
        "correctness_reason": "right",
        "reasoning": 3,
        "reasoning_reason": "sound",
        "clarity": 2,
        "clarity_reason": "concise",
        "total": 10,
        "rank": 1,
    },
    schemas.Comparisons: {
        "comparison_id": "train-0/0-1",
        "prompt_id": "train-0",
        "prompt": "How many?",
        "chosen": "7",
        "rejected": "8",
        "chosen_ended": True,
        "rejected_ended": False,
        "chosen_score": 10,
        "rejected_score": 4,
        "strength": "a better",
        "chosen_tokens": [5, 2],
        "rejected_tokens": [6],
    },
    schemas.Generations: {
        "problem_id": "test-0",
        "temperature": 0.5,
        "sample": 3,
        "response": "7",
        "length": 2,
        "ended": True,
        "steps": False,
        "strict": False,
        "lenient": True,
        "correctness": 5,
        "reasoning": 0,
        "clarity": 1,
        "rubric": 6,
        "reward": 0.25,
        "kl": -0.5,
    },
    schemas.Measures: {"problem_id": "test-0", "metric": "rubric_greedy", "value": 7.0},
    schemas.Measured: {"policy": "medium", "episode": 3, "total": -12.5},
    schemas.Recorded: {"episode": 3, "total": 2.0, "length": 7, "terminated": True},
}
BAD = [
    (schemas.Problems, {"question": ""}, "question"),
    (schemas.Problems, {"answer": "seven", "solution": "#### seven"}, "answer"),
    (schemas.Problems, {"answer": "8"}, "answer"),  # the solution says 7
    (schemas.Problems, {"steps": -1}, "steps"),
    (schemas.Demonstrations, {"response": ""}, "response"),
    (schemas.Documents, {"text": ""}, "text"),
    (schemas.Documents, {"kind": None}, "kind"),
    (schemas.Prompts, {"answer": "seven"}, "answer"),
    (schemas.Prompts, {"reward": "praise"}, "reward"),
    (schemas.Prompts, {"question": ""}, "question"),
    (schemas.Responses, {"logps": [-0.5]}, "one log-probability"),
    (schemas.Responses, {"logps": [-0.5, 0.1]}, "one log-probability"),
    (schemas.Responses, {"tokens": [], "logps": []}, "one log-probability"),
    (schemas.Responses, {"sample": -1}, "sample"),
    (schemas.Annotations, {"correctness": 6, "total": 11}, "correctness"),
    (schemas.Annotations, {"clarity_reason": ""}, "clarity_reason"),
    (schemas.Annotations, {"total": 9}, "total"),
    (schemas.Annotations, {"rank": 0}, "rank"),
    (schemas.Comparisons, {"prompt": ""}, "prompt"),
    (schemas.Comparisons, {"strength": "much better"}, "strength"),
    (schemas.Comparisons, {"rejected_score": 11}, "rejected_score"),
    (schemas.Generations, {"sample": -1}, "sample"),
    (schemas.Generations, {"temperature": -0.5}, "temperature"),
    (schemas.Generations, {"temperature": 0.0}, "one greedy answer"),
    (schemas.Comparisons, {"chosen_tokens": []}, "token ids"),
    (schemas.Comparisons, {"chosen_tokens": None}, "token ids"),
    (schemas.Comparisons, {"rejected_tokens": [5, -1]}, "token ids"),
    (schemas.Comparisons, {"rejected_tokens": [0.5]}, "token ids"),
    (schemas.Comparisons, {"rejected_tokens": "56"}, "token ids"),
    (schemas.Generations, {"length": 0}, "length"),
    (schemas.Generations, {"reward": float("nan")}, "reward"),
    (schemas.Measures, {"value": float("nan")}, "value"),
    (schemas.Measures, {"metric": ""}, "metric"),
    (schemas.Measured, {"policy": "best"}, "policy"),
    (schemas.Measured, {"total": float("nan")}, "total"),
    (schemas.Measured, {"episode": -1}, "episode"),
    (schemas.Recorded, {"length": 0}, "length"),
    (schemas.Recorded, {"total": None}, "total"),
]
UNIQUE = [
    schemas.Problems,
    schemas.Demonstrations,
    schemas.Responses,
    schemas.Comparisons,
    schemas.Generations,
    schemas.Measures,
    schemas.Measured,
    schemas.Recorded,
]


@pytest.mark.parametrize("schema", GOOD, ids=lambda schema: schema.__name__)
def test_good_rows_pass(schema):
    schema.validate(pd.DataFrame([GOOD[schema]]))


@pytest.mark.parametrize(("schema", "change", "named"), BAD, ids=str)
def test_bad_rows_are_rejected(schema, change, named):
    with pytest.raises(pandera.errors.SchemaErrors) as raised:
        schema.validate(pd.DataFrame([GOOD[schema] | change]), lazy=True)
    assert named in raised.value.failure_cases[["column", "check"]].astype(str).to_string()


def test_comparisons_of_texts_need_no_tokens_but_those_of_one_side_alone_are_a_mistake():
    frame = pd.DataFrame([GOOD[schemas.Comparisons]])
    schemas.Comparisons.validate(frame.drop(columns=["chosen_tokens", "rejected_tokens"]))
    with pytest.raises(pandera.errors.SchemaErrors, match="token ids for both"):
        schemas.Comparisons.validate(frame.drop(columns="chosen_tokens"), lazy=True)


@pytest.mark.parametrize("schema", UNIQUE, ids=lambda schema: schema.__name__)
def test_keys_are_unique(schema):
    with pytest.raises(pandera.errors.SchemaErrors):
        schema.validate(pd.DataFrame([GOOD[schema], GOOD[schema]]), lazy=True)


@pytest.mark.parametrize("schema", GOOD, ids=lambda schema: schema.__name__)
def test_columns_are_exactly_the_declared_ones(schema):
    frame = pd.DataFrame([GOOD[schema]])
    with pytest.raises(pandera.errors.SchemaErrors):
        schema.validate(frame.assign(more=1), lazy=True)
    with pytest.raises(pandera.errors.SchemaErrors):
        schema.validate(frame.drop(columns=frame.columns[0]), lazy=True)


def test_every_table_has_a_case():
    assert set(GOOD) == {table for table in schemas.Table.__subclasses__() if table.__module__ == schemas.__name__}
