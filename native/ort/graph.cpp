#include "graph.h"

#include <cstring>
#include <memory>
#include <unordered_set>

namespace dmlvk::ort {
namespace {

constexpr size_t kLarge = 1024;  // Bytes of a constant that are worth leaving out of the message.
constexpr int kTextElements = 8;

// ---- protobuf's wire format: a field is its number and kind, then a whole number or a length and as many bytes

void put_varint(std::string& out, uint64_t value) {
    while (value > 127) {
        out.push_back(static_cast<char>((value & 127) | 128));
        value >>= 7;
    }
    out.push_back(static_cast<char>(value));
}

void put_number(std::string& out, uint32_t field, uint64_t value) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

void put_bytes(std::string& out, uint32_t field, const void* data, size_t bytes) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes);
    out.append(static_cast<const char*>(data), bytes);
}

void put_bytes(std::string& out, uint32_t field, const std::string& data) {
    put_bytes(out, field, data.data(), data.size());
}

void put_float(std::string& out, uint32_t field, float value) {
    put_varint(out, field << 3 | 5);
    char bytes[4];
    std::memcpy(bytes, &value, 4);  // Every platform that we build for is little-endian.
    out.append(bytes, 4);
}

// Numbers of ONNX's fields.
namespace attribute {
enum : uint32_t { name = 1, f = 2, i = 3, s = 4, t = 5, g = 6, floats = 7, ints = 8, strings = 9, type = 20 };
enum : uint32_t { FLOAT = 1, INT = 2, STRING = 3, TENSOR = 4, GRAPH = 5, FLOATS = 6, INTS = 7, STRINGS = 8 };
}  // namespace attribute
namespace node {
enum : uint32_t { input = 1, output = 2, name = 3, op_type = 4, attribute = 5, domain = 7 };
}
namespace graph {
enum : uint32_t { node = 1, name = 2, initializer = 5, input = 11, output = 12, value_info = 13 };
}
namespace tensor {
enum : uint32_t { dims = 1, data_type = 2, name = 8, raw_data = 9 };
}
namespace value_info {
enum : uint32_t { name = 1, type = 2 };
}
namespace type {
enum : uint32_t { tensor_type = 1, sequence_type = 4, optional_type = 9, elem_type = 1, shape = 2, dim = 1 };
enum : uint32_t { dim_value = 1, dim_param = 2 };
}  // namespace type

class Writer {
  public:
    explicit Writer(const Interface& ort) : ort_(ort) {}

    /// A GraphProto; fills `top_nodes`, if there are to be any.
    std::string graph(const OrtGraph* given, std::vector<const OrtNode*>* top_nodes) {
        std::string out;
        const char* name = nullptr;
        check(ort_.api.Graph_GetName(given, &name));
        const auto inputs = list<OrtValueInfo>(given, ort_.api.Graph_GetNumInputs, ort_.api.Graph_GetInputs);
        const auto outputs = list<OrtValueInfo>(given, ort_.api.Graph_GetNumOutputs, ort_.api.Graph_GetOutputs);
        const auto nodes = list<OrtNode>(given, ort_.api.Graph_GetNumNodes, ort_.api.Graph_GetNodes);
        for (const OrtNode* item : nodes) {
            put_bytes(out, graph::node, this->node(item, out));
        }
        put_bytes(out, graph::name, name, std::strlen(name));
        for (const OrtValueInfo* item : inputs) {
            // An inner graph's values get their types where its own nodes name them, too.
            put_bytes(out, graph::input, value(item));
            note(out, item);
        }
        for (const OrtValueInfo* item : outputs) {
            put_bytes(out, graph::output, value(item));
            note(out, item);
        }
        if (top_nodes != nullptr) {
            *top_nodes = nodes;
        }
        return out;
    }

    /// A GraphProto of one node.
    std::string alone(const OrtNode* given) {
        std::string out;
        put_bytes(out, graph::node, node(given, out));
        for (const OrtValueInfo* item : list<OrtValueInfo>(given, ort_.api.Node_GetNumOutputs, ort_.api.Node_GetOutputs)) {
            put_bytes(out, graph::output, value(item));
        }
        return out;
    }

    std::vector<Weight> weights;

  private:
    template <typename Item, typename Owner, typename Count, typename Get>
    std::vector<const Item*> list(const Owner* owner, Count count, Get get) {
        size_t number = 0;
        check(count(owner, &number));
        std::vector<const Item*> items(number);
        if (number > 0) {
            check(get(owner, items.data(), number));
        }
        return items;
    }

