import json

import pytest
from pydantic import ValidationError

from flows.params.checking import parse_and_check_configs
from flows.params.files import ParameterError
from tasks.common import tables
from tasks.common.errors import StageError
from tasks.language.configs.mixture import MixtureConfig
from tasks.language.mixture import run
from tasks.language.tables.problems import Problems, Prompts
from tests.conftest import PARAMS

ROWS = [{"question": f"How many are {n} and 1?", "answer": f"{n} + 1 = {n + 1}\n#### {n + 1}"} for n in range(30)]


@pytest.fixture
def raw(tmp_path):
    def write(rows=ROWS):
        folder = tmp_path / "raw"
        folder.mkdir(exist_ok=True)
        (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return folder

    return write


def of(name, source, weight=1.0, reward="policy", location="sums.jsonl", hub=(None, None, None)):
    found = dict(zip(("hub_config", "hub_revision", "hub_split"), hub, strict=True))
    return {"name": name, "source": source, "location": location, **found, "weight": weight, "reward": reward}


def mixed(made, raw, out, *datasets, **changes):
    config = {**PARAMS["mixture"], "prompts": 20, "skip": 30, "datasets": [*datasets], **changes}
    metrics = run(MixtureConfig.model_validate(config), made / "problems", raw, out)
    return metrics, tables.read_table(Prompts, out / "prompts.parquet")


BOTH = (of("own", "problems", 3.0, location=""), of("sums", "file", 1.0, "rubric"))


def test_weights_give_the_counts_and_each_its_reward(made, raw, tmp_path):
    metrics, table = mixed(made, raw(), tmp_path / "out", *BOTH)
    assert metrics == {
        "drawn": {"own": 15, "sums": 5},
        "available": {"own": 30, "sums": 29},
        "shortfall": {"own": 0, "sums": 0},
        "repeated": {"sums": 0},
        "leaked": {"sums": 0},
        "validation": 8 + 1,
    }
    assert table.groupby(["dataset", "reward"]).size().to_dict() == {("own", "policy"): 15, ("sums", "rubric"): 5}
    asked = {row["question"]: row["answer"] for row in ROWS}
    for row in table[table["dataset"] == "sums"].itertuples():
        assert asked[row.question] == row.solution
    assert table["dataset"].tolist() != sorted(table["dataset"]), "shuffled"


def test_the_seed_decides(made, raw, tmp_path):
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        mixed(made, raw(), tmp_path / name, *BOTH, seed=seed)
    one, same, other = ((tmp_path / name / "prompts.parquet").read_bytes() for name in ("one", "same", "other"))
    assert one == same != other


@pytest.mark.parametrize(
    ("weights", "prompts", "drawn"),
    [((1, 1, 1), 2, [1, 0, 1]), ((1, 1, 1), 4, [1, 2, 1]), ((0.1, 0.2, 0.7), 10, [1, 2, 7])],
)
def test_rounded_shares_add_up_to_the_prompts(made, raw, tmp_path, weights, prompts, drawn):
    """If each were rounded separately they would be 3, 3 and 10."""
    datasets = [of(f"set-{n}", "file", float(weight)) for n, weight in enumerate(weights)]
    metrics, table = mixed(made, raw(), tmp_path / "out", *datasets, prompts=prompts, validation_share=0.0)
    assert list(metrics["drawn"].values()) == drawn
    assert len(table) == prompts


def test_nothing_that_is_judged_elsewhere_and_nothing_twice(made, raw, tmp_path):
    """A file holds the validation and test problems, and each other problem twice; a second data set has the same
    file.
    """
    held_out = [tables.read_table(Problems, made / f"problems/{name}.parquet") for name in ("validation", "test")]
    judged = {row.question: row.solution for table in held_out for row in table.itertuples()}
    rows = [{"question": question, "answer": solution} for question, solution in judged.items()]
    folder = raw([*ROWS, *rows, *ROWS])
    metrics, table = mixed(
        made, folder, tmp_path / "out", of("one", "file"), of("two", "file"), prompts=80, validation_share=0.0
    )
    assert len(judged) == 16
    assert metrics["drawn"] == metrics["available"] == {"one": 30, "two": 0}
    assert metrics["shortfall"] == {"one": 10, "two": 40}
    assert sorted(table["question"]) == sorted(row["question"] for row in ROWS)


def test_a_set_with_fewer_rows_than_its_weight_asks_for_is_told(made, raw, tmp_path, capsys):
    metrics, table = mixed(made, raw(ROWS[:3]), tmp_path / "out", *BOTH, validation_share=0.0)
    assert metrics["shortfall"] == {"own": 0, "sums": 2}
    assert len(table) == 18
    told = "mixture: sums: 3 prompts, not the 5 that its weight asks for: it has no more\n"
    assert capsys.readouterr().err == told
    mixed(made, raw(), tmp_path / "enough", *BOTH)
    assert capsys.readouterr().err == ""


def test_every_hub_set_has_a_config_a_revision_and_a_split_of_its_own(made, raw, tmp_path, monkeypatch):
    held = {
        ("some/sums", "main", "v1"): {"train": ROWS[:10], "test": ROWS[10:20]},
        ("some/sums", None, "v2"): {"test": ROWS[20:]},
    }
    monkeypatch.setattr("datasets.load_dataset", lambda name, config, revision: held[name, config, revision])
    sets = [
        of("first", "hub", location="some/sums", hub=("main", "v1", "test")),
        of("second", "hub", location="some/sums", hub=(None, "v2", "test")),
    ]
    _, table = mixed(made, raw(), tmp_path / "out", *sets, validation_share=0.0)
    for name, rows in (("first", ROWS[10:20]), ("second", ROWS[20:])):
        assert sorted(table["question"][table["dataset"] == name]) == sorted(row["question"] for row in rows)
    with pytest.raises(StageError, match="some/sums: there is no split 'train'; expected 'test'"):
        mixed(made, raw(), tmp_path / "no", of("x", "hub", location="some/sums", hub=(None, "v2", "train")))


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (of("x", "hub", hub=("main", None, "train")), "hub_revision: expected text with source hub, got null"),
        (of("x", "hub", hub=("main", "v1", None)), "hub_split: expected text with source hub, got null"),
        (of("x", "file", hub=("main", None, None)), "hub_config: expected null where source is not hub, got 'main'"),
        (
            of("x", "problems", location="", hub=(None, None, "test")),
            "hub_split: expected null where source is not hub, got 'test'",
        ),
    ],
)
def test_a_hub_sets_keys_are_asked_for_and_of_no_other_set(entry, line):
    """The Config raises the errors, and the command line prints them before anything runs."""
    values = {**PARAMS["mixture"], "datasets": [entry]}
    with pytest.raises(ValidationError, match=line.rpartition(",")[0].partition(": ")[2]):
        MixtureConfig.model_validate(values)
    with pytest.raises(ParameterError) as told:
        parse_and_check_configs({"mixture": values}, {"mixture": MixtureConfig}, {})
    assert str(told.value) == f"params.yaml: mixture.datasets.0.{line}"


