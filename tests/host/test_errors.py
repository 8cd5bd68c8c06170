"""The exceptions as values."""

from __future__ import annotations

import copy
import pickle

import pytest

from dmlvk.spec import errors

ERRORS = [
    errors.BindingError("is a rule", operator="DML_OPERATOR_X", field="Inputs", value=(1, 2)),
    errors.StateError("in the wrong order"),
    errors.UnsupportedError("has no kernel", operator="DML_OPERATOR_X"),
    errors.UnsupportedNodeError("node", "Op", "", 17, "has no converter"),
    errors.vulkan_error(-4, "vkQueueSubmit", "why"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_they_travel_between_processes(error: errors.DmlvkError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)
