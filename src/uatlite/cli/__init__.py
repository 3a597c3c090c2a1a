"""The command line: `uatlite COMMAND`. Thin functions, listed in `app.py`."""

import os
import sys
from collections.abc import Sequence
from itertools import takewhile

from uatlite.errors import ConfigurationError, MissingDependency, UATLiteError

DEBUG = "--debug"
WRONG_USE = 2
EXTRAS = {
    **dict.fromkeys(("torch", "transformers", "sklearn"), "torch"),
    "scipy": "calibrate",
    **dict.fromkeys(("pandas", "datasets"), "data"),
    **dict.fromkeys(("fastapi", "prometheus_client", "uvicorn"), "serve"),
}
"""What brings the libraries that an installation for deployment leaves out."""
GONE: dict[str, str] = {
    "calibrate --target-precision": "--target-risk is for labels too, the share that may be wrong: 0.1 for 0.9.",
    "calibrate --target-wrong": "it is --target-errors, the same for all kinds of answers.",
    "calibrate --target-coverage": "use --review-share, the share that is left to a person: 0.2 to answer 0.8.",
    "calibrate --threshold": "--review-share chooses it, by a share of the texts; in Python threshold= stays.",
    "calibrate --calibrator": "--method base has temperature scaling; in Python calibrator= stays.",
    "calibrate --budget": "the default costs one pass; more passes for doubtful texts are --second-look METHOD.",
    "calibrate --tolerance": "the default costs one pass; more passes for doubtful texts are --second-look METHOD.",
    "export --passes": "the default needs one plain pass, which is what is exported; leave it out.",
    "pick --as": "Label Studio and Argilla both import CSV and JSONL: write to FILE.csv or FILE.jsonl with -o.",
    "pick --model": "rows are spread by their words; leave it out.",
    "train --patience": "compare runs of other --epochs by uatlite evaluate on the held-out rows.",
    "train --validation": "compare finished runs on that file by uatlite evaluate DIR --data FILE.",
}
"""A command with an option that it had -> what to use instead, in one sentence."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 if it succeeded, 2 with one sentence that says why if it could not.

    `--debug`, anywhere on the command line, shows the traceback instead of the sentence.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in given
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # transformers reads these when it is imported
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        check_gone(given)
        _app()(args=[argument for argument in given if argument != DEBUG], prog_name="uatlite")
    except (UATLiteError, ModuleNotFoundError) as error:
        extra = EXTRAS.get(str(getattr(error, "name", "")).partition(".")[0])
        expected = isinstance(error, UATLiteError)
        if debug or not (expected or extra):
            raise
        said = error if expected else MissingDependency(str(error.name), str(extra))  # type: ignore[union-attr]
        sys.stderr.write(f"Error: {said}\n")
        sys.exit(WRONG_USE)


def check_gone(arguments: Sequence[str]) -> None:
    """Raise where a command line uses an option that is gone; the error says what to use instead."""
    words = list(takewhile(lambda word: word != "--", arguments))
    command = next((word for word in words if not word.startswith("-")), "")
    for word in words:
        if (use := f"{command} {word.partition('=')[0]}") in GONE:
            raise ConfigurationError(f"'{use}' is gone: {GONE[use]}")


def _app() -> "typer.Typer":  # type: ignore[name-defined]  # noqa: F821 - typer may be missing
    try:
        from uatlite.cli.app import app
    except ModuleNotFoundError as error:
        if error.name in ("typer", "rich"):
            raise MissingDependency(error.name, "data") from error
        raise
    return app
