"""Successive halving: which of the trainings of a group goes on, by cases worked out by hand, and sweeps that stop what
is behind.
"""

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from flows.engine.dvc_repository import PlanError
from flows.sweeps.halving import Group, Rung, RungMetric, get_rung_file, parse_rung_metric_from_curve, read_rung_metric
from flows.sweeps.measure import Measure
from tests.flows.engine.toy import Toy
from tests.flows.sweeps.swept import Swept, swept

QUARTER, HALF = Fraction(1, 4), Fraction(1, 2)


def group(metric: str = "accuracy", seeds: int = 1) -> Group:
    """Four settings, with rungs at 25 and 50 % of 8 steps."""
    return Group(
        "fit",
        Measure.asked(metric),
        {name: [f"{name}{seed}" for seed in range(seeds)] for name in "abcd"},
        [QUARTER, HALF],
    )


def reach(of: Group, number: int, **values: float) -> None:
    for node, value in values.items():
        of.reached[node, number] = RungMetric(2 * 2**number, 8, value)


def alive(of: Group, number: int) -> str:
    return "".join(name for name, nodes in of.candidates.items() if of.behind(nodes[0], number) is None)


def test_the_better_half_goes_on_at_each_rung() -> None:
    of = group()
    assert (alive(of, 0), of.is_decided(0), of.is_decided(1)) == ("abcd", True, False)
    reach(of, 0, a0=0.1, b0=0.4, c0=0.3, d0=0.2)
    assert (alive(of, 1), of.is_decided(1), of.is_decided(2)) == ("bc", True, False)
    reach(of, 1, b0=0.5, c0=0.6)
    assert (alive(of, 2), of.is_decided(2)) == ("c", True)
    assert of.behind("d0", 1) == of.behind("d0", 2) == "at step 2 of 8 accuracy was 0.2; 0.3 goes on"
    assert of.behind("b0", 2) == "at step 4 of 8 accuracy was 0.5; 0.6 goes on"
    assert of.sentence({"a0": "behind", "b0": "behind", "c0": "ran", "d0": "behind"}) == (
        "fit: 3 of 4 trainings were behind by accuracy and are paused; all together trained 16 of 32 steps"
    )
    assert of.sentence({"a0": "up-to-date", "b0": "up-to-date", "c0": "up-to-date", "d0": "up-to-date"}) == (
        "fit: no training was behind by accuracy"
    )


def test_of_a_loss_less_is_better() -> None:
    of = group("eval_loss")
    reach(of, 0, a0=0.3, b0=0.2, c0=0.35, d0=0.4)
    assert alive(of, 1) == "ab"
    assert of.behind("c0", 1) == "at step 2 of 8 eval_loss was 0.35; 0.3 goes on"


def test_what_is_as_good_as_the_last_that_goes_on_is_not_behind() -> None:
    of = group()
    reach(of, 0, a0=0.3, b0=0.4, c0=0.3, d0=0.2)
    assert alive(of, 1) == "abc"
    reach(of, 1, a0=0.3, b0=0.3, c0=0.3)
    assert alive(of, 2) == "abc", "no number has told them apart"


def test_seeds_of_a_setting_go_on_together_by_their_mean() -> None:
    of = group(seeds=2)
    reach(of, 0, a0=0.9, a1=0.0, b0=0.5, b1=0.5, c0=0.4, c1=0.7, d0=0.1, d1=0.1)
    assert alive(of, 1) == "bc", "a has the best seed, and a mean of 0.45"


def test_a_setting_of_which_a_seed_has_failed_is_behind_and_takes_no_place() -> None:
    of = group(seeds=2)
    reach(of, 0, a0=0.9, b0=0.5, b1=0.5, c0=0.4, c1=0.7, d0=0.1, d1=0.1)
    assert alive(of, 1) == "bc"
    assert of.behind("a0", 1) == "did not get to step 2 of 8 with each seed"


