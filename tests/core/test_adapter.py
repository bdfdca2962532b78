"""An adapter's weights as one buffer."""

import gc

import numpy as np
import psutil
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.adapter import ALIGNMENT, LoraModule, aligned, empty_buffer, pack

SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 70), st.integers(1, 70)), max_size=6)


@given(SIZES)
def test_packed_modules_are_the_same_values_as_aligned_views_of_one_buffer(sizes: list[tuple[int, int, int]]) -> None:
    numbers = np.random.default_rng(0)
    modules = [
        LoraModule(i, "q_proj", r, 0.5, numbers.random((r, n), np.float32), numbers.random((m, r), np.float32))
        for i, (r, n, m) in enumerate(sizes)
    ]
    packed, buffer = pack(modules, "float32")
    end = 0
    for module, given_module in zip(packed, modules, strict=True):
        for view, values in ((module.a, given_module.a), (module.b, given_module.b)):
            assert np.array_equal(view, values) and np.shares_memory(view, buffer)
            start = (view.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]) // buffer.itemsize
            assert start == end and start % ALIGNMENT == 0
            end += aligned(values.size)
    assert buffer.size == end


def test_a_buffers_memory_goes_back_with_its_last_view() -> None:
    process = psutil.Process()
    # Three rounds, for the first two could teach an ordinary allocator to keep what is freed.
    for _ in range(3):
        before = process.memory_info().rss
        buffer = empty_buffer(8 << 20, "bfloat16")
        buffer[:] = 1
        view = buffer[:10]
        del buffer
        assert process.memory_info().rss - before > 12 << 20, "the view keeps it"
        del view
        gc.collect()
        assert process.memory_info().rss - before < 4 << 20
