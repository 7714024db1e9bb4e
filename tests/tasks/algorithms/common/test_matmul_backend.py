import json
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.algorithms.common import matmul_backend
from tasks.algorithms.common.matmul_backend import choose_faster_library

SLOWER, FASTER = {"torch": [1.0], "onednn": [1.4]}, {"torch": [1.0], "onednn": [0.5]}
ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def file(monkeypatch, tmp_path):
    """The file of a cache folder of our own, where no choice is kept."""
    monkeypatch.delenv("POSTTRAIN_PRODUCTS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    matmul_backend._load_or_measure_choice.cache_clear()
    yield tmp_path / "posttrain" / "products.json"
    matmul_backend._load_or_measure_choice.cache_clear()


class Measurement:
    """Stands for the measurement; counts how often it is made."""

    result, count = FASTER, 0

    def __call__(self):
        self.count += 1
        return self.result


@pytest.fixture(autouse=True)
def measurement(monkeypatch):
    monkeypatch.setattr(matmul_backend, "_measure_in_subprocess", measure := Measurement())
    return measure


def choose_in_a_new_process():
    matmul_backend._load_or_measure_choice.cache_clear()
    return matmul_backend.get_or_measure_matmul_library()


@pytest.mark.parametrize(
    ("torch", "onednn", "expected"),
    [
        ([1.0, 2.0, 4.0], [0.5, 1.0, 4.0], "onednn"),  # 1/2, 1/2 and 1: 0.63 in the mean
        ([1.0, 2.0, 4.0], [2.0, 1.0, 2.0], "onednn"),  # 2, 1/2 and 1/2: 0.79
        ([1.0, 2.0, 4.0], [3.0, 1.0, 3.0], "torch"),  # 3, 1/2 and 3/4: 1.04
        ([1.0, 2.0, 4.0], [1.0, 2.0, 4.0], "torch"),
        ([1.0, 2.0, 4.0], [0.96, 1.92, 3.84], "torch"),  # as good as a tie
        ([1.0, 2.0, 4.0], [0.94, 1.88, 3.76], "onednn"),
        ([100.0, 0.01, 0.01], [90.0, 0.02, 0.02], "torch"),  # small products count as much as large ones
    ],
)
def test_onednn_must_be_faster_in_the_mean_of_the_shapes(torch, onednn, expected):
    assert choose_faster_library({"torch": torch, "onednn": onednn}) == expected


def test_a_torch_without_onednn_computes_by_itself():
    assert choose_faster_library({"torch": [1.0]}) == "torch"


@pytest.mark.parametrize(("result", "expected"), [(FASTER, "onednn"), (SLOWER, "torch")])
def test_the_choice_is_kept_for_later_processes(file, measurement, result, expected):
    measurement.result = result
    assert matmul_backend.get_or_measure_matmul_library() == expected
    assert [*json.loads(file.read_text()).values()] == [expected]
    measurement.result = SLOWER if result is FASTER else FASTER
    assert choose_in_a_new_process() == expected
    assert measurement.count == 1


def test_another_processor_and_another_torch_are_measured_for_themselves(file, measurement, monkeypatch):
    for machine, result in {"zen 3": SLOWER, "zen 4": FASTER}.items():
        monkeypatch.setattr(matmul_backend, "_describe_machine", lambda name=machine: name)
        measurement.result = result
        choose_in_a_new_process()
    assert json.loads(file.read_text()) == {"zen 3": "torch", "zen 4": "onednn"}
    assert choose_in_a_new_process() == "onednn"
    assert measurement.count == 2


ZEN = """processor : 0
model name : AMD EPYC
cpu family : 25
model : {}
flags : fpu avx2{}

processor : 1
model name : another
"""


def test_processors_of_one_name_are_told_apart(monkeypatch, tmp_path):
    monkeypatch.setattr(matmul_backend, "PROCESSOR", tmp_path / "cpuinfo")
    machines = set()
    for model, flags in [(1, ""), (17, ""), (17, " avx512f")]:
        matmul_backend.PROCESSOR.write_text(ZEN.format(model, flags))
        machines.add(matmul_backend._describe_machine())
    assert len(machines) == 3
    assert matmul_backend.read_processor_facts()["model name"] == "AMD EPYC"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"a": "one',
        b"\xff\xfe",
        b"[1]",
        b"null",
        b"[" * 100_000,
        b'{"MACHINE": "mkl"}',
        b'{"MACHINE": ["torch"]}',
    ],
    ids=["empty", "torn", "no text", "a list", "null", "deep", "no library", "a list of libraries"],
)
def test_a_torn_or_foreign_file_is_measured_anew(file, measurement, content):
    file.parent.mkdir()
    file.write_bytes(content.replace(b"MACHINE", matmul_backend._describe_machine().encode()))
    assert matmul_backend.get_or_measure_matmul_library() == "onednn"
    assert json.loads(file.read_text()) == {matmul_backend._describe_machine(): "onednn"}
    assert choose_in_a_new_process() == "onednn"
    assert measurement.count == 1


