"""Results to files: results.json, results.csv and results.md beside the store."""

import json
from pathlib import Path

from uatlite.data.writing import atomic_file
from uatlite.errors import StoreError
from uatlite.experiments.results import Results
from uatlite.report.tables import as_csv, markdown


def write_results(results: Results, directory: Path) -> list[Path]:
    """Write all three, each whole or not at all; returns their paths."""
    texts = {
        "results.json": json.dumps(results.to_dict(), indent=2, ensure_ascii=False) + "\n",
        "results.csv": as_csv(results),
        "results.md": markdown(results),
    }
    for name, text in texts.items():
        with atomic_file(directory / name) as file:
            file.write(text.encode())
    return [directory / name for name in texts]


def read_results(path: str | Path) -> Results:
    """The results of a `results.json`."""
    path = Path(path)
    try:
        return Results.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}); `uatlite evaluate … -o DIR` writes it.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a results file ({error!r}); run `uatlite evaluate` again.") from error
