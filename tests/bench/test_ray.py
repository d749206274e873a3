"""A sweep on Ray with two nodes, one of which is lost on the way. Run it by ``make test-ray``."""

import os

import pytest
from short_runs import assert_bits_of_local_runs, runs_of, short_study, sittings

from rover.errors import ConfigurationError
from rover_bench.execute import execute
from rover_bench.executors import _RayConfig

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif("ROVER_TEST_RAY" not in os.environ, reason="takes a minute: make test-ray"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


def test_a_sweep_loses_a_node_and_ends_in_the_same_bits(tmp_path):
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    lost, running = [cluster.add_node(num_cpus=1)], set[str]()
    study = short_study(8, steps=600)
    runs = runs_of(study, tmp_path / "ray")

    def lose_a_node(line: str) -> None:
        if line.startswith("["):
            running.discard(line.split("] ")[1].split(":")[0])
        else:
            running.add(line.split(":")[0])
        if len(running) == 2 and lost:  # one on each
            cluster.remove_node(lost.pop(), allow_graceful=False)

    try:
        finished, failures = execute(
            runs, jobs=2, say=lose_a_node, executor=_RayConfig(address=cluster.address)
        )
    finally:
        cluster.shutdown()
    assert (failures, finished) == ({}, list(runs))
    assert not lost
    assert sorted(sittings(run) for run in runs) == [1] * 7 + [2]
    assert_bits_of_local_runs(runs, study, tmp_path / "local")


def test_ray_is_started_here_where_no_address_is_given(tmp_path):
    study = short_study(2, steps=60)
    runs = runs_of(study, tmp_path / "ray")
    finished, _ = execute(runs, jobs=2, say=print, executor=_RayConfig())
    assert finished == list(runs)
    nowhere = _RayConfig(address="127.0.0.1:9")
    with pytest.raises(ConfigurationError, match=r"no Ray cluster answers at 127.0.0.1:9: "):
        execute(runs_of(study, tmp_path / "other"), jobs=2, say=print, executor=nowhere)
