import time

import pytest
import ray
from ray.cluster_utils import Cluster as Nodes

from nfad.fleet.cluster import Cluster


@pytest.mark.slow
def test_what_a_leaving_node_was_doing_is_done_by_another(tmp_path):
    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    staying, leaving = (nodes.add_node(num_cpus=1, resources={name: 1}) for name in ("staying", "leaving"))
    nodes.wait_for_nodes()
    doomed = leaving.node_id

    def slow(number, folder, progress):
        node = ray.get_runtime_context().get_node_id()
        (folder / f"{number}-{node}").touch()
        for step in range(20):
            time.sleep(0.1)
            progress("working", step, 20)
        return number, node

    gone = False

    def told(*_):
        nonlocal gone
        if not gone and list(tmp_path.glob(f"*-{doomed}")):
            gone = True
            nodes.remove_node(leaving, allow_graceful=False)

    try:
        with Cluster(address=nodes.address, workers=2, memory=2**20) as cluster:
            found = dict(cluster.run(slow, [(number, tmp_path) for number in range(4)], told))
    finally:
        ray.shutdown()
        nodes.shutdown()
    assert gone
    assert {index: number for index, (number, _) in found.items()} == {0: 0, 1: 1, 2: 2, 3: 3}
    tried = [path.name.split("-")[0] for path in tmp_path.iterdir()]
    assert len(tried) > len(set(tried)) == 4  # some were begun twice
    assert staying.node_id in {node for _, node in found.values()}
