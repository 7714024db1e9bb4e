"""An environment with arguments and wrappers, as params.yaml names it: `FrozenLake-v1 {is_slippery: false} | TimeLimit
{max_episode_steps: 50}`.

The first wrapper is the innermost. A name is one of Gymnasium's, of those below, or `module:Class` of an installed
package, which params.yaml then asks to run, as it does with an environment `module:id`; what stands in braces are its
arguments, as YAML: for an environment those of `gymnasium.make`.
"""

import re
from dataclasses import dataclass

from ruamel.yaml import YAML

BETWEEN = " | "
BRACE = " {"
ENVIRONMENT = r"(\w+(\.\w+)*:)?[\w./-]+"  # a name, with or without the module that registers it
ARGUMENTS = r"( \{[^|]*\})?"
WRAPPER = rf"(\w+(\.\w+)*:)?\w+{ARGUMENTS}"
PATTERN = rf"{ENVIRONMENT}{ARGUMENTS}( \| {WRAPPER})*"
LONGEST = 2000  # letters of the arguments of one environment or wrapper
ANCHOR = re.compile(r"(?<![^\s,:{\[])[&*]")  # where a value begins; a few of them can stand for a billion values
EXAMPLE = "LunarLander-v3 {enable_wind: true} | FrameStackObservation {stack_size: 4}"
# Those of Gymnasium's that take no function, write no file, and whose episodes do not depend on earlier ones.
KNOWN = (
    "ClipReward",
    "DelayObservation",
    "DiscretizeAction",
    "DiscretizeObservation",
    "FilterObservation",
    "FlattenObservation",
    "FrameStackObservation",
    "GrayscaleObservation",
    "RepeatAction",
    "RescaleAction",
    "RescaleObservation",
    "ReshapeObservation",
    "ResizeObservation",
    "StickyAction",
    "TimeAwareObservation",
    "TimeLimit",
)

CLOSED = ("gymnasium.", "gymnasium:", "minari.", "minari:")  # wrappers there write files


@dataclass(frozen=True)
class Wrapper:
    """One wrapper: its class, with or without a module, and its arguments."""

    name: str
    arguments: dict[str, object]


def parse_environment_name(environment: str) -> tuple[str, dict[str, object], list[Wrapper]]:
    """The environment's own name, its arguments, and its wrappers from the inside out; ValueError with what was
    expected.
    """
    inner, *wrappers = environment.split(BETWEEN)
    return inner.partition(BRACE)[0], _parse_arguments(inner), [_parse_wrapper(text) for text in wrappers]


def check_environment_name(environment: str) -> None:
    """ValueError with what was expected where the text names no environment, or a wrapper that is none."""
    if not re.fullmatch(PATTERN, environment):
        raise ValueError(f"expected text such as LunarLander-v3, module:id, or {EXAMPLE}")
    parse_environment_name(environment)


def _parse_wrapper(text: str) -> Wrapper:
    name = text.partition(BRACE)[0]
    if name.startswith(CLOSED):
        raise ValueError(f"expected Gymnasium's wrappers without a module, and one of {', '.join(KNOWN)}, not {name}")
    if ":" not in name and name not in KNOWN:
        raise ValueError(f"expected a wrapper module:Class, or one of {', '.join(KNOWN)}, not {name}")
    return Wrapper(name, _parse_arguments(text))


def _parse_arguments(text: str) -> dict[str, object]:
    """What stands in braces behind a name; nothing where there are none."""
    name, brace, inner = text.partition(BRACE)
    if len(inner) > LONGEST or ANCHOR.search(inner):
        raise ValueError(f"expected arguments of at most {LONGEST} letters, without anchors and aliases, for {name}")
    try:
        arguments = YAML(typ="safe", pure=True).load("{" + inner) if brace else {}
    except Exception:  # of a tag that does not fit, for one, IndexError
        arguments = None
    if isinstance(arguments, dict):
        for key, value in arguments.items():  # YAML 1.2 takes these for texts, which Python takes for true
            if str(value).lower() in ("yes", "no", "on", "off"):
                raise ValueError(f"expected true or false for {key}, or another text, not {value}")
    if not isinstance(arguments, dict) or not all(re.fullmatch(r"[a-z_]\w*", str(key)) for key in arguments):
        raise ValueError(f"expected arguments such as {name} {{name: value}}, not {text[:100]}")
    return arguments
