import pytest

from benchmarks.seeds import BEST, CHANGE, GAINS, GREEDY, POLICIES, cell, gain, gains, repeated


def test_a_seed_named_twice_is_compared_out_by_out():
    """A seed that was run once gets no line; an out that is missing in the second run does not count as the same."""
    first = {"seed": 0, "outs": {"data/a": "1", "data/b": "2", "data/c": "3"}}
    other = {"seed": 1, "outs": {"data/a": "9"}}
    again = {"seed": 0, "outs": {"data/a": "1", "data/b": "4"}}
    assert list(repeated([first, other])) == []
    assert list(repeated([first, other, again])) == [
        "\nSeed 0 again, from an empty cache: 1 of 3 outs have the same hash."
    ]


def test_a_cell_has_its_interval_and_a_change_is_the_paired_one():
    run = {
        "evaluate@dpo": {"best_temperature": 0.3, BEST: {"mean": 0.7, "low": 0.65, "high": 0.75}},
        "report": {
            "dpo": {"change": {GREEDY: {"mean": 0.05, "low": -0.01, "high": 0.1, "gained": 9, "lost": 4, "p": 0.3}}}
        },
    }
    assert cell(run, "dpo", BEST) == "0.7 [0.65, 0.75] @ 0.3"
    assert cell(run, "dpo", f"{CHANGE}{GREEDY}") == "+0.05 [-0.01, +0.1]; 9, 4"
    assert cell(run, "sft", f"{CHANGE}{GREEDY}") == "", "the baseline itself"


def test_changes_are_put_together_over_seeds():
    def run(greedy, gained, lost):
        change = {metric: {"mean": 0.5} for metric in GAINS}
        change[GREEDY] = {"mean": greedy, "gained": gained, "lost": lost}
        return {"report": {policy: {"change": change} for policy in POLICIES[2:]}}

    lines = gains({"runs": [run(0.1, 9, 4), run(-0.02, 1, 2), run(0.04, 5, 3)]}).splitlines()
    assert len(lines) == 2 + len(POLICIES[2:])
    assert lines[-1].startswith("| grpo | +4.0 [-2.0 to +10.0] | +50.0 [+50.0 to +50.0] |")
    assert lines[-1].endswith("| +0.50 [+0.50 to +0.50] | 15, 9 |")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((0.04, 0.05, 0.06), "+5.0 points, beyond chance by Student's 95 % interval over the seeds (+2.5 to +7.5)."),
        ((0.0, 0.05, 0.1), "+5.0 points, not beyond chance by Student's 95 % interval over the seeds (-7.4 to +17.4)."),
    ],
)
def test_a_gain_is_beyond_chance_by_student_s_interval_over_seeds(changes, said):
    """With three seeds 4.303 standard errors: 2.5 points where the seeds lie a point apart, 12.4 where they lie five apart."""
    runs = []
    for change in changes:
        report = {"grpo": {"change": {GREEDY: {"mean": change}}}}
        runs.append({"evaluate@sft": {GREEDY: {"mean": 0.7}}, "report": report})
    assert (
        gain({"runs": runs}, "grpo")
        == f"Over 3 seeds SFT is right in 70.0 % of the test problems, and grpo changes that by {said}\n"
    )
