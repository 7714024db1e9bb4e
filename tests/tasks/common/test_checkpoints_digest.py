import torch

from tasks.common import checkpoints, models
from tasks.common.checkpoints import digest
from tasks.common.config import Config


class ToyConfig(Config):
    rate: float


def test_the_digest_changes_with_all_that_decides(tmp_path, monkeypatch):
    data = tmp_path / "data"
    (data / "deep").mkdir(parents=True)
    (data / "deep" / "a.txt").write_text("one")
    single = tmp_path / "one.txt"
    single.write_text("one")
    config, inputs = ToyConfig(rate=0.1), (data, single)
    digests = {digest(config, inputs)}

    def changed():
        new = digest(config, inputs)
        assert new not in digests
        digests.add(new)

    assert digest(ToyConfig(rate=0.2), inputs) not in digests
    (data / "deep" / "a.txt").write_text("two")
    changed()
    (data / "deep" / "a.txt").rename(data / "deep" / "b.txt")
    changed()
    single.write_text("two")
    changed()
    torch.set_num_threads(2)
    changed()
    torch.set_num_threads(1)
    monkeypatch.setattr(models, "device", lambda: "meta")
    changed()
    monkeypatch.undo()
    with monkeypatch.context() as patch:
        patch.setenv("POSTTRAIN_PRODUCTS", "onednn")
        changed()
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "sft.py").write_text("a = 1")
    monkeypatch.setattr(checkpoints, "__file__", str(tmp_path / "tasks" / "training.py"))
    changed()
    (tmp_path / "tasks" / "sft.py").write_text("a = 2")
    changed()
    (tmp_path / "tasks" / "template.jinja").write_text("no code")
    assert digest(config, inputs) in digests
    for library in ("torch", "transformers", "tokenizers", "numpy", "math-verify", "sympy"):
        with monkeypatch.context() as patch:
            version = checkpoints.metadata.version
            patch.setattr(
                checkpoints.metadata, "version", lambda name, of=library, real=version: real(name) + "+" * (name == of)
            )
            changed()
    moved = tmp_path / "elsewhere"
    data.rename(moved)
    assert digest(config, (moved, single)) in digests, "contents count, not places"