def test_the_variable_goes_before_what_is_kept(file, measurement, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_PRODUCTS", "torch")
    assert matmul_backend.get_or_measure_matmul_library() == "torch"
    assert not file.parent.exists()
    assert measurement.count == 0


def test_where_nothing_can_be_kept_nothing_is_measured(file, measurement):
    file.parent.write_text("a file, where the folder should be")
    assert matmul_backend.get_or_measure_matmul_library() == "torch"
    assert measurement.count == 0


def test_an_account_without_a_home_has_torchs_products(measurement, monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", home)
    assert matmul_backend.get_or_measure_matmul_library() == "torch"
    assert measurement.count == 0


def test_a_home_that_does_not_exist_is_not_made(measurement, monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert matmul_backend.get_or_measure_matmul_library() == "torch"
    assert measurement.count == 0
    assert not (tmp_path / "home").exists()


def test_a_cache_folder_that_is_no_absolute_path_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert matmul_backend._get_cache_file_path() == tmp_path / ".cache/posttrain/products.json"


def test_a_measurement_that_fails_is_made_again_by_the_next_process(file, monkeypatch):
    monkeypatch.setattr(matmul_backend, "_measure_in_subprocess", lambda: subprocess.run(["false"], check=True))
    assert matmul_backend.get_or_measure_matmul_library() == "torch"
    monkeypatch.setattr(matmul_backend, "_measure_in_subprocess", lambda: FASTER)
    assert matmul_backend.get_or_measure_matmul_library() == "torch", "this process has computed by it"
    assert choose_in_a_new_process() == "onednn"


PROCESS = """
import fcntl, sys, time
from pathlib import Path
from tasks.algorithms.common import matmul_backend

locks, measures, go, seconds = sys.argv[1:]

def measure():
    Path(measures).touch()
    while not Path(go).exists():
        time.sleep(0.01)
    return {"torch": [1.0], "onednn": [float(seconds)]}

def lock(*arguments, plain=fcntl.flock):
    Path(locks).touch()
    plain(*arguments)

matmul_backend._measure_in_subprocess, fcntl.flock = measure, lock
print(matmul_backend.get_or_measure_matmul_library())
"""


def test_two_processes_at_once_make_one_choice(tmp_path):
    """The second would choose otherwise. It comes while the first measures, and waits for that."""
    go = tmp_path / "go"

    def start(process, seconds):
        files = [tmp_path / f"{process} {does}" for does in ("locks", "measures")]
        command = [sys.executable, "-c", PROCESS, *map(str, [*files, go, seconds])]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True), *files

    first, _, measures = start("first", 0.5)
    while not measures.exists():
        assert first.poll() is None
    second, locks, second_measures = start("second", 1.4)
    while not locks.exists() and not second_measures.exists():
        assert second.poll() is None
    go.touch()
    assert [process.communicate()[0] for process in (first, second)] == ["onednn\n", "onednn\n"]
    assert not second_measures.exists()


def test_the_measurement_times_each_shape_by_each_library(monkeypatch):
    """In a process of its own; how long a product takes is nobody's to say, but it takes some time."""
    monkeypatch.undo()
    monkeypatch.setattr(matmul_backend, "LONGEST", None)
    seconds = matmul_backend._measure_in_subprocess()
    assert seconds.keys() <= {"torch", "onednn"}
    for times in seconds.values():
        assert len(times) == len(matmul_backend.SHAPES)
        assert all(time > 0 for time in times)


def test_importing_it_imports_no_torch():
    code = "import sys, tasks.algorithms.common.matmul_backend; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
