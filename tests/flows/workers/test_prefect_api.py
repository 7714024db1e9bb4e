"""What a client of Prefect's server says when it cannot be reached: one line, without a password."""

from contextlib import closing

import pytest

from flows.workers.prefect_api import Api, Away


def test_a_password_in_the_address_is_in_no_message() -> None:
    with closing(Api("http://ann:s3cret-word@127.0.0.1:9/api", {})) as api:
        assert "s3cret-word" not in api.url
        with pytest.raises(Away) as raised:
            api.flow_run("1")
    assert "127.0.0.1:9" in str(raised.value)
    assert "s3cret-word" not in str(raised.value)
