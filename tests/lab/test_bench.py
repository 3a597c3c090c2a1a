"""The benchmark on a tiny model: what it measures is what it says; no test asserts a time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizer, PreTrainedModel
from typer.testing import CliRunner

from uatlite.errors import ConfigurationError, InputError
from uatlite.lab.bench import BASELINE, CONTENDERS, run_bench, take_turns, write
from uatlite.lab.bench import BenchPlan as Plan
from uatlite.lab.bench import BenchResults as Results
from uatlite.model.load import Checkpoint


@pytest.fixture(scope="module")
def checkpoint(tiny: Callable[..., PreTrainedModel], tokenizer: BertTokenizer) -> Checkpoint:
    return Checkpoint("tiny", tiny("bert"), tokenizer)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    sizes = np.random.default_rng(0).integers(3, 14, size=12)
    return [" ".join(f"a{(7 * word) % 50}" for word in range(size)) for size in sizes]


@pytest.fixture(scope="module")
def results(checkpoint: Checkpoint, texts: list[str]) -> Results:
    return run_bench(checkpoint, texts, Plan(passes=2, rounds=1))


def test_every_contender_is_timed_beside_the_deterministic_pass(results: Results, texts: list[str]) -> None:
    assert list(results.contenders) == list(CONTENDERS)
    assert results.contenders[BASELINE].ratio == 1.0
    assert all(timed.ratio > 0 and timed.seconds > 0 for timed in results.contenders.values())
    assert (results.texts, results.passes, results.rounds) == (len(texts), 2, 1)
    assert [curve.over for curve in results.curves] == ["passes", "tokens", "texts"]
    for curve in results.curves:
        assert all(len(values) == len(curve.sizes) for values in curve.seconds.values())


def test_results_are_json_and_a_table(results: Results, tmp_path: Path) -> None:
    page = "\n".join(results.lines())
    for name, timed in results.contenders.items():
        assert f"| {name} | {timed.ratio:.2f} |" in page
    write(results, tmp_path)
    written = json.loads((tmp_path / "bench.json").read_text())
    assert written["contenders"]["fast"]["ratio"] == results.contenders["fast"].ratio
    for name in ("bench.svg", "bench.png"):
        assert (tmp_path / name).stat().st_size > 1000


def test_what_was_found_before_ctrl_c_is_kept(checkpoint: Checkpoint, texts: list[str]) -> None:
    kept: list[Results] = []

    def stop(step: str) -> None:
        if step == "how costs grow with tokens: 16":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_bench(checkpoint, texts, Plan(passes=2, rounds=1, contenders=("fast",)), stop, kept.append)
    assert [[curve.over for curve in one.curves] for one in kept] == [[], ["passes"]]
    assert set(kept[0].contenders) == {"deterministic", "fast"}
    assert not any(module.training for module in checkpoint.model.modules())


def test_turns_are_taken_and_each_is_divided_by_its_neighbours() -> None:
    order: list[str] = []
    runs = {name: (lambda name=name: order.append(name)) for name in ("base", "a", "b")}  # type: ignore[misc]
    steps: list[str] = []
    found = take_turns(runs, "base", 2, steps.append)
    assert order == ["base", "a", "b"] + 2 * ["base", "a", "base", "b", "base"]
    assert steps[0] == "warming up: base"
    assert steps[-1] == "round 2 of 2: b"
    assert set(found) == {"base", "a", "b"}


def test_the_model_is_left_as_it_was(checkpoint: Checkpoint, results: Results) -> None:
    assert not any(module.training for module in checkpoint.model.modules())


def test_refusals(checkpoint: Checkpoint) -> None:
    with pytest.raises(ConfigurationError, match="rounds=0"):
        Plan(rounds=0)
    with pytest.raises(InputError, match="no texts to time"):
        run_bench(checkpoint, [], Plan())


@pytest.mark.parametrize(
    "options", [{"tokens": True, "num_labels": 5}, {"problem_type": "multi_label_classification"}], ids=str
)
def test_models_of_several_answers_are_timed_too(
    options: dict[str, Any], tiny: Callable[..., PreTrainedModel], tokenizer: BertTokenizer, texts: list[str]
) -> None:
    kept: list[Results] = []

    def stop(step: str) -> None:
        if step == "how costs grow with tokens: 16":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_bench(Checkpoint("tiny", tiny("bert", **options), tokenizer), texts, Plan(2, 1), stop, kept.append)
    assert list(kept[-1].contenders) == list(CONTENDERS)


def test_the_command(checkpoint: Checkpoint, texts: list[str], tmp_path: Path) -> None:
    from uatlite.cli.app import app

    checkpoint.model.save_pretrained(tmp_path / "model")
    checkpoint.tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    arguments = [
        "bench",
        str(tmp_path / "model"),
        "--texts",
        str(tmp_path / "texts.jsonl"),
        "-o",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(app, [*arguments, "--passes", "2", "--rounds", "1", "--threads", "1"])
    assert done.exit_code == 0, done.output
    assert "| analytic |" in done.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "bench.json",
        "bench.md",
        "bench.svg",
        "bench.png",
        "bench.csv",
    }


def test_sequential_runs_every_pass_over_the_whole_batch(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uatlite.lab import bench as contenders
    from uatlite.passes import engine

    ran: list[tuple[int, ...]] = []
    forward_folded = engine.forward_folded

    def noted(*arguments: object) -> object:
        logits, read = forward_folded(*arguments)  # type: ignore[arg-type]
        ran.append(tuple(logits.shape))
        return logits, read

    monkeypatch.setattr(engine, "forward_folded", noted)
    encoded = checkpoint.tokenizer(["a1 a2", "a3 a4 a5"], padding=True, return_tensors="pt")
    contenders.sequential(checkpoint.model, [dict(encoded)], 3)
    assert ran == [(1, 2, 3)] * 3


def test_distilled_runs_the_plain_pass_alone(checkpoint: Checkpoint) -> None:
    """Not its teacher, which runs where there is no read-out."""
    encoded = dict(checkpoint.tokenizer(["a1 a2", "a3 a4 a5"], padding=True, return_tensors="pt"))
    ran: list[tuple[int, bool]] = []
    hook = checkpoint.model.register_forward_hook(
        lambda module, inputs, output: ran.append((len(output.logits), output.logits.requires_grad))
    )
    try:
        CONTENDERS["distilled"](checkpoint.model, [encoded, encoded], 3)
    finally:
        hook.remove()
    assert ran == [(2, False), (2, False)]
