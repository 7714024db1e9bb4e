import json

import pytest

from tasks import artifacts, schemas
from tasks.language.mixture import MixtureConfig, run
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


def of(name, source, weight=1.0, reward="policy", location="sums.jsonl"):
    return {"name": name, "source": source, "location": location, "weight": weight, "reward": reward}


def mixed(made, raw, out, *datasets, **changes):
    config = {**PARAMS["mixture"], "prompts": 20, "skip": 30, "datasets": [*datasets], **changes}
    metrics = run(MixtureConfig.model_validate(config), made / "problems", raw, out)
    return metrics, artifacts.read(schemas.Prompts, out / "prompts.parquet")


BOTH = (of("own", "problems", 3.0, location=""), of("sums", "file", 1.0, "rubric"))


def test_weights_give_the_counts_and_each_its_reward(made, raw, tmp_path):
    metrics, table = mixed(made, raw(), tmp_path / "out", *BOTH)
    assert metrics == {"drawn": {"own": 15, "sums": 5}, "available": {"own": 30, "sums": 30}}
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
    ("datasets", "changes", "said"),
    [
        ((BOTH[0], of("own", "file")), {}, "mixture.datasets: two are called 'own'; expected different names"),
        ((BOTH[0],), {"skip": 60}, "params.yaml: mixture: the data sets and mixture.skip leave no prompt"),
        ((of("sums", "file", location="no.jsonl"),), {}, "no.jsonl: no such file; expected rows {question, answer"),
    ],
)
def test_what_cannot_be_mixed_is_one_line(made, raw, tmp_path, datasets, changes, said):
    with pytest.raises(SystemExit) as stopped:
        mixed(made, raw(), tmp_path / "out", *datasets, **changes)
    assert said in str(stopped.value)
    assert "\n" not in str(stopped.value)
    assert not (tmp_path / "out").exists()
