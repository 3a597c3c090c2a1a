"""The paper, table by table: declared as data, run on what is at hand, printed beside the paper's own numbers.

declarations/*.toml     what each table asks for, the paper's numbers, the paper's claims
declaration.py          how they are read and checked
rows.py  models.py      the rows and fine-tunings that tables share
workshop.py             the predictions that they share
measures/               how a cell is computed
grid.py  claims.py      from declarations to cells and verdicts
run.py                  the runner
writing.py  page.py     Markdown, LaTeX, CSV, JSON, figures; one page for all
"""
