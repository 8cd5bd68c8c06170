// ONNX Runtime's graphs as bytes of ONNX's own messages, which Python reads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interface.h"

namespace dmlvk::ort {

/// Bytes of a constant tensor that are not in the message. ONNX Runtime has them for as long as its graph lives.
struct Weight {
    std::string name;
    const void* data;
    size_t bytes;
};

/// A graph.
///
/// `proto` is a GraphProto: its nodes in order, what it is fed as `input`, what it makes as `output`, the type of every value
/// that it or a node reads or makes as `value_info`, and every constant that they read as `initializer`: those of outer
/// graphs too, and large ones with a stand-in for their bytes, which are among `weights`.
struct GraphBytes {
    std::string proto;
    std::vector<Weight> weights;
    std::vector<const OrtNode*> nodes;
    std::vector<std::pair<std::string, int64_t>> opsets;
    int64_t format_version = 0;
};

/// Throws OrtFailure.
GraphBytes graph_bytes(const Interface& ort, const OrtGraph* graph);

/// The node that a graph is inside of, as a graph of that node alone; none of an outermost graph. Throws OrtFailure.
///
/// While ONNX Runtime asks what a provider takes of an inner graph, it has no graph around it yet.
std::optional<GraphBytes> node_around(const Interface& ort, const OrtGraph* graph);

/// A status of ONNX Runtime's, thrown.
struct OrtFailure {
    OrtStatus* status;
};

/// Throws a status that is none of success.
inline void check(OrtStatus* status) {
    if (status != nullptr) {
        throw OrtFailure{status};
    }
}

}  // namespace dmlvk::ort
