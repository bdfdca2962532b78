"""Int8 weights: held to the product with the weights they stand for, and to their rows' independence."""

import pytest
import torch

from tests.kernels.test_kernels import _close
from turnout.kernels import native_int8, reference

pytestmark = pytest.mark.skipif(
    not native_int8.available(torch.bfloat16), reason="the extension was not built, or this CPU has no AVX-512 BF16"
)


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(2)


def _meant(weight: torch.Tensor) -> torch.Tensor:
    """The weights that int8 and scale stand for, in float32."""
    rounded, scales = native_int8.quantize(weight)
    return rounded.float() * scales.unsqueeze(1)


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 12, 13, 25, 300])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (5, 3), (64, 96), (576, 960), (1537, 33)])
@pytest.mark.parametrize("biased", [False, True])
def test_linear(random, rows, inputs, outputs, biased) -> None:
    weight = torch.randn(outputs, inputs, generator=random).bfloat16()
    bias = torch.randn(outputs, generator=random).bfloat16() if biased else None
    x = torch.randn(rows, inputs, generator=random).bfloat16()
    packed = native_int8.pack_linear(weight, bias)
    right = reference.linear(x.float(), (_meant(weight), bias.float() if biased else None))
    assert _close(native_int8.linear(x, packed), right.bfloat16())
    assert torch.allclose(native_int8.logits(x, packed), right, rtol=1e-4, atol=1e-3)


def test_a_row_does_not_depend_on_the_others(random) -> None:
    packed = native_int8.pack_linear(torch.randn(150, 576, generator=random).bfloat16(), None)
    x = torch.randn(400, 576, generator=random).bfloat16()
    together = native_int8.linear(x, packed)
    for first, last in [(0, 1), (3, 5), (0, 12), (7, 20), (100, 113), (0, 399)]:
        assert torch.equal(native_int8.linear(x[first:last], packed), together[first:last])


def test_rounding_is_to_the_nearest_of_255_steps_of_each_output(random) -> None:
    weight = torch.randn(40, 100, generator=random).bfloat16()
    weight[3] = 0
    weight[4, 7] = 1e4
    weight[5] = 3e38
    rounded, scales = native_int8.quantize(weight)
    assert rounded.abs().amax() == 127
    assert scales.isfinite().all()
    assert ((_meant(weight) - weight.float()).abs() <= scales.unsqueeze(1) * 0.5001).all()
    assert not _meant(weight)[3].any()


def test_an_output_without_weights_gives_its_bias(random) -> None:
    packed = native_int8.pack_linear(torch.zeros(2, 8).bfloat16(), torch.tensor([1.5, -2.0]).bfloat16())
    y = native_int8.linear(torch.randn(3, 8, generator=random).bfloat16(), packed)
    assert y.tolist() == [[1.5, -2.0]] * 3