def test_trainings_of_different_lengths_are_not_compared() -> None:
    of = group()
    reach(of, 0, a0=0.1, b0=0.4, c0=0.3)
    of.reached["d0", 0] = RungMetric(4, 16, 0.2)
    with pytest.raises(PlanError, match="points train fit for 8, 16 steps, so they cannot be compared at one"):
        of.behind("a0", 1)


def test_a_curve_says_what_its_training_had_reached() -> None:
    curve = "step,loss,accuracy\n1,3,0.1\n2,2,\n3,1,0.3\n4,0.5,0.4\n"
    half = Rung("fit", 1, HALF)
    assert parse_rung_metric_from_curve(curve, half, "loss") == RungMetric(2, 4, 2.0)
    assert parse_rung_metric_from_curve(curve, Rung("fit", 0, Fraction(1, 16)), "loss") == RungMetric(1, 4, 3.0)
    for missing in ("accuracy", "reward"):
        with pytest.raises(ValueError):  # noqa: PT011
            parse_rung_metric_from_curve(curve, half, missing)
    assert parse_rung_metric_from_curve("step,loss\n", half, "loss") is None, "it had no steps"


FIT = """
import json, os, pathlib, sys
params = json.loads(pathlib.Path("params.yaml").read_text())["fit"]
checkpoint = pathlib.Path("mlruns/checkpoints/fit.json")
rows = json.loads(checkpoint.read_text()) if checkpoint.exists() else []
pause = json.loads(os.environ.get("POSTTRAIN_PAUSE") or "null")
if params["rate"] == 9:
    sys.exit("diverged")
def look():
    if pause and len(rows) >= 8 // int(pause["share"].partition("/")[2]):
        at = 8 // int(pause["share"].partition("/")[2])
        checkpoint.write_text(json.dumps(rows))
        pathlib.Path(pause["file"]).write_text(json.dumps({"step": at, "total": 8, "metric": pause["metric"], "value": rows[at - 1]["accuracy"]}))
        print("paused")
        sys.exit(75)
look()
while len(rows) < 8:
    with open(LOG, "a") as file:
        file.write(f"{params['rate']} {len(rows) + 1}\\n")
    rows.append({"accuracy": params["rate"] * (len(rows) + 1)})
    look()
pathlib.Path("data/curves").mkdir(parents=True, exist_ok=True)
lines = [f"{step},{row['accuracy']}" for step, row in enumerate(rows, 1)]
pathlib.Path("data/curves/fit.csv").write_text("\\n".join(["step,accuracy", *lines]) + "\\n")
pathlib.Path("data/fit").write_text(f"trained with {params}")
checkpoint.unlink(missing_ok=True)
"""  # noqa: E501


@pytest.fixture
def training(toy: Toy) -> Toy:
    """a, which fit needs, and score, which needs fit. A step of fit is a line of steps.txt."""
    toy.stage("a")
    toy.write("fit.py", FIT.replace("LOG", repr(str(toy.root / "mlruns/steps.txt"))))
    (toy.root / "mlruns").mkdir(exist_ok=True)
    outs = ["data/fit", "data/curves/fit.csv"]
    toy.stage("fit", "a", cmd="python fit.py", deps=["fit.py", "data/a"], outs=outs)
    toy.stage("score", "fit")
    toy.set(fit={"rate": 1, "seed": 0}, score={"x": 1})
    return toy


def steps(toy: Toy) -> list[str]:
    """The steps that were trained since this was last asked, in any order."""
    file = toy.root / "mlruns/steps.txt"
    found = sorted(file.read_text().splitlines()) if file.exists() else []
    file.unlink(missing_ok=True)
    return found


def of_each(**ends: int) -> list[str]:
    return sorted(f"{rate.removeprefix('r')} {step}" for rate, end in ends.items() for step in range(1, end + 1))


