import json
import re

import pytest

from tasks.common import tables
from tasks.common.documents import Documents
from tasks.common.errors import DataError
from tasks.language.configs.corpus import CorpusConfig
from tasks.language.corpus import run
from tasks.language.tables.problems import Problems
from tests.conftest import changed, tiny


def test_kinds_and_counts(made):
    table = tables.read_table(Documents, made / "corpus" / "corpus.parquet")
    assert table["kind"].value_counts().to_dict() == {"fact": 40, "solution": 60, "story": 10}
    assert table["kind"].iloc[:40].nunique() > 1, "shuffled"
    assert not table["text"].str.contains("#").any(), "the answer format is left for fine-tuning to teach"


def test_only_training_problems_are_told(made):
    """No question of the held-out splits is in the text, and each story is a training question."""
    text = "\n".join(tables.read_table(Documents, made / "corpus" / "corpus.parquet")["text"])
    asked = {
        name: tables.read_table(Problems, made / "problems" / f"{name}.parquet")["question"]
        for name in ("train", "validation", "test")
    }
    assert not any(question in text for name in ("validation", "test") for question in asked[name])
    assert sum(question in text for question in asked["train"]) > 20


def test_the_seed_decides(made, tmp_path):
    """Held-out problems have no influence: the text is the same without their files."""
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "train.parquet").write_bytes((made / "problems" / "train.parquet").read_bytes())
    written = []
    for number, seed in enumerate((0, 1)):
        config = tiny(CorpusConfig, "corpus").model_copy(update={"seed": seed})
        metrics = run(config, tmp_path / "problems", tmp_path, tmp_path / str(number))
        written.append((tmp_path / str(number) / "corpus.parquet").read_bytes())
        table = tables.read_table(Documents, tmp_path / str(number) / "corpus.parquet")
        assert metrics == {"documents": 110, "characters": sum(map(len, table["text"]))}
    assert written[0] == (made / "corpus" / "corpus.parquet").read_bytes() != written[1]


def test_facts_stay_in_their_range(made):
    table = tables.read_table(Documents, made / "corpus" / "corpus.parquet")
    for text in table[table["kind"] == "fact"]["text"]:
        for left, _, right, result in re.findall(r"(\d+) ([-+]) (\d+) = (\d+)", text):
            assert max(int(left), int(right), int(result)) <= 40


def test_text_of_one_s_own(made, tmp_path):
    """Each file is a kind; nothing of the problems is in the text."""
    (tmp_path / "raw").mkdir()
    for name, texts in (("a", ["One.", " Two. "]), ("b", ["Three."])):
        lines = [json.dumps({"text": text, "more": 1}) for text in texts]
        (tmp_path / f"raw/{name}.jsonl").write_text("\n".join(lines))
    config = changed(tiny(CorpusConfig, "corpus"), source="files")
    metrics = run(config, made / "problems", tmp_path / "raw", tmp_path / "out")
    table = tables.read_table(Documents, tmp_path / "out/corpus.parquet")
    assert {*zip(table["kind"], table["text"], strict=True)} == {("a", "One."), ("a", "Two."), ("b", "Three.")}
    assert metrics == {"documents": 3, "characters": 4 + 4 + 6}
    (tmp_path / "raw/b.jsonl").write_text('{"txt": "Three."}')
    with pytest.raises(DataError, match=r"b\.jsonl: line 1: field 'text' is .*expected text"):
        run(config, made / "problems", tmp_path / "raw", tmp_path / "out")
    with pytest.raises(DataError, match=r"none: no such file"):
        run(config, made / "problems", tmp_path / "none", tmp_path / "out")
