"""``IDMLDevice``: the factory of everything that is executed."""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections.abc import Sequence
from typing import Any

from dmlvk.enums import CreateDeviceFlags, ExecutionFlags, Feature, FeatureLevel, TensorDataType
from dmlvk.errors import InvalidArgumentError, StateError, UnsupportedError
from dmlvk.execution.binding import BindingTable
from dmlvk.execution.command import CommandList, CommandRecorder
from dmlvk.execution.operator import CompiledOperator, Dispatchable, Operator, OperatorInitializer, Signature
from dmlvk.kernels.lowering import lower
from dmlvk.kernels.plan import Plan
from dmlvk.runtime.device import ComputeDevice, DeviceChoice, DeviceInfo
from dmlvk.schema import OperatorDesc
from dmlvk.tensor import element_bits

MAXIMUM_FEATURE_LEVEL = FeatureLevel.LEVEL_6_4
"""The level of the specification that the API follows. An operator of it without kernels raises ``UnsupportedError``
when it is compiled; ``dmlvk ops`` lists them."""
_SECONDS_BETWEEN_SAVES = 5.0


class Device(ComputeDevice):
    """``IDMLDevice`` over a Vulkan device of its own. Shared freely between threads; its objects stay with it.

    Args:
        choice: An index, a UUID, part of a name or a ``DeviceInfo``; None for the environment variable DMLVK_DEVICE,
            else the first discrete, integrated, virtual or CPU device.
        flags: ``CreateDeviceFlags.DEBUG`` insists on the validation layer.
        minimum_feature_level: Least level to accept.

    Attributes:
        private_data: For the caller's own use, by any key (``SetPrivateData``).

    Raises:
        NoDeviceError: no such device.
        UnsupportedError: the feature level is not reached.
        VulkanError: the device cannot be opened.
    """

    def __init__(
        self,
        choice: DeviceChoice | DeviceInfo = None,
        *,
        flags: CreateDeviceFlags = CreateDeviceFlags.NONE,
        minimum_feature_level: FeatureLevel = FeatureLevel.LEVEL_1_0,
    ) -> None:
        if flags & CreateDeviceFlags.DEBUG and os.environ.get("DMLVK_VALIDATION") != "1":
            rule = "DEBUG needs the environment variable DMLVK_VALIDATION=1 before the first use of dmlvk"
            raise InvalidArgumentError(rule, field="flags", value=flags)
        if minimum_feature_level > MAXIMUM_FEATURE_LEVEL:
            raise UnsupportedError(f"the highest feature level is {MAXIMUM_FEATURE_LEVEL.name}")
        super().__init__(choice)
        self.private_data: dict[object, Any] = {}

    def create_operator(self, desc: OperatorDesc) -> Operator:
        """``IDMLDevice::CreateOperator``: checks a desc against its row and this device's data types.

        Any device moves 64-bit elements, as pairs of words, and writes 64-bit indices so. Whether it computes with them
        is asked when the operator is compiled, of the kernels that do.

        Raises:
            InvalidArgumentError: the desc breaks a rule; names operator, field, rule and value.
            UnsupportedError: the device lacks a data type.
        """
        if not isinstance(desc, OperatorDesc):
            raise InvalidArgumentError("is an operator desc", field="desc", value=desc)
        desc.validate()
        for slot in desc.input_slots() + desc.output_slots():
            if slot.tensor is None or element_bits(slot.tensor.data_type) == 64:
                continue
            if not self.supports_data_type(slot.tensor.data_type):
                reason = f"{slot.field.dml_name} is {slot.tensor.data_type.name}, which {self.info.name} lacks"
                raise UnsupportedError(reason, operator=desc.type.dml_name)
        return Operator(self, desc)

    def compile_operator(self, operator: Operator, flags: ExecutionFlags = ExecutionFlags.NONE) -> CompiledOperator:
        """``IDMLDevice::CompileOperator``: chooses kernels and creates what pipelines are missing.

        Args:
            operator: From this device.
            flags: ALLOW_HALF_PRECISION_COMPUTATION lets matrix products of FLOAT32 tensors round their factors to float16
                where the device multiplies those faster; sums stay float32. DISABLE_META_COMMANDS has nothing to
                disable. DESCRIPTORS_VOLATILE: see ``CommandList``.

        Raises:
            UnsupportedError: no kernel, or the device lacks a feature or limit that the desc needs.
            StateError: an operator of another device.
        """
        if operator.device is not self:
            raise StateError(f"the operator belongs to {operator.device}, not to {self}")
        caps = self.capabilities
        if flags & ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION:
            caps = dataclasses.replace(caps, allow_half_precision=True)
        return self.compile_plan(Signature.of(operator.desc), lower(operator.desc, caps), flags)

    def compile_plan(
        self, signature: Signature, plan: Plan, flags: ExecutionFlags = ExecutionFlags.NONE
    ) -> CompiledOperator:
        """A compiled operator from a plan made elsewhere, as a graph or a forced kernel is.

        Args:
            signature: Its binding slots.
            plan: What it dispatches.
            flags: As for ``compile_operator``.
        """
        compiled = CompiledOperator(self, signature, plan, flags)
        self.save_pipeline_cache(at_most_every=_SECONDS_BETWEEN_SAVES)
        return compiled

    def create_operator_initializer(self, operators: Sequence[CompiledOperator] = ()) -> OperatorInitializer:
        """``IDMLDevice::CreateOperatorInitializer`` for any number of compiled operators of this device.

        Raises:
            StateError: an operator of another device, initialised already or named twice.
        """
        return OperatorInitializer(self, operators)

    def create_binding_table(self, dispatchable: Dispatchable | None = None) -> BindingTable:
        """``IDMLDevice::CreateBindingTable``; without a dispatchable an empty table, to be reset with one."""
        return BindingTable(self, dispatchable)

    def create_command_recorder(self) -> CommandRecorder:
        """``IDMLDevice::CreateCommandRecorder``."""
        return CommandRecorder(self)

    def create_command_list(self, *, timestamps: bool = False) -> CommandList:
        """A list to record into.

        Args:
            timestamps: Whether ``CommandList.timings`` will be asked for; costs a little of every dispatch.
        """
        return CommandList(self, timestamps=timestamps)

    def execute(self, command_list: CommandList) -> None:
        """Submits a list and waits for it.

        Raises:
            StateError: a list of another device; and what ``CommandList.submit`` raises.
        """
        if command_list.device is not self:
            raise StateError(f"the command list belongs to {command_list.device}, not to {self}")
        command_list.submit()
        command_list.wait()

    def check_feature_support(self, feature: Feature, query: TensorDataType | Sequence[FeatureLevel]) -> bool | FeatureLevel:
        """``IDMLDevice::CheckFeatureSupport``.

        Args:
            feature: TENSOR_DATA_TYPE_SUPPORT, with a data type, or FEATURE_LEVELS, with the requested levels.
            query: What is asked about.

        Returns:
            Whether the device's kernels handle the data type, or the highest of the requested levels that is reached.

        Raises:
            InvalidArgumentError: an unknown feature, or a query of the wrong kind.
            UnsupportedError: none of the requested levels is reached.
        """
        if feature == Feature.TENSOR_DATA_TYPE_SUPPORT:
            if not isinstance(query, int) or query not in list(TensorDataType):
                raise InvalidArgumentError("is a TensorDataType", field="query", value=query)
            return self.supports_data_type(TensorDataType(query))
        if feature == Feature.FEATURE_LEVELS:
            levels = () if isinstance(query, int) else query
            if not levels or any(level not in list(FeatureLevel) for level in levels):
                raise InvalidArgumentError("is a sequence of FeatureLevel", field="query", value=query)
            reached = [FeatureLevel(level) for level in levels if level <= MAXIMUM_FEATURE_LEVEL]
            if not reached:
                raise UnsupportedError(f"the highest feature level is {MAXIMUM_FEATURE_LEVEL.name}")
            return max(reached)
        raise InvalidArgumentError("is a Feature", field="feature", value=feature)


_default_lock = threading.Lock()


def default_device() -> Device:
    """The process-wide device: ``Device()``, opened at the first call."""
    with _default_lock:
        return _open_default()


@functools.cache
def _open_default() -> Device:
    return Device()
