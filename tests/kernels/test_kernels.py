"""Every function of every kernel set against the reference, over odd shapes; and the reference against torch."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from turnout.core.errors import SettingsError
from turnout.kernels import fast_in_bfloat16, native, onednn, reference, select
from turnout.kernels.interface import AttentionRows, Kernels, LoraColumns, LoraSegments

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 0.03}


@pytest.fixture(params=[onednn], ids=lambda kernels: kernels.name)
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return request.param


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _close(got: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether `got` is `right` but for rounding, measured against the size of what was added up."""
    assert got.dtype == right.dtype
    assert got.shape == right.shape
    error = (got.float() - right.float()).abs().max() if got.numel() else torch.tensor(0.0)
    return bool(error <= TOLERANCE[got.dtype] * max(1.0, float(right.float().abs().max()) if right.numel() else 0.0))


ROWS = (0, 1, 2, 3, 17, 130)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (5, 3), (64, 96), (576, 960), (33, 257)])
@pytest.mark.parametrize("biased", [False, True])
def test_linear(kernels, dtype, random, rows, inputs, outputs, biased) -> None:
    weight = torch.randn(outputs, inputs, generator=random).to(dtype)
    bias = torch.randn(outputs, generator=random).to(dtype) if biased else None
    x = torch.randn(rows, inputs, generator=random).to(dtype)
    y = kernels.linear(x, kernels.pack_linear(weight, bias))
    assert y.is_contiguous()
    assert _close(y, reference.linear(x, reference.pack_linear(weight, bias)))


@pytest.mark.parametrize("shape", [(1, 7), (3, 576), (5, 3, 16), (2, 1, 1), (0, 8)])
def test_rms_norm(kernels, dtype, random, shape) -> None:
    x = (3 * torch.randn(shape, generator=random)).to(dtype)
    weight = torch.randn(shape[-1], generator=random).to(dtype)
    assert _close(kernels.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))


@pytest.mark.parametrize("shape", [(1, 7), (3, 576), (0, 8), (130, 600)])
def test_add_rms_norm(kernels, dtype, random, shape) -> None:
    x, delta = torch.randn(2, *shape, generator=random).to(dtype)
    weight = torch.randn(shape[-1], generator=random).to(dtype)
    total, normed = kernels.add_rms_norm(x, delta, weight, 1e-5)
    assert torch.equal(total, x + delta)
    assert _close(normed, reference.rms_norm(x + delta, weight, 1e-5))


