"""Our hashes of files and folders are DVC's."""

import hashlib

from flows.lineage.reproduction import digests

MAKES = """
import pathlib
out = pathlib.Path("data/a")
for name, text in {"b.txt": "1", "a/x.txt": "2", "a.txt": "", "ö \\u6f22.txt": "3", "a/__pycache__/x.pyc": "no", "a/x.log": "no", "Z": "4"}.items():
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).write_text(text)
(out / "empty").mkdir()
"""  # noqa: E501


def test_a_folder_has_the_hash_that_dvc_gives_it(toy):
    (toy.root / ".dvcignore").write_text("__pycache__\n*.pyc\n*.log\n")
    toy.write("makes.py", MAKES)
    toy.stage("a", cmd="python makes.py", deps=["makes.py", "work.py"])
    toy.run()
    [out] = toy.lock["stages"]["a"]["outs"]
    files = digests.compute_path_digests(toy.root, toy.root / "data/a")
    assert digests.compute_dvc_hash(files) == out["md5"]
    assert out["nfiles"] == len(files) == 5
    assert digests.has_recorded_hash(toy.root, toy.root / "data/a", out["md5"])
    assert not digests.has_recorded_hash(toy.root, toy.root / "data/a/b.txt", out["md5"])
    (toy.root / "data/a/b.txt").chmod(0o644)
    (toy.root / "data/a/b.txt").write_text("2")
    assert not digests.has_recorded_hash(toy.root, toy.root / "data/a", out["md5"])


def test_a_file_is_read_once_for_both_hashes(tmp_path):
    content = bytes(range(256)) * 40000  # more than is read at once
    (tmp_path / "x").write_bytes(content)
    digest = digests.compute_file_digest(tmp_path / "x")
    assert digest == digests.Digest(hashlib.md5(content).hexdigest(), hashlib.sha256(content).hexdigest(), len(content))
    assert digests.has_recorded_hash(tmp_path, tmp_path / "x", digest.md5)
    assert not digests.has_recorded_hash(tmp_path, tmp_path / "y", digest.md5)
