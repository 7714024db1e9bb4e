"""A process whose children write judgements and are killed with -9 at random; says what was lost.

Arguments: file, kills, seed.
"""

import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from tasks.language.judgements.judgement_log import Writer, read_judgement_record
from tests.tasks import forks
from tests.tasks.language.judgements.samples import item, judgement, undo

ITEMS = [item("yes", "no " * 10**4, prompt=f"Why {number}?") for number in range(7)]


def write(path, told, start):
    """Judge for ever, and take every third judgement back; says each line's id once it is written."""
    with Writer(path) as writer:
        for number in range(start, sys.maxsize):
            one = ITEMS[number % len(ITEMS)]
            if one.item not in writer.record.items:
                writer.append(one)
            line = judgement(one, "a better", number=number)
            writer.append(line)
            os.write(told, f"{line.judgement}\n".encode())
            if number % 3 == 0:
                writer.append(undo(line))
                os.write(told, f"-{line.judgement}\n".encode())


def killed_child(path, start, seconds):
    """What a child said before it was killed."""
    ours, theirs = os.pipe()

    def work():
        os.close(ours)  # so that it ends where nobody listens any more
        write(path, theirs, start)

    child = forks.start(work)
    os.close(theirs)
    select.select([ours], [], [])  # it has begun to write
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    forks.ended(child)
    said = b""
    while part := os.read(ours, 65536):
        said += part
    os.close(ours)
    return said.decode().split("\n")[:-1]


def main(path, kills, seed):
    draw = random.Random(seed)
    written, undone = set(), set()
    for kill in range(kills):
        for said in killed_child(path, kill * 10**6, draw.random() * 0.02):
            (undone if said.startswith("-") else written).add(said.strip("-"))
        if draw.random() < 0.5:  # as if the last line had been torn
            with path.open("ab") as file:
                file.write(path.read_bytes()[: draw.randrange(1, 99)])
        lines = [json.loads(line) for line in path.read_text().rpartition("\n")[0].split("\n")]
        on_disk, undos = (
            {line["judgement"] for line in lines if line["kind"] == kind} for kind in ("judgement", "undo")
        )
        counting = {line.judgement for line in read_judgement_record(path).judgements}
        if not (written <= on_disk and undone <= undos and counting == on_disk - undos):
            sys.exit(f"kill {kill}: lost {written - on_disk}, undo lost {undone - undos}")
    print(f"{kills} kills, {len(written)} judgements written, {len(undone)} taken back, none lost")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