def test_problems_that_sft_has_seen_are_passed_over(made, raw, tmp_path):
    _, table = mixed(made, raw(), tmp_path / "out", BOTH[0], skip=45, prompts=100)
    train = tables.read_table(Problems, made / "problems/train.parquet")
    assert sorted(table["question"]) == sorted(train["question"].iloc[45:])
    assert set(table["prompt_id"]) == {f"own/{name}" for name in train["problem_id"].iloc[45:]}


@pytest.mark.parametrize(
    ("datasets", "changes", "said"),
    [
        (
            (BOTH[0],),
            {"skip": 60},
            "params.yaml: mixture.skip: expected less than the 60 training problems that there are, got 60",
        ),
        (
            (of("sums", "file", location="no.jsonl"),),
            {},
            "no.jsonl: no such file; expected one of type .jsonl, .json, .parquet",
        ),
    ],
)
def test_what_cannot_be_mixed_is_one_line(made, raw, tmp_path, datasets, changes, said):
    with pytest.raises(StageError) as stopped:
        mixed(made, raw(), tmp_path / "out", *datasets, **changes)
    assert said in str(stopped.value)
    assert "\n" not in str(stopped.value)
    assert not (tmp_path / "out").exists()


def held_out(out):
    return tables.read_table(Prompts, out / "validation.parquet")


