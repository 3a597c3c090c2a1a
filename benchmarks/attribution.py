"""Where the three layer attributions agree and part, and what the delta and the analytic method cost.

    python benchmarks/attribution.py agreement MODEL DATA [--texts 200] [--samples 1000] [--pairs 1000]
    python benchmarks/attribution.py cost MODEL DATA [--texts 200]
    python benchmarks/attribution.py where MODEL TASK OUT [--texts 2000]

MODEL is the directory of a fine-tuned classifier, DATA a JSONL file (also .gz) with `text`, or `text_a` and `text_b`.
The paper's rates and gate. In `agreement` every eight texts have masks of their own, so that means over texts rest on
texts/8 times as many draws as there are passes. `cost` compares with the Hugging Face model in eval mode (SDPA,
inference mode) on the same batches of 32; the contenders take turns. `where` has U anew in each layer, and gates and
dropout in some layers alone; one seed of masks, intervals over test rows.
"""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from scipy.stats import spearmanr
from torch import Tensor
from transformers import PreTrainedModel

from harness import change, head, line, parser_of, ratios
from uatlite import evaluate
from uatlite.attribution.layers import Attribution, attribute, propagate
from uatlite.model.load import load_checkpoint
from uatlite.model.tokens import tokenize
from uatlite.passes.config import UATConfig
from uatlite.text.rows import Row, read_rows
from uatlite.values import Text

CONFIG = UATConfig()
BATCHES = {"agreement": 8, "cost": 32}
ROUNDS = 15
Encoded = dict[str, Tensor]
SETTINGS = ("estimate=closed-form", "estimate=layerwise", "layers=top-2", "gate_layers=top-2", "rate_layers=top-2")
WHERE = ("uat", *(f"uat:{setting}" for setting in SETTINGS), "mc-component", "base")


def read_texts(path: Path, count: int) -> list[Text]:
    """The first `count` texts or pairs of a file."""
    rows = [row.values for row in islice(read_rows(path), count) if isinstance(row, Row)]
    return [row["text"] if "text" in row else (row["text_a"], row["text_b"]) for row in rows]


def load(directory: str, path: Path, count: int, size: int) -> tuple[PreTrainedModel, list[Encoded]]:
    """The model and the texts in batches, in the order of the file."""
    checkpoint = load_checkpoint(directory, device="cpu")
    tokens = tokenize(checkpoint.tokenizer, read_texts(path, count), 128)
    rows = range(len(tokens))
    return checkpoint.model, [tokens.pad(rows[start : start + size]) for start in rows[::size]]


def attribute_all(model: PreTrainedModel, batches: list[Encoded], seed: int = 0, **how: object) -> Attribution:
    """One attribution of all texts, without components."""
    found = [
        attribute(model, batch, replace(CONFIG, seed=seed + number), components=False, **how)  # type: ignore[arg-type]
        for number, batch in enumerate(batches)
    ]
    joined = {name: torch.cat([getattr(part, name) for part in found]) for name in ("contributions", "total", "logits")}
    return replace(found[0], components=None, **joined)


def agreement(model: PreTrainedModel, batches: list[Encoded], samples: int, pairs: int) -> None:
    delta = attribute_all(model, batches, estimator="delta")
    isolated = attribute_all(model, batches, estimator="isolated", samples=samples)
    # other seeds: Var(y) of the isolated run must not rest on the same passes
    total = attribute_all(model, batches, seed=10_000, estimator="total-variance", samples=pairs)
    shares = {found.estimator: found.shares.mean(dim=0) for found in (delta, isolated, total)}
    head("estimator", *delta.layers, left=1 + len(delta.layers))
    for name, values in shares.items():
        line(name, *(f"{value:.3f}" for value in values.tolist()))
    variance, summed, alone = isolated.total, total.contributions.sum(dim=1), isolated.contributions.sum(dim=1)
    head("what", "value", left=2)
    apart = (shares["delta"] - shares["isolated"]).abs().max()
    line("largest difference of the mean shares, delta against isolated", f"{apart:.3f}")
    line("rank correlation over texts of Var(y), delta against sampled", f"{spearmanr(delta.total, variance)[0]:.3f}")
    line("sum of total-variance contributions / Var(y) of the same passes", ratio_of_sums(summed, total.total))
    line("sum of total-variance contributions / Var(y) of other passes", ratio_of_sums(summed, variance))
    line("mean Var(y), sampled", f"{variance.mean():.3f}")
    line("sum of the isolated variances / Var(y)", ratio_of_sums(alone, variance))
    line("sum of the delta terms / Var(y)", ratio_of_sums(delta.total, variance))


def ratio_of_sums(above: Tensor, below: Tensor) -> str:
    """Σ above / Σ below over the texts, and its jackknife error over batches, whose texts share their masks."""
    parts = [values.double().split(BATCHES["agreement"]) for values in (above, below)]
    a, b = (torch.stack([part.sum() for part in of]) for of in parts)
    without = (a.sum() - a) / (b.sum() - b)
    error = ((len(a) - 1) * without.var(correction=0)).sqrt()
    return f"{a.sum() / b.sum():.3f} ± {error:.3f}"


def cost(model: PreTrainedModel, batches: list[Encoded]) -> None:
    def deterministic() -> None:
        with torch.inference_mode():
            for batch in batches:
                model(**batch)

    timed = {"delta": attribute, "analytic": propagate}
    runs = {name: lambda run=run: [run(model, batch, CONFIG) for batch in batches] for name, run in timed.items()}
    head("what", "/ deterministic")
    for name, ratio in ratios(runs, deterministic, ROUNDS).items():
        line(name, f"{ratio:.2f}")


def where(model: str, task: str, out: Path, rows: int) -> None:
    methods = ",".join(f"{method},{method}+ts" for method in WHERE)
    asked = {"methods": methods, "metrics": "ece,nll,aurc", "seeds": 1, "resume": True}
    (scored,) = evaluate(model, out, task=task, limit=rows, **asked).sets
    head(f"{task}, {scored.rows:,} rows", *(f"{metric}, less `uat`" for metric in ("ECE", "NLL", "AURC")))
    for name, scores in scored.scores.items():
        gaps = [(score.mean, score.differences.get("uat" + "+ts" * name.endswith("+ts"))) for score in scores.values()]
        line(f"`{name}`", *(f"{mean:.4f}" + (f", {change(gap)}" if gap else "") for mean, gap in gaps))


def main() -> None:
    parser = parser_of(__doc__, texts=200, samples=1000, pairs=1000)
    parser.add_argument("part", choices=("agreement", "cost", "where"))
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    chosen = parser.parse_args()
    print(f"{chosen.model}, {chosen.texts} texts of {chosen.data.name}, {torch.get_num_threads()} threads", flush=True)
    if chosen.part == "where":
        where(chosen.model, str(chosen.data), chosen.out, chosen.texts)
    elif chosen.part == "cost":
        cost(*load(chosen.model, chosen.data, chosen.texts, BATCHES["cost"]))
    else:
        agreement(*load(chosen.model, chosen.data, chosen.texts, BATCHES["agreement"]), chosen.samples, chosen.pairs)


if __name__ == "__main__":
    main()
