"""Whether torch.compile and bf16 pay on this machine: do they agree with eager, and how much faster are they?

    python benchmarks/fast_paths.py [--limit 600]

For the shape of MiniLM-L6 and 32 texts of 64 tokens two forwards are tried: the deterministic pass of the Hugging Face
model, and the engine's folded passes (`UATConfig.fast()`). Each path runs in a
process of its own, as a kernel that the processor lists and the machine does not have ends the process, and is
stopped after `--limit` seconds.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from engine import batch_of, model_of
from uatlite import UATConfig
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
    eager = forward_of(kind, lambda model: model)
    expected = eager()
    begun = time.perf_counter()
    fast = forward_of(kind, PATHS[path])
    difference = float((fast() - expected).abs().max())
    warm = time.perf_counter() - begun
    fast()
    ratios = []
    for _ in range(ROUNDS):
        taken = []
        for run in (eager, fast):
            begun = time.perf_counter()
            run()
            taken.append(time.perf_counter() - begun)
        ratios.append(taken[0] / taken[1])
    print(json.dumps({"warm": warm, "difference": difference, "faster": statistics.median(ratios)}))


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=600, help="seconds that a path may take")
    parser.add_argument("--path", choices=PATHS, help=argparse.SUPPRESS)
    parser.add_argument("--forward", choices=FORWARDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.path is not None:
        measure(arguments.path, arguments.forward)
        return
    print(
        "| path | forward | until warm | largest difference of logits | faster than eager |\n|---|---|---:|---:|---:|"
    )
    for path in PATHS:
        for kind in FORWARDS:
            print(f"| {path} | {kind} {cell(path, kind, arguments.limit)}", flush=True)


if __name__ == "__main__":
    main()
