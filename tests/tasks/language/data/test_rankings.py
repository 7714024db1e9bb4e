"""Rankings as pairs, and the batches that are made of them: the lecture's example, and weights of 1 / C(K, 2)."""

from itertools import combinations
from math import comb, exp, log1p

import pandas as pd
import pytest
import torch

from tasks.algorithms.language import reward_model
from tasks.algorithms.language.pairs import NO_LEVEL, TIED
from tasks.common import models, tables
from tasks.common.errors import DataError
from tasks.language.data import rankings
from tasks.language.data.comparisons import ComparisonSet
from tasks.language.tables.preferences import Rankings


def ranking(name, ranks, prompt="one", texts=None):
    """Rows of the schema Rankings; `ranks` by the responses' names, which are their texts too."""
    return [
        {
            "ranking_id": name,
            "prompt_id": prompt,
            "prompt": f"Question {prompt}?",
            "held_out": False,
            "person": name,
            "sample": number,
            "response": (texts or {}).get(answer, answer),
            "ended": True,
            "rank": rank,
        }
        for number, (answer, rank) in enumerate(ranks.items())
    ]


LECTURE = {"A": 3, "B": 3, "C": 4, "D": 1, "G": 2}  # D > G > A = B, and C behind them


@pytest.fixture
def words(made):
    return models.load_tokenizer(made / "tokenizer")


def table(*parts, tmp_path):
    tables.write_table(Rankings, pd.DataFrame([row for part in parts for row in part]), tmp_path / "rankings.parquet")
    return tables.read_table(Rankings, tmp_path / "rankings.parquet")


def told(found):
    return {(row.chosen, row.rejected, row.level) for row in found.itertuples()}


def test_the_lecture_s_ranking(tmp_path):
    """D > G > A = B: five pairs that one response wins, and a tie."""
    found = rankings.build_ranking_pairs(
        table(ranking("r", {name: LECTURE[name] for name in "ABDG"}), tmp_path=tmp_path), ties="half"
    )
    won = {("D", "G"), ("D", "A"), ("D", "B"), ("G", "A"), ("G", "B")}
    assert told(found) == {("A", "B", TIED), *((chosen, rejected, NO_LEVEL) for chosen, rejected in won)}
    dropped = rankings.build_ranking_pairs(table(ranking("r", LECTURE), tmp_path=tmp_path), ties="drop")
    assert len(dropped) == comb(5, 2) - 1
    assert not (dropped["level"] == TIED).any()


def test_equal_texts_are_no_pair(tmp_path):
    given = table(ranking("r", {"A": 1, "B": 2, "C": 2}, texts={"C": "A"}), tmp_path=tmp_path)
    assert told(rankings.build_ranking_pairs(given, ties="half")) == {("A", "B", NO_LEVEL), ("B", "A", TIED)}


def test_a_ranking_is_of_one_prompt(tmp_path):
    given = table(ranking("r", {"A": 1}), ranking("r", {"B": 2}, prompt="two"), tmp_path=tmp_path)
    with pytest.raises(DataError, match="rankings: r: expected responses to one prompt, got responses to several"):
        rankings.build_ranking_pairs(given, ties="half")


def test_without_a_pair_there_is_one_line(tmp_path):
    given = table(ranking("r", {"A": 1, "B": 1}), tmp_path=tmp_path)
    with pytest.raises(DataError, match="rankings: no pair is left: all responses to a prompt tie, or are equal texts"):
        rankings.build_ranking_pairs(given, ties="drop")


def cost(difference):
    return log1p(exp(-difference))


def direct(judged, scores, ties):
    """InstructGPT's eq. 1 by a double loop over each ranking, as its text says: 1 / C(K, 2) of each, then the mean."""
    total = 0.0
    for ranks in judged:
        of_one, pairs = 0.0, 0
        for first in ranks:
            for second in ranks:
                if ranks[first] < ranks[second]:
                    of_one, pairs = of_one + cost(scores[first] - scores[second]), pairs + 1
        if ties == "half":
            for first, second in combinations(ranks, 2):
                if ranks[first] == ranks[second]:
                    difference = scores[first] - scores[second]
                    of_one, pairs = of_one + (cost(difference) + cost(-difference)) / 2, pairs + 1
        if ties == "half" or len(set(ranks.values())) == len(ranks):
            assert pairs == comb(len(ranks), 2)
        total += of_one / pairs
    return total / len(judged)


@pytest.mark.parametrize("ties", ["half", "drop"])
def test_a_batch_is_the_mean_over_rankings(words, tmp_path, ties):
    """Two people rank one prompt, the second fewer responses, and one ranks another: each ranking weighs the same."""
    judged = [LECTURE, {"D": 2, "A": 1, "C": 3}, {"E": 2, "F": 1}]
    given = table(
        ranking("anna", judged[0]),
        ranking("bert", judged[1]),
        ranking("cleo", judged[2], prompt="two"),
        tmp_path=tmp_path,
    )
    compared = ComparisonSet(rankings.build_ranking_pairs(given, ties=ties), words)
    [pairs] = compared.batches(prompts_per_batch=2, epochs=1, seed=0)
    assert len(pairs.responses) == 7, "a response that two people ranked stands once"
    scores = {name: float(number) / 3 for number, name in enumerate("CABDGEF")}
    read = torch.tensor([scores[words.decode(compared.answers[place][:-1])] for place in pairs.index])
    loss = reward_model.pair_loss(
        read[pairs.chosen],
        read[pairs.rejected],
        pairs.weight,
        torch.zeros(len(pairs.chosen)),
        0.0,
        tied=pairs.level == TIED,
    )
    assert loss.item() == pytest.approx(direct(judged, scores, ties), rel=1e-5)
    alike = reward_model.pair_loss(
        read[pairs.chosen], read[pairs.rejected], torch.ones(len(pairs.chosen)), torch.zeros(len(pairs.chosen)), 0.0,
        tied=pairs.level == TIED,
    )  # fmt: skip
    assert abs(alike.item() - loss.item()) > 0.01, "a ranking of many responses would count more"


def test_a_pair_that_is_too_long_leaves_its_ranking_the_same_weight(words, tmp_path):
    from tasks.language.data.comparisons import Limit

    long = "A" * 60
    given = table(ranking("r", {"A": 1, "B": 2, "C": 3}, texts={"C": long}), tmp_path=tmp_path)
    compared = ComparisonSet(rankings.build_ranking_pairs(given, ties="half"), words, Limit(40, "drop"))
    [pairs] = compared.batches(prompts_per_batch=1, epochs=1, seed=0)
    assert pairs.weight.tolist() == [1.0]
    assert compared.dropped == 2
