from benchmarks.seeds import repeated


def test_a_seed_named_twice_is_compared_out_by_out():
    """Nothing is said of a seed that was run once; an out that is missing the second time does not count as the same."""
    first = {"seed": 0, "outs": {"data/a": "1", "data/b": "2", "data/c": "3"}}
    other = {"seed": 1, "outs": {"data/a": "9"}}
    again = {"seed": 0, "outs": {"data/a": "1", "data/b": "4"}}
    assert list(repeated([first, other])) == []
    assert list(repeated([first, other, again])) == [
        "\nSeed 0 again, from an empty cache: 1 of 3 outs have the same hash."
    ]
