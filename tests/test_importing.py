"""Importing the modules of tasks/ makes no file, sets nothing and prints nothing."""

import importlib
import os
import pkgutil
import sys
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from benchmarks.fault_runs import run_in_child_process

OWN_VARIABLES = ("OMP", "MKL", "MLFLOW", "POSTTRAIN", "CUBLAS")


def import_all(folder: Path) -> list[str]:
    """Import every module of tasks/ anew; what that has set, made or printed. For a child of this process."""
    import torch

    for name in [name for name in sys.modules if name.partition(".")[0] in ("tasks", "mlflow")]:
        del sys.modules[name]
    for key in [key for key in os.environ if key.startswith(OWN_VARIABLES)]:
        del os.environ[key]
    os.chdir(folder)
    torch.set_num_threads(3)
    torch.use_deterministic_algorithms(False)
    with redirect_stdout(StringIO()) as out, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.walk_packages(importlib.import_module("tasks").__path__, "tasks."):
            importlib.import_module(module.name)
    faults = [key for key in os.environ if key.startswith(OWN_VARIABLES)]
    faults += [file.name for file in folder.iterdir()]
    faults += [out.getvalue()] if out.getvalue() else []
    faults += ["threads"] if torch.get_num_threads() != 3 else []
    faults += ["determinism"] if torch.are_deterministic_algorithms_enabled() else []
    faults += ["mlflow is imported"] if "mlflow" in sys.modules else []
    return faults if "tasks.language.report" in sys.modules else ["not all is imported"]


def test_importing_makes_and_sets_nothing(tmp_path):
    assert run_in_child_process(lambda: import_all(tmp_path)) == (0, [])
