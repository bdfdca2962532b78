"""The native kernels of every instruction set here: the shared grid, and their rows' independence, bit for bit."""

import shutil

import numpy as np
import pytest
import torch

from tests.kernels.test_kernels import (  # noqa: F401
    _attention_case,
    _close,
    test_adapted_linear,
    test_add_rms_norm,
    test_attention,
    test_attention_caps_scores_softly,
    test_linear,
    test_rms_norm,
    test_rope_and_cache,
    test_silu_mul,
)
from turnout.kernels import native, reference
from turnout.kernels.interface import AttentionRows, Kernels, LoraColumns, LoraSegments

# Without the extension there are none, and pytest skips what takes them.
SETS = [native.NativeKernels(cpu) for cpu in native.instruction_sets()]


def test_a_machine_with_a_compiler_has_built_them() -> None:
    # Installing goes on without the extension where it cannot be built; here that would hide everything below.
    assert SETS or shutil.which("c++") is None


@pytest.fixture(params=SETS, ids=lambda kernels: kernels.name)
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return request.param


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(1)


@pytest.fixture
def dtype() -> torch.dtype:
    return torch.bfloat16


def _randn(random: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=random).bfloat16()


@pytest.mark.parametrize("rows", [1, 12, 13, 25, 300, 1000])
@pytest.mark.parametrize(("inputs", "outputs"), [(576, 100), (1537, 33)])
def test_linear_of_many_rows(kernels, random, rows, inputs, outputs) -> None:
    weight, x = _randn(random, outputs, inputs), _randn(random, rows, inputs)
    packed = kernels.pack_linear(weight, None)
    assert _close(kernels.linear(x, packed), reference.linear(x, (weight, None)))
    logits = kernels.logits(x, packed)
    assert logits.dtype == torch.float32
    assert torch.equal(logits.bfloat16(), kernels.linear(x, packed))
    assert torch.allclose(logits, x.float() @ weight.float().T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("inputs", [576, 35])
def test_a_row_of_linear_does_not_depend_on_the_others(kernels, random, inputs) -> None:
    packed = kernels.pack_linear(_randn(random, 150, inputs), _randn(random, 150))
    x = _randn(random, 700, inputs)
    together = kernels.linear(x, packed)
    for rows in range(1, 40):
        assert torch.equal(kernels.linear(x[:rows], packed), together[:rows])
        assert torch.equal(kernels.linear(x[3 : 3 + rows], packed), together[3 : 3 + rows])


def test_rows_that_overflow_stay_apart(kernels, random) -> None:
    packed = kernels.pack_linear(_randn(random, 40, 64), None)
    x = _randn(random, 5, 64)
    right = kernels.linear(x, packed)
    x[2], x[3] = 3e38, torch.nan
    got = kernels.linear(x, packed)
    assert torch.equal(got[[0, 1, 4]], right[[0, 1, 4]])
    assert got[3].isnan().all()


def test_results_are_rounded_to_the_nearest_and_ties_to_even(kernels) -> None:
    # From 256 on bfloat16 has even numbers only, from 512 on every fourth: many sums lie right in between.
    weight = torch.tensor([[64.0 * high, 1.0 * low] for high in range(-15, 16) for low in range(64)]).bfloat16()
    x = torch.ones(1, 2).bfloat16()
    assert torch.equal(kernels.linear(x, kernels.pack_linear(weight, None)), (x.float() @ weight.float().T).bfloat16())


def _segments(arena: torch.Tensor, starts: list[int], rank: int, inputs: int, outputs: int) -> LoraSegments:
    """One layer, target 0: segment g has the g-th pair of matrices in the arena."""
    count = len(starts) - 1
    shape = (1, 7, count)
    each = rank * (inputs + outputs)
    offsets = np.broadcast_to(each * np.arange(count, dtype=np.int64), shape).copy()
    ranks = np.zeros(shape, np.int32)
    ranks[0, 0] = rank
    scales = np.full(shape, 0.5, np.float32)
    return LoraSegments(np.array(starts, np.int32), arena, offsets, offsets + rank * inputs, ranks, scales)


@pytest.mark.parametrize("rank", [1, 2, 3, 5, 15, 16, 17, 31, 33, 64, 100, 255, 256])
@pytest.mark.parametrize("rows", [1, 9, 130])
def test_every_rank(kernels, random, rank, rows) -> None:
    inputs, outputs = 70, 53
    arena = _randn(random, rank * (inputs + outputs)) / 8
    segments = _segments(arena, [0, rows], rank, inputs, outputs)
    x, weight = _randn(random, rows, inputs), _randn(random, outputs, inputs) / 8
    columns = (LoraColumns(0, 0, outputs),)
    got = kernels.adapted_linear(x, kernels.pack_linear(weight, None), segments, 0, columns)
    right = reference.adapted_linear(x, (weight, None), segments, 0, columns)
    assert _close(got, right)


@pytest.mark.parametrize("rank", [3, 16])
def test_an_adapters_row_does_not_depend_on_the_others(kernels, random, rank) -> None:
    inputs, outputs, rows = 576, 200, 150
    arena = _randn(random, 3 * rank * (inputs + outputs)) / 20
    columns = (LoraColumns(0, 0, outputs),)
    x, packed = _randn(random, rows, inputs), kernels.pack_linear(_randn(random, outputs, inputs), None)
    segments = _segments(arena, [0, 140, 141, 150], rank, inputs, outputs)
    together = kernels.adapted_linear(x, packed, segments, 0, columns)
    for first, last in [(0, 1), (5, 12), (63, 66), (0, 70), (7, 139)]:
        own = _segments(arena, [0, last - first], rank, inputs, outputs)
        alone = kernels.adapted_linear(x[first:last], packed, own, 0, columns)
        assert torch.equal(alone, together[first:last])


def test_one_adapters_overflow_stays_in_its_rows(kernels, random) -> None:
    inputs, outputs, rank = 64, 40, 8
    each = rank * (inputs + outputs)
    arena = _randn(random, 3 * each)
    arena[each : 2 * each] = 3e38
    x, weight = _randn(random, 6, inputs), _randn(random, outputs, inputs)
    columns = (LoraColumns(0, 0, outputs),)
    segments = _segments(arena, [0, 2, 4, 6], rank, inputs, outputs)
    got = kernels.adapted_linear(x, kernels.pack_linear(weight, None), segments, 0, columns)
    right = reference.adapted_linear(x, (weight, None), segments, 0, columns)
    assert not got[2:4].isfinite().any()
    assert _close(got[[0, 1, 4, 5]], right[[0, 1, 4, 5]])


@pytest.mark.parametrize("window", [None, 5, 40])
@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (7, 1), (2, 2), (10, 2)])
def test_attention_does_not_depend_on_how_a_prompt_is_cut(kernels, random, window, heads, kv_heads) -> None:
    length = 150
    caches, whole = _attention_case(random, torch.bfloat16, [(length, length)], kv_heads, 64)
    q = _randn(random, length, heads, 64)
    together = kernels.attention(q, *caches, whole, 0.125, window)
    for chunk in (1, 7, 16, 50):
        for first in range(0, length, chunk):
            last = min(first + chunk, length)
            rows = AttentionRows(np.array([0, last - first], np.int32), np.array([last], np.int32), whole.block_tables)
            assert torch.equal(kernels.attention(q[first:last], *caches, rows, 0.125, window), together[first:last])