def test_validation_problems_are_held_out_as_the_stage_that_trains_judges(made, raw, tmp_path):
    """Once, however many data sets take training problems; in their order, which decides what a policy is judged on."""
    twice = [of("own", "problems", location=""), of("more", "problems", location="")]
    for name, sets in (("one", twice[:1]), ("two", twice)):
        assert mixed(made, raw(), tmp_path / name, *sets)[0]["validation"] == 8
        table = held_out(tmp_path / name)
        problems = tables.read_table(Problems, made / "problems/validation.parquet")
        assert table["prompt_id"].tolist() == problems["problem_id"].tolist()
        assert set(table["reward"]) == {"policy"}
        for column in ("question", "solution", "answer"):
            assert table[column].tolist() == problems[column].tolist()


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.001, 1), (0.1, 3), (0.11, 4), (0.999, 29)])
def test_a_share_of_a_files_prompts_is_held_out_and_never_trained_on(made, raw, tmp_path, share, count):
    metrics, table = mixed(
        made, raw(), tmp_path / "out", of("sums", "file", reward="rubric"), prompts=40, validation_share=share
    )
    kept = held_out(tmp_path / "out")
    assert (metrics["validation"], metrics["available"]["sums"], len(table)) == (count, 30 - count, 30 - count)
    assert sorted([*table["question"], *kept["question"]]) == sorted(row["question"] for row in ROWS)
    assert {*kept["reward"], *kept["dataset"]} == ({"rubric", "sums"} if count else set())


def test_held_out_prompts_of_one_set_are_trained_on_by_none(made, raw, tmp_path):
    """The second data set has the same file: it trains on nothing that the first holds out, and holds out nothing that
    it trains on.
    """
    for seed in range(2):
        sets = [of("one", "file", 1.0), of("two", "file", 3.0), of("own", "problems", location="")]
        metrics, table = mixed(made, raw(), tmp_path / f"{seed}", *sets, validation_share=0.2, seed=seed)
        kept = held_out(tmp_path / f"{seed}")
        assert metrics["validation"] == len(kept) > 8 + 6
        assert not {*table["question"]} & {*kept["question"]}
        assert kept["dataset"].tolist() != sorted(kept["dataset"]), (
            "shuffled, so that a policy is judged on some of each"
        )


def test_what_a_set_of_one_prompt_has_is_trained_on(made, raw, tmp_path):
    metrics, table = mixed(made, raw(ROWS[:1]), tmp_path / "out", of("sums", "file"), prompts=1, validation_share=0.9)
    assert (metrics["validation"], len(table)) == (0, 1)


def test_any_columns_reach_the_reward_and_turns_before_the_question_the_policy(made, raw, tmp_path):
    """A set without either beside it: its rows have them empty."""
    system = {"role": "system", "content": "Be brief."}
    rows = [
        {"key": n, "prompt": [system, {"role": "user", "content": f"Say {n}."}], "instruction_id_list": [f"kind-{n}"]}
        for n in range(10)
    ]
    _, table = mixed(made, raw(rows), tmp_path / "out", BOTH[0], of("ours", "file", reward="format"), prompts=8)
    for row in table[table["dataset"] == "ours"].itertuples():
        columns = json.loads(row.columns)
        assert row.question == f"Say {columns['key']}."
        assert columns["instruction_id_list"] == [f"kind-{columns['key']}"]
        assert json.loads(row.history) == [system]
    assert {*table["history"][table["dataset"] == "own"], *table["columns"][table["dataset"] == "own"]} == {""}
    assert (held_out(tmp_path / "out")["columns"] != "").sum() == 1
    assert "columns" not in mixed(made, raw(), tmp_path / "plain", *BOTH)[1]