def early(toy: Toy, *varied: str, metric: str = "accuracy", targets: Sequence[str] = ()) -> Swept:
    return swept(toy, *varied, targets=targets, early=metric)


def test_a_sweep_trains_on_what_is_ahead_and_takes_no_step_twice(training: Toy) -> None:
    """Again nothing runs and the same is told; without `early` each is trained to its end from where it paused."""
    found = early(training, "fit.rate=1,4,3,2")
    assert steps(training) == of_each(r1=2, r2=2, r3=4, r4=8)
    assert {name: state for name, state in found.states.items() if " to " not in name} == {
        **{"a": "ran", "fit@rate=1": "behind", "score@rate=1": "behind", "fit@rate=4": "ran", "score@rate=4": "ran"},
        **{"fit@rate=3": "behind", "score@rate=3": "behind", "fit@rate=2": "behind", "score@rate=2": "behind"},
    }
    assert found.results["fit@rate=3"].reason == "at step 4 of 8 accuracy was 12; 16 goes on"
    assert [one.behind for one in found.points] == [
        "at step 2 of 8 accuracy was 2; 6 goes on",
        "",
        "at step 4 of 8 accuracy was 12; 16 goes on",
        "at step 2 of 8 accuracy was 4; 6 goes on",
    ]
    assert [one.over for one in found.points] == [True] * 4
    assert [one.done for one in found.points] == [False, True, False, False]
    assert found.points[2].reached == {"fit/accuracy/at_step_2": 6.0, "fit/accuracy/at_step_4": 12.0}

    again = early(training, "fit.rate=1,4,3,2")
    assert set(again.reasons.values()) == {None}
    assert steps(training) == []
    assert [(one.behind, one.reached) for one in again.points] == [(one.behind, one.reached) for one in found.points]

    whole = swept(training, "fit.rate=1,4,3,2")
    assert steps(training) == sorted(
        f"{rate} {step}" for rate, at in ((1, 2), (2, 2), (3, 4)) for step in range(at + 1, 9)
    )
    assert [one.done for one in whole.points] == [True] * 4
    assert not [*(training.root / "mlruns/checkpoints").iterdir()]


def test_what_is_in_the_cache_is_compared_by_its_curve_and_never_behind(training: Toy) -> None:
    swept(training, "fit.rate=1,2")
    steps(training)
    found = early(training, "fit.rate=1,2,3,4")
    assert steps(training) == of_each(r3=4, r4=8)
    assert [one.done for one in found.points] == [True, True, False, True]


def test_a_training_that_fails_holds_up_no_other(training: Toy) -> None:
    found = early(training, "fit.rate=9,4,3,2")
    assert steps(training) == of_each(r2=2, r3=4, r4=8)
    assert (found.states["fit@rate=9 to 25 %"], found.states["score@rate=9"]) == ("failed", "skipped")
    assert [one.over for one in found.points] == [False, True, True, True]


