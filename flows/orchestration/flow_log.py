"""A console whose lines go to the log of the Prefect flow run that prints them."""

import io

from flows.console.summary import PlainConsole


class FlowLog(io.TextIOBase):
    """Passes whole lines to the logger of the current flow run."""

    def __init__(self) -> None:
        from prefect import get_run_logger

        self._logger = get_run_logger()
        self._begun = ""

    def write(self, text: str) -> int:
        """Log each line that ends in the text."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if line.strip():
                self._logger.info(line.rstrip())
        return len(text)

    def writable(self) -> bool:
        """It is."""
        return True

    @classmethod
    def console(cls) -> PlainConsole:
        """A console that writes there."""
        return PlainConsole(cls())  # type: ignore[arg-type]