def test_a_folder_of_files_is_one_set(made, tmp_path):
    folder = tmp_path / "raw/sums"
    folder.mkdir(parents=True)
    for name, rows in (("a.jsonl", ROWS[:10]), ("b.jsonl", ROWS[10:])):
        (folder / name).write_text("\n".join(map(json.dumps, rows)))
    metrics, table = mixed(made, tmp_path / "raw", tmp_path / "out", of("sums", "file", location="sums"), prompts=40)
    assert metrics["available"] == {"sums": 29}
    assert {name.rpartition("-")[0] for name in table["prompt_id"]} == {"sums/a", "sums/b"}


@pytest.mark.parametrize("reward", ["verifiable", "rubric"])
def test_a_reward_that_needs_an_answer_refuses_prompts_without(made, raw, tmp_path, reward):
    rows = [{"prompt": f"Write about {n}."} for n in range(10)]
    with pytest.raises(StageError) as stopped:
        mixed(made, raw(rows), tmp_path / "out", of("free", "file", reward=reward))
    needs = f"the reward {reward} of free needs; expected a column answer"
    assert str(stopped.value) == f"{tmp_path}/raw/sums.jsonl: line 1: there is no answer, which {needs}"
    assert not (tmp_path / "out").exists()
    _, table = mixed(made, raw(rows), tmp_path / "out", of("free", "file", reward="reward_model"))
    assert set(table["answer"]) == {""}


def test_a_bad_row_of_a_set_is_one_line(made, raw, tmp_path):
    with pytest.raises(StageError, match=r"sums\.jsonl: line 31: field 'question' is not there; expected text"):
        mixed(made, raw([*ROWS, {"title": "?"}]), tmp_path / "out", of("sums", "file"))


def test_what_is_left_out_of_a_set_is_counted(made, raw, tmp_path):
    """Repeats, questions of validation and test, and those of a set before; conversations that only end alike are no
    repeats.
    """
    held_out = [
        tables.read_table(Problems, made / f"problems/{name}.parquet")["question"][0] for name in ("validation", "test")
    ]
    talks = [[{"role": "user", "content": f"Tell me of {n}."}, {"role": "user", "content": "Go on."}] for n in range(6)]
    rows = [*ROWS, *ROWS[:3], *({"prompt": text} for text in held_out), *({"prompt": turns} for turns in talks)]
    rows = [{"prompt": row.get("prompt", row.get("question"))} for row in rows]
    datasets = (of("sums", "file"), of("again", "file"))
    metrics, table = mixed(made, raw(rows), tmp_path / "out", *datasets, prompts=100, validation_share=0.0)
    assert metrics["repeated"] == {"sums": 3, "again": 3}
    assert metrics["leaked"] == {"sums": 2, "again": 2 + 36}
    assert metrics["available"] == {"sums": 36, "again": 0}
    assert (table["question"] == "Go on.").sum() == 6


def test_a_file_without_rows_is_named(made, raw, tmp_path):
    """And so is a folder of which all is held out by the names of its files."""
    with pytest.raises(StageError, match=r"raw/sums\.jsonl: there are no prompts; expected rows"):
        mixed(made, raw(()), tmp_path / "out", of("sums", "file"))
    (raw() / "sums.jsonl").rename(tmp_path / "raw/test.jsonl")
    with pytest.raises(StageError, match=r"raw: there are no prompts"):
        mixed(made, tmp_path / "raw", tmp_path / "out", of("sums", "file", location="."))
    asked = tables.read_table(Problems, made / "problems/test.parquet")["question"]
    with pytest.raises(StageError, match=r"^mixture: no prompt is left of sums: validation or test asks each of them$"):
        mixed(made, raw([{"prompt": text} for text in asked]), tmp_path / "out", of("sums", "file"))
