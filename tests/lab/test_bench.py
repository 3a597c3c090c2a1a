"""The benchmark on a tiny model: what it measures is what it says; no test asserts a time."""

import json
from contextlib import suppress

import numpy as np
import pytest
from typer.testing import CliRunner

from uatlite.errors import ConfigurationError, InputError
from uatlite.lab.bench import BASELINE, CONTENDERS, run_bench, take_turns
from uatlite.lab.bench import BenchPlan as Plan
from uatlite.model.load import Checkpoint


@pytest.fixture(scope="module")
def checkpoint(tiny, tokenizer):
    return Checkpoint("tiny", tiny("bert"), tokenizer)


@pytest.fixture(scope="module")
def texts():
    sizes = np.random.default_rng(0).integers(3, 14, size=12)
    return [" ".join(f"a{(7 * word) % 50}" for word in range(size)) for size in sizes]


@pytest.mark.parametrize(
    "options", [{}, {"tokens": True, "num_labels": 5}, {"problem_type": "multi_label_classification"}], ids=str
)
def test_models_of_every_kind_are_timed_and_what_was_found_before_ctrl_c_is_kept(options, tiny, tokenizer, texts):
    model, kept = tiny("bert", **options), []

    def stop(step):
        if step == "how costs grow with tokens: 16":
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        for results in run_bench(Checkpoint("tiny", model, tokenizer), texts, Plan(passes=2, rounds=1), stop):
            kept.append(results)
    assert not any(module.training for module in model.modules())  # it is left as it was
    assert [[curve.over for curve in results.curves] for results in kept] == [[], ["passes"]]
    assert list(kept[0].contenders) == list(CONTENDERS)


def test_turns_are_taken_and_each_is_divided_by_its_neighbours():
    order = []
    runs = {name: (lambda name=name: order.append(name)) for name in ("base", "a", "b")}
    steps = []
    found = take_turns(runs, "base", 2, steps.append)
    assert order == ["base", "a", "b"] + 2 * ["base", "a", "base", "b", "base"]
    assert steps[0] == "warming up: base"
    assert steps[-1] == "round 2 of 2: b"
    assert set(found) == {"base", "a", "b"}


def test_refusals(checkpoint):
    with pytest.raises(ConfigurationError, match="rounds=0"):
        Plan(rounds=0)
    with pytest.raises(InputError, match="no texts to time"):
        next(run_bench(checkpoint, [], Plan()))


def test_every_contender_is_timed_beside_the_deterministic_pass_and_the_command_writes_tables_numbers_and_plots(
    checkpoint, texts, tmp_path
):
    from uatlite.cli.app import app

    model, file, out = tmp_path / "model", tmp_path / "texts.jsonl", tmp_path / "out"
    checkpoint.model.save_pretrained(model)
    checkpoint.tokenizer.save_pretrained(model)
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    options = ["--texts", str(file), "-o", str(out), "--passes", "2", "--rounds", "1", "--threads", "1"]
    done = CliRunner().invoke(app, ["bench", str(model), *options])
    assert done.exit_code == 0, done.output
    assert {path.name for path in out.iterdir()} == {"bench.json", "bench.md", "bench.svg", "bench.png", "bench.csv"}
    assert min((out / name).stat().st_size for name in ("bench.svg", "bench.png")) > 1000
    written, page = json.loads((out / "bench.json").read_text()), (out / "bench.md").read_text()
    assert (written["texts"], written["passes"], written["rounds"]) == (len(texts), 2, 1)
    assert list(written["contenders"]) == list(CONTENDERS)
    assert written["contenders"][BASELINE]["ratio"] == 1.0
    for name, timed in written["contenders"].items():
        assert timed["ratio"] > 0 < timed["seconds"]
        assert f"| {name} | {timed['ratio']:.2f} |" in page
        assert f"| {name} | {timed['ratio']:.2f} |" in done.output
    assert [curve["over"] for curve in written["curves"]] == ["passes", "tokens", "texts"]
    for curve in written["curves"]:
        assert all(len(values) == len(curve["sizes"]) for values in curve["seconds"].values())


def test_sequential_runs_every_pass_over_the_whole_batch(checkpoint, monkeypatch):
    from uatlite.lab import bench as contenders
    from uatlite.passes import engine

    ran = []
    forward_and_read = engine.forward_and_read

    def noted(*arguments, **options):
        logits, read = forward_and_read(*arguments, **options)
        ran.append(tuple(logits.shape))
        return logits, read

    monkeypatch.setattr(engine, "forward_and_read", noted)
    encoded = checkpoint.tokenizer(["a1 a2", "a3 a4 a5"], padding=True, return_tensors="pt")
    contenders.sequential(checkpoint.model, [dict(encoded)], 3)
    assert ran == [(2, 3)] * 3


def test_distilled_runs_the_plain_pass_alone(checkpoint):
    """Not its teacher, which runs where there is no read-out."""
    encoded = dict(checkpoint.tokenizer(["a1 a2", "a3 a4 a5"], padding=True, return_tensors="pt"))
    ran = []
    hook = checkpoint.model.register_forward_hook(
        lambda module, inputs, output: ran.append((len(output.logits), output.logits.requires_grad))
    )
    try:
        CONTENDERS["distilled"](checkpoint.model, [encoded, encoded], 3)
    finally:
        hook.remove()
    assert ran == [(2, False), (2, False)]
