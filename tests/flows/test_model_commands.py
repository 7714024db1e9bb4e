"""What `posttrain evaluate` starts."""

from flows import model_commands


def test_test_sets_of_one_name_have_folders_of_their_own(tmp_path, monkeypatch):
    """Nearly every data set has a file test.jsonl."""
    started = []
    monkeypatch.setattr(model_commands, "find_root", lambda: tmp_path)
    monkeypatch.setattr(model_commands, "run_module_in_terminal", lambda *arguments: started.append(arguments) or 0)
    (tmp_path / "model").mkdir()
    for data in (tmp_path / "math/test.jsonl", tmp_path / "arc/test.jsonl", tmp_path / "svamp", None):
        model_commands.evaluate(str(tmp_path / "model"), data=data)
    folders = [next(part for part in arguments if str(part).startswith("--out=")) for arguments in started]
    assert [folder.rpartition("/")[2] for folder in folders] == [
        "model-math-test",
        "model-arc-test",
        f"model-{tmp_path.name}-svamp",
        "model-problems",
    ]
