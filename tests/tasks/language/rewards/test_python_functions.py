"""Rewards in Python: the user's functions in processes of their own."""

import importlib
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tasks.common.errors import DataError, StageError
from tasks.language.rewards import python_functions
from tasks.language.rewards.python_worker import convert_returned_values
from tests.tasks import forks
from tests.tasks.language.rewards.functions import COLUMNS, PROMPTS, RESPONSES, values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(completions, **kwargs): return [len(one) for one in completions]", [1, 2, 3]),
        ("def f(responses, level): return [one and one + 0.5 for one in level]", [5.5, math.nan, 7.5]),
        ("def f(prompts, responses, answer, missing=2): return [int(one) * missing for one in answer]", [2, 4, 6]),
        (
            "def f(responses, **columns): return [len(columns) for one in responses]",
            [3, 3, 3],
        ),  # prompts, answer, level
        ("def f(responses, *, answer): return tuple(one == '2' for one in answer)", [0, 1, 0]),
        ("import numpy\ndef f(responses, **_): return numpy.arange(3, dtype='float32')", [0, 1, 2]),
        ("f = lambda prompts, responses, **columns: [len(one) for one in prompts]", [4, 4, 6]),
        ("class F:\n def __call__(self, responses): return [None] * 3\nf = F()", [math.nan] * 3),
        ("def f(prompts, responses):\n prompts.clear()\n return [1, 1, 1]", [1, 1, 1]),
    ],
)
def test_what_a_function_may_be(make, text, expected):
    function = make(text)
    assert values(function) == pytest.approx(expected, nan_ok=True)
    assert values(function) == pytest.approx(expected, nan_ok=True), "and again"
    assert function.worker.process.poll() is None


TRL = """
def f(prompts, completions, answer, **columns):
    asked = [prompt[-1]["content"] for prompt in prompts]
    contents = [completion[0]["content"] for completion in completions]
    return [len(question) + len(content) / 10 for question, content in zip(asked, contents)]
"""


@pytest.mark.parametrize("text", [TRL, TRL.replace('["content"]', '.get("content")')])
def test_a_function_for_conversations_of_trl_gets_them(make, capfd, text):
    """The questions have 4, 4 and 6 characters."""
    function = make(text)
    assert values(function) == pytest.approx([4.1, 4.2, 6.3])
    assert values(function) == pytest.approx([4.1, 4.2, 6.3]), "and again"
    assert values(function, [""]) == [4.0]
    said = "rewards/mine.py:f: gets completions and prompts as lists of turns, as in TRL"
    assert capfd.readouterr().err.count(said) == 1


def test_an_empty_answer_as_the_first_tells_nothing_of_the_form(make):
    function = make("def f(completions): return [len(one[0]['content']) for one in completions]")
    assert values(function, ["", "bb"]) == [0, 2]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (TRL.replace("len(content)", "gone"), "TRL's conversations: rewards/mine.py:5: NameError: name"),
        ("def f(responses, answer): return [one['x'] for one in answer]", "TypeError: string indices must be integers"),
        ("def f(completions): return [one[5].upper() for one in completions]", "IndexError: string index out of range"),
    ],
)
def test_what_a_function_for_texts_or_conversations_raises_is_told(make, text, error):
    with pytest.raises(DataError) as stopped:
        values(make(text))
    assert error in str(stopped.value)
    assert ("TRL" in str(stopped.value)) == ("TRL" in error)


def test_a_function_that_has_read_texts_always_gets_texts(make):
    """A fault of later answers is no sign of another form: a policy must not be trained by two."""
    function = make("def f(completions): return [one['content'] if 'x' in one else len(one) for one in completions]")
    assert values(function) == [1, 2, 3]
    with pytest.raises(DataError, match=r"mine\.py:1: TypeError: string indices must be integers, not 'str' \(for"):
        values(function, ["x", "bb"])


