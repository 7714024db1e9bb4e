import pytest

from tasks.algorithms.estimates import Estimate
from tasks.scoreboard import accuracy_rows, headline, interval, other_rows, text


def judged(**rubric):
    same = {"strict_greedy": Estimate(0.5, 0.4, 0.6), "win_rate_sampled": Estimate(0.6, 0.5, 0.7)}
    return {name: {**same, "rubric_sampled": value} for name, value in rubric.items()}


SFT = Estimate(6.0, 5.8, 6.2)


@pytest.mark.parametrize(
    ("dpo", "told"),
    [
        (
            Estimate(7.0, 6.3, 7.2),
            "raised the rubric score of sampled answers from 6.00 to 7.00 (95 % intervals apart)",
        ),
        (
            Estimate(6.3, 6.1, 6.5),
            "did not clearly change the rubric score of sampled answers (from 6.00 to 6.30, 95 % intervals overlap)",
        ),
        (
            Estimate(5.0, 4.8, 5.7),
            "lowered the rubric score of sampled answers from 6.00 to 5.00 (95 % intervals apart)",
        ),
    ],
)
def test_the_headline_is_honest(dpo, told):
    first, second = headline(judged(pretrained=Estimate(1.0, 0.9, 1.1), sft=SFT, dpo=dpo), "sft")
    assert first == (
        "Over pretrained, sft did not clearly change strict greedy accuracy "
        "(from 50.0 % to 50.0 %, 95 % intervals overlap)."
    )
    assert second == f"Over sft, dpo {told}, and wins 60.0 % (50.0 to 70.0) of comparisons."


def test_the_headline_of_one_and_of_many_policies():
    assert headline(judged(sft=SFT), "sft") == ["sft comes first, with 50.0 % strict greedy accuracy."]
    first, second = headline(judged(sft=SFT, dpo=SFT, ppo=SFT), "sft")
    assert first.startswith("sft comes first")
    assert second.startswith("Over sft, dpo did not")
    assert "; ppo did not" in second


def test_tables():
    policies = {
        "sft": {"strict_greedy": Estimate(0.5, 0.4, 0.6), "lenient_greedy": Estimate(0.6, 0.5, 0.7), "kl_sampled": SFT},
        "dpo": {
            "strict_greedy": Estimate(0.7, 0.61, 0.8),
            "lenient_greedy": Estimate(0.4, 0.3, 0.5),
            "kl_sampled": Estimate(5.0, 4.0, 5.7),
            "win_rate_greedy": Estimate(0.6, 0.5, 0.7),
        },
    }
    (accuracy,) = accuracy_rows(policies, "sft")
    assert [cell["text"] for cell in accuracy["cells"]] == ["50.0 %", "60.0 %", "70.0 %", "40.0 %"]
    assert [cell["mark"] for cell in accuracy["cells"]] == ["", "", "▲", ""]  # 0.5 touches 0.5
    wins, kl = other_rows(policies, "sft")
    assert (wins["label"], kl["label"]) == ("win rate", "kl")
    assert [cell["text"] for cell in wins["cells"]] == ["", "", "60.0 %", ""]
    assert [(cell["interval"], cell["mark"]) for cell in kl["cells"]] == [
        ("", ""),
        ("5.80 to 6.20", ""),
        ("", ""),
        ("4.00 to 5.70", "▼"),
    ]


def test_numbers():
    assert (text("ended", SFT), interval("ended", Estimate(0.5, 0.401, 0.6))) == ("600.0 %", "40.1 to 60.0")
    assert (text("rubric", SFT), interval("rubric", SFT)) == ("6.00", "5.80 to 6.20")
    assert interval("kl", Estimate(0.0, -0.001, 0.001)) == "0.00 to 0.00"
