import shutil
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import torch

from tasks.common import checkpoints, models
from tasks.common.checkpoints import compute_training_digest
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
    digests = {compute_training_digest(config, inputs)}

    def changed():
        new = compute_training_digest(config, inputs)
        assert new not in digests
        digests.add(new)

    assert compute_training_digest(ToyConfig(rate=0.2), inputs) not in digests
    (data / "deep" / "a.txt").write_text("two")
    changed()
    (data / "deep" / "a.txt").rename(data / "deep" / "b.txt")
    changed()
    single.write_text("two")
    changed()
    torch.set_num_threads(2)
    changed()
    torch.set_num_threads(1)
    monkeypatch.setattr(models, "choose_device", lambda: "meta")
    changed()
    monkeypatch.undo()
    with monkeypatch.context() as patch:
        patch.setenv("POSTTRAIN_PRODUCTS", "onednn")
        changed()
    package = Path(checkpoints.__file__).parents[1]
    copy = tmp_path / "package" / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(checkpoints, "__file__", str(copy / Path(checkpoints.__file__).relative_to(package)))
    assert compute_training_digest(config, inputs) in digests
    for module in ("algorithms/language/ppo.py", "language/ppo.py", "common/checkpoints.py"):
        (copy / module).write_text((copy / module).read_text() + "a = 1\n")
        changed()
    (copy / "template.jinja").write_text("no code")
    assert compute_training_digest(config, inputs) in digests
    for library in ("torch", "transformers", "tokenizers", "numpy", "math-verify", "sympy"):
        with monkeypatch.context() as patch:
            version = checkpoints.metadata.version
            patch.setattr(
                checkpoints.metadata, "version", lambda name, of=library, real=version: real(name) + "+" * (name == of)
            )
            changed()
    moved = tmp_path / "elsewhere"
    data.rename(moved)
    assert compute_training_digest(config, (moved, single)) in digests, "contents count, not places"


def test_the_code_of_a_stage_is_what_dvc_knows_of_it(tmp_path, monkeypatch):
    """Another stage's code, which data/code/STAGE.json does not have, is no reason to begin again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("tasks.language.dpo", None))
    config, folder = ToyConfig(rate=0.1), Path("data/code")
    by_hand = compute_training_digest(config, ())
    folder.mkdir(parents=True)
    (folder / "dpo.json").write_text('{"tasks/language/dpo.py": "1"}')
    first = compute_training_digest(config, ())
    (folder / "ppo.json").write_text('{"tasks/language/ppo.py": "1"}')
    assert compute_training_digest(config, ()) == first != by_hand
    (folder / "dpo.json").write_text('{"tasks/language/dpo.py": "2"}')
    assert compute_training_digest(config, ()) != first
