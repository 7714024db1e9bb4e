"""IFEval's constraints against verdicts of the paper's published code, frozen in ifeval.json.

They were computed once by the copy of that code in lm-eval 0.4.13 (its strict accuracy), with NLTK 3.10.4 and its
English model of sentences. `verdicts` has a row a constraint: its name, its arguments, and for each of the responses 1
where it holds.
"""

import json
from pathlib import Path

from tasks.language.rewards.constraint_kinds import KINDS
from tasks.language.rewards.constraints import find_constraints_fault, is_constraint_satisfied

FROZEN = json.loads((Path(__file__).parent / "ifeval.json").read_text())
# The published code asks a detector of languages as well, which takes very short texts for other languages than
# English.
ENGLISH = {"change_case:english_capital", "change_case:english_lowercase"}


def test_verdicts_are_those_of_the_published_code():
    compared, held = 0, 0
    for name, arguments, verdicts in FROZEN["verdicts"]:
        assert find_constraints_fault({"instruction_id_list": [name], "kwargs": [arguments]}) is None
        for response, verdict in zip(FROZEN["responses"], verdicts, strict=True):
            ours, theirs = is_constraint_satisfied(response, name, arguments), verdict == "1"
            if name in ENGLISH:
                assert ours or not theirs, (name, response)
            else:
                assert ours == theirs, (name, arguments, response)
                compared, held = compared + 1, held + theirs
    assert compared > 2000
    assert held > 400
    assert {name for name, _, _ in FROZEN["verdicts"]} == KINDS.keys() - {"language:response_language"}
