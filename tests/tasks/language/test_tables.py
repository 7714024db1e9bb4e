import pandas as pd
import pandera.errors
import pytest

from tasks.common.documents import Documents
from tasks.common.tables import Table
from tasks.language.tables.evaluation import Generations, Measures
from tasks.language.tables.held_out import HeldOut
from tasks.language.tables.judgements import Judgements
from tasks.language.tables.preferences import Annotations, Comparisons, Rankings
from tasks.language.tables.problems import Demonstrations, Problems, Prompts
from tasks.language.tables.responses import Responses
from tasks.language.tables.search import Accuracies, SampledAnswers
from tasks.language.tables.solutions import Solutions
from tasks.offline.datasets.tables import Measured, Recorded
from tests.tasks.test_check import leaves

GOOD = {
    Problems: {
        "problem_id": "test-0",
        "question": "Ada has 3 pens and buys 4. How many has she?",
        "solution": "3 + 4 = 7\n#### 7",
        "answer": "7",
        "steps": 1,
    },
    Demonstrations: {
        "demonstration_id": "train-0",
        "messages": '[{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "#### 7"}]',
        "text": "",
    },
    Documents: {"kind": "facts", "text": "3 + 4 = 7"},
    Prompts: {
        "prompt_id": "problems/train-0",
        "dataset": "problems",
        "question": "How many?",
        "solution": "3 + 4 = 7\n#### 7",
        "answer": "7",
        "reward": "policy",
    },
    Responses: {
        "prompt_id": "train-0",
        "sample": 0,
        "prompt": "How many?",
        "response": "7",
        "tokens": [5, 2],
        "logps": [-0.5, 0.0],
        "ended": True,
    },
    Annotations: {
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
    Rankings: {
        "ranking_id": "train-0",
        "prompt_id": "train-0",
        "prompt": "How many?",
        "held_out": False,
        "person": "annotator",
        "sample": 0,
        "response": "7",
        "ended": True,
        "rank": 1,
    },
    Judgements: {
        "judgement": "0" * 32,
        "item": "0" * 16,
        "mode": "pairwise",
        "prompt_id": "train-0",
        "person": "anna",
        "at": "2026-01-31T12:00:00Z",
        "seconds": 2.5,
        "repeat": 0,
        "order": [1, 0],
        "value": '{"strength": "a better"}',
        "gold": False,
    },
    Comparisons: {
        "comparison_id": "train-0/0-1",
        "prompt_id": "train-0",
        "prompt": "How many?",
        "chosen": "7",
        "rejected": "8",
        "chosen_ended": True,
        "rejected_ended": False,
        "chosen_score": 10.0,
        "rejected_score": 4.0,
        "strength": "a better",
        "chosen_tokens": [5, 2],
        "rejected_tokens": [6],
    },
    Solutions: {
        "solution_id": "train-0/0",
        "prompt_id": "train-0",
        "prompt": "How many?",
        "response": "3 + 4 = 7\n#### 7",
        "ended": True,
        "tokens": [5, 6, 7, 2],
        "right": True,
        "ends": [1, 3],
        "labels": [1, 1],
        "truth": [1, 0],
        "good": [0.5, 1.0],
    },
    HeldOut: {
        "solution_id": "train-0/0",
        "prompt_id": "train-0",
        "prompt": "How many?",
        "response": "3 + 4 = 7\n#### 7",
        "right": True,
        "reward": 0.5,
        "length": 4,
        "labels": [1, 1],
        "truth": [1, 0],
        "bad": [0.5, 0.25],
        "neutral": [0.0, 0.25],
        "good": [0.5, 0.5],
    },
    SampledAnswers: {
        "model": "sft",
        "problem_id": "test-0",
        "greedy": False,
        "sample": 3,
        "tokens": [5, 6],
        "logp": -1.5,
        "ended": True,
        "right": True,
        "vote": 0,
        "likelihood": -0.75,
        "pairs": -1.0,
        "outcome": 0.5,
        "process_minimum": 0.5,
        "process_product": 0.25,
        "process_last": 1.0,
    },
    Accuracies: {
        "model": "sft",
        "method": "majority",
        "ties": "first",
        "budget": 4,
        "accuracy": 0.5,
        "low": 0.25,
        "high": 0.75,
        "tokens": 100.5,
        "passes": 0.0,
    },
    Generations: {
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
    Measures: {"problem_id": "test-0", "metric": "rubric_greedy", "value": 7.0},
    Measured: {"policy": "medium", "episode": 3, "total": -12.5},
    Recorded: {"episode": 3, "total": 2.0, "length": 7, "terminated": True},
}
UNFIT = (  # steps that do not fit the tokens, labels that do not fit the steps
    {"tokens": []},
    {"ends": [1, 2]},
    {"ends": [3, 1]},
    {"ends": [3]},
    {"ends": [3, 3]},
    {"ends": [-1, 3]},
    {"labels": [1]},
    {"labels": [1, 2]},
    {"truth": [1, 0, 0]},
    {"good": [0.5]},
    {"good": [0.5, 1.5]},
)
BAD = [
    (Problems, {"question": ""}, "question"),
    (Problems, {"answer": "8"}, "answer"),  # the solution says 7
    (Problems, {"answer": ""}, "answer"),
    (Problems, {"answer": None}, "answer"),
    (Problems, {"history": "[{"}, "history"),
    (Problems, {"history": '{"role": "user", "content": "?"}'}, "history"),
    (Problems, {"history": '[{"role": "user"}]'}, "history"),
    (Problems, {"columns": "[]"}, "columns"),
    (Problems, {"columns": "{"}, "columns"),
    (Problems, {"steps": -1}, "steps"),
    (Demonstrations, {"messages": ""}, "a text, and not both"),
    (Demonstrations, {"text": "3 + 4 = 7"}, "a text, and not both"),
    (Demonstrations, {"messages": '[{"role": "user", "content": "How many?"}]'}, "a text, and not both"),
    (Demonstrations, {"messages": '[{"role": "user", "content": "3'}, "a text, and not both"),
    (Demonstrations, {"demonstration_id": ""}, "demonstration_id"),
    (Documents, {"text": ""}, "text"),
    (Documents, {"kind": None}, "kind"),
    (Prompts, {"answer": "8"}, "answer"),
    (Prompts, {"reward": ""}, "reward"),
    (Prompts, {"question": ""}, "question"),
    (Responses, {"logps": [-0.5]}, "one log-probability"),
    (Responses, {"logps": [-0.5, 0.1]}, "one log-probability"),
    (Responses, {"tokens": [], "logps": []}, "one log-probability"),
    (Responses, {"sample": -1}, "sample"),
    (Annotations, {"correctness": 6, "total": 11}, "correctness"),
    (Annotations, {"clarity_reason": ""}, "clarity_reason"),
    (Annotations, {"total": 9}, "total"),
    (Annotations, {"rank": 0}, "rank"),
    (Judgements, {"judgement": "0"}, "judgement"),
    (Judgements, {"mode": "rating"}, "mode"),
    (Judgements, {"person": ""}, "person"),
    (Judgements, {"seconds": -1.0}, "seconds"),
    (Judgements, {"repeat": -1}, "repeat"),
    (Judgements, {"order": [1, 1]}, "order has each place once"),
    (Judgements, {"value": "[]"}, "value is a JSON object"),
    (Judgements, {"value": "{"}, "value is a JSON object"),
    (Comparisons, {"prompt": ""}, "prompt"),
    (Comparisons, {"strength": "much better"}, "strength"),
    (Comparisons, {"rejected_score": None}, "rejected_score"),
    (Comparisons, {"rejected_score": "4"}, "rejected_score"),
    (HeldOut, {"reward": 1.5}, "reward"),
    (HeldOut, {"bad": [0.5]}, "three probabilities for each step"),
    (HeldOut, {"truth": [1]}, "three probabilities for each step"),
    (HeldOut, {"chosen": "7"}, "the columns of comparisons, or those of solutions"),
    (HeldOut, {"length": 0}, "length"),
    (SampledAnswers, {"tokens": []}, "token ids"),
    (SampledAnswers, {"tokens": [5, -1]}, "token ids"),
    (SampledAnswers, {"logp": 0.5}, "logp"),
    (SampledAnswers, {"vote": -2}, "vote"),
    (SampledAnswers, {"outcome": 1.5}, "outcome"),
    (SampledAnswers, {"likelihood": float("nan")}, "likelihood"),
    (Accuracies, {"ties": "last"}, "ties"),
    (Accuracies, {"accuracy": 1.5}, "accuracy"),
    (Accuracies, {"budget": 0}, "budget"),
    (Accuracies, {"tokens": -1.0}, "tokens"),
    (Generations, {"sample": -1}, "sample"),
    (Generations, {"temperature": -0.5}, "temperature"),
    (Generations, {"temperature": 0.0}, "one greedy answer"),
    (Comparisons, {"chosen_tokens": []}, "token ids"),
    (Comparisons, {"chosen_tokens": None}, "token ids"),
    (Comparisons, {"rejected_tokens": [5, -1]}, "token ids"),
    (Comparisons, {"rejected_tokens": [0.5]}, "token ids"),
    (Comparisons, {"rejected_tokens": "56"}, "token ids"),
    (Solutions, {"prompt": ""}, "prompt"),
    (Solutions, {"right": "yes"}, "right"),
    *((Solutions, change, "one label for each step") for change in UNFIT),
    (Generations, {"length": 0}, "length"),
    (Generations, {"reward": float("nan")}, "reward"),
    (Measures, {"value": float("nan")}, "value"),
    (Measures, {"metric": ""}, "metric"),
    (Measured, {"policy": "best"}, "policy"),
    (Measured, {"total": float("nan")}, "total"),
    (Measured, {"episode": -1}, "episode"),
    (Recorded, {"length": 0}, "length"),
    (Recorded, {"total": None}, "total"),
]
UNIQUE = [
    Judgements,
    Problems,
    Demonstrations,
    Responses,
    Comparisons,
    Solutions,
    SampledAnswers,
    Accuracies,
    Generations,
    Measures,
    Measured,
    Recorded,
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
    frame = pd.DataFrame([GOOD[Comparisons]])
    Comparisons.validate(frame.drop(columns=["chosen_tokens", "rejected_tokens"]))
    with pytest.raises(pandera.errors.SchemaErrors, match="token ids for both"):
        Comparisons.validate(frame.drop(columns="chosen_tokens"), lazy=True)


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
    assert set(GOOD) == {
        table
        for table in leaves(Table)
        if table.__module__.startswith(("tasks.common.", "tasks.language.", "tasks.offline.datasets."))
    }
