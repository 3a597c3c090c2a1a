"""Where files are: row files at a path or an address, with their formats and bytes, and the Hugging Face hub.

An address is anything that fsspec opens, such as s3://bucket/rows or file:///data/rows.csv. Whether the hub answers is
asked once. If it does not, only its local cache is read: its libraries would try every file again for half a minute.
"""

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib import import_module
from pathlib import Path
from ssl import SSLError
from typing import IO, Any, cast
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from uatlite.errors import DataError, InputError, MissingDependency, ModelError, check_choice

# extension -> format. Each but Parquet, which packs itself, may be followed by .gz
_EXTENSIONS = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".conll": "conll",
    ".bio": "conll",
}  # fmt: skip
FORMATS = tuple(dict.fromkeys(_EXTENSIONS.values()))
STDIN = "-"
TIMEOUT = 5.0
UNREACHED = (
    "The Hugging Face hub cannot be reached. It was asked once; from here on only local files and its cache are read."
)
Line = tuple[int, bytes]
"""A line of a file and its number, from 1."""
_SWITCHES = (("huggingface_hub.constants", "HF_HUB_OFFLINE"), ("datasets.config", "HF_HUB_OFFLINE"))
"""module, name: what these libraries look at before they use the network"""

_SIGNATURES = {
    (b"\xff\xfe", b"\xfe\xff"): "is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8",
    (b"PK\x03\x04", b"\xd0\xcf\x11\xe0"): "is an Excel workbook or an archive; save the sheet as CSV",
    (b"PAR1",): "is a Parquet file; name it .parquet, or give the format: --format parquet",
    (b"\x1f\x8b",): "",  # gzip, which is read
}
"""How a file begins that holds no lines of text -> what it is, and what to do."""
UNPACK_ERRORS = (EOFError, zlib.error, OSError)  # raised while reading a broken gzip stream or a failing disk


def format_of(file: str | Path) -> str | None:
    """The format by a file's name: 'csv' for reviews.csv.gz; None where the extension is unknown."""
    path = Path(file)
    packed = path.suffix.lower() == ".gz"
    name = _EXTENSIONS.get((path.with_suffix("") if packed else path).suffix.lower())
    return None if packed and name == "parquet" else name


def arrow(extra: str = "parquet") -> tuple[Any, Any]:
    """pyarrow and pyarrow.parquet, which this extra of `uatlite` has."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingDependency("pyarrow", extra) from error
    return pa, pq


def candidate_names(stem: str) -> Iterator[str]:
    """Every file name that `stem` may have, in the order in which they are looked for."""
    for extension, name in _EXTENSIONS.items():
        yield stem + extension
        if name != "parquet":
            yield f"{stem}{extension}.gz"


def is_remote(source: str | Path) -> bool:
    """Whether it is an address, not a path."""
    return "://" in str(source)


def _files_in(source: str) -> list[str] | None:
    """All files in the directory at a path or an address; None where there is a file."""
    if not is_remote(source):
        local = Path(source)
        if not local.exists():
            raise DataError(f"{source} does not exist.{_neighbours(local)}")
        return [str(entry) for entry in local.iterdir() if entry.is_file()] if local.is_dir() else None
    system, path = _system(source)
    try:
        if system.isdir(path):
            entries = system.ls(path, detail=True)
            return [str(system.unstrip_protocol(entry["name"])) for entry in entries if entry["type"] == "file"]
        if not system.exists(path):
            raise DataError(f"{source} does not exist.")
    except OSError as error:
        raise DataError(f"{source} cannot be listed: {error}.") from error
    return None


def open_file(source: str | Path) -> IO[bytes]:
    """The file at a path or an address, which can seek."""
    try:
        if is_remote(source):
            system, path = _system(str(source))
            return cast(IO[bytes], system.open(path, "rb"))
        return open(str(source), "rb")
    except OSError as error:
        raise DataError(f"{source} cannot be opened: {error if is_remote(source) else error.strerror}.") from error


def _system(source: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise MissingDependency("fsspec", "data") from error
    try:
        system, path = fsspec.core.url_to_fs(source)
    except (ValueError, ImportError) as error:  # an unknown protocol; one whose package is not installed
        raise DataError(f"{source} cannot be read: {error}") from error
    return system, path


def row_files(source: str | Path, format: str | None = None) -> list[tuple[str, str]]:
    """The file at `source`, or the row files of the directory there sorted by name, each with its format.

    Hidden files of a directory are left out.
    """
    if format is not None:
        check_choice("format", format, FORMATS)
    inside = _files_in(str(source))
    if inside is None:
        name = format or format_of(source)
        if name is None:
            with open_bytes(source):  # raises where its first bytes say what it is
                file = Path(source).name
            raise DataError(f"{file}: unknown kind of file; {_expected()}. Or give the format: --format csv")
        return [(str(source), name)]
    of_rows = [(file, name) for file in sorted(inside) if Path(file).name[0] != "." and (name := format_of(file))]
    if not of_rows:
        raise DataError(f"{source} has no file to read: {_expected()}.")
    return of_rows


@contextmanager
def open_bytes(source: str | Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, of an address or of standard input ('-'); gzip is recognised by its first bytes."""
    given = str(source) == STDIN
    with nullcontext(sys.stdin.buffer) if given else open_file(source) as file:  # standard input stays open
        buffered = file if hasattr(file, "peek") else io.BufferedReader(cast(io.RawIOBase, file))
        start = buffered.peek(512)[:512]
        garbled = start.decode("utf-8", "replace").count("\ufffd") > 1  # a character that is cut off may be one
        binary = f"is a binary file, not lines of text; {_expected()}" if garbled and b"\0" in start else ""
        if what := next((what for signs, what in _SIGNATURES.items() if start.startswith(signs)), binary):
            raise DataError(f"{'standard input' if given else source} {what}.")
        yield cast(IO[bytes], gzip.GzipFile(fileobj=buffered) if start.startswith(b"\x1f\x8b") else buffered)


