"""What a stochastic pass costs, beside its peers, against the Hugging Face model in eval mode with SDPA.

    make bench                                  cost, length and precision
    python benchmarks/engine.py cost --quick    one part, fewer rounds
    python benchmarks/engine.py training        the time of an optimizer step in bf16 over one in fp32

Contenders take turns in one process run and each round gives a ratio to the deterministic pass of that round; the table
has the medians. Shapes are those of MiniLM-L6 and BERT-base (random weights: time does not depend on them); the
precision part uses real weights and real sentences.
"""

import importlib
import importlib.util
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForSequenceClassification

from harness import Run, head, line, parser_of, quantiles, ratios
from uatlite import DropoutRates, UATConfig, sample
from uatlite.lab.train.fine_tune import with_new_head
from uatlite.model.load import embedded_backbone
from uatlite.model.plain import in_mode
from uatlite.passes import forward
from uatlite.text.tasks import load

SHAPES = {
    "MiniLM-L6": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "BERT-base": {},
}
Encoded = dict[str, torch.Tensor]
PASSES = 10
LOOPED = 2
"""Passes of the peers' loops that are timed, and scaled to PASSES: a loop costs the same for each pass."""


def model_of(shape: str, **changes: float) -> BertForSequenceClassification:
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**SHAPES[shape], **changes)).eval()


