from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from threadpoolctl import threadpool_info

from cfnade.errors import ConfigError
from cfnade.threads import (
    CPU_INFO,
    available_threads,
    has_fast_bfloat16,
    has_fast_int8,
    limited_threads,
    one_thread,
)


def test_the_quota_of_a_container_counts(tmp_path):
    cpu_max = tmp_path / "cpu.max"
    cpu_max.write_text("50000 100000\n")
    assert available_threads(cpu_max) == 1
    cpu_max.write_text("max 100000\n")
    without_quota = available_threads(cpu_max)
    assert without_quota == available_threads(tmp_path / "missing") >= 1


def test_a_lower_omp_num_threads_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(4)))
    for asked_for, expected in (("1", 1), ("3", 3), ("9", 4), ("2,1", 4), ("", 4), ("0", 1)):
        monkeypatch.setenv("OMP_NUM_THREADS", asked_for)
        assert available_threads(tmp_path / "missing") == expected


def test_torch_runs_on_so_many_threads_and_gets_its_own_back():
    import torch

    before = torch.get_num_threads()
    with limited_threads(1) as threads:
        assert (threads, torch.get_num_threads()) == (1, 1)
    assert torch.get_num_threads() == before


FLAGS = "flags\t\t: fpu avx2 avx512f avx512_bf16 amx_tile\n"


@pytest.fixture
def cpu_info(tmp_path):
    return tmp_path / "cpuinfo"


@pytest.fixture
def products(monkeypatch):
    """A clock that moves with each product: by 10 in float32, by what is given in the others."""
    import torch

    seconds, clock = {"float32": 10.0, "bfloat16": 1.0, "int8": 1.0}, [0.0]

    def timed(product):
        def multiply(left, right):
            clock[0] += seconds[str(left.dtype).removeprefix("torch.")]
            return product(left, right)

        return multiply

    monkeypatch.setattr(torch.Tensor, "__matmul__", timed(torch.Tensor.__matmul__))
    monkeypatch.setattr(torch, "_int_mm", timed(torch._int_mm))
    monkeypatch.setattr("cfnade.threads.time.thread_time", lambda: clock[0])
    return seconds


BOTH = [("bfloat16", has_fast_bfloat16), ("int8", has_fast_int8)]


@pytest.mark.parametrize("text", [None, "", FLAGS.replace("avx512_bf16", "avx512_fp16")])
@pytest.mark.parametrize("is_fast", [has_fast_bfloat16, has_fast_int8])
def test_without_instructions_for_it_few_bits_are_not_fast(cpu_info, products, text, is_fast):
    if text is not None:
        cpu_info.write_text(text)
    assert is_fast(cpu_info) is False


@pytest.mark.parametrize(("seconds", "expected"), [(1.0, True), (7.0, True), (9.0, False)])
@pytest.mark.parametrize(
    ("dtype", "is_fast", "flag"),
    [(*BOTH[0], flag) for flag in ("avx512_bf16", "amx_bf16")]
    + [(*BOTH[1], flag) for flag in ("avx512_vnni", "avx_vnni", "amx_int8")],
)
def test_with_instructions_for_it_a_trial_decides(
    cpu_info, products, dtype, is_fast, flag, seconds, expected
):
    cpu_info.write_text(FLAGS.replace("avx512_bf16", flag))
    products[dtype] = seconds
    assert is_fast(cpu_info) is expected


def test_a_torch_without_products_in_8_bits_has_no_fast_ones(cpu_info, products, monkeypatch):
    monkeypatch.delattr("torch._int_mm")
    cpu_info.write_text(FLAGS.replace("avx512_bf16", "avx512_vnni"))
    assert has_fast_int8(cpu_info) is False


def test_the_trial_is_made_once(cpu_info, products):
    cpu_info.write_text(FLAGS)
    assert has_fast_bfloat16(cpu_info)
    products["bfloat16"] = 99.0
    cpu_info.unlink()
    assert has_fast_bfloat16(cpu_info)


def test_without_torch_nothing_is_tried(cpu_info, monkeypatch):
    cpu_info.write_text(FLAGS.replace("avx2", "avx512_vnni"))
    monkeypatch.setattr("cfnade.threads.find_spec", lambda name: None)
    assert has_fast_bfloat16(cpu_info) is False and has_fast_int8(cpu_info) is False


def test_this_machine_has_an_answer():
    assert has_fast_bfloat16() in (True, False) and has_fast_bfloat16(CPU_INFO) in (True, False)
    assert has_fast_int8() in (True, False)


def test_a_new_thread_is_limited_as_well():
    import torch

    with limited_threads(1), ThreadPoolExecutor(1, initializer=one_thread) as pool:
        in_use = pool.submit(threadpool_info).result()
        assert pool.submit(torch.get_num_threads).result() == 1
    assert {own["num_threads"] for own in in_use if own["user_api"] == "openmp"} == {1}


def test_no_threads_at_all_are_refused():
    with pytest.raises(ConfigError, match="n_threads must be at least 1"), limited_threads(0):
        pass