RETURNED = {
    "[1.0, 2.0]": "expected a list of 3 numbers or None, one for each response; got 2",
    "1.0": "expected a list of 3 numbers or None, one for each response; got 1.0 (float)",
    "'abc'": "expected a list of 3 numbers or None, one for each response; got 'abc' (str)",
    "None": "expected a list of 3 numbers or None, one for each response; got None (NoneType)",
    "{1: 1, 2: 2, 3: 3}": "expected a list of 3 numbers or None, one for each response; got {1: 1, ",
    "[1, '2', 3]": "expected a finite number or None, got '2' (str) (for the prompt 'two?')",
    "[1, 2, float('nan')]": "expected a finite number or None, got nan (float) (for the prompt 'three?')",
    "[float('inf'), 2, 3]": "expected a finite number or None, got inf (float) (for the prompt 'one?')",
    "[1, 2, 1e39]": "expected a finite number or None, got 1e+39 (float) (for the prompt 'three?')",
    "[-(10 ** 400), 2, 3]": "expected a finite number or None, got -100000",
    "A()": "expected a list of 3 numbers or None, one for each response; got a b\\x1b[31m (A)",
    "[1, 1j, 3]": "expected a finite number or None, got 1j (complex) (for the prompt 'two?')",
}
WRONG = {
    "def f(responses, levle): return [1, 2, 3]": "it asks for levle; there are prompts, responses, answer, level",
    "def f(responses, prompts):\n\n return [1 / (one != 'bb') for one in responses]": (
        "rewards/mine.py:3: ZeroDivisionError: division by zero (for the prompt 'two?')"
    ),
    "def f(responses):\n if len(responses) > 1:\n  raise ValueError('first\\nsecond')\n return [1]": (
        "rewards/mine.py:3: ValueError: first"
    ),
    "def f(responses): raise SystemExit(3)": "rewards/mine.py:1: SystemExit: 3 (for the prompt 'one?')",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_told_in_one_line_and_trains_nothing(make, text):
    with pytest.raises(DataError) as stopped:
        values(make(text))
    assert str(stopped.value).startswith(f"rewards/mine.py:f: {WRONG[text]}")
    assert "\n" not in str(stopped.value)


def test_what_is_wrong_in_a_returned_value_is_told_in_one_line(make):
    """All by one process, which returns what the first response says."""
    text = "class A:\n def __repr__(self): return 'a\\nb\\x1b[31m'\ndef f(responses): return eval(responses[0])"
    function = make(text)
    for returned, line in RETURNED.items():
        with pytest.raises(DataError) as stopped:
            values(function, [returned, "", ""])
        assert str(stopped.value).startswith(f"rewards/mine.py:f: {line}"), returned
        assert "\n" not in str(stopped.value), returned
    assert values(function, ["[1, None, 3]", "", ""]) == pytest.approx([1, math.nan, 3], nan_ok=True)


def test_the_checks_of_what_was_returned():
    assert convert_returned_values([1, None, True], 3) == {"values": [1.0, None, 1.0]}
    assert convert_returned_values([], 0) == {"values": []}
    assert convert_returned_values([0.5, "x"], 2)["at"] == 1
    assert "error" in convert_returned_values(b"ab", 2)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "import nothing_of_this_name\ndef f(responses): ...",
            "rewards/mine.py:1: ModuleNotFoundError: No module named ",
        ),
        ("def f(responses): ...\n1 / 0", "rewards/mine.py:2: ZeroDivisionError: division by zero"),
        ("f = 3", "rewards/mine.py has no function f"),
        ("import os\nf = 1\nos._exit(7)", "rewards/mine.py: the process that imports it ended (exit status 7)"),
        ("async def g(responses): ...\nf = g", "rewards/mine.py: f is an async function; expected a plain one"),
    ],
)
def test_a_file_that_cannot_be_imported(make, text, line):
    with pytest.raises(DataError) as stopped:
        values(make(text))
    assert str(stopped.value).startswith(line)


BAD = "import os, time\ndef f(prompts, responses):\n if 'bb' in responses: {0}\n return [len(one) for one in responses]"
HOW = {
    "exec('while True: pass')": "took longer than 0.05 s",
    "os.system('sleep 60')": "took longer than 0.05 s",
    "os.kill(os.getpid(), 11)": "ended (signal 11)",
}


def patient_but_with(monkeypatch, hangs):
    """The limit of the calls whose responses hang is as the function has it; of others one that no busy machine
    exceeds.
    """
    call = python_functions.FunctionWorker.call

    def limited(self, prompts, responses, columns, seconds):
        return call(self, prompts, responses, columns, seconds if hangs(responses) else 60.0)

    monkeypatch.setattr(python_functions.FunctionWorker, "call", limited)


