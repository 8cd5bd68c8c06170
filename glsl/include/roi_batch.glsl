// In which image a region of interest lies.
//
// Before including, the kernel declares batch_count and batch_stride in the uniform block and the constant BATCH_WORDS, and
// defines uint roi_batch_word(uint word), which reads BatchIndicesTensor as 32-bit words.

#ifndef DMLVK_ROI_BATCH_GLSL
#define DMLVK_ROI_BATCH_GLSL

// Whether the region's batch index is one of the input's, and the index. The index has BATCH_WORDS 32-bit words.
bool roi_batch(uint roi, out uint batch) {
    const uint word = roi * p.batch_stride * BATCH_WORDS;
    batch = roi_batch_word(word);
    const bool small = BATCH_WORDS == 1 || roi_batch_word(word + BATCH_WORDS - 1) == 0;
    return small && batch < p.batch_count;
}

#endif
