"""A language model on a device: its weights, a cache of keys and values, and the plans that feed it and step it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dmlvk.llm.config import ModelConfig, Weights
from dmlvk.llm.sampling import Sampling
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.enums import TensorDataType

Tokens = npt.NDArray[np.int32]


class Decoder:
    """A model with the cache of some sequences, which take their steps together. Not for several threads at once.

    Args:
        device: The device.
        weights: The model.
        capacity: Rows of each sequence's cache, the most tokens that it can have; at most what the model was made for.
        sequences: Sequences.
        data_type: The type of activations and of the cache, FLOAT16 or FLOAT32; what the device is good at where None.

    Attributes:
        config: The model's numbers.
        capacity: As given.
        nbytes: Bytes on the device: weights, cache and all else.
        lengths: For each sequence, the rows of its cache that count. What follows them in the cache is without effect.

    Raises:
        InvalidArgumentError: a capacity that the model was not made for, or less than one sequence.
        UnsupportedError: a weight of a type, or an architecture, for which there are no kernels.
        OutOfDeviceMemoryError: the device has not got as much memory as is needed; none is taken then.
    """

    config: ModelConfig
    capacity: int
    nbytes: int
    lengths: list[int]

    def __init__(
        self,
        device: ComputeDevice,
        weights: Weights,
        *,
        capacity: int,
        sequences: int = 1,
        data_type: TensorDataType | None = None,
    ) -> None:
        raise NotImplementedError

    def feed(self, tokens: Sequence[Sequence[int]], *, all_logits: bool = False) -> list[npt.NDArray[np.float32]]:
        """Appends tokens to the sequences, in pieces.

        Args:
            tokens: For each sequence its new tokens, none where it is to stay as it is.
            all_logits: Whether the logits of each new token are wanted, not only those of the last.

        Returns:
            For each sequence the logits of its new tokens, or of the last of them: (rows, vocabulary). There are none of a
            sequence without new tokens.

        Raises:
            InvalidArgumentError: a token that the model has not, or more of them than the cache has room for. Nothing has
                changed then.
        """
        raise NotImplementedError

    def step(self, sampling: Sequence[Sampling | None], tokens: Sequence[int] | None = None) -> Tokens:
        """Appends one token to each sequence and chooses the next one of each, on the device.

        Args:
            sampling: For each sequence how its token is chosen; None for one that is to stay as it is.
            tokens: The tokens to append, such as the last ones of prompts; those that the last step has chosen where None,
                which the host need not send.

        Returns:
            The chosen tokens, one for each sequence; those of sequences without sampling mean nothing. None of them is
            part of its sequence before the next step.

        Raises:
            InvalidArgumentError: a sequence has no room, or a token is none of the model's. Nothing has changed then.
        """
        raise NotImplementedError

    def truncate(self, sequence: int, length: int) -> None:
        """Cuts a sequence back to its first tokens.

        Raises:
            InvalidArgumentError: it is shorter.
        """
        raise NotImplementedError

    def share(self, source: int, target: int, length: int) -> None:
        """Makes the first tokens of a sequence another one's beginning, which becomes as long.

        Raises:
            InvalidArgumentError: the source is shorter.
        """
        raise NotImplementedError