@pytest.mark.parametrize("how", HOW)
def test_a_hang_or_a_crash_names_the_prompt_and_costs_one_reward(make, monkeypatch, capfd, how):
    patient_but_with(monkeypatch, lambda responses: "bb" in responses)
    function = make(BAD.format(how), seconds=0.05 if "longer" in HOW[how] else 60.0)
    found = function(PROMPTS, RESPONSES, COLUMNS)
    assert found.values == pytest.approx([1, math.nan, 3], nan_ok=True)
    assert found.failed == [False, True, False]
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("rewards/mine.py:f")]
    assert said == [
        f"rewards/mine.py:f: a call with 3 responses {HOW[how]}; each is judged alone",
        f"rewards/mine.py:f: the call {HOW[how]} for the prompt 'two?'; it has no reward",
    ]


def test_a_function_that_is_slow_with_many_is_given_them_one_by_one(make, monkeypatch):
    patient_but_with(monkeypatch, lambda responses: len(responses) > 1)
    text = "import time\ndef f(responses):\n if len(responses) > 1: time.sleep(60)\n return [1] * len(responses)"
    function, started = make(text, seconds=0.05), time.monotonic()
    found = function(PROMPTS, RESPONSES, COLUMNS)
    assert found.values == [1, 1, 1]
    assert found.failed == [False] * 3
    assert 0.05 <= function.spent <= time.monotonic() - started


def test_failures_that_are_not_in_a_row_end_nothing(make, monkeypatch):
    monkeypatch.setattr(python_functions, "GIVE_UP", 2)
    function = make("import os\ndef f(responses): return [1.0 if responses == ['bb'] else os._exit(1)]")
    assert function(PROMPTS, RESPONSES, COLUMNS).failed == [True, False, True]


def test_a_function_that_always_fails_ends_the_stage(make, monkeypatch):
    monkeypatch.setattr(python_functions, "GIVE_UP", 2)
    function = make("import os\ndef f(responses): os._exit(1)")
    with pytest.raises(
        DataError, match=r"^rewards/mine.py:f: 2 calls in a row failed; the last one ended \(exit status 1\)$"
    ):
        values(function)


def test_what_the_function_prints_and_reads_is_none_of_the_protocol(make, capfd):
    text = (
        "import os, sys\nprint('at import')\n"
        "def f(responses):\n print('{}')\n os.write(1, b'raw\\n')\n assert sys.stdin.read() == ''\n return [1, 2, 3]"
    )
    before, (reader, writer) = os.dup(0), os.pipe()
    try:
        os.write(writer, b"typed at the terminal")
        os.dup2(reader, 0)
        assert values(make(text)) == [1, 2, 3]
    finally:
        os.dup2(before, 0)
        for descriptor in (before, reader, writer):
            os.close(descriptor)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["at import", "{}", "raw"]


def test_draws_and_the_order_of_sets_are_the_same_in_each_process(make):
    text = (
        "import random\n"
        "def f(responses): return [random.random(), float(list({'a', 'b', 'c', 'd', "
        "'e'}).index('a')), hash('x') % 1000]"
    )
    function = make(text)
    first = values(function)
    assert values(function) == first, "each call starts at the same state"
    function.close()
    assert values(function) == first


def test_any_text_reaches_the_function_as_it_is(make):
    texts = ["", "line\nline\u2028\x00", "\ud800 ünï 🙂"]
    function = make(f"def f(responses): return [one == other for one, other in zip(responses, {texts!r})]")
    assert values(function, texts) == [1, 1, 1]
    assert values(make("def f(responses): return [len(responses[0])]"), ["x" * 3_000_000]) == [3_000_000]


def test_modules_beside_it_count_only_where_their_changes_are_noticed(make):
    text = "from words import POLITE\ndef f(responses): return [POLITE] * len(responses)"
    function = make(text)
    Path("rewards/words.py").write_text("POLITE = 4")
    with pytest.raises(DataError) as stopped:
        values(function)
    assert str(stopped.value) == (
        "rewards/mine.py:f: rewards/words.py is imported, but is not in reward_files (rewards/mine.py): a change "
        "of it would "
        "not run the stage again"
    )
    assert values(make(text, files="rewards")) == [4, 4, 4]
    assert not [*Path("rewards").rglob("__pycache__")], "which would change the hash of the folder"


