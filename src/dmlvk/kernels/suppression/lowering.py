"""Plans for the suppression of boxes that overlap better ones."""

from __future__ import annotations

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS
from dmlvk.kernels.common.parts import chosen_plan, placed
from dmlvk.kernels.common.plan import Launch, Plan, Resource, Source, input_range, output_range
from dmlvk.kernels.common.registry import register, subgroup_features
from dmlvk.kernels.common.shapes import check_rounds, linear_grid, most_invocations, power_of_two
from dmlvk.kernels.suppression.manifest import MARK_BOXES, MASK_BOXES, MOST_CHUNK
from dmlvk.kernels.suppression.rules import SUPPRESSION, SuppressionProblem
from dmlvk.spec.enums import AxisDirection, TensorDataType
from dmlvk.spec.ops.sort import TopK1
from dmlvk.spec.ops.suppression import NonMaxSuppression
from dmlvk.spec.tensor import TensorDesc

_BOXES, _SCORES, _MOST, _OVERLAP, _LEAST = map(input_range, range(5))
_TILE = 64
"""Boxes of a workgroup that compares them with others."""
_MASK_BYTES = 2**25
"""Temporary memory for the masks of a chunk, which has half as many boxes as long as they take more."""
_LEAST_CHUNK = 512


def _problem(desc: NonMaxSuppression) -> SuppressionProblem:
    batch, classes, boxes = desc.tensor("scores_tensor").sizes
    groups = batch * classes
    return SuppressionProblem(groups, boxes, desc.tensor("output_rows_tensor").sizes[0] // groups)


def _chunk_boxes(problem: SuppressionProblem) -> int:
    chunk = min(max(power_of_two(problem.boxes), _TILE), MOST_CHUNK)
    while chunk > _LEAST_CHUNK and problem.groups * chunk * chunk // 8 > _MASK_BYTES:
        chunk //= 2
    return chunk


def _sorting(problem: SuppressionProblem) -> TopK1:
    """The scores of each batch and class, the best first."""
    sizes = (problem.groups, problem.boxes)
    values = TensorDesc(TensorDataType.FLOAT32, sizes)
    return TopK1(
        input_tensor=values,
        output_value_tensor=values,
        output_index_tensor=TensorDesc(TensorDataType.UINT32, sizes),
        axis=1,
        k=problem.boxes,
        axis_direction=AxisDirection.DECREASING,
    )


def _chunks(desc: NonMaxSuppression, problem: SuppressionProblem, caps: Capabilities) -> Plan:
    groups, boxes, room = problem.groups, problem.boxes, problem.room
    classes = desc.tensor("scores_tensor").sizes[1]
    chunk = _chunk_boxes(problem)
    words, tiles = chunk // MASK_BOXES, chunk // _TILE
    most_marks = -(-min(room, (boxes - 1) // chunk * chunk) // MARK_BOXES)
    invocations = min(128, most_invocations(caps))
    choosing = words * 2 * MASK_BOXES + chunk // invocations * most_marks
    writing = -(-groups // invocations) + 6 * -(-room // invocations)
    check_rounds(max(choosing, writing, 2 * MARK_BOXES), caps, desc.dml_name)

    temporary = Resource(Source.TEMPORARY)
    scores, order = (temporary.take(4 * groups * boxes) for _ in range(2))
    counts, chosen = temporary.take(4 * groups), temporary.take(4 * groups * room)
    masks, marked = temporary.take(4 * groups * chunk * words), temporary.take(4 * groups * chunk * max(most_marks, 1))
    sorting = chosen_plan(_sorting(problem), caps)
    scratch = temporary.take(sorting.temporary_bytes)
    has_least = desc.least_score_tensor is not None
    least = _LEAST if has_least else _OVERLAP
    launches: list[Launch] = [
        *placed(sorting, inputs=(_SCORES,), outputs=(scores, order), temporary=scratch.offset),
    ]
    for index in range(-(-boxes // chunk)):
        start = index * chunk
        marks = -(-min(room, start) // MARK_BOXES)
        params = {"groups": groups, "classes": classes, "boxes": boxes, "room": room}
        params |= {"start": start, "chunk": chunk, "words": words, "marks": marks}
        launches.append(
            make_dispatch(
                "suppression_masks",
                (_BOXES, scores, order, _MOST, _OVERLAP, least, counts, chosen, masks, marked),
                linear_grid(groups * tiles * (words + marks), caps),
                variant={"T": "FLOAT32"},
                constants={"LOCAL_SIZE_X": _TILE, "HAS_LEAST": has_least, "CENTERS": desc.center_point_box},
                **params,
                tiles=tiles,
            )
        )
        launches.append(
            make_dispatch(
                "suppression_choose",
                (scores, order, _MOST, least, masks, marked, counts, chosen),
                linear_grid(groups, caps),
                variant={"T": "FLOAT32"},
                constants={"LOCAL_SIZE_X": invocations, "HAS_LEAST": has_least},
                **params,
            )
        )
    launches.append(
        make_dispatch(
            "suppression_rows",
            (counts, chosen, output_range(0), output_range(1)),
            linear_grid(groups, caps),
            variant={},
            constants={"LOCAL_SIZE_X": invocations},
            groups=groups,
            classes=classes,
            room=room,
        )
    )
    return Plan(tuple(launches), temporary_bytes=temporary.end)


register(
    NonMaxSuppression,
    problem=_problem,
    rules=SUPPRESSION,
    schedules={"chunks": _chunks},
    limitations=(LOOP_ROUNDS,),
    features=subgroup_features,
)
