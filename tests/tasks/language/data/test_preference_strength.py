"""What a row of pairs says of how much better the chosen answer is."""

import pytest

from tasks.language.data.forms import parse_preference_pair


@pytest.mark.parametrize(
    ("given", "scores"),
    [
        ({"score_chosen": 8.5, "score_rejected": 4}, (8.5, 4.0)),
        ({"chosen_score": 1, "rejected_score": -1}, (1.0, -1.0)),
        ({"chosen-rating": 5, "rejected-rating": 2}, (5.0, 2.0)),
        ({"metadata": {"chosen-rating": 5, "rejected-rating": 2}}, (5.0, 2.0)),
        ({"rating_chosen": 5, "rating_rejected": 2}, (5.0, 2.0)),
        ({"chosen_avg_rating": 4.5, "rejected_avg_rating": 2}, (4.5, 2.0)),
        ({"reward_chosen": -1, "reward_rejected": 2.0}, (-1.0, 2.0)),
        ({"chosen_reward_model": "a", "rejected_reward_model": "b", "chosen_tokens": 1, "rejected_tokens": 2}, None),
        ({"chosen_strategy": 1, "rejected_strategy": 2}, None),
        ({"metadata": {"chosen-rating": 5}, "score_chosen": None, "score_rejected": 3}, None),
        ({"metadata": "none"}, None),
    ],
)
def test_scores_that_somebody_gave(given, scores):
    assert parse_preference_pair({"prompt": "Why?", "chosen": "So.", "rejected": "No.", **given}).scores == scores


HOW_MUCH = {None: "", "better": "", "strong": "", "a better": "", "weak": "slightly", " slightly better ": "slightly"}
HOW_MUCH |= {"b slightly better": "slightly", "negligibly better": "negligibly"}
HOW_MUCH |= {"Significantly better": "significantly", "much better": "significantly"}


@pytest.mark.parametrize(("said", "level"), HOW_MUCH.items())
def test_how_much_better(said, level):
    assert (
        parse_preference_pair({"prompt": "Why?", "chosen": "So.", "rejected": "No.", "strength": said}).level == level
    )
