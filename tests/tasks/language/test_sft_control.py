import pytest

from tasks.common import tables
from tasks.common.errors import StageError
from tasks.language import sft, sft_control
from tasks.language.configs.sft import SftConfig
from tasks.language.configs.sft_control import ControlConfig, SftControlConfig
from tasks.language.tables.problems import Demonstrations
from tests.conftest import changed, tiny

CONFIG = tiny(SftControlConfig, "sft_control")
POLICIES = {"sft_matched": ControlConfig(epochs=1), "sft_flat": ControlConfig(epochs=2)}


def carried_on(made, out, name="sft_matched", **changes):
    config = changed(CONFIG, policies=POLICIES, **changes)
    return sft_control.run(config, made / "pretrained", made / "demonstrations", out / name, out / "curve.csv")


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def test_it_is_sft_on_the_demonstrations_behind_those_that_sft_has_seen(made, tmp_path):
    """The same bits as the stage `sft` gives that has these demonstrations alone, with each control's own number of
    passes.
    """
    train, validation = (
        tables.read_table(Demonstrations, made / f"demonstrations/{name}.parquet") for name in ("train", "validation")
    )
    behind = train.iloc[CONFIG.skip : CONFIG.skip + CONFIG.demonstrations]
    assert len(behind) == CONFIG.demonstrations
    tables.write_table(Demonstrations, behind.reset_index(drop=True), tmp_path / "rest/train.parquet")
    tables.write_table(Demonstrations, validation, tmp_path / "rest/validation.parquet")
    shared = {key: value for key, value in CONFIG.model_dump().items() if key not in ("policies", "skip")}
    for name, control in POLICIES.items():
        metrics = carried_on(made, tmp_path, name)
        config = tiny(SftConfig, "sft").model_validate({**shared, "epochs": control.epochs})
        out = tmp_path / f"{name}-by-sft"
        assert metrics == sft.run(config, made / "pretrained", tmp_path / "rest", out, tmp_path / "curve.csv")
        assert weights(tmp_path / name) == weights(out)


def test_nothing_behind_those_that_sft_has_seen(made, tmp_path):
    with pytest.raises(
        StageError, match=r"^sft_control\.skip = 99: .*demonstrations has no more demonstrations than that$"
    ):
        carried_on(made, tmp_path, skip=99)
    assert not (tmp_path / "sft_matched").exists()