def test_a_late_import_counts_too_and_one_of_the_stage_s_own_modules_is_known(make, tmp_path, monkeypatch):
    late = make("def f(responses):\n import words\n return [1, 1, 1]")
    Path("rewards/words.py").write_text("")
    with pytest.raises(DataError, match=r"rewards/words.py is imported, but is not in reward_files"):
        values(late)
    (tmp_path / "module_of_the_stage.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    own = "import module_of_the_stage\ndef f(responses): return [1, 1, 1]"
    with pytest.raises(DataError, match=r"module_of_the_stage.py is imported, but is not in reward_files"):
        values(make(own))
    importlib.import_module("module_of_the_stage")
    assert values(make(own)) == [1, 1, 1]


def test_what_is_installed_elsewhere_may_be_imported(make, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "module_that_is_installed.py").write_text("NUMBER = 2")
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    assert values(make("import module_that_is_installed as m\ndef f(responses): return [m.NUMBER] * 3")) == [2, 2, 2]


def test_a_file_that_it_reads_is_named_once_unless_its_changes_are_noticed(make, capfd):
    Path("rewards").mkdir()
    Path("words.txt").write_text("please")
    Path(".cache").mkdir()
    Path(".cache/kept").write_text("1")
    text = (
        "def f(responses):\n open('words.txt').read(), open('.cache/kept').read(), open('rewards/mine.py').read()\n"
        " try: open('missing.txt')\n"
        " except OSError: pass\n"
        " open('out.txt', 'w').close()\n return [1, 2, 3]"
    )
    function = make(text)
    assert values(function) == values(function) == [1, 2, 3]
    assert capfd.readouterr().err.splitlines() == [
        "rewards/mine.py:f: words.txt is read, but is not in reward_files (rewards/mine.py): a change of it will "
        "not run the "
        "stage again"
    ]


def test_a_file_outside_the_project_is_named_too(make, capfd, tmp_path_factory):
    """Data and modules, but not what Python and its packages read, nor what the function wrote."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "words.txt").write_text("please")
    (elsewhere / "helper.py").write_text("VALUE = 1")
    function = make(
        f"import json, sys, tempfile, zoneinfo, numpy\nsys.path.append('{elsewhere}')\ndef "
        "f(responses):\n import helper\n"
        f" open('{elsewhere}/words.txt').read(), open('{elsewhere}/own', 'w').write('x'), "
        f"open('{elsewhere}/own').read()\n"
        " zoneinfo.available_timezones(), open('/etc/hosts').read()\n"
        " return [1, 2, 3]"
    )
    assert values(function) == values(function) == [1, 2, 3]
    assert capfd.readouterr().err.splitlines() == [
        f"rewards/mine.py:f: {elsewhere}/{name} is read, but is not in reward_files (rewards/mine.py): a change of "
        "it will not "
        "run the stage again"
        for name in ("helper.py", "words.txt")
    ]


def test_closing_ends_the_process_and_what_it_started(make):
    function = make(
        "import subprocess\ndef f(responses):\n return [subprocess.Popen(['sleep', '60']).pid for one in responses]"
    )
    started = [psutil.Process(int(pid)) for pid in values(function)] + [psutil.Process(function.worker.process.pid)]
    function.close()
    forks.wait_for_end(started)


CHILD = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a parent in the background ignores it
    "from pathlib import Path; from tasks.language.rewards.python_functions import PythonFunction\n"
    "function = PythonFunction('rewards/mine.py:f', Path('rewards/mine.py'), 60.0); function(['?'], ['a'], {})\n"
)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_busy_function_does_not_outlive_its_parent(make, tmp_path, ending):
    make(
        "import os, pathlib\ndef f(responses):\n pathlib.Path('pid').write_text(str(os.getpid()))\n"
        " os.rename('pid', 'ready')\n while True: pass"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(python_functions.__file__).parents[3])}
    with subprocess.Popen([sys.executable, "-c", CHILD], env=environ, stderr=subprocess.DEVNULL) as parent:
        while not Path("ready").exists():
            assert parent.poll() is None
            time.sleep(0.02)
        function = psutil.Process(int(Path("ready").read_text()))
        os.kill(parent.pid, ending)
    forks.wait_for_end([function])


def test_a_function_out_of_the_files_is_refused_before_it_starts(make):
    with pytest.raises(StageError) as stopped:
        make("def f(responses): ...", files="rewards/none")
    assert str(stopped.value) == (
        "params.yaml: reward_files: expected rewards/mine.py or a folder that holds it, since rewards/mine.py:f is "
        "a reward that "
        "counts, got 'rewards/none'"
    )
    with pytest.raises(
        StageError, match=r"^params.yaml: reward: rewards/mine.py:f: rewards/mine.py has no function f \(there are g\)$"
    ):
        make("def g(responses): ...")
