"""`python -m tasks.extensions.labelling`: a server that is killed and started again, and what is said in one line."""

import json
import socket
import urllib.request
from pathlib import Path

import pytest

from tasks.extensions.labelling.__main__ import main
from tasks.extensions.labelling.guard import HEADER
from tasks.extensions.labelling.tests.pages import TOKEN, ForkedServer
from tasks.language.judgements.judgement_log import Writer, read_judgement_record

ROWS = [{"prompt": f"q{n}", "answers": [f"a{n}", f"b{n}", f"c{n}", f"d{n}"]} for n in range(5)]
PAIRS = [
    {"prompt": "2 + 3?", "chosen": "5", "rejected": "6"},
    {"prompt": "A fruit?", "chosen": "Apple", "rejected": "Stone"},
]


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "items.jsonl", ROWS)


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def post(server, path, **body):
    address = f"http://127.0.0.1:{server.port}{path}"
    headers = {"content-type": "application/json", HEADER: TOKEN}
    with urllib.request.urlopen(
        urllib.request.Request(address, json.dumps(body).encode(), headers), timeout=30
    ) as answer:
        return json.load(answer)


def serve(file, record, *options):
    """Run the command in this process, with what would be wrong in it."""
    given = {
        "record": record,
        "file": file,
        "mode": "pairwise",
        "overlap": 1,
        "repeats": 0,
        "seed": 0,
        "host": "127.0.0.1",
        "port": 0,
    }
    return main(["serve", *(f"--{name}={value}" for name, value in given.items()), *options])


def test_a_server_that_is_killed_goes_on_where_it_was(tmp_path, file):
    with ForkedServer(tmp_path, file, "ranking", port()) as server:
        assert f"token={TOKEN}" in server.address
        first = post(server, "/next", person="anna")
        value = {"ranks": [1, 2, 2, 3], "scores": None}
        said = {"person": "anna", "value": value, "seconds": 2.0}
        second = post(server, "/judge", judgement=first["judgement"], item=first["item"], **said)
        server.kill()
        server.start()
        post(server, "/judge", judgement=first["judgement"], item=first["item"], **said)
        post(server, "/judge", judgement=second["judgement"], item=second["item"], **said)
        third = post(server, "/next", person="anna")
        assert (third["done"], third["wanted"]) == (2, 5)
        assert server.interrupt().splitlines()[-1] == f"stopped; 2 judgements are in {server.record}"
    assert [line.judgement for line in read_judgement_record(server.record).judgements] == [
        first["judgement"],
        second["judgement"],
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gold={file}"], "expected the field gold"),
        (["--file=nothing.jsonl"], "nothing.jsonl"),
        (["--host=no.such.host.invalid"], "choose another --port or --host"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, file, options, message, capsys, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_LABEL_TOKEN", TOKEN)
    assert serve(file, tmp_path / "r/people.jsonl", *(option.format(file=file) for option in options)) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("posttrain: ")
    assert message in line


def test_a_port_or_a_record_in_use_is_one_line(tmp_path, file, capsys, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_LABEL_TOKEN", TOKEN)
    record = tmp_path / "r/people.jsonl"
    with Writer(record):
        assert serve(file, record) == 2
    assert "another process is writing this file" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("POSTTRAIN_LABEL_TOKEN", TOKEN)
        assert serve(file, record, f"--port={taken.getsockname()[1]}") == 2
    assert "Address already in use; choose another --port" in capsys.readouterr().err


def test_there_is_no_server_without_a_token(tmp_path, file, capsys, monkeypatch):
    monkeypatch.delenv("POSTTRAIN_LABEL_TOKEN", raising=False)
    assert serve(file, tmp_path / "r/people.jsonl") == 2
    assert "POSTTRAIN_LABEL_TOKEN is not set" in capsys.readouterr().err


def test_judgements_of_another_tool_come_in_once_and_go_out(tmp_path, capsys):
    pairs, record = written(tmp_path / "pairs.jsonl", PAIRS), tmp_path / "r/people.jsonl"
    for new in (2, 0):
        assert main(["import", f"--record={record}", "--tool=trl", f"--path={pairs}"]) == 0
        assert capsys.readouterr().out == f"{new} judgements are new in {record}\n"
    assert main(["export", f"--record={record}", "--tool=trl", f"--path={tmp_path / 'out'}"]) == 0
    found = [
        json.loads(line) for file in capsys.readouterr().out.split() for line in Path(file).read_text().splitlines()
    ]
    assert {(row["prompt"], row["chosen"], row["rejected"]) for row in found} == {tuple(row.values()) for row in PAIRS}
    assert main(["statistics", f"--record={record}"]) == 0
    assert capsys.readouterr().out.startswith("2 judgements of 2 items")
    assert main(["statistics", f"--record={tmp_path / 'none.jsonl'}"]) == 2
