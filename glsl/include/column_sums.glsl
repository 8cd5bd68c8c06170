// Sums over the lanes of rows that lie side by side: a workgroup has COLUMNS neighbouring units and LOCAL_SIZE_X / COLUMNS
// lanes each, columns fastest, and a unit has an element of each of SUMMED_ROWS rows.
//
// Before including: COLUMNS (a constant), SUMMED_ROWS.

#ifndef DMLVK_COLUMN_SUMS_GLSL
#define DMLVK_COLUMN_SUMS_GLSL

shared vec2 lane_sums[SUMMED_ROWS][COLUMN_INVOCATIONS];

// In the order of the lanes. Every invocation of the workgroup must call, and each gets its column's sums.
void sum_over_columns(inout vec2 values[SUMMED_ROWS]) {
    barrier(); // the last sums have been read
    [[unroll]] for (int j = 0; j < SUMMED_ROWS; ++j) lane_sums[j][gl_LocalInvocationIndex] = values[j];
    barrier();
    [[unroll]] for (int j = 0; j < SUMMED_ROWS; ++j) {
        values[j] = vec2(0);
        for (uint i = gl_LocalInvocationIndex % COLUMNS; i < LOCAL_SIZE_X; i += COLUMNS) values[j] += lane_sums[j][i];
    }
}

#endif
