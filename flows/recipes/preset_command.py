"""`posttrain preset`: lists the presets, lays one over params.yaml, or takes the last one back."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from flows.console import completion as tab
from flows.params.files import (
    PARAMS,
    ParameterError,
    find_root,
    list_preset_files,
    parse_yaml_text,
    read_text,
    write_file_atomically,
)
from tasks.common.terminal import format_in_one_line

DEFAULT = "default"  # the preset that is params.yaml as git has it
BEFORE = Path("mlruns/params-before-preset.yaml")  # and the text that a preset left, for --undo to compare
AFTER = Path("mlruns/params-after-preset.yaml")
COMMAND_LINE = re.compile(r"^(?:posttrain preset \S+ && )?(posttrain run.*)")
COMMAND_IN_TEXT = re.compile(r"`(posttrain run[^`]*)`")
LONGEST_TITLE = 56
SHOWN_SECTIONS = 6
SHOWN_CHANGES = 3  # more are counted

# The heading that a preset is listed under: the first whose pattern its name matches, else that of its sections' flow.
THEMES: Mapping[str, str] = {
    r"tiny|full": "Size",
    r"chat|pairs|people|prompts|own-environment": "Your own data",
    r"fault-.*": "Faults of training and their cures",
    r"text-game": "Offline reinforcement learning",
}
FLOW_THEMES = {"language": "Language models", "offline": "Offline reinforcement learning", "agents": "Language agents"}


def preset(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]",
            help="A preset; `default` is params.yaml as git has it. Without a name, all are listed.",
            autocompletion=tab.complete_presets,
        ),
    ] = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="Put back params.yaml as it was before the last preset.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show each value that would change.")] = False,
) -> int:
    """Lay a preset, a part of params.yaml, over params.yaml; without a name, list the presets."""
    root = find_root()
    if undo:
        if name:
            raise ParameterError("preset --undo: takes no name")
        print(restore_params_before_preset(root))
    elif not name:
        print("\n".join(list_presets_by_theme(root)))
    else:
        lay_preset(root, name, dry_run)
    return 0


def lay_preset(root: Path, name: str, dry_run: bool) -> None:
    """Change params.yaml and say in a few lines what changed, how to go back and what to type next."""
    from flows.lineage.git_files import read_file_at_head
    from flows.params import checking, editing

    types = checking.load_config_classes(root)
    before = read_text(root / PARAMS)
    committed = read_file_at_head(root, PARAMS) if name == DEFAULT else ""
    if name == DEFAULT and not committed:
        raise ParameterError(f"preset {DEFAULT}: git has no {PARAMS} in its last commit")
    edits = (
        editing.build_edits_from_text(root, types, committed, f"{PARAMS} of the last commit")
        if committed
        else editing.load_preset_edits(root, types, name)
    )
    text, changes = editing.apply_edits_to_text(before, types, edits)
    text = committed or text  # with its comments and layout
    if dry_run or text == before:
        for change in changes or [f"has the values of preset {name} already"]:
            print(f"{PARAMS}: {format_in_one_line(change)}")
        return
    save_params_for_undo(root, before, text)
    write_file_atomically(root / PARAMS, text.encode())
    if len(changes) <= SHOWN_CHANGES:
        for change in changes:
            print(f"{PARAMS}: {format_in_one_line(change)}")
    else:
        changed = [edit.key[0] for edit in edits if any(line.startswith(".".join(edit.key) + ":") for line in changes)]
        print(f"{PARAMS}: {len(changed)} values changed in {format_section_names(changed)} (git diff {PARAMS})")
        if remarks := len(changes) - len(changed):
            print(f"{PARAMS}: {remarks} remarks on parameters without effect (posttrain status shows them)")
    print("back: posttrain preset --undo, or posttrain preset default")
    if name != DEFAULT:
        file = list_preset_files(root)[name]
        header = read_preset_header(file)
        print(f"{name}: {extract_first_sentence(header)} ({file.relative_to(root)} says more)")
        print(f"next: {find_next_command(header, list_preset_sections(file))}")


def save_params_for_undo(root: Path, before: str, after: str) -> None:
    """Keep the texts of params.yaml before and after a preset."""
    (root / BEFORE).parent.mkdir(exist_ok=True)
    write_file_atomically(root / BEFORE, before.encode())
    write_file_atomically(root / AFTER, after.encode())


def restore_params_before_preset(root: Path) -> str:
    """Put params.yaml back as it was before the last preset; ParameterError without one, or if it changed since."""
    if not (root / BEFORE).is_file() or not (root / AFTER).is_file():
        raise ParameterError("preset --undo: no preset was laid over params.yaml here")
    if read_text(root / PARAMS) != read_text(root / AFTER):
        raise ParameterError(
            f"preset --undo: {PARAMS} has changed since the preset; `posttrain preset default` brings git's values back"
        )
    write_file_atomically(root / PARAMS, (root / BEFORE).read_bytes())
    (root / BEFORE).unlink()
    (root / AFTER).unlink()
    return f"{PARAMS}: as it was before the last preset"


def list_presets_by_theme(root: Path) -> list[str]:
    """A line for each preset with its first sentence, below the heading of its theme."""
    files = list_preset_files(root)
    themes: dict[str, list[str]] = {theme: [] for theme in (*[*THEMES.values()][:-1], *FLOW_THEMES.values())}
    width = max(map(len, files), default=0)
    for name, file in sorted(files.items()):
        about = format_in_one_line(extract_first_sentence(read_preset_header(file)))[:LONGEST_TITLE]
        themes[choose_theme(name, list_preset_sections(file))].append(f"  {name:<{width}}  {about}")
    lines = []
    for theme, entries in themes.items():
        lines += ["", theme, *entries] if entries else []
    return [
        *lines[1:],
        "",
        "posttrain preset NAME lays one over params.yaml; default brings back the values that git has",
    ]


def choose_theme(name: str, sections: Iterable[str]) -> str:
    """The heading that a preset is listed under."""
    for pattern, theme in THEMES.items():
        if re.fullmatch(pattern, name):
            return theme
    return FLOW_THEMES[find_flow_of_sections(sections)]


def find_flow_of_sections(sections: Iterable[str]) -> str:
    """The flow whose sections a preset changes; the language flow if they are of several or of an extension's own."""
    from flows.running import FLOWS, get_flow_targets

    names = {*sections}
    flows = [flow for flow in FLOWS if {target.partition("@")[0] for target in get_flow_targets(flow)} & names]
    return flows[0] if len(flows) == 1 else "language"


