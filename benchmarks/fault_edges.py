"""Values at the edges of every parameter, as people write them: what the Configs take, DVC's own reader reads as the
same.

`python -m benchmarks.fault_edges [SECTION ...]` tries all of them and shows how far it is. It writes the outcome of
each section to benchmarks/results/faults/edges.json once it is done with it, and passes over the sections that stand
there, so that it may be stopped.
"""

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from dvc.utils.serialize import dumps_yaml, parse_yaml

from benchmarks import result_files
from benchmarks.fault_inputs import PARAMS, SCHEMA, SECTIONS, resolve_schema_reference
from flows.engine import plan as planning
from flows.params import editing
from flows.params.checking import SHARED
from flows.params.files import SEED, ParameterError
from tasks.common.config import BRANCHES

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks/results/faults/edges.json"
TEXT = (ROOT / "params.yaml").read_text()
PIPELINE = (ROOT / "dvc.yaml").read_text()
LONGEST = 600  # letters of a line that says what is wrong

ANY = ["", "~", "yes", "017", "0o17", "1_000", "1e3", ".5", "12:30:45", "2020-01-01", "'2020-01-01'", "''"]
OF_KIND: dict[str, list[str]] = {  # YAML for parameters of this type of JSON's, beside ANY
    "boolean": ["true", "True", "FALSE", "false", "on", "off", "y", "N", "0", "1"],
    "number": ["0", "-0.0", "1", "+1", "-1", "0x10", "1.", "1e-5", "1E+3", "5e-324", "1e300", "1e400", ".inf", ".nan"],
    "string": [
        *("' '", "' a '", "'a: b # c'", "'${x}'", "'${problems.path}'", "'<<'", "'*a'", "'!!str x'", "'='", "'null'"),
        *(
            "'1e3'",
            "'017'",
            "'.inf'",
            "'on'",
            "'- a'",
            "'{a'",
            "!!str 1",
            "'-'",
            "'\"'",
            "x y",
            "é😀",
            "'%'",
            "'@'",
            "'`'",
        ),
        *(
            '"\\u0085"',
            '"\\u2028"',
            '"\\ufeffa"',
            '"a\\0b"',
            '"a\\nb"',
            '"a\\tb"',
            '"\\e[31m"',
            "|\n  a\n  b",
            ">-\n  a",
        ),
        *("..", "/", "/etc", "~/x", "./x/", "s3://b/x", "remote://x", "C:/x", "data", "data/grpo", "params.yaml"),
        *("x" * 300, f"'{'x/' * 400}'"),
    ],
    "array": ["[]", "[~]", "[[]]", "[1, 2]", "['a']", "[2020-01-01]", "[&a 1, *a]", "[a, a]", "[{}]", "[-1]", "['']"],
    "object": [
        *("{}", "{a: ~}", "{1: 1}", "{~: 1}", "{true: 1}", "{2020-01-01: 1}", "{<<: {a: 1}}", "{'': 1}", "{'1': 1.0}"),
        *("{a: &a {b: 1}, c: *a}", "{'null': 1.0}", "{'a b': 1.0}", "{a.b: 1.0}", "{'-': 1.0}"),
    ],
}
OF_KIND["integer"] = OF_KIND["number"]
IN_GRAPH = {
    "string",
    "array",
    "object",
}  # only values of these types can change what stages there are and what they read


@dataclass
class Outcome:
    """Of the parameters of a section."""

    parameters: int = 0
    trials: int = 0
    taken: int = 0
    failures: list[str] = field(default_factory=list)


def iterate_edge_values(section: str) -> Iterator[tuple[str, str]]:
    """Dotted keys of a section with YAML to set each to; at least 20 for each."""
    for key, kinds, bounds, value in _iterate_parameters(
        resolve_schema_reference(SCHEMA["properties"][section]), PARAMS[section], section
    ):
        spelt = [*ANY, *bounds, json.dumps(value), *(text for kind in kinds for text in OF_KIND.get(kind, ()))]
        for text in dict.fromkeys(spelt):
            yield key, text


def try_edge_value(key: str, spelt: str) -> tuple[bool, list[str]]:
    """Whether a value is taken, and what is wrong with the answer or with what DVC makes of it then.

    The section stands in a file of its own, which takes a tenth of the time, and in the whole file where dvc.yaml names
    the key.
    """
    section, *below = key.split(".")
    before = _extract_section_text(section)
    try:
        edit = editing.parse_setting(f"{key}={spelt}")
        text, _ = editing.apply_edits_to_text(
            before, SECTIONS if section == BRANCHES else {section: SECTIONS[section]}, [edit]
        )
    except ParameterError as error:
        return False, _find_line_faults(str(error))
    except Exception as error:
        return False, [f"{type(error).__name__}: {error}"[:200]]
    wanted = parse_yaml(before, "")
    inner = wanted[section]
    for name in below[:-1]:
        inner = inner[name]
    inner[below[-1]] = parse_yaml(f"value: {spelt}", "")["value"]
    read = parse_yaml(text, "")
    found = [] if repr(read) == repr(wanted) else ["DVC reads something else from params.yaml"]
    if repr(parse_yaml(dumps_yaml(read[section]), "")) != repr(read[section]):
        found.append("DVC reads something else from its own record")
    if is_key_in_pipeline(key):
        found += _find_plan_faults(edit)
    return True, found


