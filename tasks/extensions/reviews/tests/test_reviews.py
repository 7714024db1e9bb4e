"""The stage reviews: parts that share no opening, in the forms that other stages read."""

import json

import pandas as pd
import pytest

from tasks.common import tables
from tasks.common.errors import ConfigError, DataError
from tasks.extensions.reviews import film_reviews
from tasks.extensions.reviews.configs.reviews import ReviewsConfig
from tasks.extensions.reviews.reviews import run
from tasks.extensions.reviews.tables.reviews import PARTS, Reviews
from tasks.language import corpus, problems
from tasks.language.configs.corpus import CorpusConfig
from tasks.language.configs.problems import ProblemsConfig
from tasks.language.data import labelled_texts
from tasks.language.data.rows import read_files
from tests.conftest import PARAMS

SMALL = {"corpus": 30, "train": 40, "test": 6, "reward": 20, "second": 20, "held_out": 10}


def config(**changes):
    return ReviewsConfig.model_validate({**PARAMS["reviews"], **SMALL, **changes})


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    out = tmp_path_factory.mktemp("generated") / "reviews"
    return run(config(), out.parent, out), out


def sst(path, count=120):
    path.mkdir()
    lines = [
        json.dumps({"sentence": f"film {n} was {'fine' if n % 2 else 'poor'} .", "label": n % 2}) for n in range(count)
    ]
    (path / "train.jsonl").write_text("\n".join(lines) + "\n")


def test_each_part_has_its_reviews_and_no_opening_is_in_two(generated):
    metrics, out = generated
    table = tables.read_table(Reviews, out / "reviews.parquet")
    assert {part: metrics[part] for part in PARTS} == SMALL
    assert table["part"].value_counts().to_dict() == SMALL
    assert table["opening"].is_unique
    assert metrics["positive"] == table["positive"].mean()
    assert 0.3 < metrics["positive"] < 0.7


def test_the_parts_are_what_the_stages_read(generated, tmp_path):
    _, out = generated
    table = tables.read_table(Reviews, out / "reviews.parquet")
    parts = {name: own.reset_index(drop=True) for name, own in table.groupby("part", sort=False)}
    asked = ProblemsConfig.model_validate({**PARAMS["problems"], "source": "files", "validation": 5})
    problems.run(asked, out / "prompts", tmp_path / "problems")
    test = pd.read_parquet(tmp_path / "problems/test.parquet")
    assert test["question"].tolist() == parts["test"]["opening"].tolist()
    assert test["solution"].tolist() == parts["test"]["continuation"].tolist()
    assert not test["answer"].any(), "nothing tells a policy the label"
    train = pd.read_parquet(tmp_path / "problems/train.parquet")
    assert {*train["question"]} < {*parts["train"]["opening"]}
    read = CorpusConfig.model_validate({**PARAMS["corpus"], "source": "files"})
    corpus.run(read, tmp_path / "problems", out / "corpus", tmp_path / "corpus")
    texts = pd.read_parquet(tmp_path / "corpus/corpus.parquet")
    assert {*texts["text"]} == {*(parts["corpus"]["opening"] + " " + parts["corpus"]["continuation"])}
    answers = labelled_texts.parse_labelled_answers(read_files(out / "labelled"))
    assert [one["right"] for one in answers] == parts["reward"]["positive"].tolist()


def test_the_same_seed_gives_the_same_bytes(generated, tmp_path):
    _, out = generated
    run(config(), tmp_path, tmp_path / "again")
    run(config(seed=1), tmp_path, tmp_path / "other")
    for file in ("reviews.parquet", "prompts/train.jsonl", "labelled/reward.jsonl"):
        assert (
            (out / file).read_bytes()
            == (tmp_path / "again" / file).read_bytes()
            != (tmp_path / "other" / file).read_bytes()
        )


def test_fewer_rows_of_files_than_asked_for_keep_the_proportions(tmp_path):
    sst(tmp_path / "raw")
    metrics = run(config(source="files", opening_words=3), tmp_path / "raw", tmp_path / "out")
    assert {part: metrics[part] for part in PARTS} == {
        "corpus": 28,
        "train": 38,
        "test": 6,
        "reward": 19,
        "second": 19,
        "held_out": 10,
    }
    assert (metrics["repeated"], metrics["short"]) == (0, 0)
    table = tables.read_table(Reviews, tmp_path / "out/reviews.parquet")
    assert {*table["continuation"]} == {"fine .", "poor ."}


def test_repeated_openings_and_short_texts_are_left_out_and_counted(tmp_path):
    sst(tmp_path / "raw")
    more = [{"sentence": "film 3 was odd", "label": 0}, {"sentence": "film 90 was", "label": 1}]
    (tmp_path / "raw/more.jsonl").write_text("\n".join(map(json.dumps, more)))
    metrics = run(config(source="files", opening_words=3), tmp_path / "raw", tmp_path / "out")
    assert (metrics["repeated"], metrics["short"]) == (1, 1)


def test_what_cannot_be_done_is_told_in_one_line(tmp_path, monkeypatch):
    sst(tmp_path / "raw", count=4)
    with pytest.raises(DataError, match="reviews: 4 different openings leave none for the part corpus; expected more"):
        run(config(source="files", opening_words=3), tmp_path / "raw", tmp_path / "out")
    with pytest.raises(DataError, match=r"train\.jsonl: line 1: field 'label_name' is missing"):
        run(config(source="files", label_column="label_name"), tmp_path / "raw", tmp_path / "out")
    for name in ("GENRES", "SUBJECTS", "DAYS", "COMPANY"):
        monkeypatch.setattr(film_reviews, name, ("one",))
    with pytest.raises(ConfigError, match="too few openings for 126 reviews; lower the counts"):
        run(config(), tmp_path, tmp_path / "out")


def test_the_table_refuses_an_opening_in_two_parts_and_labels_of_one_kind(tmp_path):
    rows = [
        {"review_id": f"r{n}", "part": "second", "opening": f"film {n}", "continuation": "so", "positive": n == 0}
        for n in range(3)
    ]
    tables.write_table(Reviews, pd.DataFrame(rows), tmp_path / "reviews.parquet")
    with pytest.raises(DataError, match="opening"):
        tables.write_table(
            Reviews, pd.DataFrame([rows[0], {**rows[1], "opening": "film 0"}]), tmp_path / "wrong.parquet"
        )
    with pytest.raises(DataError, match="both sentiments"):
        tables.write_table(Reviews, pd.DataFrame(rows[1:]), tmp_path / "wrong.parquet")
