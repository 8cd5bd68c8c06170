// One step of Adam, element for element:
//
//   m' = beta1 m + (1 - beta1) g
//   v' = beta2 v + (1 - beta2) g g
//   x' = x - learning_rate alpha m' / (sqrt(v') + epsilon), alpha = sqrt(1 - beta2^T) / (1 - beta1^T), and 1 where T is 0
//
// Bindings: x, m, v, gradient; new_x, new_m, new_v; training_step, a word that holds T. Each of the outputs may be the bytes
//   of any of the first four: an invocation has read all that it writes over before it writes, and no other one reads it.
// Variants: T and U, the data type of all but training_step, one and the same; LANES.
// Constants: RANK 1, ITEMS 1 (items.glsl); X_MODE 0, M_MODE 0, V_MODE 0, GRADIENT_MODE 0, NEW_X_MODE 0, NEW_M_MODE 0,
//   NEW_V_MODE 0 (lanes.glsl); LOCAL_SIZE_X.
// Parameters: those of items.glsl; each tensor's strides in elements for a step of one item in its dimensions, and for one
//   of one element in the innermost; learning_rate, epsilon, the two decay rates beta, rest, 1 - beta, and log_beta, their
//   natural logarithms: 1 - beta^T is -expm1(T log_beta), which loses nothing where beta^T is almost 1.
// Rules: "groups" with LANES > 1, "elements" with 1.

#include "items.glsl"
#include "lanes.glsl"
#include "math.glsl"

LANES_BUFFER(readonly, T, X, x)
LANES_BUFFER(readonly, T, M, m)
LANES_BUFFER(readonly, T, V, v)
LANES_BUFFER(readonly, T, GRADIENT, gradient)
LANES_BUFFER(, U, NEW_X, new_x)
LANES_BUFFER(, U, NEW_M, new_m)
LANES_BUFFER(, U, NEW_V, new_v)
layout(set = 0, binding = BINDING_TRAINING_STEP, std430) readonly buffer TrainingStep { uint training_step[]; };

// learning_rate alpha.
float step_size() {
    const uint t = training_step[BYTE_OFFSET_TRAINING_STEP / 4];
    if (t == 0u) return p.learning_rate;
    const float left1 = -expm1(float(t) * p.log_beta1), left2 = -expm1(float(t) * p.log_beta2);
    return p.learning_rate * (sqrt(left2) / left1);
}

#define VISIT(dimension, coordinate)                                 \
    x_index += (coordinate) * p.x_strides[dimension];                \
    m_index += (coordinate) * p.m_strides[dimension];                \
    v_index += (coordinate) * p.v_strides[dimension];                \
    gradient_index += (coordinate) * p.gradient_strides[dimension];  \
    new_x_index[i] += (coordinate) * p.new_x_strides[dimension];     \
    new_m_index[i] += (coordinate) * p.new_m_strides[dimension];     \
    new_v_index[i] += (coordinate) * p.new_v_strides[dimension];

#define LOAD_LANE(NAME, name) name[i][j] = float(ELEMENT(T, NAME, name, name##_index + j * p.name##_step));
#define STORE(NAME, name)                                                                                           \
    if (LANES == 1 || lanes[i] == LANES) {                                                                          \
        STORE_LANES(U, NAME, name, NAME##_MODE, name##_index[i], p.name##_step, name)                               \
    } else {                                                                                                        \
        [[unroll]] for (uint j = 0; j < LANES; ++j)                                                                 \
            if (j < lanes[i]) ELEMENT(U, NAME, name, name##_index[i] + j * p.name##_step) = U(name[j]);             \
    }

void main() {
    if (beyond_items()) return;
    float x[MOST_ITEMS][LANES], m[MOST_ITEMS][LANES], v[MOST_ITEMS][LANES], gradient[MOST_ITEMS][LANES];
    uint new_x_index[MOST_ITEMS], new_m_index[MOST_ITEMS], new_v_index[MOST_ITEMS];
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        uint x_index = 0, m_index = 0, v_index = 0, gradient_index = 0;
        new_x_index[i] = 0, new_m_index[i] = 0, new_v_index[i] = 0;
        LOCATE(item_number(i))
        lanes[i] = lanes_here();
        if (LANES == 1 || lanes[i] == LANES) {
            LOAD_LANES(T, x[i], X, x, X_MODE, x_index, p.x_step)
            LOAD_LANES(T, m[i], M, m, M_MODE, m_index, p.m_step)
            LOAD_LANES(T, v[i], V, v, V_MODE, v_index, p.v_step)
            LOAD_LANES(T, gradient[i], GRADIENT, gradient, GRADIENT_MODE, gradient_index, p.gradient_step)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) {
                    LOAD_LANE(X, x)
                    LOAD_LANE(M, m)
                    LOAD_LANE(V, v)
                    LOAD_LANE(GRADIENT, gradient)
                }
        }
    }
    const float size = step_size();
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        if (!has_item(i)) continue;
        float new_x[LANES], new_m[LANES], new_v[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j) {
            const float g = gradient[i][j];
            new_m[j] = p.beta1 * m[i][j] + p.rest1 * g;
            new_v[j] = p.beta2 * v[i][j] + p.rest2 * g * g;
            new_x[j] = x[i][j] - size * divide(new_m[j], sqrt(new_v[j]) + p.epsilon);
        }
        STORE(NEW_X, new_x)
        STORE(NEW_M, new_m)
        STORE(NEW_V, new_v)
    }
}
