"""Which stages of a run start warm, and what their server imports for them."""

import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from flows.engine.stage_types import PlannedStage
from flows.machine.warm_start import WarmStarts, parse_python_module_command

LANGUAGE = (
    *("numpy", "pandas", "pandera.pandas", "pyarrow.parquet", "pydantic", "ruamel.yaml", "psutil", "torch"),
    *("matplotlib.figure", "matplotlib.backends.backend_svg"),
    *("safetensors.torch", "transformers.modeling_utils", "transformers.modeling_layers"),
    *("transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto"),
    *("transformers.models.llama.modeling_llama", "transformers.models.qwen2.modeling_qwen2", "torch._dynamo"),
)
# By a package of stages: what their imports of other packages come to, in the order in which they are imported.
MODULES = {
    "tasks.language": LANGUAGE,
    "tasks.agents": LANGUAGE,
    "tasks.offline": (
        *("numpy", "pandas", "pandera.pandas", "pyarrow.parquet", "pydantic", "ruamel.yaml", "psutil", "torch"),
        *("matplotlib.figure", "matplotlib.backends.backend_svg"),
        *("gymnasium", "h5py", "minari"),
    ),
}


def prepare_warm_starts(planned: Iterable[PlannedStage]) -> WarmStarts | None:
    """What starts the commands of a run; stages warm where there are two at least, since for one alone a server's
    imports would gain nothing.

    On Linux only: elsewhere a fork of a process with such libraries is not safe.
    """
    if platform.system() != "Linux":
        return None
    path = str(Path(sys.executable).parent)
    local_stages = [stage for stage in planned if stage.reason and not (stage.pool or stage.launcher)]
    able = [stage for stage in local_stages if parse_python_module_command(stage.cmd, path, MODULES)]
    return WarmStarts(MODULES if len(able) > 1 else {}).prepare() if local_stages else None
