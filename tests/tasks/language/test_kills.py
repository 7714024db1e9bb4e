import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tasks.language.training_to_kill import STAGES, UPDATES

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_kill_9_at_random_steps(with_dropout, tmp_path, monkeypatch):
    """Killed within steps and while a checkpoint is written, every stage ends with the bytes of an undisturbed run."""
    monkeypatch.chdir(tmp_path)
    arguments, expected = [], []
    for name in STAGES:
        stage = name.partition("-")[0]
        arguments.append(f"{name}/whole=")
        draw, updates = random.Random(name), UPDATES.get(name, 1)
        first, then = draw.randint(1, 4), draw.randint(1, 4)
        kills = [steps * updates + draw.randrange(updates) for steps in (first, then)]
        arguments.append(f"{name}/killed={kills[0]},writing,{kills[1]}")
        line = f"checkpoint mlruns/checkpoints/{stage}.safetensors resumed after step "
        expected += [f"{line}{step}" for step in (first, first, first + then)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.tasks.language.training_to_kill", with_dropout, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("checkpoint")] == expected
    for stage in STAGES:
        whole, killed = (written(Path(stage) / name) for name in ("whole", "killed"))
        assert {Path("model/model.safetensors"), Path("curve.csv")} <= whole.keys()
        assert killed.keys() == whole.keys()
        assert [name for name in whole if killed[name] != whole[name]] == [], stage
    assert not list(Path("mlruns/checkpoints").iterdir())


def written(out):
    return {file.relative_to(out): file.read_bytes() for file in out.rglob("*.*")}
