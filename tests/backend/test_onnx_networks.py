"""The networks of the backend test suite, compiled as they are for whoever uses them."""

from __future__ import annotations

from tests.backend.suite import NETWORKS, suite

globals()[NETWORKS] = suite()[NETWORKS]
