// DirectML's fusable activations, ElementWiseClip among them, and those that only stand alone, under one switch.
//
//   REAL activate(uint activation, REAL x, REAL param0, REAL param1)
//
// `activation` is the OperatorType's number (OP_ACTIVATION_RELU...), best a specialisation constant so that one case
// remains; OP_INVALID (0) means none. The two parameters are the operator's float attributes in the struct's order, 0
// where it has fewer; `kernels/common/activation.py` makes (activation, param0, param1) from a desc.
// The stand-alone operator and every fused epilogue call this one function, so they agree to the last bit.

#ifndef DMLVK_ACTIVATION_GLSL
#define DMLVK_ACTIVATION_GLSL

#include "math.glsl"

REAL activate(uint activation, REAL x, REAL param0, REAL param1) {
    precise REAL y = x;
    switch (activation) {
        case OP_ACTIVATION_ELU: y = x >= 0.0 ? x : param0 * expm1(x); break;
        case OP_ACTIVATION_CELU: y = max(0.0, x) + min(0.0, param0 * expm1(x / param0)); break;
        case OP_ACTIVATION_SCALED_ELU: y = x > 0.0 ? param1 * x : param1 * (param0 * expm1(x)); break;
        case OP_ACTIVATION_HARD_SIGMOID: y = clamp(param0 * x + param1, 0.0, 1.0); break;
        case OP_ACTIVATION_HARD_SWISH: y = x * clamp(param0 * x + param1, 0.0, 1.0); break;
        case OP_ELEMENT_WISE_CLIP: y = max(param0, min(x, param1)); break;
        case OP_ACTIVATION_LEAKY_RELU: y = x >= 0.0 ? x : param0 * x; break;
        case OP_ACTIVATION_LINEAR: y = param0 * x + param1; break;
        case OP_ACTIVATION_PARAMETRIC_SOFTPLUS: y = param0 * softplus(param1 * x); break;
        case OP_ACTIVATION_SOFTPLUS: y = softplus(param0 * x) / param0; break;
        case OP_ACTIVATION_RELU: y = max(x, 0.0); break;
        case OP_ACTIVATION_THRESHOLDED_RELU: y = x > param0 ? x : 0.0; break;
        case OP_ACTIVATION_SHRINK: y = x > param1 ? x - param0 : x < -param1 ? x + param0 : 0.0; break;
        case OP_ACTIVATION_SIGMOID: return sigmoid(x);
        case OP_ACTIVATION_SWISH: y = x * sigmoid(param0 * x); break;
        case OP_ACTIVATION_TANH: return tanh_accurate(x);
        case OP_ACTIVATION_SCALED_TANH: y = param0 * tanh_accurate(param1 * x); break;
        case OP_ACTIVATION_SOFTSIGN: y = divide(x, 1.0 + abs(x)); break;
        case OP_ACTIVATION_GELU: return gelu(x);
        default: return x; // none, or ActivationIdentity
    }
    return is_nan(x) ? x : y; // max, min and comparisons do not keep NaN by themselves
}

// `activate` for operators into which a clip may be fused, whose ScaleBias comes first. A clip that has one goes by the
// number of its re-issue; nothing else is scaled.
REAL activate_scaled(uint activation, REAL x, REAL param0, REAL param1, REAL scale, REAL bias) {
    if (activation != OP_ELEMENT_WISE_CLIP1) return activate(activation, x, param0, param1);
    precise REAL scaled = x * scale + bias;
    return activate(OP_ELEMENT_WISE_CLIP, scaled, param0, param1);
}

#endif
