"""The declarations: what they say about themselves, and that the paper's numbers were entered as it prints them."""

import math
from pathlib import Path

import pytest

from uatlite.lab.evaluate.cells import Cell, Grid
from uatlite.lab.evaluate.comparison import Measurement
from uatlite.lab.paper.declaration import DECLARATIONS, NAMES, RELATIONS, find_declaration, substitute_backbones
from uatlite.lab.paper.probes import paper_measure
from uatlite.lab.paper.source import ReproductionSettings as Settings


def test_there_is_one_file_for_each_name():
    assert {path.stem for path in DECLARATIONS.glob("*.toml")} == set(NAMES)
    assert len(NAMES) == 25


@pytest.mark.parametrize("name", NAMES)
def test_a_declaration_asks_for_what_there_is(name):
    declaration = find_declaration(name)
    specs = list(declaration.specs())
    assert specs
    for spec in specs:
        paper_measure(spec.measure)
    for panel in declaration.panels:
        assert panel.paper.keys() <= {row.key for row in panel.rows}
        assert {len(numbers) for numbers in panel.paper.values()} <= {len(panel.columns)}
    for claim in declaration.claims:
        assert claim.relation in RELATIONS
        assert declaration.lines.keys() >= set(claim.addresses)
    assert declaration.figure in (None, "bars", "heatmap", "attention")
    assert set(declaration.figure_of) <= {column.key for column in declaration.panels[0].columns}


def test_coverage_and_counts_agree_with_the_papers_rows():
    rows = {"mnli": 4908, "squad2": 5937, "hans": 30000, "anli": 3200, "snli": 9824, "imdb": 25000}
    checked = 0
    for name in ("selective", "selective-ood"):
        for panel in find_declaration(name).panels:
            for row in panel.paper:
                for tau in ("0.9", "0.8", "0.7"):
                    coverage, count = (panel.printed(row, f"{kind}@{tau}") for kind in ("coverage", "count"))
                    assert coverage is not None
                    assert count == pytest.approx(coverage * rows[panel.key], abs=rows[panel.key] * 6e-5), (name, row)
                    checked += 1
    assert checked == 90


def test_the_papers_hans_rows_average_to_its_overall_accuracy():
    overall = next(panel for panel in find_declaration("selective-ood").panels if panel.key == "hans")
    parts = find_declaration("hans").panels[0]
    for row in overall.paper:
        numbers = parts.paper[row]
        assert sum(numbers) / 3 == pytest.approx(overall.printed(row, "accuracy"), abs=1e-4)


def test_the_papers_layer_shares_are_whole_once_counted_by_layer():
    panel = find_declaration("layers").panels[0]
    for column in ("unanswerable", "answerable"):
        shares = [panel.printed(row.key, column) for row in panel.rows]
        assert sum(share for share in shares if share is not None) == pytest.approx(1, abs=0.0025)


def test_given_backbones_stand_in():
    scaling, backbones, main = map(find_declaration, ("scaling", "backbones", "main"))
    sizes = substitute_backbones(scaling, Settings(backbone="one", others=("two",)).substitutes)
    assert [row.coordinates["backbone"] for row in sizes.panels[0].rows] == ["one", "two"]
    five = substitute_backbones(backbones, ("one", "two"))
    named = [row.coordinates["backbone"] for row in five.panels[0].rows if row.derive is None]
    assert named == ["one", "two", "two", "two", "two"]
    rows = {address.rpartition(":")[2].partition("/")[0] for claim in sizes.claims for address in claim.addresses}
    assert rows == {"tiny", "mini"}  # nothing is claimed of rows that are gone
    assert len(sizes.claims) == 6
    assert substitute_backbones(scaling, Settings().substitutes).panels[0].rows == scaling.panels[0].rows
    assert Settings(backbone="two", others=("one", "two", "three")).substitutes == ("one", "two", "three")
    both = [substitute_backbones(find_declaration("base-size"), given) for given in (("a",), ("a", "b"))]
    shown = [{row.coordinates["backbone"] for panel in size.panels for row in panel.rows} for size in both]
    assert shown == [{"a"}, {"a", "b"}]  # a backbone has one name in all rows of a table, and rows of ours no stand-in
    assert [row.heading for row in both[1].panels[2].rows] == ["a for MiniLM-L6", "b for MPNet-base"]
    assert substitute_backbones(main, ("one",)).panels[0].rows == main.panels[0].rows


def test_the_docs_quote_the_published_numbers_of_the_declaration():
    """One source: the table in the guide is a quotation of clinc.toml."""
    panel = find_declaration("clinc").panels[0]
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "evaluate.md").read_text(encoding="utf-8")
    quoted_rows = {"base": "confidence", "mc": "Monte Carlo dropout", "ensemble": "ensemble", "sngp": "SNGP"}
    for row, name in quoted_rows.items():
        (line,) = [line for line in guide.splitlines() if line.startswith(f"| {name} | BERT-base |")]
        quoted = [float(cell) for cell in line.strip("| ").split("|")[3:]]
        assert quoted == [panel.printed(row, "auroc"), panel.printed(row, "aupr")]


def test_what_is_derived_follows_from_the_papers_own_inputs():
    """A digit that was entered wrongly shows where the paper prints a sum of others.

    The 32 % of the backbones is the change of the means, and not the mean of the changes (26 %).
    """
    tables, rows = set(), set()
    for name, panel in [(table, panel) for table in NAMES for panel in find_declaration(table).panels]:
        printed = {
            (row.key, column.key): panel.printed(row.key, column.key) for row in panel.rows for column in panel.columns
        }
        numbers = {key: math.nan if printed[key] is None else printed[key] for key, _ in panel.specs()}
        grid = Grid.of(panel, {key: Cell(Measurement((number,)), None, 4) for key, number in numbers.items()})
        derived = {row.key for row in panel.rows if row.derive is not None}
        for key, cell in grid.cells.items():
            if key not in numbers and printed[key] is not None and not math.isnan(cell.measurement.mean):
                # Shares are printed in whole per cents, the rest with three or four decimals.
                tolerance = {"backbones": 0.01, "scaling": 0.01}.get(name, 0.006 if key[1] == "reduced" else 0.0011)
                tolerance = {"average": 0.006, "deviation": 6e-5, "range": 6e-5}.get(key[0], tolerance)
                assert cell.measurement.mean == pytest.approx(printed[key], abs=tolerance), (name, key)
                tables.add(name)
                rows |= {key[0]} & derived
    assert tables == {"main", "sensitivity", "rescaling", "backbones", "scaling", "hans"}
    assert rows == {"average", "mean", "deviation", "range", "gain", "gain+ts"}
