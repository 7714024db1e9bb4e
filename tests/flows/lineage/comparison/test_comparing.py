"""What differs between snapshots, by hand."""

from flows.lineage.comparison.comparing import compare_snapshots, compare_stage_ancestry, find_training_stage
from tests.flows.lineage.snapshots import made, snapshot

CODE = {"a.py": "1", "b.py": "1"}


def pipeline(beta=0.1, dpo="dpo-1", code=CODE, raw="raw-1", sft="sft-1", **more):
    return snapshot(
        made("sft", {"raw.txt": raw, **CODE}, {"data/sft": sft}, {"sft": {"epochs": 1}}),
        made(
            "dpo",
            {"data/sft": sft, **code},
            {"data/dpo": dpo},
            {"dpo": {"beta": beta, "training": {"rate": 1e-3}}},
            **more,
        ),
        made("report", {"data": f"all-{sft}-{dpo}"}, {"data/report": f"report-{sft}-{dpo}"}),
    )


def told(old, new):
    return {change.stage: change for change in compare_snapshots(old, new)}


def test_a_snapshot_and_itself():
    assert compare_snapshots(pipeline(), pipeline()) == []


def test_a_parameter_and_what_it_touched():
    found = told(pipeline(), pipeline(beta=0.2, dpo="dpo-2"))
    assert found.keys() == {"dpo", "report"}
    assert (found["dpo"].cause, found["dpo"].params) == ("changed", {"dpo.beta": (0.1, 0.2)})
    assert found["dpo"].outs == {"data/dpo": ("dpo-1", "dpo-2")}
    assert (found["report"].cause, found["report"].through) == ("upstream", ("dpo",)), (
        "not sft, whose out is in the folder too"
    )


def test_code_that_changed_nothing_touches_nothing_below():
    found = told(pipeline(), pipeline(code={"a.py": "1", "c.py": "1"}))
    assert found.keys() == {"dpo"}
    assert found["dpo"].code == {"b.py": ("1", None), "c.py": (None, "1")}
    assert found["dpo"].same_result


def test_raw_data_is_a_change_and_what_a_stage_made_is_none():
    found = told(pipeline(), pipeline(raw="raw-2", sft="sft-2", dpo="dpo-2"))
    assert (found["sft"].cause, found["sft"].raw) == ("changed", ("raw.txt",))
    assert (found["dpo"].cause, found["dpo"].through, found["dpo"].raw) == ("upstream", ("sft",), ())
    assert found["report"].through == ("sft", "dpo")


def test_another_result_of_the_same_names_the_versions():
    old = pipeline(environment={"torch": "2.1", "python": "3.11"})
    found = told(old, pipeline(dpo="dpo-2", environment={"torch": "2.2", "python": "3.11"}))
    assert (found["dpo"].cause, found["dpo"].environment) == ("result", {"torch": ("2.1", "2.2")})


def test_stages_that_only_one_has_and_another_command():
    old, new = pipeline(), pipeline(cmd="run --fast")
    new["ppo"] = made("ppo")
    del new["report"]
    found = told(old, new)
    assert [(stage, change.cause) for stage, change in found.items()] == [
        ("dpo", "changed"),
        ("ppo", "added"),
        ("report", "removed"),
    ]
    assert found["dpo"].command == ("run", "run --fast")


def test_swapping_the_snapshots_turns_the_pairs():
    there, back = told(pipeline(), pipeline(0.2, "dpo-2")), told(pipeline(0.2, "dpo-2"), pipeline())
    assert there["dpo"].params == {key: pair[::-1] for key, pair in back["dpo"].params.items()}
    assert there["dpo"].outs == {key: pair[::-1] for key, pair in back["dpo"].outs.items()}


def test_the_ways_of_two_policies_to_the_stage_they_have_in_common():
    records = snapshot(
        made("problems"),
        made("sft", {"data/problems": "1"}),
        made("pairs", {"data/sft": "1"}),
        made("dpo", {"data/sft": "1", "data/pairs": "1"}, params={"dpo": {"rate": 1, "beta": 2, "same": 3}}),
        made("grpo", {"data/sft": "1", "data/problems": "1"}, params={"grpo": {"rate": 4, "samples": 5, "same": 3}}),
    )
    found = compare_stage_ancestry(records, "dpo", "grpo")
    assert found.common == ("sft",)
    assert found.own == (("pairs", "dpo"), ("grpo",))
    assert found.params == {"rate": (1, 4)}
    assert found.alone == ({"beta": 2}, {"samples": 5})
    below = compare_stage_ancestry(records, "sft", "dpo")
    assert (below.common, below.own) == (("sft",), ((), ("pairs", "dpo")))
    offline = snapshot(
        made("transitions@x"),
        made("bc@x", {"data/transitions@x": "1"}),
        made("returns@bc-x", {"data/bc@x": "1", "data/transitions@x": "1"}),
    )
    assert find_training_stage(offline, "returns@bc-x") == "bc@x"
    assert find_training_stage(offline | snapshot(made("bc-x")), "returns@bc-x") == "bc-x"
    apart = compare_stage_ancestry(snapshot(made("a"), made("b")), "a", "b")
    assert (apart.common, apart.own) == ((), (("a",), ("b",)))