def decoded(line: int, raw: bytes) -> str:
    """A line as text; an error names the first byte that is not UTF-8."""
    try:
        return raw.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8: byte 0x{raw[error.start]:02x} at position {error.start + 1}") from error


def _expected() -> str:
    names = ", ".join(extension for extension in _EXTENSIONS if extension != ".parquet")
    return f"expected {names} (each also .gz) or .parquet"


def _neighbours(path: Path) -> str:
    if not path.parent.is_dir():
        return f" Its directory {path.parent} does not exist either."
    files = sorted(entry.name for entry in path.parent.iterdir() if format_of(entry))
    return f" Beside it there are: {', '.join(files[:8])}." if files else ""


@cache
def hub_answers() -> bool:
    """Whether the hub can be reached. Only the first call asks; offline mode is a no."""
    constants = import_module("huggingface_hub.constants")
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        with urlopen(Request(constants.ENDPOINT, method="HEAD"), timeout=TIMEOUT):
            return True
    except HTTPError:
        return True
    except URLError as error:  # certificates are the libraries' own affair
        return isinstance(error.reason, SSLError)
    except OSError:
        return False


def hub_was_missed() -> bool:
    """Whether the hub was needed in this process and did not answer."""
    return hub_answers.cache_info().currsize > 0 and not hub_answers()


@contextmanager
def hub_access(name: str) -> Iterator[None]:
    """Within the block, what loads `name` uses the network only if the hub answers; a local directory needs neither."""
    if os.path.isdir(name) or hub_answers():
        yield
        return
    modules = [(sys.modules[module], switch) for module, switch in _SWITCHES if module in sys.modules]
    before = [getattr(module, switch) for module, switch in modules]
    try:
        for module, switch in modules:
            setattr(module, switch, True)
        yield
    finally:
        for (module, switch), value in zip(modules, before, strict=True):
            setattr(module, switch, value)


def model_place(name: str | Path) -> str:
    """The directory of that name, or the name itself if it can be a hub id; raise if it is neither."""
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path)
    beside = path.parent != Path(".") and path.parent.is_dir()  # models/typo beside models/mine
    if path.is_absolute() or str(name).startswith((".", "~")) or str(name).count("/") > 1 or beside or path.is_file():
        raise ModelError(f"{name} is not a directory. Give the directory of a saved model, or a hub id (owner/name).")
    try:
        import_module("transformers")
    except ModuleNotFoundError as error:
        way = "a model of the hub needs PyTorch: pip install 'uatlite[torch]'"
        raise ModelError(f"{name} is no directory here, and {way}") from error
    return str(name)


def file_beside(name: str | Path, file: str) -> Path | None:
    """The path of a file beside a model, downloaded from the hub if needed; None if there is none."""
    location = model_place(name)
    if os.path.isdir(location):
        return Path(location) / file if (Path(location) / file).is_file() else None
    from transformers.utils import cached_file

    with hub_access(location):
        path = cached_file(
            location,
            file,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    return None if path is None else Path(path)
