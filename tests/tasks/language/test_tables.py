import pandas as pd
import pandera.errors
import pytest

from tasks.common.documents import Documents
from tasks.common.tables import Table
from tasks.language.tables.evaluation import Generations, Measures
from tasks.language.tables.held_out import HeldOut
from tasks.language.tables.judgements import Judgements
from tasks.language.tables.preferences import Annotations, Comparisons
from tasks.language.tables.problems import Demonstrations, Problems, Prompts
from tasks.language.tables.responses import Responses
from tasks.language.tables.rollouts import RolloutTable
from tasks.language.tables.solutions import Solutions
from tasks.offline.datasets.tables import BehaviourReturns, Recorded
from tests import extensions
from tests.tasks.language.table_rows import GOOD
from tests.tasks.test_check import leaves

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
    *((schema, *case) for schema, cases in extensions.entries("BAD", "rows").items() for case in cases),
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
    (Annotations, {"points": '{"correctness": 4}'}, "total is the sum"),
    (Annotations, {"points": "{"}, "total is the sum"),
    (Annotations, {"total": 11}, "total"),
    (Annotations, {"reason": ""}, "reason"),
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
    (Generations, {"sample": -1}, "sample"),
    (Generations, {"temperature": -0.5}, "temperature"),
    (Generations, {"temperature": 0.0}, "one greedy answer"),
    (Comparisons, {"chosen_tokens": []}, "token ids"),
    (Comparisons, {"chosen_tokens": None}, "token ids"),
    (Comparisons, {"rejected_tokens": [5, -1]}, "token ids"),
    (Comparisons, {"rejected_tokens": [0.5]}, "token ids"),
    (Solutions, {"prompt": ""}, "prompt"),
    (Solutions, {"right": "yes"}, "right"),
    *((Solutions, change, "one label for each step") for change in UNFIT),
    (RolloutTable, {"step": 0}, "step"),
    (RolloutTable, {"temperature": 0.0}, "temperature"),
    (RolloutTable, {"length": 1}, "lists of one length"),
    (RolloutTable, {"advantages": [0.5]}, "lists of one length"),
    (RolloutTable, {"logps": [-0.5, 0.1]}, "at most 0"),
    (Generations, {"length": 0}, "length"),
    (Generations, {"reward": float("nan")}, "reward"),
    (Measures, {"value": float("nan")}, "value"),
    (Measures, {"metric": ""}, "metric"),
    (BehaviourReturns, {"policy": "best"}, "policy"),
    (BehaviourReturns, {"total": float("nan")}, "total"),
    (BehaviourReturns, {"episode": -1}, "episode"),
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
    *extensions.entries("BAD", "rows"),
    RolloutTable,
    Generations,
    Measures,
    BehaviourReturns,
    Recorded,
]


@pytest.mark.parametrize("schema", GOOD, ids=lambda schema: schema.__name__)
def test_good_rows_pass(schema):
    schema.validate(pd.DataFrame([GOOD[schema]]))


@pytest.mark.parametrize(("schema", "change", "named"), BAD, ids=str)
def test_bad_rows_are_rejected(schema, change, named):
    with pytest.raises(pandera.errors.SchemaError) as raised:
        schema.validate(pd.DataFrame([GOOD[schema] | change]))
    assert named in f"{raised.value.schema.name} {raised.value.check}"


def test_a_text_is_no_list_of_tokens():
    """Even one of digits, and whatever its column's type."""
    with pytest.raises(pandera.errors.SchemaErrors, match="token ids"):
        Comparisons.validate(pd.DataFrame([GOOD[Comparisons] | {"rejected_tokens": "56"}]), lazy=True)


def test_comparisons_of_texts_need_no_tokens_but_those_of_one_side_alone_are_a_mistake():
    frame = pd.DataFrame([GOOD[Comparisons]])
    Comparisons.validate(frame.drop(columns=["chosen_tokens", "rejected_tokens"]))
    with pytest.raises(pandera.errors.SchemaErrors, match="token ids for both"):
        Comparisons.validate(frame.drop(columns="chosen_tokens"), lazy=True)


@pytest.mark.parametrize("schema", UNIQUE, ids=lambda schema: schema.__name__)
def test_keys_are_unique(schema):
    with pytest.raises(pandera.errors.SchemaError, match=r"duplicate|DataFrameSchema"):
        schema.validate(pd.DataFrame([GOOD[schema], GOOD[schema]]))


@pytest.mark.parametrize("schema", GOOD, ids=lambda schema: schema.__name__)
def test_columns_are_exactly_the_declared_ones(schema):
    frame = pd.DataFrame([GOOD[schema]])
    with pytest.raises(pandera.errors.SchemaErrors, match="column 'more' not in"):
        schema.validate(frame.assign(more=1))
    with pytest.raises(pandera.errors.SchemaError, match=rf"column '{frame.columns[0]}' not in|columns of comparisons"):
        schema.validate(frame.drop(columns=frame.columns[0]))


def test_every_table_has_a_case():
    assert set(GOOD) == {
        table
        for table in leaves(Table)
        if table.__module__.startswith(
            ("tasks.common.", "tasks.language.", "tasks.extensions.", "tasks.offline.datasets.")
        )
    }
