import re

from tasks.common import tables
from tasks.common.documents import Documents
from tasks.language.configs.corpus import CorpusConfig
from tasks.language.corpus import run
from tasks.language.tables.problems import Problems
from tests.conftest import tiny


def test_kinds_and_counts(made):
    table = tables.read(Documents, made / "corpus" / "corpus.parquet")
    assert table["kind"].value_counts().to_dict() == {"fact": 40, "solution": 60, "story": 10}
    assert table["kind"].iloc[:40].nunique() > 1, "shuffled"
    assert not table["text"].str.contains("#").any(), "the answer format is left for fine-tuning to teach"


def test_only_training_problems_are_told(made):
    """No question of the held-out splits is in the text, and each story is a training question."""
    text = "\n".join(tables.read(Documents, made / "corpus" / "corpus.parquet")["text"])
    asked = {
        name: tables.read(Problems, made / "problems" / f"{name}.parquet")["question"]
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
        metrics = run(config, tmp_path / "problems", tmp_path / str(number))
        written.append((tmp_path / str(number) / "corpus.parquet").read_bytes())
        table = tables.read(Documents, tmp_path / str(number) / "corpus.parquet")
        assert metrics == {"documents": 110, "characters": sum(map(len, table["text"]))}
    assert written[0] == (made / "corpus" / "corpus.parquet").read_bytes() != written[1]


def test_facts_stay_in_their_range(made):
    table = tables.read(Documents, made / "corpus" / "corpus.parquet")
    for text in table[table["kind"] == "fact"]["text"]:
        for left, _, right, result in re.findall(r"(\d+) ([-+]) (\d+) = (\d+)", text):
            assert max(int(left), int(right), int(result)) <= 40