def test_attention_does_not_depend_on_the_other_sequences(kernels, random) -> None:
    mix = [(1, 40), (16, 16), (1, 3), (7, 77), (1, 41), (3, 3), (33, 70)]
    caches, rows = _attention_case(random, torch.bfloat16, mix, 3, 64)
    q = _randn(random, int(rows.query_starts[-1]), 9, 64)
    together = kernels.attention(q, *caches, rows, 0.125, None)
    for sequence, (count, _) in enumerate(mix):
        own = slice(int(rows.query_starts[sequence]), int(rows.query_starts[sequence + 1]))
        alone = AttentionRows(
            np.array([0, count], np.int32),
            rows.context_lengths[sequence : sequence + 1],
            rows.block_tables[sequence : sequence + 1],
        )
        assert torch.equal(kernels.attention(q[own], *caches, alone, 0.125, None), together[own])


@pytest.mark.parametrize("factor", [1e-30, 1e4, 1e18])
def test_attention_of_extreme_scores(kernels, random, factor) -> None:
    caches, rows = _attention_case(random, torch.bfloat16, [(40, 100), (1, 65)], 2, 32)
    q = _randn(random, 41, 4, 32) * factor
    right = reference.attention(q, *caches, rows, 0.2, None)
    assert right.isfinite().all()
    assert _close(kernels.attention(q, *caches, rows, 0.2, None), right)


