"""A run in which nothing has changed, known by the sizes and times of files alone, before anything else is imported.

Git, make and DVC's own state judge a file so too. A run that has found every stage up to date notes what it looked at:
code, data, outs and their objects in the cache, parameters, the engine itself. While none of that has changed, the next
one says the same.
"""

import json
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

TYPE_CHECKING = False  # for type checkers it is true; the module that has it takes as long to import as the rest here
if TYPE_CHECKING:
    from pathlib import Path

    from flows.running import Part

NOTE = ".dvc/tmp/posttrain/unchanged.json"
COMPILED = "__pycache__"  # what .dvcignore leaves out
SETTLED = 2.0  # seconds that a file must be old to be judged by its times: coarse clocks of file systems tick so
SECONDS = "(seconds)"  # stands in what is said for the time that it took
# Of a file: size, times of content and of inode, the inode. Of a folder: the names in it.
Facts = list[int] | str | None


def find_remembered_output(arguments: Sequence[str], began: float) -> str | None:
    """What the command with these arguments would say, if nothing has changed since it said so; None where that has to
    be found out.
    """
    root = _find_repository_root(os.getcwd())
    if root is None or not _is_run_without_options(arguments):
        return None
    try:
        with open(os.path.join(root, NOTE), encoding="utf-8") as file:
            note = json.load(file)
        text = note["said"][json.dumps(list(arguments))]
        if note["environment"] != select_answer_environment():
            return None
        for path, facts in note["files"].items():
            if _get_path_fingerprint(os.path.join(root, path)) != facts:
                return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return str(text).replace(SECONDS, f"({time.monotonic() - began:.1f} s)")


def record_unchanged_flows(root: "Path", targets: Sequence[str], parts: "Sequence[Part]") -> None:
    """Remember what was said of these flows, if nothing of them has changed."""
    from flows.console.summary import load_report_headlines
    from flows.lineage import up_to_date_inputs
    from flows.running import list_plan_remarks
    from flows.web import run_page

    stages = [stage for _, planned in parts for stage in planned]
    if any(stage.reason for stage in stages) or run_page.has_outdated_pages(root, stages):
        return
    lines = list_plan_remarks(root, parts)
    for flow, planned in parts:
        lines += [f"{flow}:"] * (len(parts) > 1)
        lines.append(f"nothing has changed: {len(planned)} stages are up to date {SECONDS}")
        lines += load_report_headlines(root, {stage.name for stage in planned})
    paths = up_to_date_inputs.collect_input_paths(root, [stage.name for stage in stages])
    if paths is not None:
        text = "".join(f"{line}\n" for line in lines)
        pages = map(str, run_page.list_page_paths(root))
        record_command_output(str(root), ["run", *targets], text, [*paths, *pages])


def record_command_output(root: str, arguments: Sequence[str], text: str, paths: Iterable[str]) -> None:
    """Note what was said and the state of all that it rests on; nothing where a file is too young to be judged by its
    times.

    `paths` are files and folders, within which everything counts; those that are not there now must stay so.
    """
    if not _is_run_without_options(arguments):
        return
    try:
        files = {
            path: _get_path_fingerprint(path)
            for location in paths
            for path in _iterate_paths_below(os.path.join(root, location))
        }
    except OSError:
        return
    now = time.time_ns()
    if any(isinstance(facts, list) and now - max(facts[1:3]) < SETTLED * 1e9 for facts in files.values()):
        return
    shown = {os.path.relpath(path, root) if path.startswith(root + os.sep) else path: f for path, f in files.items()}
    note = {"environment": select_answer_environment(), "files": shown, "said": {json.dumps(list(arguments)): text}}
    location = os.path.join(root, NOTE)
    try:
        os.makedirs(os.path.dirname(location), exist_ok=True)
        with open(f"{location}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump(note, file)
        os.replace(f"{location}.{os.getpid()}", location)
    except OSError:
        return  # the next run looks for itself again


def select_answer_environment() -> Mapping[str, str]:
    """What else the answer depends on."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("DVC_", "POSTTRAIN_"))}
    return {**kept, "python": f"{sys.executable} {sys.version}"}


def _is_run_without_options(arguments: Sequence[str]) -> bool:
    """Whether it is a run without options."""
    return list(arguments[:1]) == ["run"] and not any(word.startswith("-") for word in arguments)


def _find_repository_root(folder: str) -> str | None:
    """The closest folder with a dvc.yaml."""
    while not os.path.isfile(os.path.join(folder, "dvc.yaml")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def _get_path_fingerprint(path: str) -> Facts:
    """None where there is nothing. A folder's own times do not count: Python changes them as it compiles a module."""
    try:
        file_stat = os.stat(path)
        if stat.S_ISDIR(file_stat.st_mode):
            return "/".join(sorted(name for name in os.listdir(path) if name != COMPILED))
    except FileNotFoundError:
        return None
    return [file_stat.st_size, file_stat.st_mtime_ns, file_stat.st_ctime_ns, file_stat.st_ino]


def _iterate_paths_below(path: str) -> Iterator[str]:
    yield path
    if os.path.isdir(path):
        for folder, folders, names in os.walk(path):  # a plan refuses linked folders in what is hashed
            folders[:] = [name for name in folders if name != COMPILED]
            yield from (os.path.join(folder, name) for name in (*folders, *names))