def batch_of(texts: int, tokens: int) -> Encoded:
    ids = torch.randint(1000, 30000, (texts, tokens), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def hugging_face_loop(model: BertForSequenceClassification, batch: Encoded, passes: int) -> Run:
    @torch.no_grad()
    def run() -> object:
        with in_mode(model, training=True):
            return torch.stack([model(**batch).logits for _ in range(passes)])

    return run


class LogitsOnly(torch.nn.Module):
    """What the peers wrap: a module from token ids to logits."""

    def __init__(self, model: BertForSequenceClassification) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(
            input_ids=input_ids, attention_mask=(input_ids != self.model.config.pad_token_id).long()
        ).logits


def torch_uncertainty(model: BertForSequenceClassification, batch: Encoded, passes: int) -> Run:
    try:
        mc_dropout = importlib.import_module("torch_uncertainty.methods").mc_dropout
    except (ImportError, RuntimeError):  # without torchvision the package does not import; its one file does
        root = importlib.util.find_spec("torch_uncertainty").submodule_search_locations[0]
        spec = importlib.util.spec_from_file_location("tu_mc_dropout", Path(root) / "methods" / "mc_dropout.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        mc_dropout = module.mc_dropout
    wrapped = mc_dropout(LogitsOnly(model), num_estimators=passes, on_batch=False).eval()
    return torch.no_grad()(lambda: wrapped(batch["input_ids"]))


def baal(model: BertForSequenceClassification, batch: Encoded, passes: int) -> Run:
    patched = importlib.import_module("baal.bayesian.dropout").patch_module(LogitsOnly(model), inplace=False).eval()
    return torch.no_grad()(lambda: torch.stack([patched(batch["input_ids"]) for _ in range(passes)]))


def ours(model: BertForSequenceClassification, batch: Encoded, passes: int) -> Run:
    return lambda: sample(model, batch, UATConfig(samples=passes)).logits


CONTENDERS = {
    "UAT-Lite (ours: dropout, token uncertainty, gated attention)": ours,
    "Hugging Face, train() in a loop": hugging_face_loop,
    "torch-uncertainty 0.13 mc_dropout": torch_uncertainty,
    "Baal 2.1 patch_module": baal,
}


def deterministic(model: BertForSequenceClassification, batch: Encoded) -> Run:
    return torch.inference_mode()(lambda: model(**batch).logits)


def drops_attention(contender: Callable[..., Run]) -> bool:
    """Whether passes differ for a model whose only dropout is that of the attention probabilities."""
    model, batch = model_of("MiniLM-L6", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5), batch_of(1, 16)
    own = UATConfig(samples=2, gate="none", rates=DropoutRates.own())
    logits = sample(model, batch, own).logits if contender is ours else contender(model, batch, 2)()
    first, second = torch.as_tensor(logits).reshape(2, 1, -1)
    return not torch.equal(first, second)


def cost(rounds: int, directory: str | None) -> None:
    print(f"\n### Cost of M={PASSES} passes over one deterministic pass (Hugging Face, eval mode, SDPA, same batch)\n")
    settings = [(shape, *size) for shape in SHAPES for size in ((32, 128), (1, 32))]
    columns = []
    for shape, texts, tokens in settings:
        model, batch = model_of(shape), batch_of(texts, tokens)
        passes = {name: PASSES if contender is ours else LOOPED for name, contender in CONTENDERS.items()}
        runs = {name: contender(model, batch, passes[name]) for name, contender in CONTENDERS.items()}
        found = ratios(runs, deterministic(model, batch), max(2, rounds // 5) if texts > 1 else 4 * rounds)
        columns.append({name: ratio * PASSES / passes[name] for name, ratio in found.items()})
        print(f"<!-- {shape}, {texts} × {tokens}: done -->", flush=True)
    head("contender", *(f"{s}, {b} × {t} tokens" for s, b, t in settings), "drops attention")
    for name, contender in CONTENDERS.items():
        line(name, *(f"{column[name]:.1f}" for column in columns), "yes" if drops_attention(contender) else "**no**")


@contextmanager
def in_one_product():
    """Attention of all rows at once, whatever the length of the texts."""
    usual, forward.CACHED = forward.CACHED, 2**62
    try:
        yield
    finally:
        forward.CACHED = usual


def length(rounds: int, directory: str | None) -> None:
    """Longer texts: as they run, and with attention over all rows at once."""
    print(f"\n### Cost of M={PASSES} passes by length, over one deterministic pass of the same batch")
    head("shape, texts × tokens", "UAT-Lite", "attention in one product")
    for shape in SHAPES:
        for texts, tokens in ((32, 128), (8, 256), (4, 512)):
            model, batch = model_of(shape), batch_of(texts, tokens)
            run = ours(model, batch, PASSES)

            def whole(run: Run = run) -> object:
                with in_one_product():
                    return run()

            found = ratios({"ours": run, "whole": whole}, deterministic(model, batch), max(2, rounds // 3))
            line(f"{shape}, {texts} × {tokens}", f"{found['ours']:.1f}", f"{found['whole']:.1f}")


def precision(rounds: int, directory: str | None) -> None:
    """The variance over seeds of the mean logits: stratified masks against independent ones, on real text.

    Of a fine-tuned checkpoint, or of the embedded MiniLM-L6 under a random head of fixed seed.
    """
    note = "MiniLM-L6 weights under a random head" if directory is None else "fine-tuned checkpoint"
    directory = directory or str(embedded_backbone())
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(directory, use_safetensors=True).eval()
    texts = list(load("rotten-tomatoes", "test", limit=48).texts)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    encoded = tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
    seeds = range(4 * rounds)

    def spread(config: UATConfig) -> np.ndarray:
        means = [sample(model, encoded, UATConfig(**{**vars(config), "seed": seed})).logits.mean(0) for seed in seeds]
        margins = [mean[:, 0] - mean[:, 1] for mean in means]
        return torch.stack(margins).var(dim=0).numpy()

    independent = spread(UATConfig(samples=PASSES, estimate="closed-form"))
    print(f"\n### Stratified masks: error of the mean logits ({note}; {len(texts)} sentences, {len(seeds)} seeds)\n")
    head("stratified passes", "squared error over that of 10 independent passes (95 % interval)", "worth", left=0)
    draws = np.random.default_rng(0).integers(len(texts), size=(2000, len(texts)))
    for passes in range(3, 9):
        stratified = spread(UATConfig(samples=passes, estimate="closed-form", masks="stratified"))
        ratio = stratified.sum() / independent.sum()
        low, high = quantiles(stratified[draws].sum(1) / independent[draws].sum(1))
        line(passes, f"{ratio:.2f} ({low:.2f}–{high:.2f})", f"{PASSES / ratio:.1f} independent")


def training(rounds: int, directory: str | None) -> None:
    """The time of an optimizer step of MiniLM-L6 in bf16 over one in fp32, in turn."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, _ = with_new_head("minilm", ("a", "b", "c"))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    shape = (64, 40)
    batch = {"input_ids": torch.randint(1000, 20000, shape), "attention_mask": torch.ones(shape, dtype=torch.long)}
    labels = torch.randint(0, 3, shape[:1])

    def step(*, bf16: bool) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = model(**batch, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    ratio = ratios({"bf16": partial(step, bf16=True)}, partial(step, bf16=False), max(rounds // 3, 1))["bf16"]
    print(f"bf16 / fp32, {shape[0]} rows of {shape[1]} tokens, one thread: {ratio:.2f}")


PARTS = {"cost": cost, "length": length, "precision": precision, "training": training}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("part", nargs="?", choices=("all", *PARTS), default="all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--model", help="a fine-tuned checkpoint for the precision part")
    options = parser.parse_args()
    print(f"torch {torch.__version__.split('+')[0]}, {torch.get_num_threads()} threads")
    for name in ("cost", "length", "precision") if options.part == "all" else (options.part,):
        PARTS[name](4 if options.quick else 15, options.model)


if __name__ == "__main__":
    main()
