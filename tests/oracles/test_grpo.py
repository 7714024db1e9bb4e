"""GRPO's loss, gradient and metrics on a frozen batch against TRL's GRPOTrainer: four aggregations, clipping, KL."""

import pytest

judge = pytest.importorskip("tests.oracles.judge")
