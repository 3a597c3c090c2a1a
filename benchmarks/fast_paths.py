"""Whether torch.compile and bf16 pay on this machine: do they agree with eager, and how much faster are they?

    python benchmarks/fast_paths.py [--limit 600]
    python benchmarks/fast_paths.py --training [--rounds 5]

For the shape of MiniLM-L6 and 32 texts of 64 tokens two forwards are tried: the deterministic pass of the Hugging Face
model, and the engine's folded passes (`UATConfig.fast()`). Each path runs in a process of its own, as a kernel that the
processor lists and the machine does not have ends the process, and is stopped after `--limit` seconds. `--training`
times an optimizer step of MiniLM-L6 in bf16 and in fp32, in turn, in one process.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from engine import batch_of, model_of
from harness import head, parser_of, ratios, seconds
from uatlite import UATConfig
from uatlite.lab.train.fine_tune import with_new_head
from uatlite.model.view import view_of
from uatlite.passes.dropout import Texts
from uatlite.passes.engine import forward_folded
from uatlite.passes.forward import FoldedPasses

ROUNDS = 10
PATHS: dict[str, Callable[[torch.nn.Module], torch.nn.Module]] = {
    "torch.compile": torch.compile,
    "torch.compile, dynamic shapes": lambda model: torch.compile(model, dynamic=True),
    "bf16": lambda model: model.to(torch.bfloat16),
}
FORWARDS = ("deterministic", "folded passes")


def forward_of(kind: str, change: Callable[[torch.nn.Module], torch.nn.Module]) -> Callable[[], torch.Tensor]:
    """Logits of one forward of the model as `change` left it."""
    model, batch = model_of("MiniLM-L6"), batch_of(32, 64)
    if kind == "deterministic":
        changed = change(model)

        def run() -> torch.Tensor:
            with torch.inference_mode():
                return changed(**batch).logits.float()

        return run
    config = UATConfig.fast()
    view = view_of(model)
    changed_view = replace(view, model=change(view.model))
    texts = Texts.of(batch, per_input=False)

    def run_folded() -> torch.Tensor:
        passes = range(config.samples)
        folded = FoldedPasses(config, texts, passes, narrow_layer=view.layers - 1)
        return forward_folded(changed_view, batch, folded, config.samples)[0]

    return run_folded


def measure(path: str, kind: str) -> None:
    """Print seconds until warm, the largest difference from eager, and eager's time over the path's, by turns."""
    eager, fast = forward_of(kind, lambda model: model), forward_of(kind, PATHS[path])
    expected, first = eager(), []
    warm = seconds(lambda: first.append(fast()))
    faster = 1 / ratios({"fast": fast}, eager, ROUNDS)["fast"]
    print(json.dumps({"warm": warm, "difference": float((first[0] - expected).abs().max()), "faster": faster}))


def training(rounds: int) -> None:
    """The time of an optimizer step in bf16 over one in fp32."""
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

    ratio = ratios({"bf16": partial(step, bf16=True)}, partial(step, bf16=False), rounds)["bf16"]
    print(f"bf16 / fp32, {shape[0]} rows of {shape[1]} tokens, one thread: {ratio:.2f}")


def cell(path: str, kind: str, limit: int) -> str:
    """One row of the table, from a process of its own."""
    command = [sys.executable, __file__, "--path", path, "--forward", kind]
    try:
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"| not warm after {limit} s | | |"
    if ended.returncode < 0:
        return f"| ended by signal {-ended.returncode} | | |"
    if ended.returncode:
        return f"| failed: {ended.stderr.strip().splitlines()[-1][:120]} | | |"
    found = json.loads(ended.stdout.strip().splitlines()[-1])
    return f"| {found['warm']:.0f} s | {found['difference']:.1e} | {found['faster']:.2f}× |"


def main() -> None:
    parser = parser_of(__doc__, limit=600, rounds=5)
    parser.add_argument("--training", action="store_true", help="time training steps")
    parser.add_argument("--path", choices=PATHS, help=argparse.SUPPRESS)
    parser.add_argument("--forward", choices=FORWARDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.path is not None:
        measure(options.path, options.forward)
    elif options.training:
        training(options.rounds)
    else:
        head("path", "forward", "until warm", "largest difference of logits", "faster than eager", left=2)
        for path in PATHS:
            for kind in FORWARDS:
                print(f"| {path} | {kind} {cell(path, kind, options.limit)}", flush=True)


if __name__ == "__main__":
    main()
