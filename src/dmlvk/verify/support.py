"""What a device can do of the operators, found by lowering their cases for it: nothing is run, and no device opened."""

from __future__ import annotations

import dataclasses

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.lowering import check_data_types, lower
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases.model import OperatorCases
from dmlvk.verify.cases.problem import Variation, build


def missing_features(desc: OperatorDesc, caps: Capabilities) -> frozenset[str]:
    """The device features that a desc needs and a device lacks.

    Args:
        desc: A validated desc.
        caps: The device's.

    Raises:
        UnsupportedError: another limitation than features is met.
    """
    missing: frozenset[str] = frozenset()
    while True:
        own = dataclasses.replace(caps, features=caps.features | missing)
        try:
            check_data_types(desc, own)
            lower(desc, own)
        except UnsupportedError as error:
            if not error.features:
                raise
            missing |= frozenset(error.features)
        else:
            return missing


def unsupported_types(entry: OperatorCases, caps: Capabilities) -> dict[TensorDataType, frozenset[str]]:
    """The data types of which a device runs no case of an operator, each with the fewest features that it would take.

    What a case is called after is the type of its first tensors; others may have types of their own, such as the conditions
    of an ElementWiseIf, so the case that takes least speaks for a data type.
    """
    found: dict[TensorDataType, frozenset[str]] = {}
    for case in sorted(entry.cases, key=lambda case: not case.quick):
        for data_type in case.only or entry.crossed_types:
            known = found.get(data_type)
            if known is None or known:
                desc = build(entry.operator, Variation(case, data_type, "packed")).desc
                missing = missing_features(desc, caps)
                found[data_type] = missing if known is None else min(known, missing, key=len)
    return {data_type: missing for data_type, missing in found.items() if missing}