    std::string name_of(const OrtValueInfo* item) {
        if (item == nullptr) {  // An optional one that is left out.
            return {};
        }
        const char* name = nullptr;
        check(ort_.api.GetValueInfoName(item, &name));
        return name;
    }

    /// Notes the type of a value, and its bytes if it is a constant, once each.
    void note(std::string& out, const OrtValueInfo* item) {
        const std::string name = name_of(item);
        if (name.empty() || !noted_.insert(name).second) {
            return;
        }
        put_bytes(out, graph::value_info, value(item));
        bool is_constant = false;
        check(ort_.api.ValueInfo_IsConstantInitializer(item, &is_constant));
        if (!is_constant) {
            return;
        }
        const OrtValue* constant = nullptr;
        check(ort_.api.ValueInfo_GetInitializerValue(item, &constant));
        std::string written;
        if (constant != nullptr && tensor(constant, name, !is_inner_, written)) {
            put_bytes(out, graph::initializer, written);
        }
    }

    std::string value(const OrtValueInfo* item) {
        std::string out;
        put_bytes(out, value_info::name, name_of(item));
        const OrtTypeInfo* info = nullptr;
        check(ort_.api.GetValueInfoTypeInfo(item, &info));
        if (info != nullptr) {
            put_bytes(out, value_info::type, type_of(info));
        }
        return out;
    }

    /// A TypeProto; empty of a kind that no provider takes.
    std::string type_of(const OrtTypeInfo* info) {
        int kind = 0;
        check(ort_.api.GetOnnxTypeFromTypeInfo(info, &kind));
        std::string out;
        if (kind == kTensorValue) {
            const OrtTensorTypeAndShapeInfo* shape = nullptr;
            check(ort_.api.CastTypeInfoToTensorInfo(info, &shape));
            put_bytes(out, type::tensor_type, tensor_type(shape));
        } else if (kind == kSequenceValue || kind == kOptionalValue) {
            OrtTypeInfo* inner = nullptr;
            if (kind == kSequenceValue) {
                const OrtSequenceTypeInfo* sequence = nullptr;
                check(ort_.api.CastTypeInfoToSequenceTypeInfo(info, &sequence));
                check(ort_.api.GetSequenceElementType(sequence, &inner));
            } else {
                const OrtOptionalTypeInfo* optional = nullptr;
                check(ort_.api.CastTypeInfoToOptionalTypeInfo(info, &optional));
                check(ort_.api.GetOptionalContainedTypeInfo(optional, &inner));
            }
            const std::unique_ptr<OrtTypeInfo, void(DMLVK_ORT_CALL*)(OrtTypeInfo*)> held(inner, ort_.api.ReleaseTypeInfo);
            std::string element;
            put_bytes(element, type::elem_type, type_of(inner));
            put_bytes(out, kind == kSequenceValue ? type::sequence_type : type::optional_type, element);
        }
        return out;
    }

    std::string tensor_type(const OrtTensorTypeAndShapeInfo* info) {
        std::string out;
        int elements = 0;
        check(ort_.api.GetTensorElementType(info, &elements));
        put_number(out, type::elem_type, static_cast<uint64_t>(elements));
        size_t rank = 0;
        check(ort_.api.GetDimensionsCount(info, &rank));
        // Before 1.24 nothing tells a scalar from a tensor of unknown rank, so that it is left open.
        const bool is_known =
            ort_.api.TensorTypeAndShape_HasShape == nullptr ? rank > 0 : ort_.api.TensorTypeAndShape_HasShape(info);
        if (is_known) {
            std::vector<int64_t> sizes(rank);
            std::vector<const char*> names(rank);
            if (rank > 0) {
                check(ort_.api.GetDimensions(info, sizes.data(), rank));
                check(ort_.api.GetSymbolicDimensions(info, names.data(), rank));
            }
            std::string shape;
            for (size_t axis = 0; axis < rank; axis++) {
                std::string dimension;
                if (sizes[axis] >= 0) {
                    put_number(dimension, type::dim_value, static_cast<uint64_t>(sizes[axis]));
                } else if (names[axis] != nullptr && names[axis][0] != '\0') {
                    put_bytes(dimension, type::dim_param, names[axis], std::strlen(names[axis]));
                }
                put_bytes(shape, type::dim, dimension);
            }
            put_bytes(out, type::shape, shape);
        }
        return out;
    }

