"""What a sweep varies, from the command line to its points."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.params.files import ParameterError
from flows.sweeps import axes
from flows.sweeps.axes import Axis, build_grid_points

VALUES = st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True)


def test_values_are_those_of_a_yaml_list() -> None:
    assert axes.parse_axis("dpo.beta=0.05, 1e-1,2") == Axis("dpo.beta", (0.05, 0.1, 2))
    assert axes.parse_axis("ppo.lora=null,{rank: 4, targets: [q, v]}").values == (
        None,
        {"rank": 4, "targets": ["q", "v"]},
    )
    assert axes.parse_axis("bc.hidden=[8, 8],[16]").values == ([8, 8], [16])
    assert axes.parse_axis("grpo.aggregation=dapo,bnpo").values == ("dapo", "bnpo")


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("beta=1,2", "sweep beta=1,2: expected SECTION.KEY=VALUE,VALUE.., such as dpo.beta=0.05,0.1,0.2"),
        ("dpo.=1", "sweep dpo.=1: expected SECTION.KEY=VALUE,VALUE.., such as dpo.beta=0.05,0.1,0.2"),
        ("dpo.beta=", "sweep dpo.beta: expected at least one value"),
        ("dpo.beta=0.1,0.2,0.1", "dpo.beta: 0.1 stands there twice"),
    ],
)
def test_a_wrong_axis_is_one_line(argument: str, line: str) -> None:
    with pytest.raises(ParameterError) as caught:
        axes.parse_axis(argument)
    assert str(caught.value) == line


def test_values_that_are_no_yaml_are_one_line() -> None:
    with pytest.raises(ParameterError, match=r"^sweep dpo.beta: .*not valid YAML"):
        axes.parse_axis("dpo.beta=[1")


@pytest.mark.parametrize("text", ["a", "0,", "1,1", "-1", "1.5", "4294967296"])
def test_wrong_seeds_are_one_line(text: str) -> None:
    with pytest.raises(ParameterError, match=r"^--seeds"):
        axes.parse_seeds_axis(text)


def test_a_point_is_named_by_its_settings() -> None:
    grid = build_grid_points([Axis("dpo.beta", (0.1, 0.2)), Axis("ppo.lora", (None,))], axes.parse_seeds_axis("3,4"))
    assert [(point.number, point.name) for point in grid] == [
        (1, "dpo.beta=0.1,ppo.lora=null,seed=3"),
        (2, "dpo.beta=0.1,ppo.lora=null,seed=4"),
        (3, "dpo.beta=0.2,ppo.lora=null,seed=3"),
        (4, "dpo.beta=0.2,ppo.lora=null,seed=4"),
    ]
    assert grid[0].without_seed == (("dpo.beta", 0.1), ("ppo.lora", None))


@settings(max_examples=25)
@given(st.lists(VALUES, max_size=3), VALUES)
def test_the_grid_has_every_combination_with_every_seed_once(values: list[list[int]], seeds: list[int]) -> None:
    varied = [Axis(f"a.x{place}", tuple(each)) for place, each in enumerate(values)]
    grid = build_grid_points(varied, Axis("seed", tuple(seeds)))
    count = len(seeds)
    for each in values:
        count *= len(each)
    assert len({point.settings for point in grid}) == len(grid) == count
    assert [point.number for point in grid] == list(range(1, count + 1))


def test_points_that_are_drawn_are_the_same_each_time_and_keep_all_seeds() -> None:
    varied = [Axis("a.x", tuple(range(10))), Axis("a.y", tuple(range(10)))]
    drawn = build_grid_points(varied, axes.parse_seeds_axis("0,1"), 7)
    assert drawn == build_grid_points(varied, axes.parse_seeds_axis("0,1"), 7)
    assert len({point.without_seed for point in drawn}) == 7
    assert len(drawn) == 14
    assert build_grid_points(varied[:1], None, 99) == build_grid_points(varied[:1], None)


def test_too_many_points_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"^sweep: 1,100 points, of which 1,000 are possible; draw"):
        build_grid_points([Axis("a.x", tuple(range(1100)))], None)
    with pytest.raises(ParameterError, match=r"^sweep a.x: given twice"):
        build_grid_points([Axis("a.x", (1,)), Axis("a.x", (2,))], None)
