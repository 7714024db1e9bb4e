import pytest

from tasks.algorithms.estimates import Estimate
from tasks.scoreboard import headline, interval, tables, text


def judged(**rubric):
    same = {"strict_greedy": Estimate(0.5, 0.4, 0.6), "win_rate_sampled": Estimate(0.6, 0.5, 0.7)}
    return {name: {**same, "rubric_sampled": value} for name, value in rubric.items()}


SFT = Estimate(6.0, 5.8, 6.2)


@pytest.mark.parametrize(
    ("dpo", "told"),
    [
        (Estimate(7.0, 6.3, 7.2), "raised by dpo (7.00)."),
        (Estimate(6.3, 6.1, 6.5), "not clearly changed by dpo (6.30)."),
        (Estimate(5.0, 4.8, 5.7), "lowered by dpo (5.00)."),
    ],
)
def test_the_headline_is_honest(dpo, told):
    """The bounds touch in the second case: intervals that overlap show nothing."""
    first, second, third = headline(judged(pretrained=Estimate(1.0, 0.9, 1.1), sft=SFT, dpo=dpo), "sft")
    assert first == "With sft, strict accuracy (greedy) was not clearly changed from pretrained's 50.0 % to 50.0 %."
    assert second == "Over sft's 50.0 %, strict accuracy (greedy) was not clearly changed by dpo (50.0 %)."
    assert third == f"Over sft's 6.00, the rubric score of sampled answers was {told}"


def test_the_headline_of_one_and_of_many_policies():
    assert headline(judged(sft=SFT), "sft") == ["sft comes first, with 50.0 % strict accuracy (greedy)."]
    many = judged(sft=SFT, dpo=Estimate(5.0, 4.8, 5.2), ppo=Estimate(6.1, 5.9, 6.3), grpo=Estimate(8.0, 7.8, 8.2))
    *_, last = headline(many, "sft")
    assert last.endswith("raised by grpo (8.00); not clearly changed by ppo (6.10); lowered by dpo (5.00).")


def test_the_headline_prefers_sampled_answers():
    policies = judged(sft=SFT)
    policies["sft"]["strict_mean_at_8"] = Estimate(0.3, 0.2, 0.4)
    assert headline(policies, "sft") == ["sft comes first, with 30.0 % strict accuracy (mean@8)."]


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
    found = {table.title: table for table in tables(policies, "sft")}
    assert list(found) == ["At a glance", "Strict accuracy", "Lenient accuracy", "Greedy answers", "Sampled answers"]
    glance, strict = found["At a glance"], found["Strict accuracy"]
    assert (glance.columns, strict.columns) == (["strict greedy", "kl"], ["greedy"])
    assert [name for name, _ in strict.rows] == ["sft", "dpo"]
    assert [(cell["text"], cell["mark"]) for _, (cell,) in strict.rows] == [("50.0 %", ""), ("70.0 %", "▲")]
    assert [cell["mark"] for _, (cell,) in found["Lenient accuracy"].rows] == ["", ""], "0.5 touches 0.5"
    assert [cell["text"] for _, (cell,) in found["Greedy answers"].rows] == ["", "60.0 %"]
    assert [(cell["interval"], cell["mark"]) for _, (cell,) in found["Sampled answers"].rows] == [
        ("5.80 to 6.20", ""),
        ("4.00 to 5.70", "▼"),
    ]


def test_at_a_glance_takes_the_most_samples():
    names = ("strict_greedy", "strict_mean_at_8", "strict_pass_at_1", "strict_pass_at_8", "strict_pass_at_4")
    glance = tables({"sft": dict.fromkeys(names, SFT)}, "sft")[0]
    assert glance.columns == ["strict mean@8", "strict greedy", "strict pass@8"]


def test_numbers():
    assert (text("ended", SFT), interval("ended", Estimate(0.5, 0.401, 0.6))) == ("600.0 %", "40.1 to 60.0")
    assert (text("rubric", SFT), interval("rubric", SFT)) == ("6.00", "5.80 to 6.20")
    assert interval("kl", Estimate(0.0, -0.001, 0.001)) == "0.00 to 0.00"
