"""The choice of tokens, without a device."""

from __future__ import annotations

import dataclasses

import pytest

from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.lowering import lower
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.ops.sample_token import CONTROL_WORDS, SampleToken, sampling_words

FLOAT32, INT32, UINT32 = TensorDataType.FLOAT32, TensorDataType.INT32, TensorDataType.UINT32
DESC = SampleToken(
    logits_tensor=TensorDesc(FLOAT32, (3, 5000)),
    controls_tensor=TensorDesc(UINT32, (3, CONTROL_WORDS)),
    history_tensor=TensorDesc(INT32, (3, 64)),
    lengths_tensor=TensorDesc(INT32, (3,)),
    output_tensor=TensorDesc(INT32, (3,)),
)


def test_three_dispatches_whatever_the_vocabulary() -> None:
    large = dataclasses.replace(DESC, logits_tensor=TensorDesc(FLOAT32, (3, 262_144)))
    for desc in (DESC, large):
        names = [dispatch.name for dispatch in lower(desc, Capabilities()).dispatches]
        assert names == ["sample_prepare", "sample_choose"]


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("LogitsTensor", {"logits_tensor": TensorDesc(FLOAT32, (3, 2**19 + 1))}),
        ("ControlsTensor", {"controls_tensor": TensorDesc(UINT32, (3, 10))}),
        ("HistoryTensor", {"history_tensor": TensorDesc(INT32, (2, 64))}),
        ("LengthsTensor", {"lengths_tensor": TensorDesc(INT32, (4,))}),
        ("OutputHistoryTensor", {"output_history_tensor": TensorDesc(INT32, (3, 63))}),
        ("LogitsTensor", {"logits_tensor": TensorDesc(FLOAT32, (3, 5000), (8000, 1))}),
    ],
)
def test_sizes_that_do_not_fit(field: str, fields: dict[str, TensorDesc]) -> None:
    DESC.validate()
    with pytest.raises(InvalidArgumentError, match=field):
        dataclasses.replace(DESC, **fields).validate()


def test_words_of_controls() -> None:
    assert sampling_words() == (0, 0, 0, 0x7F800000, 0x3F800000, 0x3F800000, 2**32 - 1, 0, 0, 1, 0, 0, 0)
    words = sampling_words(
        temperature=2.0, top_k=7, top_p=0.5, min_p=1.0, repetition_window=64, seed=2**33 + 5, active=False
    )
    assert words == (0x3F000000, 7, 2**31, 0, 0x3F800000, 0x3F800000, 64, 5, 2, 0, 0, 0, 0)
    assert sampling_words(presence_penalty=2.0, frequency_penalty=-0.5, answer_start=9)[10:] == (2**30, 0xBF000000, 9)
    assert sampling_words(top_p=0.0)[2] == 1, "the most probable token stays"
