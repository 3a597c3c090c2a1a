"""Which device a name is, what it can compute in, and how much fits there."""

import pytest
import torch

from fake_device import DEVICE, fake_device
from uatlite import UATConfig
from uatlite.errors import ConfigurationError, ModelError
from uatlite.model.device import (
    DTYPES,
    check_precision,
    computing_in,
    find_device,
    free_memory,
    in_halves,
    over_inputs,
    precisions_of,
    products_on,
)
from uatlite.model.load import load_checkpoint
from uatlite.model.view import view_of
from uatlite.passes.engine import chunks_of, room_on


@pytest.fixture
def machine(monkeypatch):
    """`machine(gpus=0, mps=False)`: what PyTorch sees."""

    def see(gpus=0, mps=False):
        monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
        monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
        monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
        monkeypatch.setattr("torch.backends.mps.is_available", lambda: mps)

    return see


def test_auto_is_a_gpu_where_there_is_one(machine):
    for gpus, mps, expected in ((2, False, "cuda:0"), (1, True, "cuda:0"), (0, True, "mps"), (0, False, "cpu")):
        machine(gpus, mps)
        assert str(find_device()) == str(find_device("auto")) == expected


def test_a_device_is_named_as_pytorch_names_it(machine):
    machine(2, mps=True)
    names = ("cpu", "cuda", "cuda:0", "cuda:1", "mps")
    assert [str(find_device(name)) for name in names] == ["cpu", "cuda:0", "cuda:0", "cuda:1", "mps"]


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:-1", "tpu", "", "meta"])
def test_an_unknown_device_is_refused(name, machine):
    machine(1)
    with pytest.raises(ConfigurationError, match="is not one of: auto, cpu, cuda, cuda:1, mps"):
        find_device(name)


def test_a_device_that_is_not_there_is_refused_before_a_model_is_read(machine):
    machine(2)
    for name in ("cuda:2", "mps", "cpu:1"):
        with pytest.raises(
            ConfigurationError, match=rf"device='{name}' is not there: .* sees the CPU, cuda:0, cuda:1\."
        ):
            find_device(name)
    machine()
    with pytest.raises(ConfigurationError, match=r"device='cuda' is not there: PyTorch \S+ sees the CPU\. Use one"):
        load_checkpoint("no-such-model", device="cuda")


def test_precisions_are_those_that_a_device_has(monkeypatch):
    cpu, gpu, mps = (torch.device(name) for name in ("cpu", "cuda:0", "mps"))
    assert precisions_of(cpu) == ["fp32"]
    for capability, expected in (((7, 5), ["fp32", "fp16"]), ((8, 0), list(DTYPES)), ((9, 0), list(DTYPES))):
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda device, capability=capability: capability)
        assert precisions_of(gpu) == expected
    for new in (False, True):
        monkeypatch.setattr("torch.backends.mps.is_macos_or_newer", lambda *version, new=new: new)
        assert precisions_of(mps) == ["fp32", "fp16", *["bf16"] * new]
    with pytest.raises(ConfigurationError, match=r"precision='bf16': cpu computes in fp32 only\. Use that, or another"):
        check_precision("bf16", cpu)
    with pytest.raises(ConfigurationError, match="precision='half' is not one of: fp32, bf16, fp16, tf32"):
        check_precision("half", cpu)


def test_products_are_computed_in_the_precision_that_this_block_asks_for():
    cpu, matrix = torch.device("cpu"), torch.ones(4, 4)
    with computing_in("bf16"), products_on(cpu):
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")
    before = torch.backends.cuda.matmul.allow_tf32
    with computing_in("tf32"), products_on(cpu):
        assert torch.backends.cuda.matmul.allow_tf32
        assert (matrix @ matrix).dtype == torch.float32
    assert torch.backends.cuda.matmul.allow_tf32 == before
    with products_on(cpu):
        assert not torch.is_autocast_enabled("cpu")


def test_memory_is_a_share_of_what_is_free(monkeypatch):
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (6 * 2**30, 8 * 2**30))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda device: 3 * 2**30)
    monkeypatch.setattr("torch.cuda.memory_allocated", lambda device: 2**30)
    assert free_memory(torch.device("cuda:0")) == 4 * 2**30  # what PyTorch keeps for itself is free too
    monkeypatch.setattr("torch.mps.recommended_max_memory", lambda: 10 * 2**30)
    monkeypatch.setattr("torch.mps.current_allocated_memory", lambda: 2 * 2**30)
    assert room_on(torch.device("mps")) == 4 * 2**30
    assert free_memory(torch.device("cpu")) is None
    assert room_on(torch.device("cpu")) == 2**30


def test_a_gpu_takes_texts_together_that_a_cpu_takes_apart(shared, texts):
    view, batch = view_of(shared("bert")), texts((4, 20, 20, 30, 30, 30, 33, 36, 38, 40))
    mask = batch["attention_mask"]
    cpu = list(chunks_of({"attention_mask": mask}, view, UATConfig(), range(10), None, 2**30))
    with fake_device():
        gpu = list(chunks_of({"attention_mask": mask.to(DEVICE)}, view, UATConfig(), range(10), None, 2**30))
    assert len(cpu) > 2
    assert [len(chunk.rows) for chunk in gpu] == [1, 9]  # more than half of one forward would be padding


def test_work_is_halved_until_it_fits():
    ran = []

    def run(rows):
        ran.append(len(rows))
        if len(rows) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return sum(rows)

    def halves(rows):
        middle = len(rows) // 2
        return [rows[:middle], rows[middle:]] if middle else []

    assert list(in_halves(run, range(10), halves)) == [
        (range(2), 1), (range(2, 5), 9), (range(5, 7), 11), (range(7, 10), 24)
    ]  # fmt: skip
    assert ran == [10, 5, 2, 3, 5, 2, 3]


def test_what_cannot_be_halved_says_what_to_do_and_other_errors_are_not_touched():
    inputs = {"input_ids": torch.arange(8).view(4, 2)}

    def fail(message, kind=RuntimeError):
        def run(rows):
            raise kind(message)

        return run

    with pytest.raises(ModelError, match=r"does not suffice for one pass over one text\. Set a lower max_length"):
        over_inputs(fail("MPS backend out of memory (MPS allocated: 9 GB)"), inputs)
    with pytest.raises(RuntimeError, match="shapes"):
        over_inputs(fail("shapes do not fit"), inputs)
    with pytest.raises(ValueError, match="no memory"):
        over_inputs(fail("no memory of it", ValueError), inputs)


def test_rows_keep_their_order_and_what_all_rows_share_stays_whole():
    inputs = {"input_ids": torch.arange(10).view(5, 2), "position_ids": torch.arange(2)[None]}

    def run(rows):
        assert rows["position_ids"].shape == (1, 2)
        if len(rows["input_ids"]) > 2:
            raise torch.OutOfMemoryError
        return rows["input_ids"]

    assert torch.equal(torch.cat(over_inputs(run, inputs)), inputs["input_ids"])
