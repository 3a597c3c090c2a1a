"""What was taken away from the command line, and what to use instead: the one place that answers for it.

A row is a command, a command and its option, or these and a value of the option, as one would write them:

    "pick --as"                       no such option any longer
    "calibrate --calibrator platt"    the option is there, this value of it is not
"""

from collections.abc import Iterator, Sequence

from uatlite.errors import ConfigurationError

GONE: dict[str, str] = {
    "pick --as": "Label Studio and Argilla both import CSV and JSONL: write to FILE.csv or FILE.jsonl with -o.",
    "pick --model": "rows are spread by their words; leave it out.",
}
"""What is gone -> what to use instead, in one sentence."""

END_OF_OPTIONS = "--"


def check_gone(arguments: Sequence[str]) -> None:
    """Raise where a command line uses something that is gone; the error says what to use instead."""
    for use in _uses(arguments):
        if use in GONE:
            raise ConfigurationError(f"'{use}' is gone: {GONE[use]}")


def _uses(arguments: Sequence[str]) -> Iterator[str]:
    """The command, each of its options, and each option with the value after it."""
    words = list(arguments)
    if END_OF_OPTIONS in words:
        words = words[: words.index(END_OF_OPTIONS)]
    command = next((word for word in words if not word.startswith("-")), None)
    if command is None:
        return
    yield command
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--"):
            option, _, value = word.partition("=")
            yield f"{command} {option}"
            yield f"{command} {option} {value or following}"