def list_preset_sections(file: Path) -> list[str]:
    """The sections of params.yaml that a preset changes."""
    values = parse_yaml_text(read_text(file), file.name)
    return [str(name) for name in values] if isinstance(values, dict) else []


def read_preset_header(file: Path) -> list[str]:
    """The lines of the comment at the top of a preset."""
    lines = []
    for line in read_text(file).splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return lines


def extract_first_sentence(lines: Sequence[str]) -> str:
    """The text up to its first full stop that ends a sentence."""
    text = " ".join(lines)
    return re.split(r"\.(?:\s+(?=[A-Z`])|$)", text, maxsplit=1)[0]


def find_next_command(header: Sequence[str], sections: Iterable[str]) -> str:
    """What to type after a preset: the run that its header names, else that of the flow whose sections it changes."""
    for line in header:
        named = COMMAND_LINE.search(line) or COMMAND_IN_TEXT.search(line)
        if named:
            return named[1]
    flow = find_flow_of_sections(sections)
    return "posttrain run" if flow == "language" else f"posttrain run {flow}"


def format_section_names(sections: Iterable[str]) -> str:
    """The sections, each once; of many only the first."""
    names = [*dict.fromkeys(sections)]
    more = f" and {len(names) - SHOWN_SECTIONS} more" if len(names) > SHOWN_SECTIONS else ""
    return ", ".join(names[:SHOWN_SECTIONS]) + more
