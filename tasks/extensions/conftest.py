"""Extensions' tests have the fixtures of the tests of language stages."""

from tests.conftest import *  # noqa: F403
from tests.tasks.conftest import *  # noqa: F403
from tests.tasks.language.conftest import *  # noqa: F403