@pytest.mark.parametrize("head_dim", [80, 96, 128, 256])
def test_attention_of_wide_heads(kernels, random, head_dim) -> None:
    caches, rows = _attention_case(random, torch.bfloat16, [(20, 60), (1, 33)], 1, head_dim)
    q = _randn(random, 21, 5, head_dim)
    assert _close(kernels.attention(q, *caches, rows, 0.1, None), reference.attention(q, *caches, rows, 0.1, None))


@pytest.mark.parametrize("value", [-3e38, -100.0, -1.0, 0.0, 1.0, 100.0, 3e38])
def test_silu_of_extreme_values(kernels, value) -> None:
    x = torch.full((1, 34), value).bfloat16()
    x[:, 17:] = 0.5
    assert _close(kernels.silu_mul(x), reference.silu_mul(x))


def test_long_rows_take_all_threads(kernels, random) -> None:
    x = _randn(random, 200, 600)
    weight = _randn(random, 600)
    assert _close(kernels.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))
    assert _close(kernels.silu_mul(x.repeat(2, 1)), reference.silu_mul(x.repeat(2, 1)))
    heads = x.view(200, 10, 60).repeat(1, 2, 1)
    angles = torch.rand(200, 30, generator=random)
    cos, sin = angles.cos(), angles.sin()
    caches = torch.zeros(2, 25, 8, 20, 60, dtype=torch.bfloat16)
    turned = kernels.rope_and_cache(heads, heads, heads, cos, sin, *caches, torch.arange(200))
    assert _close(turned, reference.rope(heads, cos, sin))
    assert torch.equal(caches.flatten(1, 2), torch.stack((turned, heads)))


def test_nothing_is_read_outside_the_arena(kernels, random) -> None:
    x, packed = _randn(random, 2, 16), kernels.pack_linear(_randn(random, 8, 16), None)
    arena = _randn(random, 4 * (16 + 8) - 1)
    with pytest.raises(IndexError, match="arena"):
        kernels.adapted_linear(x, packed, _segments(arena, [0, 2], 4, 16, 8), 0, (LoraColumns(0, 0, 8),))
    arena = _randn(random, 4 * (16 + 8))
    for columns in (LoraColumns(0, 0, 9), LoraColumns(7, 0, 8)):
        with pytest.raises(IndexError, match="columns"):
            kernels.adapted_linear(x, packed, _segments(arena, [0, 2], 4, 16, 8), 0, (columns,))
    with pytest.raises(IndexError, match="layer"):
        kernels.adapted_linear(x, packed, _segments(arena, [0, 2], 4, 16, 8), 1, (LoraColumns(0, 0, 8),))
    with pytest.raises(IndexError, match="starts"):
        kernels.adapted_linear(x, packed, _segments(arena, [0, 3], 4, 16, 8), 0, (LoraColumns(0, 0, 8),))


def test_nothing_is_read_or_written_outside_the_cache(kernels, random) -> None:
    caches, rows = _attention_case(random, torch.bfloat16, [(3, 20)], 2, 16)
    q = _randn(random, 3, 4, 16)
    with pytest.raises(IndexError, match="block tables"):
        kernels.attention(q, *caches[:, :1], rows, 0.2, None)
    longer = AttentionRows(rows.query_starts, np.array([1000], np.int32), rows.block_tables)
    with pytest.raises(IndexError, match="context lengths"):
        kernels.attention(q, *caches, longer, 0.2, None)
    k = _randn(random, 1, 2, 16)
    angles = torch.zeros(1, 8)
    for slot in (-1, caches[0].shape[0] * caches[0].shape[1]):
        with pytest.raises(IndexError, match="slots"):
            kernels.rope_and_cache(k, k, k, angles, angles, *caches, torch.tensor([slot]))


def test_other_dtypes_and_shapes_are_refused(kernels, random) -> None:
    packed = kernels.pack_linear(_randn(random, 4, 6), None)
    with pytest.raises(ValueError, match="bfloat16"):
        kernels.linear(torch.ones(1, 6), packed)
    with pytest.raises(ValueError, match="5 inputs"):
        kernels.linear(_randn(random, 1, 5), packed)
    with pytest.raises(ValueError, match="bfloat16"):
        kernels.silu_mul(torch.ones(1, 6))
