"""What tests of bridges share: JAX in float64, and a cluster of two processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A client of two workers, which is not the default one."""
    distributed: Any = pytest.importorskip("distributed", reason="needs distributed")
    local = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=":0",
        preload=["dask.array"],  # a thread may not find what another one is still importing
    )
    with local, distributed.Client(local, set_as_default=False) as client:
        yield client


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    """The same client, as the one there is."""
    with cluster.as_current():
        yield cluster


@pytest.fixture
def jax_in_float64() -> Iterator[None]:
    """JAX in float64; a context would not reach threads of callbacks."""
    jax: Any = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)
