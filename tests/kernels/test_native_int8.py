"""Int8 weights: held to the product with the weights they stand for, and to their rows' independence."""

import pytest
import torch

from tests.kernels.test_kernels import _close
from turnout.kernels import native, reference
from turnout.kernels.interface import Kernels
from turnout.kernels.packing import quantize

SETS = [native.NativeKernels(cpu, int8_weights=True) for cpu in native.instruction_sets()]


@pytest.fixture(params=SETS, ids=lambda kernels: kernels.name)
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return request.param


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(2)


def _meant(weight: torch.Tensor) -> torch.Tensor:
    """The weights that int8 and scale stand for, in float32."""
    rounded, scales = quantize(weight)
    return rounded.float() * scales.unsqueeze(1)


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 12, 13, 25, 300])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (5, 3), (64, 96), (576, 960), (1537, 33)])
@pytest.mark.parametrize("biased", [False, True])
def test_linear(kernels, random, rows, inputs, outputs, biased) -> None:
    weight = torch.randn(outputs, inputs, generator=random).bfloat16()
    bias = torch.randn(outputs, generator=random).bfloat16() if biased else None
    x = torch.randn(rows, inputs, generator=random).bfloat16()
    packed = kernels.pack_linear(weight, bias)
    right = reference.linear(x.float(), (_meant(weight), bias.float() if biased else None))
    assert _close(kernels.linear(x, packed), right.bfloat16())
    assert torch.allclose(kernels.logits(x, packed), right, rtol=1e-4, atol=1e-3)


def test_a_row_does_not_depend_on_the_others(kernels, random) -> None:
    packed = kernels.pack_linear(torch.randn(150, 576, generator=random).bfloat16(), None)
    x = torch.randn(400, 576, generator=random).bfloat16()
    together = kernels.linear(x, packed)
    for first, last in [(0, 1), (3, 5), (0, 12), (7, 20), (100, 113), (0, 399)]:
        assert torch.equal(kernels.linear(x[first:last], packed), together[first:last])


def test_rounding_is_to_the_nearest_of_255_steps_of_each_output(random) -> None:
    weight = torch.randn(40, 100, generator=random).bfloat16()
    weight[3] = 0
    weight[4, 7] = 1e4
    weight[5] = 3e38
    rounded, scales = quantize(weight)
    assert rounded.abs().amax() == 127
    assert scales.isfinite().all()
    assert ((_meant(weight) - weight.float()).abs() <= scales.unsqueeze(1) * 0.5001).all()
    assert not _meant(weight)[3].any()


def test_an_output_without_weights_gives_its_bias(kernels, random) -> None:
    packed = kernels.pack_linear(torch.zeros(2, 8).bfloat16(), torch.tensor([1.5, -2.0]).bfloat16())
    y = kernels.linear(torch.randn(3, 8, generator=random).bfloat16(), packed)
    assert y.tolist() == [[1.5, -2.0]] * 3
