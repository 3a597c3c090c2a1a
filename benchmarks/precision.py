"""What bf16 saves of a training: one optimizer step of MiniLM-L6 in each precision, in turn, in one process.

python benchmarks/precision.py [--rounds 5]
"""

import argparse
import statistics
import time

import torch

from uatlite.lab.train.fine_tune import with_new_head

ROWS, TOKENS = 64, 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, _ = with_new_head("minilm", ("a", "b", "c"))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    batch = {
        "input_ids": torch.randint(1000, 20000, (ROWS, TOKENS)),
        "attention_mask": torch.ones(ROWS, TOKENS, dtype=torch.long),
        "labels": torch.randint(0, 3, (ROWS,)),
    }

    def step(precision: str) -> float:
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    for precision in ("fp32", "bf16"):
        step(precision)  # warm
    ratios = [step("bf16") / step("fp32") for _ in range(options.rounds)]
    print(f"bf16 / fp32, {ROWS} rows of {TOKENS} tokens, one thread: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
