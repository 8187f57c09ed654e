from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.dist.pool import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Callable[[int], Pool]]:
    """pool(world_size): the session's processes of that number."""
    pools: dict[int, Pool] = {}

    def get(world_size: int) -> Pool:
        if world_size not in pools:
            pools[world_size] = Pool(world_size)
        return pools[world_size]

    yield get
    for each in pools.values():
        each.close()