@pytest.mark.parametrize(
    ("varied", "metric", "line"),
    [
        ("score.x=1,2", "accuracy", "--early: no training depends on score.x; it compares those that leave a curve "
                                    "in data/curves/"),
        ("fit.steps=4,8", "accuracy", "--early: compares points at the same step, but fit.steps varies"),
        ("fit.rate=1,2", "thing", "--early thing: say whether less or more is better: min:thing or max:thing"),
        ("fit.rate=1,2", "most:accuracy", "--early most:accuracy: expected the name of a number, or "
                                          "min: or max: before it"),
        ("fit.rate=1,2", "eval_accuracy", "--early eval_accuracy: fit does not measure it on its way, since "
                                          "fit.evaluate_every is 0"),
        ("fit.temperature=1,2", "eval_accuracy", "--early eval_accuracy: fit.temperature varies, so that points "
                                                 "are not measured alike"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_one_line(training: Toy, varied: str, metric: str, line: str) -> None:
    training.set(fit={"rate": 1, "seed": 0, "steps": 8, "temperature": 1, "evaluate_every": 0})
    with pytest.raises(PlanError) as told:
        early(training, varied, metric=metric)
    assert str(told.value) == line
    assert steps(training) == []


def test_a_number_that_the_curves_in_the_cache_lack_is_one_line(training: Toy) -> None:
    swept(training, "fit.rate=1,2")
    with pytest.raises(PlanError, match="--early loss: fit@rate=1 is in the cache, and its curve has no such number"):
        early(training, "fit.rate=1,2,3", metric="loss")


def test_a_stage_that_does_not_pause_is_made_whole_and_compared_by_its_curve(training: Toy) -> None:
    training.write("fit.py", training.read("fit.py").replace("POSTTRAIN_PAUSE", "NOT_ASKED"))
    found = early(training, "fit.rate=1,2")
    assert steps(training) == of_each(r1=8, r2=8)
    assert [one.done for one in found.points] == [True, True]
    assert [one.reached for one in found.points] == [{"fit/accuracy/at_step_4": 4.0}, {"fit/accuracy/at_step_4": 8.0}]
    assert json.loads((training.root / "params.yaml").read_text())["fit"]["rate"] == 1


def test_a_training_of_no_steps_is_whole_and_holds_up_no_other(training: Toy) -> None:
    """As `rejection_sft` is where no answer was kept."""
    training.write(
        "fit.py",
        training.read("fit.py").replace(
            "look()\nwhile len(rows) < 8:", "while len(rows) < (8 if params['rate'] > 1 else 0):"
        ),
    )
    found = early(training, "fit.rate=1,2,3,4")
    assert steps(training) == of_each(r2=2, r3=4, r4=8)
    assert [one.done for one in found.points] == [True, False, False, True]
    again = early(training, "fit.rate=1,2,3,4")
    assert set(again.reasons.values()) == {None}
    assert steps(training) == []


CROSSING = """{1: (10, 5), 2: (1, 9), 3: (12, 4), 4: (2, 8)}[params["rate"]][len(rows) >= 2]"""


def test_rungs_that_a_smaller_sweep_has_left_out_are_waited_for(training: Toy) -> None:
    """Of two values there is one rung, at 50 %. Of four there is another before it, which decides first."""
    training.write("fit.py", training.read("fit.py").replace('params["rate"] * (len(rows) + 1)', CROSSING))
    early(training, "fit.rate=1,2")
    early(training, "fit.rate=3,4")
    assert steps(training) == of_each(r1=4, r2=8, r3=4, r4=8)
    found = early(training, "fit.rate=1,2,3,4")
    reasons = {name: result.reason for name, result in found.results.items()}
    assert reasons["fit@rate=3"] == "at step 4 of 8 accuracy was 4; 5 goes on"
    assert [one.done for one in found.points] == [True, True, False, True], (
        "the better two at 25 % were 1 and 3, and of them 1 went on"
    )
    assert steps(training) == [f"1 {step}" for step in range(5, 9)]


def test_a_number_of_another_metric_is_not_taken_for_the_one_that_is_asked_for(tmp_path: Path) -> None:
    """Their names differ in a letter that no file's name has."""
    one, other = (get_rung_file(tmp_path, "fit", Rung("fit", 0, HALF), metric) for metric in ("a-b", "a_b"))
    assert one == other
    one.write_text('{"metric": "a-b", "step": 4, "total": 8, "value": 0.5}')
    assert (read_rung_metric(one, "a-b"), read_rung_metric(one, "a_b")) == (RungMetric(4, 8, 0.5), None)
    one.write_text('{"metric": "a-b", "st')
    assert read_rung_metric(one, "a-b") is None


def test_a_parameter_of_one_value_does_not_vary(training: Toy) -> None:
    training.set(fit={"rate": 1, "seed": 0, "steps": 8})
    found = early(training, "fit.rate=1,2", "fit.steps=8")
    assert [one.done for one in found.points] == [False, True]
