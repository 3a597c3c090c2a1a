"""The command line: `uatlite COMMAND`. Thin functions, listed in `app.py`."""

import os
import sys
from collections.abc import Sequence

from uatlite.errors import MissingDependency, UATLiteError

DEBUG = "--debug"
WRONG_USE = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 when it did its work, 2 when it could not, with one sentence that says why.

    `--debug`, anywhere on the line, shows the traceback instead.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in given
    _quieten_transformers()
    try:
        _app()(args=[argument for argument in given if argument != DEBUG], prog_name="uatlite")
    except UATLiteError as error:
        if debug:
            raise
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(WRONG_USE)


def _app() -> "typer.Typer":  # type: ignore[name-defined]  # noqa: F821 - imported where it can be missed
    try:
        from uatlite.cli.app import app
    except ModuleNotFoundError as error:
        if error.name in ("typer", "rich"):
            raise MissingDependency(error.name, "data") from error
        raise
    return app


def _quieten_transformers() -> None:
    """Our own progress bar is enough. The variables are read later, when transformers is imported."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