@pytest.mark.parametrize("shape", [(1, 2), (3, 10), (17, 3072), (0, 8)])
def test_silu_mul(kernels, dtype, random, shape) -> None:
    x = (3 * torch.randn(shape, generator=random)).to(dtype)
    assert _close(kernels.silu_mul(x), reference.silu_mul(x))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(
    ("block_size", "heads", "kv_heads", "head_dim"), [(1, 1, 1, 2), (7, 3, 3, 16), (7, 12, 4, 64), (16, 4, 2, 30)]
)
def test_rope_and_cache(kernels, dtype, random, rows, block_size, heads, kv_heads, head_dim) -> None:
    # Rows of a wider matrix, as the heads of a fused projection are.
    fused = torch.randn(rows, heads + 2 * kv_heads, head_dim, generator=random).to(dtype)
    q, k, v = fused.split((heads, kv_heads, kv_heads), 1)
    angles = 100 * torch.rand(rows, head_dim // 2, generator=random)
    slots = torch.randperm(200, generator=random)[:rows]
    caches = torch.zeros(2, 200 // block_size + 1, block_size, kv_heads, head_dim, dtype=dtype)
    right = reference.rope(q, angles.cos(), angles.sin())
    assert _close(kernels.rope_and_cache(q, k, v, angles.cos(), angles.sin(), *caches, slots), right)
    turned = reference.rope(k, angles.cos(), angles.sin())
    used = torch.zeros_like(caches, dtype=torch.bool)
    for row, slot in enumerate(slots.tolist()):
        place = slot // block_size, slot % block_size
        assert _close(caches[0][place], turned[row])
        assert torch.equal(caches[1][place], v[row])
        used[:, *place] = True
    assert not caches[~used].any()


MIXES = {
    "one row": [(1, 1)],
    "one prompt": [(23, 23)],
    "decode": [(1, 1), (1, 2), (1, 16), (1, 17), (1, 100), (1, 64), (1, 5)],
    "chunks": [(5, 5), (5, 90), (32, 64), (32, 33), (2, 200)],
    "mixed": [(1, 40), (16, 16), (1, 3), (7, 77), (1, 41), (3, 3)],
}


def _attention_case(
    random: torch.Generator, dtype: torch.dtype, mix: Sequence[tuple[int, int]], kv_heads: int, head_dim: int
) -> tuple[torch.Tensor, AttentionRows]:
    """Caches [2, …] and rows for (rows, context) of each sequence; what no sequence owns is NaN or out of range."""
    block_size = 7
    counts, lengths = zip(*mix, strict=True)
    blocks = [-(-length // block_size) for length in lengths]
    order = torch.randperm(sum(blocks) + 3, generator=random).tolist()
    caches = torch.full((2, len(order), block_size, kv_heads, head_dim), torch.nan)
    tables = np.full((len(mix), max(blocks) + 1), -(1 << 20), np.int32)
    for sequence, length in enumerate(lengths):
        for position in range(length):
            block = order[sum(blocks[:sequence]) + position // block_size]
            tables[sequence, position // block_size] = block
            caches[:, block, position % block_size] = torch.randn(2, kv_heads, head_dim, generator=random)
    starts = np.cumsum([0, *counts], dtype=np.int32)
    return caches.to(dtype), AttentionRows(starts, np.array(lengths, np.int32), tables)


@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(1, 1, 2), (4, 2, 16), (9, 3, 64), (5, 5, 8)])
@pytest.mark.parametrize("window", [None, 1, 10])
def test_attention(kernels, dtype, random, mix, heads, kv_heads, head_dim, window) -> None:
    caches, rows = _attention_case(random, dtype, mix, kv_heads, head_dim)
    q = torch.randn(int(rows.query_starts[-1]), heads + 2, head_dim, generator=random).to(dtype)[:, :heads]
    right = reference.attention(q, *caches, rows, 0.3, window)
    assert right.isfinite().all()
    assert _close(kernels.attention(q, *caches, rows, 0.3, window), right)


@pytest.mark.parametrize("soft_cap", [0.5, 50.0])
@pytest.mark.parametrize("window", [None, 10])
def test_attention_caps_scores_softly(kernels, dtype, random, soft_cap, window) -> None:
    caches, rows = _attention_case(random, dtype, [(1, 70), (20, 33)], 3, 64)
    q = torch.randn(21, 9, 64, generator=random).to(dtype)
    right = reference.attention(q, *caches, rows, 0.3, window, soft_cap)
    assert soft_cap > 1 or not _close(reference.attention(q, *caches, rows, 0.3, window), right)
    assert _close(kernels.attention(q, *caches, rows, 0.3, window, soft_cap), right)


SEGMENTS = {
    "base only": ([3], [0]),
    "one adapter": ([5], [4]),
    "decode": ([1] * 9, [1, 2, 16, 0, 7, 64, 3, 8, 8]),
    "prompts": ([40, 1, 17], [8, 8, 3]),
    "base between": ([2, 3, 1], [4, 0, 5]),
}


def _lora_case(
    random: torch.Generator, dtype: torch.dtype, name: str, inputs: int, columns: Sequence[LoraColumns]
) -> tuple[LoraSegments, int]:
    """Segments of layer 1 of 2; each target misses in some segment, and the arena has NaN between matrices."""
    counts, ranks_of = SEGMENTS[name]
    shape = (2, 7, len(counts))
    a_offsets, b_offsets = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    ranks, scales = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    pieces = [torch.full((3,), torch.nan)]
    for column, (segment, rank) in itertools.product(columns, enumerate(ranks_of)):
        if rank == 0 or (len(counts) > 1 and (segment + column.target) % 4 == 0):
            continue
        at = (1, column.target, segment)
        ranks[at], scales[at] = rank, 0.5 + segment
        for offsets, size in ((a_offsets, rank * inputs), (b_offsets, rank * (column.stop - column.start))):
            offsets[at] = sum(map(len, pieces))
            pieces += [torch.randn(size, generator=random) / inputs**0.5, torch.full((1,), torch.nan)]
    starts = np.cumsum([0, *counts], dtype=np.int32)
    return LoraSegments(starts, torch.cat(pieces).to(dtype), a_offsets, b_offsets, ranks, scales), int(starts[-1])


FUSED = (LoraColumns(0, 0, 48), LoraColumns(1, 48, 65), LoraColumns(2, 65, 82))


@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.parametrize("columns", [FUSED, (LoraColumns(6, 0, 82),), (LoraColumns(4, 5, 6),)], ids=len)
@pytest.mark.parametrize("inputs", [33, 64])
def test_adapted_linear(kernels, dtype, random, name, columns, inputs) -> None:
    segments, rows = _lora_case(random, dtype, name, inputs, columns)
    x = torch.randn(rows, inputs, generator=random).to(dtype)
    weight = torch.randn(82, inputs, generator=random).to(dtype) / 6
    packed = kernels.pack_linear(weight, None)
    right = reference.adapted_linear(x, (weight, None), segments, 1, columns)
    assert _close(kernels.adapted_linear(x, packed, segments, 1, columns), right)
    assert torch.equal(right, reference.linear(x, (weight, None))) == (name == "base only")
    assert torch.equal(kernels.adapted_linear(x, packed, segments, 0, columns), kernels.linear(x, packed))


@pytest.mark.parametrize("every", [reference, onednn], ids=lambda kernels: kernels.name)
def test_an_overflow_in_one_adapter_stays_in_its_rows(every: Kernels, random: torch.Generator) -> None:
    columns = (LoraColumns(0, 0, 4),)
    a, b = torch.full((2 * 3,), 3e38), torch.randn(4 * 2, generator=random)
    tame = torch.randn(2 * 3 + 4 * 2, generator=random)
    shape = (1, 7, 3)
    a_offsets, b_offsets, ranks = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int32)
    a_offsets[0, 0], b_offsets[0, 0], ranks[0, 0] = (0, 14, 0), (6, 20, 0), (2, 2, 0)
    scales = np.ones(shape, np.float32)
    segments = LoraSegments(
        np.array([0, 1, 2, 3], np.int32), torch.cat((a, b, tame)), a_offsets, b_offsets, ranks, scales
    )
    x = torch.ones(3, 3)
    y = every.adapted_linear(x, every.pack_linear(torch.zeros(4, 3), None), segments, 0, columns)
    assert not y[0].isfinite().all()
    assert torch.allclose(y[1], x[1] @ tame[:6].view(2, 3).T @ tame[6:].view(4, 2).T)
    assert not y[2].any()


def test_reference_attention_is_torchs(random: torch.Generator) -> None:
    caches, rows = _attention_case(random, torch.float32, [(20, 20)], 2, 16)
    q = torch.randn(20, 4, 16, generator=random)
    used = torch.from_numpy(rows.block_tables[0, :3])
    k, v = (cache[used].flatten(0, 1)[:20].transpose(0, 1) for cache in caches)
    right = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(0, 1), k, v, is_causal=True, scale=0.3, enable_gqa=True
    )
    assert torch.allclose(reference.attention(q, *caches, rows, 0.3, None), right.transpose(0, 1), atol=1e-6)


def test_reference_norm_is_torchs(random: torch.Generator) -> None:
    x, weight = torch.randn(5, 16, generator=random), torch.randn(16, generator=random)
    assert torch.allclose(
        reference.rms_norm(x, weight, 1e-5), torch.nn.functional.rms_norm(x, (16,), weight, 1e-5), atol=1e-6
    )


def test_select_names_its_choice(monkeypatch) -> None:
    monkeypatch.delenv("TURNOUT_CPU", raising=False)
    best = next((f"native-{cpu.name}" for cpu in native.instruction_sets() if native.is_fast(cpu)), "onednn")
    assert select("cpu", torch.bfloat16).name == best
    assert select("cpu", torch.float32).name == "onednn"
    assert select("meta", torch.bfloat16).name == "reference"
    assert select("cpu", torch.float16).name == "reference"


def test_without_the_extension_torch_serves(monkeypatch) -> None:
    monkeypatch.delenv("TURNOUT_CPU", raising=False)
    monkeypatch.setattr(native, "_cpu", None)
    assert select("cpu", torch.bfloat16).name == ("onednn" if onednn.available(torch.bfloat16) else "reference")
    assert "not built" in (native.why_not(torch.bfloat16) or "")
    with pytest.raises(SettingsError, match="not built"):
        select("cpu", torch.bfloat16, int8_weights=True)
    monkeypatch.setenv("TURNOUT_CPU", "avx2")
    with pytest.raises(SettingsError, match=r"TURNOUT_CPU=avx2 .* not built"):
        select("cpu", torch.bfloat16)


@pytest.mark.skipif(not native.instruction_sets(), reason="the extension was not built")
def test_portable_kernels_serve_only_where_torch_is_slow_in_the_dtype(monkeypatch) -> None:
    monkeypatch.delenv("TURNOUT_CPU", raising=False)
    portable = native.instruction_sets()[-1:]
    monkeypatch.setattr(native, "instruction_sets", lambda: portable)
    monkeypatch.setattr(onednn, "available", lambda dtype: True)
    assert select("cpu", torch.bfloat16).name == "onednn"
    assert fast_in_bfloat16("cpu")
    monkeypatch.setattr(onednn, "available", lambda dtype: dtype == torch.float32)
    assert select("cpu", torch.bfloat16).name == "native-portable"
    assert select("cpu", torch.float32).name == "onednn"
    assert not fast_in_bfloat16("cpu")


@pytest.mark.parametrize("name", [cpu.name for cpu in native.instruction_sets()])
def test_an_instruction_set_can_be_named(monkeypatch, name) -> None:
    monkeypatch.setenv("TURNOUT_CPU", name)
    assert select("cpu", torch.bfloat16).name == f"native-{name}"
    assert select("cpu", torch.bfloat16, int8_weights=True).name == f"native-int8-{name}"
    assert fast_in_bfloat16("cpu")


@pytest.mark.skipif(not native.instruction_sets(), reason="the extension was not built")
def test_an_unknown_instruction_set_is_refused_with_those_there_are(monkeypatch) -> None:
    monkeypatch.setenv("TURNOUT_CPU", "sse9")
    for dtype in (torch.bfloat16, torch.float32):
        with pytest.raises(SettingsError, match=r"TURNOUT_CPU=sse9 .*portable$"):
            select("cpu", dtype)