    /// Writes a TensorProto; false of text, whose bytes are no numbers.
    bool tensor(const OrtValue* given, const std::string& name, bool may_be_apart, std::string& out) {
        OrtTensorTypeAndShapeInfo* info = nullptr;
        check(ort_.api.GetTensorTypeAndShape(given, &info));
        const std::unique_ptr<OrtTensorTypeAndShapeInfo, void(DMLVK_ORT_CALL*)(OrtTensorTypeAndShapeInfo*)> held(
            info, ort_.api.ReleaseTensorTypeAndShapeInfo);
        int elements = 0;
        check(ort_.api.GetTensorElementType(info, &elements));
        if (elements == kTextElements) {
            return false;
        }
        size_t rank = 0;
        check(ort_.api.GetDimensionsCount(info, &rank));
        std::vector<int64_t> sizes(rank);
        if (rank > 0) {
            check(ort_.api.GetDimensions(info, sizes.data(), rank));
        }
        size_t bytes = 0;
        void* data = nullptr;
        check(ort_.api.GetTensorSizeInBytes(given, &bytes));
        check(ort_.api.GetTensorMutableData(const_cast<OrtValue*>(given), &data));  // GetTensorData is 1.23's, and does the same
        for (const int64_t size : sizes) {
            put_number(out, tensor::dims, static_cast<uint64_t>(size));
        }
        put_number(out, tensor::data_type, static_cast<uint64_t>(elements));
        put_bytes(out, tensor::name, name);
        if (may_be_apart && bytes >= kLarge) {
            weights.push_back({name, data, bytes});
            put_bytes(out, tensor::raw_data, "", 1);
        } else {
            put_bytes(out, tensor::raw_data, bytes == 0 ? "" : data, bytes);
        }
        return true;
    }

    /// A NodeProto; the types of what the node reads and makes go to the graph.
    std::string node(const OrtNode* given, std::string& graph_out) {
        std::string out;
        for (const OrtValueInfo* item : list<OrtValueInfo>(given, ort_.api.Node_GetNumInputs, ort_.api.Node_GetInputs)) {
            put_bytes(out, node::input, name_of(item));
            note(graph_out, item);
        }
        for (const OrtValueInfo* item : list<OrtValueInfo>(given, ort_.api.Node_GetNumOutputs, ort_.api.Node_GetOutputs)) {
            put_bytes(out, node::output, name_of(item));
            note(graph_out, item);
        }
        for (const OrtValueInfo* item :
             list<OrtValueInfo>(given, ort_.api.Node_GetNumImplicitInputs, ort_.api.Node_GetImplicitInputs)) {
            note(graph_out, item);
        }
        const char* text = nullptr;
        check(ort_.api.Node_GetName(given, &text));
        put_bytes(out, node::name, text, std::strlen(text));
        check(ort_.api.Node_GetOperatorType(given, &text));
        put_bytes(out, node::op_type, text, std::strlen(text));
        check(ort_.api.Node_GetDomain(given, &text));
        put_bytes(out, node::domain, text, std::strlen(text));
        for (const OrtOpAttr* item : list<OrtOpAttr>(given, ort_.api.Node_GetNumAttributes, ort_.api.Node_GetAttributes)) {
            const std::string written = attribute(item);
            if (!written.empty()) {
                put_bytes(out, node::attribute, written);
            }
        }
        size_t count = 0;
        check(ort_.api.Node_GetNumSubgraphs(given, &count));
        if (count > 0) {
            std::vector<const OrtGraph*> graphs(count);
            std::vector<const char*> names(count);
            check(ort_.api.Node_GetSubgraphs(given, graphs.data(), count, names.data()));
            for (size_t index = 0; index < count; index++) {
                Writer inner(ort_);  // With types and constants of its own: other graphs may have values of the same names.
                std::string written;
                put_bytes(written, attribute::name, names[index], std::strlen(names[index]));
                put_bytes(written, attribute::g, inner.inner_graph(graphs[index], noted_));
                put_number(written, attribute::type, attribute::GRAPH);
                put_bytes(out, node::attribute, written);
            }
        }
        return out;
    }

    /// A graph in an attribute, in which the values around it are known.
    std::string inner_graph(const OrtGraph* given, const std::unordered_set<std::string>& around) {
        noted_ = around;
        is_inner_ = true;
        return graph(given, nullptr);
    }

