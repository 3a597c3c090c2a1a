"""The commands as a page of the docs, from the same declarations that `--help` shows.

python -m uatlite.cli.page > docs/reference/cli.md
"""

import re
import sys

import typer.main
from typer.core import TyperArgument, TyperCommand, TyperOption

from uatlite.cli.app import app

MARKUP = re.compile(r"\[/?[a-z ]+\]")
"""Of rich, in the texts that the terminal shows."""
HEAD = """# The command line

This page is generated: `python -m uatlite.cli.page > docs/reference/cli.md`. A command that cannot do its work says
why in one sentence and exits with 2; `--debug`, anywhere on the line, shows the traceback.
"""


def page() -> str:
    """All commands, in the order in which `uatlite --help` lists them, as Markdown."""
    group = typer.main.get_command(app)
    commands = [command for command in group.commands.values() if isinstance(command, TyperCommand)]  # type: ignore[attr-defined]
    return "\n".join([HEAD, *(_section(command) for command in commands)])


def _section(command: TyperCommand) -> str:
    arguments = [p for p in command.params if isinstance(p, TyperArgument)]
    options = [p for p in command.params if isinstance(p, TyperOption) and not p.hidden]
    usage = " ".join(["uatlite", str(command.name), *(_place(one) for one in arguments), "[OPTIONS]"])
    rows = [f"| `{_place(one)}` | {_help(one)} | |" for one in arguments]
    rows += [f"| {_names(one)} | {_help(one)} | {_default(one)} |" for one in options]
    table = ["| | | default |", "|---|---|---|", *rows] if rows else []
    examples = [*_examples(str(command.epilog))] if command.epilog else []
    return "\n".join(
        [f"## uatlite {command.name}", "", _plain(command.help or ""), "", f"    {usage}", "", *table, *examples, ""]
    )


def _examples(text: str) -> list[str]:
    return ["", "```", *(line for line in _plain(text).splitlines()), "```"]


def _place(argument: TyperArgument) -> str:
    name = str(argument.metavar or argument.name).upper()
    return name if argument.required else f"[{name}]"


def _names(option: TyperOption) -> str:
    return " ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _help(parameter: TyperArgument | TyperOption) -> str:
    return _plain(parameter.help or "").replace("|", "\\|")


def _default(option: TyperOption) -> str:
    if option.required:
        return "required"
    if option.default in (None, False, ()) or callable(option.default):
        return ""
    return f"`{option.default}`"


def _plain(text: str) -> str:
    return MARKUP.sub("", text).strip()


if __name__ == "__main__":
    sys.stdout.write(page())
