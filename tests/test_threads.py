from __future__ import annotations

import pytest

from cfnade.errors import ConfigError
from cfnade.threads import available_threads, limited_threads


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


def test_no_threads_at_all_are_refused():
    with pytest.raises(ConfigError, match="n_threads must be at least 1"), limited_threads(0):
        pass