    /// An AttributeProto; empty of a graph, which the node gives itself, and of kinds that no operator of ours has.
    std::string attribute(const OrtOpAttr* given) {
        const char* name = nullptr;
        int kind = 0;
        check(ort_.api.OpAttr_GetName(given, &name));
        const OrtStatus* failed = ort_.api.OpAttr_GetType(given, &kind);
        if (failed != nullptr) {  // A kind that the interface does not have.
            ort_.api.ReleaseStatus(const_cast<OrtStatus*>(failed));
            return {};
        }
        std::string out;
        put_bytes(out, attribute::name, name, std::strlen(name));
        size_t bytes = 0;
        switch (kind) {
            case kInt: {
                int64_t number = 0;
                check(ort_.api.ReadOpAttr(given, kind, &number, sizeof(number), &bytes));
                put_number(out, attribute::i, static_cast<uint64_t>(number));
                put_number(out, attribute::type, attribute::INT);
                return out;
            }
            case kFloat: {
                float number = 0;
                check(ort_.api.ReadOpAttr(given, kind, &number, sizeof(number), &bytes));
                put_float(out, attribute::f, number);
                put_number(out, attribute::type, attribute::FLOAT);
                return out;
            }
            case kTensor: {
                OrtValue* held = nullptr;
                check(ort_.api.OpAttr_GetTensorAttributeAsOrtValue(given, &held));
                const std::unique_ptr<OrtValue, void(DMLVK_ORT_CALL*)(OrtValue*)> owner(held, ort_.api.ReleaseValue);
                std::string written;
                if (held == nullptr || !tensor(held, "", false, written)) {
                    return {};
                }
                put_bytes(out, attribute::t, written);
                put_number(out, attribute::type, attribute::TENSOR);
                return out;
            }
            case kInts:
            case kFloats:
            case kString:
            case kStrings:
                break;
            default:
                return {};
        }
        const std::vector<char> data = read(given, kind);
        if (kind == kInts) {
            for (size_t at = 0; at + sizeof(int64_t) <= data.size(); at += sizeof(int64_t)) {
                int64_t number = 0;
                std::memcpy(&number, &data[at], sizeof(number));
                put_number(out, attribute::ints, static_cast<uint64_t>(number));
            }
            put_number(out, attribute::type, attribute::INTS);
        } else if (kind == kFloats) {
            for (size_t at = 0; at + sizeof(float) <= data.size(); at += sizeof(float)) {
                float number = 0;
                std::memcpy(&number, &data[at], sizeof(number));
                put_float(out, attribute::floats, number);
            }
            put_number(out, attribute::type, attribute::FLOATS);
        } else if (kind == kString) {
            put_bytes(out, attribute::s, data.data(), data.size());
            put_number(out, attribute::type, attribute::STRING);
        } else {
            for (size_t at = 0; at < data.size();) {  // each ends with a zero
                const size_t length = strnlen(&data[at], data.size() - at);
                put_bytes(out, attribute::strings, &data[at], length);
                at += length + 1;
            }
            put_number(out, attribute::type, attribute::STRINGS);
        }
        return out;
    }

    /// The bytes of an attribute of unknown length: asked without room it fails, and says how many there are.
    std::vector<char> read(const OrtOpAttr* given, int kind) {
        size_t bytes = 0;
        char nothing = 0;
        OrtStatus* refused = ort_.api.ReadOpAttr(given, kind, &nothing, 0, &bytes);
        if (refused != nullptr) {
            ort_.api.ReleaseStatus(refused);
        }
        std::vector<char> data(bytes);
        if (bytes > 0) {
            check(ort_.api.ReadOpAttr(given, kind, data.data(), data.size(), &bytes));
        }
        return data;
    }

    const Interface& ort_;
    std::unordered_set<std::string> noted_;
    bool is_inner_ = false;
};

/// What a graph says of all its nodes.
void note_versions(const Interface& ort, const OrtGraph* graph, GraphBytes& made) {
    check(ort.api.Graph_GetOnnxIRVersion(graph, &made.format_version));
    size_t count = 0;
    check(ort.api.Graph_GetNumOperatorSets(graph, &count));
    std::vector<const char*> domains(count);
    std::vector<int64_t> versions(count);
    if (count > 0) {
        check(ort.api.Graph_GetOperatorSets(graph, domains.data(), versions.data(), count));
    }
    for (size_t index = 0; index < count; index++) {
        made.opsets.emplace_back(domains[index], versions[index]);
    }
}

}  // namespace

GraphBytes graph_bytes(const Interface& ort, const OrtGraph* graph) {
    GraphBytes made;
    Writer writer(ort);
    made.proto = writer.graph(graph, &made.nodes);
    made.weights = std::move(writer.weights);
    note_versions(ort, graph, made);
    return made;
}

std::optional<GraphBytes> node_around(const Interface& ort, const OrtGraph* graph) {
    const OrtNode* node = nullptr;
    check(ort.api.Graph_GetParentNode(graph, &node));
    if (node == nullptr) {
        return std::nullopt;
    }
    GraphBytes made;
    Writer writer(ort);
    made.proto = writer.alone(node);
    made.weights = std::move(writer.weights);
    made.nodes = {node};
    note_versions(ort, graph, made);
    return made;
}

}  // namespace dmlvk::ort