def is_key_in_pipeline(key: str) -> bool:
    """Whether dvc.yaml names the key, or what holds it."""
    return any(f"${{{part}}}" in PIPELINE for part in accumulate(key.split("."), "{}.{}".format))


def _find_plan_faults(edit: editing.Edit) -> list[str]:
    """What is wrong with what a run would say of such a file: anything but nothing or one line."""
    try:
        text, _ = editing.apply_edits_to_text(TEXT, SECTIONS, [edit])
        stages = planning.list_needed_stages(ROOT, [edit.key[0]], text)
        alone = [name for name in stages if "@" not in name]  # for branches that are new, environments would be made
        editing.check_params_consistency(ROOT, SECTIONS, stages, alone, text)
    except (planning.PlanError, ParameterError) as error:
        return _find_line_faults(str(error))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"[:200]]
    return []


@cache
def _extract_section_text(section: str) -> str:
    """The text of a section, after what it may refer to and before its branches; of the section `branches` the whole
    text.
    """
    if section == BRANCHES:
        return TEXT
    blocks = re.findall(rf"^(?:{SEED}|{SHARED}\w+|{section}):.*\n(?:(?:[ #].*)?\n)*", TEXT, re.MULTILINE)
    entries = PARAMS[BRANCHES]
    return "".join(blocks) + (
        f"{BRANCHES}:\n  {section}: {json.dumps(entries[section])}\n" if section in entries else ""
    )


def _find_line_faults(line: str) -> list[str]:
    return [] if "\n" not in line and len(line) < LONGEST else [f"not one short line: {line[:200]!r}"]


def _iterate_parameters(part: dict[str, Any], value: Any, key: str) -> Iterator[tuple[str, list[str], list[str], Any]]:
    """Each key with its types, the YAML of its bounds, and its value; of entries that users name, the first."""
    choices = [resolve_schema_reference(choice) for choice in part.get("anyOf", [part])]
    kinds = [choice.get("type", "string") for choice in choices]
    whole = {"integer"} & {*kinds}
    bounds = [
        json.dumps(bound + step)
        for choice in choices
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        if (bound := choice.get(name)) is not None
        for step in ((-1, 0, 1) if whole else (-1e-9, 0, 1e-9))
    ]
    names = [repr(name) for choice in choices for name in choice.get("enum", ())]
    if isinstance(value, dict) and "properties" in part:
        for name, below in part["properties"].items():
            yield from _iterate_parameters(resolve_schema_reference(below), value[name], f"{key}.{name}")
        return
    yield key, kinds, [*bounds, *names], value
    if isinstance(value, dict) and value and isinstance(part.get("additionalProperties"), dict):
        name = next(iter(value))
        yield from _iterate_parameters(
            resolve_schema_reference(part["additionalProperties"]), value[name], f"{key}.{name}"
        )


def run_section_trials(section: str) -> Outcome:
    """All trials of a section; failures are printed at once."""
    outcome = Outcome(parameters=len({key for key, _ in iterate_edge_values(section)}))
    for key, spelt in iterate_edge_values(section):
        taken, faults = try_edge_value(key, spelt)
        outcome.trials += 1
        outcome.taken += taken
        if faults:
            outcome.failures.append(f"{key}={spelt[:60]}: {'; '.join(faults)}")
            print(f"FAILED {outcome.failures[-1]}", flush=True)
    return outcome


def main(sections: Sequence[str]) -> int:
    """Try the sections that are named, or all that have not been tried."""
    known: dict[str, Any] = result_files.load_result(RESULT, {})
    every = [name for name in PARAMS if name != SEED]
    for section in sections or [name for name in every if name not in known]:
        began = time.monotonic()
        known[section] = asdict(outcome := run_section_trials(section))
        result_files.write_result(RESULT, {name: known[name] for name in every if name in known}, adds=True)
        print(
            f"{section}: {outcome.parameters} parameters, {outcome.trials} trials, {outcome.taken} taken, "
            f"{len(outcome.failures)} failures, {time.monotonic() - began:.0f} s; {len(known)} of "
            f"{len(every)} sections",
            flush=True,
        )
    return int(any(outcome["failures"] for outcome in known.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
