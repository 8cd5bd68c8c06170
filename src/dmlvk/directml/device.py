"""``IDMLDevice``: the factory of everything that is executed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Sequence
from typing import Any

from dmlvk.devices.capabilities import Capabilities
from dmlvk.devices.mask import Mask
from dmlvk.directml.binding import BindingTable
from dmlvk.directml.command import CommandList, CommandRecorder
from dmlvk.directml.operator import CompiledOperator, Dispatchable, Operator, OperatorInitializer, Signature, TensorSlot
from dmlvk.engine.default_device import default_device as engine_default_device
from dmlvk.engine.operator import SECONDS_BETWEEN_SAVES
from dmlvk.engine.weights import write_content
from dmlvk.graph.assemble import assemble
from dmlvk.graph.desc import GraphDesc, OperatorGraphNodeDesc
from dmlvk.graph.passes import optimized
from dmlvk.graph.wiring import wire
from dmlvk.kernels.common.plan import Plan
from dmlvk.kernels.lowering import check_data_types, lower
from dmlvk.runtime.device import ComputeDevice, DeviceChoice, DeviceInfo, choose_device
from dmlvk.runtime.measure import learn_fragments, learn_model
from dmlvk.runtime.memory import Buffer, Purpose
from dmlvk.spec.enums import CreateDeviceFlags, ExecutionFlags, Feature, FeatureLevel, TensorDataType, member
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError, other_device
from dmlvk.spec.schema import OperatorDesc

MAXIMUM_FEATURE_LEVEL = FeatureLevel.LEVEL_6_4
"""The level of the specification that the API follows, all operators included; ``dmlvk ops`` lists them, and what the
device cannot do of them."""


class Device(ComputeDevice):
    """``IDMLDevice`` over a Vulkan device of its own. Shared freely between threads; its objects stay with it.

    Args:
        choice: An index, a UUID, part of a name or a ``DeviceInfo``; None for the environment variable DMLVK_DEVICE,
            else the first discrete, integrated, virtual or CPU device.
        flags: ``CreateDeviceFlags.DEBUG`` insists on the validation layer.
        minimum_feature_level: Least level to accept.
        mask: The mask to run under, so that the device does as a lesser one would; None for what the environment says
            (DMLVK_PROFILE, DMLVK_DISABLE and others; see ``Mask``).
        max_memory_bytes: The most bytes of all buffers; None for what the driver gives, of a CPU's three quarters of its
            memory, which is the host's.
        max_launches: The most launches of one operator, 16384 where None: the host prepares each, and a recurrent network
            may take two for each step.

    Attributes:
        private_data: A mapping for the caller's own use, by any key (``SetPrivateData``).

    Raises:
        NoDeviceError: no such device.
        InvalidArgumentError: the environment's mask has an unknown name, or a limit is no integer of at least 1.
        UnsupportedError: the feature level is not reached, or the device has no subgroups of the mask's size.
        VulkanError: the device cannot be opened.
    """

    def __init__(
        self,
        choice: DeviceChoice | DeviceInfo = None,
        *,
        flags: CreateDeviceFlags = CreateDeviceFlags.NONE,
        minimum_feature_level: FeatureLevel = FeatureLevel.LEVEL_1_0,
        mask: Mask | None = None,
        max_memory_bytes: int | None = None,
        max_launches: int | None = None,
    ) -> None:
        flags = member(CreateDeviceFlags, flags, "flags")
        minimum_feature_level = member(FeatureLevel, minimum_feature_level, "minimum_feature_level")
        if flags & CreateDeviceFlags.DEBUG and os.environ.get("DMLVK_VALIDATION") != "1":
            rule = "DEBUG must come with the environment variable DMLVK_VALIDATION=1, set before the first use of dmlvk"
            raise InvalidArgumentError(rule, field="flags", value=flags)
        if minimum_feature_level > MAXIMUM_FEATURE_LEVEL:
            raise _too_high(minimum_feature_level)
        super().__init__(choice, mask=mask, max_memory_bytes=max_memory_bytes, max_launches=max_launches)
        learn_model(self)
        learn_fragments(self)
        self.private_data: dict[object, Any] = {}

    def reopened(self) -> Device:
        """Another device of the same GPU, under the same mask and with the same limits: for when this one is lost.

        Raises:
            NoDeviceError, VulkanError: the GPU is gone, or cannot be opened yet.
        """
        made = Device(
            choose_device(self.info.uuid),
            mask=self.mask,
            max_memory_bytes=self.max_memory_bytes,
            max_launches=self.capabilities.max_launches,
        )
        made.wait_timeout = self.wait_timeout
        return made

    def create_operator(self, desc: OperatorDesc) -> Operator:
        """``IDMLDevice::CreateOperator``: checks a desc against its row and this device's data types. Whether the device
        computes with 64 bits is asked when the operator is compiled, of the kernels that do.

        Raises:
            InvalidArgumentError: the desc breaks a rule; names operator, field, rule and value.
            UnsupportedError: the device lacks a data type.
        """
        if not isinstance(desc, OperatorDesc):
            raise InvalidArgumentError("must be an operator desc", field="desc", value=desc)
        desc.validate(beyond=False)
        check_data_types(desc, self.capabilities)
        return Operator(self, desc)

    def compile_operator(self, operator: Operator, flags: ExecutionFlags = ExecutionFlags.NONE) -> CompiledOperator:
        """``IDMLDevice::CompileOperator``: chooses kernels and creates what pipelines are missing.

        Args:
            operator: An operator of this device.
            flags: ALLOW_HALF_PRECISION_COMPUTATION lets matrix products of FLOAT32 tensors round their factors to float16
                where the device multiplies those faster; sums stay float32. DISABLE_META_COMMANDS has nothing to
                disable. DESCRIPTORS_VOLATILE: see ``CommandList``.

        Raises:
            UnsupportedError: no kernel, or the device lacks a feature or limit that the desc needs.
            StateError: an operator of another device.
        """
        if operator.device is not self:
            raise other_device("the operator", operator.device, "the device that compiles it", self)
        return self.compile_plan(Signature.of(operator.desc), lower(operator.desc, self.capabilities_under(flags)), flags)

    def compile_graph(
        self, desc: GraphDesc, flags: ExecutionFlags = ExecutionFlags.NONE, *, without: Collection[str] = ()
    ) -> CompiledOperator:
        """``IDMLDevice1::CompileGraph``: one compiled operator of many. Its binding slots are the graph's inputs and
        outputs; a graph input that no edge leaves is bound to None. Constant nodes are uploaded now.

        Args:
            desc: The graph; its operators are not looked at again.
            flags: The flags of ``compile_operator``, for all operators.
            without: Names of the passes of ``dmlvk.graph.passes`` to leave out, "all" for every one.

        Raises:
            InvalidArgumentError: a rule of graphs is broken; names the edge or the nodes, the rule and the value.
            UnsupportedError: as ``compile_operator``, naming the node.
            StateError: an operator of another device.
        """
        for index, node in enumerate(desc.nodes):
            if isinstance(node, OperatorGraphNodeDesc) and node.operator.device is not self:
                raise other_device(
                    f"Nodes[{index}]: the operator", node.operator.device, "the device that compiles it", self
                )
        wiring = wire(desc)
        steps = optimized(wiring.steps, wiring.outputs, without=without)
        assembly = assemble(steps, wiring.inputs, wiring.outputs, self.capabilities_under(flags))
        signature = Signature(
            "DML_GRAPH_DESC",
            tuple(TensorSlot(f"GraphInput[{index}]", tensor) for index, tensor in enumerate(wiring.input_tensors)),
            tuple(TensorSlot(f"GraphOutput[{index}]", tensor) for index, tensor in enumerate(wiring.output_tensors)),
            frozenset(),
        )
        constants = []
        for storage in assembly.constants:
            constants.append(self.create_buffer(storage.nbytes, purpose=Purpose.WEIGHTS))
            write_content(constants[-1], storage)
        return self.compile_plan(signature, assembly.plan, flags, constants)

    def capabilities_under(self, flags: ExecutionFlags) -> Capabilities:
        """The capabilities that kernels may rely on where operators are compiled with these flags."""
        if member(ExecutionFlags, flags, "flags") & ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION:
            return dataclasses.replace(self.capabilities, allow_half_precision=True)
        return self.capabilities

    def compile_plan(
        self,
        signature: Signature,
        plan: Plan,
        flags: ExecutionFlags = ExecutionFlags.NONE,
        constants: Sequence[Buffer] = (),
    ) -> CompiledOperator:
        """A compiled operator from a plan made elsewhere, as a graph or a forced kernel is.

        Args:
            signature: Its binding slots.
            plan: The plan of an execution and of the initialisation.
            flags: The flags of ``compile_operator``.
            constants: The buffers that the plan's ranges of ``Source.CONSTANT`` refer to.
        """
        compiled = CompiledOperator(self, signature, plan, flags, constants)
        self.save_pipeline_cache(at_most_every=SECONDS_BETWEEN_SAVES)
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
            raise other_device("the command list", command_list.device, "the device that executes it", self)
        command_list.submit()
        command_list.wait()

    def check_feature_support(self, feature: Feature, query: TensorDataType | Sequence[FeatureLevel]) -> bool | FeatureLevel:
        """``IDMLDevice::CheckFeatureSupport``.

        Args:
            feature: TENSOR_DATA_TYPE_SUPPORT, with a data type, or FEATURE_LEVELS, with the requested levels.
            query: The data type or the levels to ask about.

        Returns:
            Whether the device's kernels handle the data type, or the highest of the requested levels that is reached.

        Raises:
            InvalidArgumentError: an unknown feature, or a query of the wrong kind.
            UnsupportedError: none of the requested levels is reached.
        """
        if member(Feature, feature, "feature") == Feature.TENSOR_DATA_TYPE_SUPPORT:
            return self.supports_data_type(member(TensorDataType, query, "query"))
        if not isinstance(query, Sequence) or not query:
            raise InvalidArgumentError("must be a sequence of FeatureLevel", field="query", value=query)
        levels = [member(FeatureLevel, level, "query") for level in query]
        reached = [level for level in levels if level <= MAXIMUM_FEATURE_LEVEL]
        if not reached:
            raise _too_high(min(levels))
        return max(reached)


def _too_high(asked: FeatureLevel) -> UnsupportedError:
    return UnsupportedError(f"the highest feature level is {MAXIMUM_FEATURE_LEVEL.name}, and {asked.name} is asked for")


def default_device() -> Device:
    """The process-wide device: ``Device()``, opened at the first call."""
    device = engine_default_device()
    assert isinstance(device, Device), "the package says so"
    return device
