"""The choice of tokens: the cases of the row, each sequence of which chooses in another way, and how often what is drawn."""

from __future__ import annotations

import numpy as np
import pytest

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.spec.ops.sample_token import SampleToken, sampling_words
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.problem import Problem, Variation, build, variations
from dmlvk.verify.check import check_problem, run

ENTRY = all_cases()[SampleToken]


@pytest.mark.parametrize(
    "variation",
    [
        pytest.param(
            variation, marks=() if variation.case.quick or variation.case.name == "many equal logits" else pytest.mark.full
        )
        for variation in variations(ENTRY)
    ],
    ids=str,
)
def test_every_way_to_choose(device: dmlvk.Device, variation: Variation) -> None:
    outcome = check_problem(device, ENTRY, variation, build(SampleToken, variation))
    assert outcome.passed, outcome.detail


def test_tokens_are_drawn_as_often_as_they_are_probable(device: dmlvk.Device) -> None:
    """Of 2,000 sequences with one distribution and a seed each, without the tokens that top-k and top-p leave out."""
    probabilities = np.array([0.05, 0.3, 0.1, 0.25, 0.02, 0.2, 0.08])
    sequences, tokens = 2000, len(probabilities)
    tensors = {
        "logits_tensor": np.tile(np.log(probabilities).astype(np.float32) * 1.5, (sequences, 1)),
        "controls_tensor": np.array(
            [sampling_words(temperature=1.5, top_k=6, top_p=0.9, seed=seed) for seed in range(sequences)], np.uint32
        ),
        "history_tensor": np.zeros((sequences, 1), np.int32),
        "lengths_tensor": np.zeros(sequences, np.int32),
    }
    types = {np.float32: TensorDataType.FLOAT32, np.uint32: TensorDataType.UINT32, np.int32: TensorDataType.INT32}
    descs = {name: TensorDesc(types[values.dtype.type], values.shape) for name, values in tensors.items()}
    output = TensorDesc(TensorDataType.INT32, (sequences,))
    inputs = tuple(GuardedTensor(desc, 0) for desc in descs.values())
    for guarded, values in zip(inputs, tensors.values(), strict=True):
        guarded.view()[...] = values
    target = GuardedTensor(output, 0)
    found = target.view(
        run(device, Problem(SampleToken(**descs, output_tensor=output), inputs, (target, None, None))).buffers[0]
    )

    kept = np.where(
        np.isin(np.arange(tokens), (1, 3, 5, 2, 7 - 1)), probabilities, 0
    )  # 0.3, 0.25, 0.2, 0.1 and 0.08 pass 0.9
    expected = kept / kept.sum() * sequences
    counts = np.bincount(found, minlength=tokens)
    assert not counts[kept == 0].any()
    chi_square = (((counts - expected) ** 2)[kept > 0] / expected[kept > 0]).sum()
    assert chi_square < 18.5  # of 4 degrees of freedom: one in a thousand is larger
