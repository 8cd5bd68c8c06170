"""DirectML's enumerations, by the mechanical rule: ``DML_REDUCE_FUNCTION_SUM`` is ``ReduceFunction.SUM``.

Values are DirectML's own (header target 0x6400). GLSL constants that shaders share with the host are generated from
these classes when the kernels are built, so no number is written twice.
"""

from __future__ import annotations

import enum
import functools
from typing import TypeVar

from dmlvk.spec.errors import InvalidArgumentError

_E = TypeVar("_E", bound=enum.IntEnum | enum.IntFlag)


def member_or_none(enumeration: type[_E], value: object) -> _E | None:
    """The member that a value is or that a number stands for, any kind of number, numpy's as well. None where there is no
    such member; a member of another enumeration is none of this one."""
    if type(value) is enumeration:
        found = value
    elif isinstance(value, enum.Enum):
        return None
    else:
        try:
            found = enumeration(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return None
    return None if issubclass(enumeration, enum.IntFlag) and found & ~_all_flags(enumeration) else found


@functools.cache
def _all_flags(enumeration: type[enum.IntFlag]) -> int:
    return sum(enumeration)


def member_rule(enumeration: type[enum.Enum]) -> str:
    """What a field of the enumeration must be: the rule of errors, with every value that is allowed."""
    allowed = ", ".join(f"{member.value} ({name})" for name, member in enumeration.__members__.items())
    several = ", or a union of these" if issubclass(enumeration, enum.IntFlag) else ""
    return f"must be a {enumeration.__name__}: {allowed}{several}"


def member(enumeration: type[_E], value: object, field: str) -> _E:
    """The member that a value is or that a number stands for.

    Raises:
        InvalidArgumentError: there is none; names the field and the values that are allowed.
    """
    found = member_or_none(enumeration, value)
    if found is None:
        raise InvalidArgumentError(member_rule(enumeration), field=field, value=value)
    return found


class TensorDataType(enum.IntEnum):
    """``DML_TENSOR_DATA_TYPE``."""

    UNKNOWN = 0
    FLOAT32 = 1
    FLOAT16 = 2
    UINT32 = 3
    UINT16 = 4
    UINT8 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    FLOAT64 = 9
    UINT64 = 10
    INT64 = 11
    UINT4 = 12
    INT4 = 13


class TensorType(enum.IntEnum):
    """``DML_TENSOR_TYPE``."""

    INVALID = 0
    BUFFER = 1


class TensorFlags(enum.IntFlag):
    """``DML_TENSOR_FLAGS``."""

    NONE = 0
    OWNED_BY_DML = 1


class OperatorType(enum.IntEnum):
    """``DML_OPERATOR_TYPE``."""

    INVALID = 0
    ELEMENT_WISE_IDENTITY = 1
    ELEMENT_WISE_ABS = 2
    ELEMENT_WISE_ACOS = 3
    ELEMENT_WISE_ADD = 4
    ELEMENT_WISE_ASIN = 5
    ELEMENT_WISE_ATAN = 6
    ELEMENT_WISE_CEIL = 7
    ELEMENT_WISE_CLIP = 8
    ELEMENT_WISE_COS = 9
    ELEMENT_WISE_DIVIDE = 10
    ELEMENT_WISE_EXP = 11
    ELEMENT_WISE_FLOOR = 12
    ELEMENT_WISE_LOG = 13
    ELEMENT_WISE_LOGICAL_AND = 14
    ELEMENT_WISE_LOGICAL_EQUALS = 15
    ELEMENT_WISE_LOGICAL_GREATER_THAN = 16
    ELEMENT_WISE_LOGICAL_LESS_THAN = 17
    ELEMENT_WISE_LOGICAL_NOT = 18
    ELEMENT_WISE_LOGICAL_OR = 19
    ELEMENT_WISE_LOGICAL_XOR = 20
    ELEMENT_WISE_MAX = 21
    ELEMENT_WISE_MEAN = 22
    ELEMENT_WISE_MIN = 23
    ELEMENT_WISE_MULTIPLY = 24
    ELEMENT_WISE_POW = 25
    ELEMENT_WISE_CONSTANT_POW = 26
    ELEMENT_WISE_RECIP = 27
    ELEMENT_WISE_SIN = 28
    ELEMENT_WISE_SQRT = 29
    ELEMENT_WISE_SUBTRACT = 30
    ELEMENT_WISE_TAN = 31
    ELEMENT_WISE_THRESHOLD = 32
    ELEMENT_WISE_QUANTIZE_LINEAR = 33
    ELEMENT_WISE_DEQUANTIZE_LINEAR = 34
    ACTIVATION_ELU = 35
    ACTIVATION_HARDMAX = 36
    ACTIVATION_HARD_SIGMOID = 37
    ACTIVATION_IDENTITY = 38
    ACTIVATION_LEAKY_RELU = 39
    ACTIVATION_LINEAR = 40
    ACTIVATION_LOG_SOFTMAX = 41
    ACTIVATION_PARAMETERIZED_RELU = 42
    ACTIVATION_PARAMETRIC_SOFTPLUS = 43
    ACTIVATION_RELU = 44
    ACTIVATION_SCALED_ELU = 45
    ACTIVATION_SCALED_TANH = 46
    ACTIVATION_SIGMOID = 47
    ACTIVATION_SOFTMAX = 48
    ACTIVATION_SOFTPLUS = 49
    ACTIVATION_SOFTSIGN = 50
    ACTIVATION_TANH = 51
    ACTIVATION_THRESHOLDED_RELU = 52
    CONVOLUTION = 53
    GEMM = 54
    REDUCE = 55
    AVERAGE_POOLING = 56
    LP_POOLING = 57
    MAX_POOLING = 58
    ROI_POOLING = 59
    SLICE = 60
    CAST = 61
    SPLIT = 62
    JOIN = 63
    PADDING = 64
    VALUE_SCALE_2D = 65
    UPSAMPLE_2D = 66
    GATHER = 67
    SPACE_TO_DEPTH = 68
    DEPTH_TO_SPACE = 69
    TILE = 70
    TOP_K = 71
    BATCH_NORMALIZATION = 72
    MEAN_VARIANCE_NORMALIZATION = 73
    LOCAL_RESPONSE_NORMALIZATION = 74
    LP_NORMALIZATION = 75
    RNN = 76
    LSTM = 77
    GRU = 78
    ELEMENT_WISE_SIGN = 79
    ELEMENT_WISE_IS_NAN = 80
    ELEMENT_WISE_ERF = 81
    ELEMENT_WISE_SINH = 82
    ELEMENT_WISE_COSH = 83
    ELEMENT_WISE_TANH = 84
    ELEMENT_WISE_ASINH = 85
    ELEMENT_WISE_ACOSH = 86
    ELEMENT_WISE_ATANH = 87
    ELEMENT_WISE_IF = 88
    ELEMENT_WISE_ADD1 = 89
    ACTIVATION_SHRINK = 90
    MAX_POOLING1 = 91
    MAX_UNPOOLING = 92
    DIAGONAL_MATRIX = 93
    SCATTER_ELEMENTS = 94
    SCATTER = 94
    ONE_HOT = 95
    RESAMPLE = 96
    ELEMENT_WISE_BIT_SHIFT_LEFT = 97
    ELEMENT_WISE_BIT_SHIFT_RIGHT = 98
    ELEMENT_WISE_ROUND = 99
    ELEMENT_WISE_IS_INFINITY = 100
    ELEMENT_WISE_MODULUS_TRUNCATE = 101
    ELEMENT_WISE_MODULUS_FLOOR = 102
    FILL_VALUE_CONSTANT = 103
    FILL_VALUE_SEQUENCE = 104
    CUMULATIVE_SUMMATION = 105
    REVERSE_SUBSEQUENCES = 106
    GATHER_ELEMENTS = 107
    GATHER_ND = 108
    SCATTER_ND = 109
    MAX_POOLING2 = 110
    SLICE1 = 111
    TOP_K1 = 112
    DEPTH_TO_SPACE1 = 113
    SPACE_TO_DEPTH1 = 114
    MEAN_VARIANCE_NORMALIZATION1 = 115
    RESAMPLE1 = 116
    MATRIX_MULTIPLY_INTEGER = 117
    QUANTIZED_LINEAR_MATRIX_MULTIPLY = 118
    CONVOLUTION_INTEGER = 119
    QUANTIZED_LINEAR_CONVOLUTION = 120
    ELEMENT_WISE_BIT_AND = 121
    ELEMENT_WISE_BIT_OR = 122
    ELEMENT_WISE_BIT_XOR = 123
    ELEMENT_WISE_BIT_NOT = 124
    ELEMENT_WISE_BIT_COUNT = 125
    ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL = 126
    ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL = 127
    ACTIVATION_CELU = 128
    ACTIVATION_RELU_GRAD = 129
    AVERAGE_POOLING_GRAD = 130
    MAX_POOLING_GRAD = 131
    RANDOM_GENERATOR = 132
    NONZERO_COORDINATES = 133
    RESAMPLE_GRAD = 134
    SLICE_GRAD = 135
    ADAM_OPTIMIZER = 136
    ARGMIN = 137
    ARGMAX = 138
    ROI_ALIGN = 139
    GATHER_ND1 = 140
    ELEMENT_WISE_ATAN_YX = 141
    ELEMENT_WISE_CLIP_GRAD = 142
    ELEMENT_WISE_DIFFERENCE_SQUARE = 143
    LOCAL_RESPONSE_NORMALIZATION_GRAD = 144
    CUMULATIVE_PRODUCT = 145
    BATCH_NORMALIZATION_GRAD = 146
    ELEMENT_WISE_QUANTIZED_LINEAR_ADD = 147
    DYNAMIC_QUANTIZE_LINEAR = 148
    ROI_ALIGN1 = 149
    ROI_ALIGN_GRAD = 150
    BATCH_NORMALIZATION_TRAINING = 151
    BATCH_NORMALIZATION_TRAINING_GRAD = 152
    ELEMENT_WISE_CLIP1 = 153
    ELEMENT_WISE_CLIP_GRAD1 = 154
    PADDING1 = 155
    ELEMENT_WISE_NEGATE = 156
    ACTIVATION_GELU = 157
    ACTIVATION_SOFTMAX1 = 158
    ACTIVATION_LOG_SOFTMAX1 = 159
    ACTIVATION_HARDMAX1 = 160
    RESAMPLE2 = 161
    RESAMPLE_GRAD1 = 162
    DIAGONAL_MATRIX1 = 163
    MULTIHEAD_ATTENTION = 164
    LP_POOLING1 = 165
    AVERAGE_POOLING1 = 166
    ACTIVATION_SWISH = 167
    ACTIVATION_HARD_SWISH = 168
    QUANTIZED_LINEAR_AVERAGE_POOLING = 169
    MATRIX_MULTIPLY_INTEGER_TO_FLOAT = 170
    MEAN_VARIANCE_NORMALIZATION2 = 171
    MULTIHEAD_ATTENTION1 = 172
    QUANTIZE = 173
    DEQUANTIZE = 174
    RESAMPLE3 = 175
    FOLD = 176
    UNFOLD = 177

    @property
    def dml_name(self) -> str:
        """The DirectML constant, ``DML_OPERATOR_...``."""
        return f"DML_OPERATOR_{self.name}"

    @property
    def feature_level(self) -> FeatureLevel:
        """The level at which DirectML's header introduced the operator."""
        return next(level for level, operators in _INTRODUCED.items() if self in operators)


class ReduceFunction(enum.IntEnum):
    """``DML_REDUCE_FUNCTION``."""

    ARGMAX = 0
    ARGMIN = 1
    AVERAGE = 2
    L1 = 3
    L2 = 4
    LOG_SUM = 5
    LOG_SUM_EXP = 6
    MAX = 7
    MIN = 8
    MULTIPLY = 9
    SUM = 10
    SUM_SQUARE = 11


class MatrixTransform(enum.IntEnum):
    """``DML_MATRIX_TRANSFORM``."""

    NONE = 0
    TRANSPOSE = 1


class ConvolutionMode(enum.IntEnum):
    """``DML_CONVOLUTION_MODE``."""

    CONVOLUTION = 0
    CROSS_CORRELATION = 1


class ConvolutionDirection(enum.IntEnum):
    """``DML_CONVOLUTION_DIRECTION``."""

    FORWARD = 0
    BACKWARD = 1


class PaddingMode(enum.IntEnum):
    """``DML_PADDING_MODE``."""

    CONSTANT = 0
    EDGE = 1
    REFLECTION = 2
    SYMMETRIC = 3
    WRAP = 4


class InterpolationMode(enum.IntEnum):
    """``DML_INTERPOLATION_MODE``."""

    NEAREST_NEIGHBOR = 0
    LINEAR = 1


class RecurrentNetworkDirection(enum.IntEnum):
    """``DML_RECURRENT_NETWORK_DIRECTION``."""

    FORWARD = 0
    BACKWARD = 1
    BIDIRECTIONAL = 2


class RoundingMode(enum.IntEnum):
    """``DML_ROUNDING_MODE``."""

    HALVES_TO_NEAREST_EVEN = 0
    TOWARD_ZERO = 1
    TOWARD_INFINITY = 2


class IsInfinityMode(enum.IntEnum):
    """``DML_IS_INFINITY_MODE``."""

    EITHER = 0
    POSITIVE = 1
    NEGATIVE = 2


class AxisDirection(enum.IntEnum):
    """``DML_AXIS_DIRECTION``."""

    INCREASING = 0
    DECREASING = 1


class DepthSpaceOrder(enum.IntEnum):
    """``DML_DEPTH_SPACE_ORDER``."""

    DEPTH_COLUMN_ROW = 0
    COLUMN_ROW_DEPTH = 1


class RandomGeneratorType(enum.IntEnum):
    """``DML_RANDOM_GENERATOR_TYPE``."""

    PHILOX_4X32_10 = 0


class MultiheadAttentionMaskType(enum.IntEnum):
    """``DML_MULTIHEAD_ATTENTION_MASK_TYPE``."""

    NONE = 0
    KEY_SEQUENCE_LENGTH = 1
    KEY_SEQUENCE_END_START = 2
    KEY_QUERY_SEQUENCE_LENGTH_START_END = 3
    BOOLEAN = 4


class QuantizationType(enum.IntEnum):
    """``DML_QUANTIZATION_TYPE``."""

    NONE = 0
    SCALE = 1
    SCALE_ZERO_POINT = 2


class FeatureLevel(enum.IntEnum):
    """``DML_FEATURE_LEVEL``."""

    LEVEL_1_0 = 4096
    LEVEL_2_0 = 8192
    LEVEL_2_1 = 8448
    LEVEL_3_0 = 12288
    LEVEL_3_1 = 12544
    LEVEL_4_0 = 16384
    LEVEL_4_1 = 16640
    LEVEL_5_0 = 20480
    LEVEL_5_1 = 20736
    LEVEL_5_2 = 20992
    LEVEL_6_0 = 24576
    LEVEL_6_1 = 24832
    LEVEL_6_2 = 25088
    LEVEL_6_3 = 25344
    LEVEL_6_4 = 25600


class Feature(enum.IntEnum):
    """``DML_FEATURE``."""

    TENSOR_DATA_TYPE_SUPPORT = 0
    FEATURE_LEVELS = 1


class ExecutionFlags(enum.IntFlag):
    """``DML_EXECUTION_FLAGS``."""

    NONE = 0
    ALLOW_HALF_PRECISION_COMPUTATION = 1
    DISABLE_META_COMMANDS = 2
    DESCRIPTORS_VOLATILE = 4


class CreateDeviceFlags(enum.IntFlag):
    """``DML_CREATE_DEVICE_FLAGS``."""

    NONE = 0
    DEBUG = 1


class BindingType(enum.IntEnum):
    """``DML_BINDING_TYPE``."""

    NONE = 0
    BUFFER = 1
    BUFFER_ARRAY = 2


class GraphEdgeType(enum.IntEnum):
    """``DML_GRAPH_EDGE_TYPE``."""

    INVALID = 0
    INPUT = 1
    OUTPUT = 2
    INTERMEDIATE = 3


class GraphNodeType(enum.IntEnum):
    """``DML_GRAPH_NODE_TYPE``."""

    INVALID = 0
    OPERATOR = 1
    CONSTANT = 2


_INTRODUCED: dict[FeatureLevel, frozenset[OperatorType]] = {
    FeatureLevel.LEVEL_1_0: frozenset(
        {
            OperatorType.ELEMENT_WISE_IDENTITY,
            OperatorType.ELEMENT_WISE_ABS,
            OperatorType.ELEMENT_WISE_ACOS,
            OperatorType.ELEMENT_WISE_ADD,
            OperatorType.ELEMENT_WISE_ASIN,
            OperatorType.ELEMENT_WISE_ATAN,
            OperatorType.ELEMENT_WISE_CEIL,
            OperatorType.ELEMENT_WISE_CLIP,
            OperatorType.ELEMENT_WISE_COS,
            OperatorType.ELEMENT_WISE_DIVIDE,
            OperatorType.ELEMENT_WISE_EXP,
            OperatorType.ELEMENT_WISE_FLOOR,
            OperatorType.ELEMENT_WISE_LOG,
            OperatorType.ELEMENT_WISE_LOGICAL_AND,
            OperatorType.ELEMENT_WISE_LOGICAL_EQUALS,
            OperatorType.ELEMENT_WISE_LOGICAL_GREATER_THAN,
            OperatorType.ELEMENT_WISE_LOGICAL_LESS_THAN,
            OperatorType.ELEMENT_WISE_LOGICAL_NOT,
            OperatorType.ELEMENT_WISE_LOGICAL_OR,
            OperatorType.ELEMENT_WISE_LOGICAL_XOR,
            OperatorType.ELEMENT_WISE_MAX,
            OperatorType.ELEMENT_WISE_MEAN,
            OperatorType.ELEMENT_WISE_MIN,
            OperatorType.ELEMENT_WISE_MULTIPLY,
            OperatorType.ELEMENT_WISE_POW,
            OperatorType.ELEMENT_WISE_CONSTANT_POW,
            OperatorType.ELEMENT_WISE_RECIP,
            OperatorType.ELEMENT_WISE_SIN,
            OperatorType.ELEMENT_WISE_SQRT,
            OperatorType.ELEMENT_WISE_SUBTRACT,
            OperatorType.ELEMENT_WISE_TAN,
            OperatorType.ELEMENT_WISE_THRESHOLD,
            OperatorType.ELEMENT_WISE_QUANTIZE_LINEAR,
            OperatorType.ELEMENT_WISE_DEQUANTIZE_LINEAR,
            OperatorType.ACTIVATION_ELU,
            OperatorType.ACTIVATION_HARDMAX,
            OperatorType.ACTIVATION_HARD_SIGMOID,
            OperatorType.ACTIVATION_IDENTITY,
            OperatorType.ACTIVATION_LEAKY_RELU,
            OperatorType.ACTIVATION_LINEAR,
            OperatorType.ACTIVATION_LOG_SOFTMAX,
            OperatorType.ACTIVATION_PARAMETERIZED_RELU,
            OperatorType.ACTIVATION_PARAMETRIC_SOFTPLUS,
            OperatorType.ACTIVATION_RELU,
            OperatorType.ACTIVATION_SCALED_ELU,
            OperatorType.ACTIVATION_SCALED_TANH,
            OperatorType.ACTIVATION_SIGMOID,
            OperatorType.ACTIVATION_SOFTMAX,
            OperatorType.ACTIVATION_SOFTPLUS,
            OperatorType.ACTIVATION_SOFTSIGN,
            OperatorType.ACTIVATION_TANH,
            OperatorType.ACTIVATION_THRESHOLDED_RELU,
            OperatorType.CONVOLUTION,
            OperatorType.GEMM,
            OperatorType.REDUCE,
            OperatorType.AVERAGE_POOLING,
            OperatorType.LP_POOLING,
            OperatorType.MAX_POOLING,
            OperatorType.ROI_POOLING,
            OperatorType.SLICE,
            OperatorType.CAST,
            OperatorType.SPLIT,
            OperatorType.JOIN,
            OperatorType.PADDING,
            OperatorType.VALUE_SCALE_2D,
            OperatorType.UPSAMPLE_2D,
            OperatorType.GATHER,
            OperatorType.SPACE_TO_DEPTH,
            OperatorType.DEPTH_TO_SPACE,
            OperatorType.TILE,
            OperatorType.TOP_K,
            OperatorType.BATCH_NORMALIZATION,
            OperatorType.MEAN_VARIANCE_NORMALIZATION,
            OperatorType.LOCAL_RESPONSE_NORMALIZATION,
            OperatorType.LP_NORMALIZATION,
            OperatorType.RNN,
            OperatorType.LSTM,
            OperatorType.GRU,
        }
    ),
    FeatureLevel.LEVEL_2_0: frozenset(
        {
            OperatorType.ELEMENT_WISE_SIGN,
            OperatorType.ELEMENT_WISE_IS_NAN,
            OperatorType.ELEMENT_WISE_ERF,
            OperatorType.ELEMENT_WISE_SINH,
            OperatorType.ELEMENT_WISE_COSH,
            OperatorType.ELEMENT_WISE_TANH,
            OperatorType.ELEMENT_WISE_ASINH,
            OperatorType.ELEMENT_WISE_ACOSH,
            OperatorType.ELEMENT_WISE_ATANH,
            OperatorType.ELEMENT_WISE_IF,
            OperatorType.ELEMENT_WISE_ADD1,
            OperatorType.ACTIVATION_SHRINK,
            OperatorType.MAX_POOLING1,
            OperatorType.MAX_UNPOOLING,
            OperatorType.DIAGONAL_MATRIX,
            OperatorType.SCATTER_ELEMENTS,
            OperatorType.ONE_HOT,
            OperatorType.RESAMPLE,
        }
    ),
    FeatureLevel.LEVEL_2_1: frozenset(
        {
            OperatorType.ELEMENT_WISE_BIT_SHIFT_LEFT,
            OperatorType.ELEMENT_WISE_BIT_SHIFT_RIGHT,
            OperatorType.ELEMENT_WISE_ROUND,
            OperatorType.ELEMENT_WISE_IS_INFINITY,
            OperatorType.ELEMENT_WISE_MODULUS_TRUNCATE,
            OperatorType.ELEMENT_WISE_MODULUS_FLOOR,
            OperatorType.FILL_VALUE_CONSTANT,
            OperatorType.FILL_VALUE_SEQUENCE,
            OperatorType.CUMULATIVE_SUMMATION,
            OperatorType.REVERSE_SUBSEQUENCES,
            OperatorType.GATHER_ELEMENTS,
            OperatorType.GATHER_ND,
            OperatorType.SCATTER_ND,
            OperatorType.MAX_POOLING2,
            OperatorType.SLICE1,
            OperatorType.TOP_K1,
            OperatorType.DEPTH_TO_SPACE1,
            OperatorType.SPACE_TO_DEPTH1,
            OperatorType.MEAN_VARIANCE_NORMALIZATION1,
            OperatorType.RESAMPLE1,
            OperatorType.MATRIX_MULTIPLY_INTEGER,
            OperatorType.QUANTIZED_LINEAR_MATRIX_MULTIPLY,
            OperatorType.CONVOLUTION_INTEGER,
            OperatorType.QUANTIZED_LINEAR_CONVOLUTION,
        }
    ),
    FeatureLevel.LEVEL_3_0: frozenset(
        {
            OperatorType.ELEMENT_WISE_BIT_AND,
            OperatorType.ELEMENT_WISE_BIT_OR,
            OperatorType.ELEMENT_WISE_BIT_XOR,
            OperatorType.ELEMENT_WISE_BIT_NOT,
            OperatorType.ELEMENT_WISE_BIT_COUNT,
            OperatorType.ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL,
            OperatorType.ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL,
            OperatorType.ACTIVATION_CELU,
            OperatorType.ACTIVATION_RELU_GRAD,
            OperatorType.AVERAGE_POOLING_GRAD,
            OperatorType.MAX_POOLING_GRAD,
            OperatorType.RANDOM_GENERATOR,
            OperatorType.NONZERO_COORDINATES,
            OperatorType.RESAMPLE_GRAD,
            OperatorType.SLICE_GRAD,
            OperatorType.ADAM_OPTIMIZER,
            OperatorType.ARGMIN,
            OperatorType.ARGMAX,
            OperatorType.ROI_ALIGN,
            OperatorType.GATHER_ND1,
        }
    ),
    FeatureLevel.LEVEL_3_1: frozenset(
        {
            OperatorType.ELEMENT_WISE_ATAN_YX,
            OperatorType.ELEMENT_WISE_CLIP_GRAD,
            OperatorType.ELEMENT_WISE_DIFFERENCE_SQUARE,
            OperatorType.LOCAL_RESPONSE_NORMALIZATION_GRAD,
            OperatorType.CUMULATIVE_PRODUCT,
            OperatorType.BATCH_NORMALIZATION_GRAD,
        }
    ),
    FeatureLevel.LEVEL_4_0: frozenset(
        {
            OperatorType.ELEMENT_WISE_QUANTIZED_LINEAR_ADD,
            OperatorType.DYNAMIC_QUANTIZE_LINEAR,
            OperatorType.ROI_ALIGN1,
        }
    ),
    FeatureLevel.LEVEL_4_1: frozenset(
        {
            OperatorType.ROI_ALIGN_GRAD,
            OperatorType.BATCH_NORMALIZATION_TRAINING,
            OperatorType.BATCH_NORMALIZATION_TRAINING_GRAD,
        }
    ),
    FeatureLevel.LEVEL_5_0: frozenset(
        {
            OperatorType.ELEMENT_WISE_CLIP1,
            OperatorType.ELEMENT_WISE_CLIP_GRAD1,
            OperatorType.PADDING1,
            OperatorType.ELEMENT_WISE_NEGATE,
        }
    ),
    FeatureLevel.LEVEL_5_1: frozenset(
        {
            OperatorType.ACTIVATION_GELU,
            OperatorType.ACTIVATION_SOFTMAX1,
            OperatorType.ACTIVATION_LOG_SOFTMAX1,
            OperatorType.ACTIVATION_HARDMAX1,
            OperatorType.RESAMPLE2,
            OperatorType.RESAMPLE_GRAD1,
            OperatorType.DIAGONAL_MATRIX1,
        }
    ),
    FeatureLevel.LEVEL_6_1: frozenset(
        {
            OperatorType.MULTIHEAD_ATTENTION,
        }
    ),
    FeatureLevel.LEVEL_6_2: frozenset(
        {
            OperatorType.LP_POOLING1,
            OperatorType.AVERAGE_POOLING1,
            OperatorType.ACTIVATION_SWISH,
            OperatorType.ACTIVATION_HARD_SWISH,
            OperatorType.QUANTIZED_LINEAR_AVERAGE_POOLING,
            OperatorType.MATRIX_MULTIPLY_INTEGER_TO_FLOAT,
        }
    ),
    FeatureLevel.LEVEL_6_3: frozenset(
        {
            OperatorType.MEAN_VARIANCE_NORMALIZATION2,
            OperatorType.MULTIHEAD_ATTENTION1,
            OperatorType.QUANTIZE,
            OperatorType.DEQUANTIZE,
        }
    ),
    FeatureLevel.LEVEL_6_4: frozenset(
        {
            OperatorType.RESAMPLE3,
            OperatorType.FOLD,
            OperatorType.UNFOLD,
        }
    ),
}
