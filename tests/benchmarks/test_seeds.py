from benchmarks.seeds import BEST, CHANGE, GREEDY, cell, repeated


def test_a_seed_named_twice_is_compared_out_by_out():
    """Nothing is said of a seed that was run once; an out that is missing the second time does not count as the same."""
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
