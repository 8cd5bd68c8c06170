// ONNX Runtime's C interface, as far as the provider calls or answers it: our own declarations of what its public headers
// onnxruntime_c_api.h and onnxruntime_ep_c_api.h fix for ever. A table of functions only grows at its end, so that a function
// is known by its slot and by the version that it came with. tests/onnx/test_provider.py compares them with the headers.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef _WIN32
#define DMLVK_ORT_CALL __stdcall
#else
#define DMLVK_ORT_CALL
#endif

namespace dmlvk::ort {

/// The version with which the interface of plug-in providers was complete, and the newest one that these declarations know.
/// A newer ONNX Runtime gives this one as well.
inline constexpr uint32_t kOldest = 23;
inline constexpr uint32_t kNewest = 29;

#ifdef _WIN32
using PathChar = wchar_t;
#else
using PathChar = char;
#endif

// What ONNX Runtime keeps to itself.
struct OrtEpApi;
struct OrtEpDevice;
struct OrtEpGraphSupportInfo;
struct OrtGraph;
struct OrtHardwareDevice;
struct OrtKernelContext;
struct OrtKeyValuePairs;
struct OrtLogger;
struct OrtMemoryDevice;
struct OrtMemoryInfo;
struct OrtNode;
struct OrtNodeComputeContext;
struct OrtOpAttr;
struct OrtOptionalTypeInfo;
struct OrtProfilingEvent;
struct OrtProfilingEventsContainer;
struct OrtRunOptions;
struct OrtSequenceTypeInfo;
struct OrtSessionOptions;
struct OrtStatus;
struct OrtSyncStream;
struct OrtTensorTypeAndShapeInfo;
struct OrtTypeInfo;
struct OrtValue;
struct OrtValueInfo;

// Numbers of its enumerations.
enum ErrorCode : int { kFail = 1, kInvalidArgument = 2, kNotImplemented = 9 };
enum AttributeType : int {
    kInt = 1,
    kInts = 2,
    kFloat = 3,
    kFloats = 4,
    kString = 5,
    kStrings = 6,
    kGraph = 7,
    kTensor = 8,
};
enum ValueType : int { kTensorValue = 1, kSequenceValue = 2, kOptionalValue = 6 };
enum HardwareType : int { kCpu = 0, kGpu = 1 };
enum MemoryDeviceType : int { kCpuMemory = 0, kGpuMemory = 1 };
enum DeviceMemoryType : int { kDefaultMemory = 0 };
enum AllocatorType : int { kDeviceAllocator = 0 };
enum ProfilingCategory : int { kKernelEvent = 2 };

// ---- what the provider implements; the slots behind those named are later than kNewest or not used

using Unused = void (*)();

struct OrtEp {
    uint32_t ort_version_supported;
    const char*(DMLVK_ORT_CALL* GetName)(const OrtEp*);
    OrtStatus*(DMLVK_ORT_CALL* GetCapability)(OrtEp*, const OrtGraph*, OrtEpGraphSupportInfo*);
    OrtStatus*(DMLVK_ORT_CALL* Compile)(OrtEp*, const OrtGraph**, const OrtNode**, size_t, struct OrtNodeComputeInfo**,
                                        OrtNode**);
    void(DMLVK_ORT_CALL* ReleaseNodeComputeInfos)(OrtEp*, struct OrtNodeComputeInfo**, size_t);
    Unused GetPreferredDataLayout;
    Unused ShouldConvertDataLayoutForOp;
    Unused SetDynamicOptions;
    Unused OnRunStart;
    OrtStatus*(DMLVK_ORT_CALL* OnRunEnd)(OrtEp*, const OrtRunOptions*, bool);
    Unused CreateAllocator;
    Unused CreateSyncStreamForDevice;
    Unused GetCompiledModelCompatibilityInfo;
    Unused GetKernelRegistry;
    Unused IsConcurrentRunSupported;
    OrtStatus*(DMLVK_ORT_CALL* Sync)(OrtEp*);
    OrtStatus*(DMLVK_ORT_CALL* CreateProfiler)(OrtEp*, struct OrtEpProfilerImpl**);
    Unused IsGraphCaptureEnabled;
    Unused IsGraphCaptured;
    Unused ReplayGraph;
    Unused GetGraphCaptureNodeAssignmentPolicy;
    Unused GetAvailableResource;
    Unused OnSessionInitializationEnd;
    OrtStatus*(DMLVK_ORT_CALL* GetDefaultMemoryDevice)(const OrtEp*, const OrtMemoryDevice**);
    Unused ReleaseCapturedGraph;
    Unused GetWeightlessSupport;
};

struct OrtEpFactory {
    uint32_t ort_version_supported;
    const char*(DMLVK_ORT_CALL* GetName)(const OrtEpFactory*);
    const char*(DMLVK_ORT_CALL* GetVendor)(const OrtEpFactory*);
    OrtStatus*(DMLVK_ORT_CALL* GetSupportedDevices)(OrtEpFactory*, const OrtHardwareDevice* const*, size_t, OrtEpDevice**,
                                                    size_t, size_t*);
    OrtStatus*(DMLVK_ORT_CALL* CreateEp)(OrtEpFactory*, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const*, size_t,
                                         const OrtSessionOptions*, const OrtLogger*, OrtEp**);
    void(DMLVK_ORT_CALL* ReleaseEp)(OrtEpFactory*, OrtEp*);
    uint32_t(DMLVK_ORT_CALL* GetVendorId)(const OrtEpFactory*);
    const char*(DMLVK_ORT_CALL* GetVersion)(const OrtEpFactory*);
    Unused ValidateCompiledModelCompatibilityInfo;
    OrtStatus*(DMLVK_ORT_CALL* CreateAllocator)(OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                                                struct OrtAllocator**);
    void(DMLVK_ORT_CALL* ReleaseAllocator)(OrtEpFactory*, struct OrtAllocator*);
    OrtStatus*(DMLVK_ORT_CALL* CreateDataTransfer)(OrtEpFactory*, struct OrtDataTransferImpl**);
    bool(DMLVK_ORT_CALL* IsStreamAware)(const OrtEpFactory*);
    Unused CreateSyncStreamForDevice;
    Unused GetHardwareDeviceIncompatibilityDetails;
    Unused CreateExternalResourceImporterForDevice;
    Unused GetNumCustomOpDomains;
    Unused GetCustomOpDomains;
    Unused InitGraphicsInterop;
    Unused DeinitGraphicsInterop;
    Unused SelectBestModelCandidate;
};

struct OrtAllocator {
    uint32_t version;
    void*(DMLVK_ORT_CALL* Alloc)(OrtAllocator*, size_t);
    void(DMLVK_ORT_CALL* Free)(OrtAllocator*, void*);
    const OrtMemoryInfo*(DMLVK_ORT_CALL* Info)(const OrtAllocator*);
    Unused Reserve;
    Unused GetStats;
    Unused AllocOnStream;
    Unused Shrink;
};

struct OrtDataTransferImpl {
    uint32_t ort_version_supported;
    void(DMLVK_ORT_CALL* Release)(OrtDataTransferImpl*);
    bool(DMLVK_ORT_CALL* CanCopy)(const OrtDataTransferImpl*, const OrtMemoryDevice*, const OrtMemoryDevice*);
    OrtStatus*(DMLVK_ORT_CALL* CopyTensors)(OrtDataTransferImpl*, const OrtValue**, OrtValue**, OrtSyncStream**, size_t);
};

struct OrtEpProfilerImpl {
    uint32_t ort_version_supported;
    void(DMLVK_ORT_CALL* Release)(OrtEpProfilerImpl*);
    OrtStatus*(DMLVK_ORT_CALL* StartProfiling)(OrtEpProfilerImpl*, int64_t);
    OrtStatus*(DMLVK_ORT_CALL* StartEvent)(OrtEpProfilerImpl*, uint64_t);
    OrtStatus*(DMLVK_ORT_CALL* StopEvent)(OrtEpProfilerImpl*, uint64_t, const OrtProfilingEvent*);
    OrtStatus*(DMLVK_ORT_CALL* EndProfiling)(OrtEpProfilerImpl*, OrtProfilingEventsContainer*);
};

struct OrtNodeComputeInfo {
    uint32_t ort_version_supported;
    OrtStatus*(DMLVK_ORT_CALL* CreateState)(OrtNodeComputeInfo*, OrtNodeComputeContext*, void**);
    OrtStatus*(DMLVK_ORT_CALL* Compute)(OrtNodeComputeInfo*, void*, OrtKernelContext*);
    void(DMLVK_ORT_CALL* ReleaseState)(OrtNodeComputeInfo*, void*);
};

struct OrtNodeFusionOptions {
    uint32_t ort_version_supported;
    bool drop_constant_initializers;
};

// ---- what it calls: slot, version, result, name, parameters

#define DMLVK_ORT_API(CALL)                                                                                                  \
    CALL(0, 1, OrtStatus*, CreateStatus, (int, const char*))                                                                 \
    CALL(2, 1, const char*, GetErrorMessage, (const OrtStatus*))                                                             \
    CALL(51, 1, OrtStatus*, GetTensorMutableData, (OrtValue*, void**))                                                       \
    CALL(55, 1, OrtStatus*, CastTypeInfoToTensorInfo, (const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo**))               \
    CALL(56, 1, OrtStatus*, GetOnnxTypeFromTypeInfo, (const OrtTypeInfo*, int*))                                             \
    CALL(60, 1, OrtStatus*, GetTensorElementType, (const OrtTensorTypeAndShapeInfo*, int*))                                  \
    CALL(61, 1, OrtStatus*, GetDimensionsCount, (const OrtTensorTypeAndShapeInfo*, size_t*))                                 \
    CALL(62, 1, OrtStatus*, GetDimensions, (const OrtTensorTypeAndShapeInfo*, int64_t*, size_t))                             \
    CALL(63, 1, OrtStatus*, GetSymbolicDimensions, (const OrtTensorTypeAndShapeInfo*, const char**, size_t))                 \
    CALL(65, 1, OrtStatus*, GetTensorTypeAndShape, (const OrtValue*, OrtTensorTypeAndShapeInfo**))                           \
    CALL(88, 1, OrtStatus*, KernelContext_GetInputCount, (const OrtKernelContext*, size_t*))                                 \
    CALL(90, 1, OrtStatus*, KernelContext_GetInput, (const OrtKernelContext*, size_t, const OrtValue**))                     \
    CALL(91, 1, OrtStatus*, KernelContext_GetOutput, (OrtKernelContext*, size_t, const int64_t*, size_t, OrtValue**))        \
    CALL(93, 1, void, ReleaseStatus, (OrtStatus*))                                                                           \
    CALL(94, 1, void, ReleaseMemoryInfo, (OrtMemoryInfo*))                                                                   \
    CALL(96, 1, void, ReleaseValue, (OrtValue*))                                                                             \
    CALL(98, 1, void, ReleaseTypeInfo, (OrtTypeInfo*))                                                                       \
    CALL(99, 1, void, ReleaseTensorTypeAndShapeInfo, (OrtTensorTypeAndShapeInfo*))                                           \
    CALL(104, 1, OrtStatus*, CastTypeInfoToSequenceTypeInfo, (const OrtTypeInfo*, const OrtSequenceTypeInfo**))              \
    CALL(107, 1, OrtStatus*, GetSequenceElementType, (const OrtSequenceTypeInfo*, OrtTypeInfo**))                            \
    CALL(211, 12, OrtStatus*, CreateOpAttr, (const char*, const void*, int, int, OrtOpAttr**))                               \
    CALL(212, 12, void, ReleaseOpAttr, (OrtOpAttr*))                                                                         \
    CALL(247, 15, OrtStatus*, Logger_LogMessage,                                                                             \
         (const OrtLogger*, int, const char*, const PathChar*, int, const char*))                                            \
    CALL(250, 15, OrtStatus*, CastTypeInfoToOptionalTypeInfo, (const OrtTypeInfo*, const OrtOptionalTypeInfo**))             \
    CALL(251, 15, OrtStatus*, GetOptionalContainedTypeInfo, (const OrtOptionalTypeInfo*, OrtTypeInfo**))                     \
    CALL(272, 17, OrtStatus*, ReadOpAttr, (const OrtOpAttr*, int, void*, size_t, size_t*))                                   \
    CALL(289, 22, OrtStatus*, GetValueInfoName, (const OrtValueInfo*, const char**))                                         \
    CALL(290, 22, OrtStatus*, GetValueInfoTypeInfo, (const OrtValueInfo*, const OrtTypeInfo**))                              \
    CALL(291, 22, const void*, GetModelEditorApi, ())                                                                        \
    CALL(295, 22, void, CreateKeyValuePairs, (OrtKeyValuePairs**))                                                           \
    CALL(296, 22, void, AddKeyValuePair, (OrtKeyValuePairs*, const char*, const char*))                                      \
    CALL(298, 22, void, GetKeyValuePairs, (const OrtKeyValuePairs*, const char* const**, const char* const**, size_t*))      \
    CALL(300, 22, void, ReleaseKeyValuePairs, (OrtKeyValuePairs*))                                                           \
    CALL(307, 22, int, HardwareDevice_Type, (const OrtHardwareDevice*))                                                      \
    CALL(308, 22, uint32_t, HardwareDevice_VendorId, (const OrtHardwareDevice*))                                             \
    CALL(310, 22, uint32_t, HardwareDevice_DeviceId, (const OrtHardwareDevice*))                                             \
    CALL(317, 22, const OrtEpApi*, GetEpApi, ())                                                                             \
    CALL(318, 23, OrtStatus*, GetTensorSizeInBytes, (const OrtValue*, size_t*))                                              \
    CALL(320, 23, OrtStatus*, CreateMemoryInfo_V2, (const char*, int, uint32_t, int32_t, int, size_t, int, OrtMemoryInfo**)) \
    CALL(326, 23, OrtStatus*, ValueInfo_GetInitializerValue, (const OrtValueInfo*, const OrtValue**))                        \
    CALL(331, 23, OrtStatus*, ValueInfo_IsConstantInitializer, (const OrtValueInfo*, bool*))                                 \
    CALL(333, 23, OrtStatus*, Graph_GetName, (const OrtGraph*, const char**))                                                \
    CALL(334, 23, OrtStatus*, Graph_GetModelPath, (const OrtGraph*, const PathChar**))                                       \
    CALL(335, 23, OrtStatus*, Graph_GetOnnxIRVersion, (const OrtGraph*, int64_t*))                                           \
    CALL(336, 23, OrtStatus*, Graph_GetNumOperatorSets, (const OrtGraph*, size_t*))                                          \
    CALL(337, 23, OrtStatus*, Graph_GetOperatorSets, (const OrtGraph*, const char**, int64_t*, size_t))                      \
    CALL(338, 23, OrtStatus*, Graph_GetNumInputs, (const OrtGraph*, size_t*))                                                \
    CALL(339, 23, OrtStatus*, Graph_GetInputs, (const OrtGraph*, const OrtValueInfo**, size_t))                              \
    CALL(340, 23, OrtStatus*, Graph_GetNumOutputs, (const OrtGraph*, size_t*))                                               \
    CALL(341, 23, OrtStatus*, Graph_GetOutputs, (const OrtGraph*, const OrtValueInfo**, size_t))                             \
    CALL(344, 23, OrtStatus*, Graph_GetNumNodes, (const OrtGraph*, size_t*))                                                 \
    CALL(345, 23, OrtStatus*, Graph_GetNodes, (const OrtGraph*, const OrtNode**, size_t))                                    \
    CALL(346, 23, OrtStatus*, Graph_GetParentNode, (const OrtGraph*, const OrtNode**))                                       \
    CALL(349, 23, OrtStatus*, Node_GetName, (const OrtNode*, const char**))                                                  \
    CALL(350, 23, OrtStatus*, Node_GetOperatorType, (const OrtNode*, const char**))                                          \
    CALL(351, 23, OrtStatus*, Node_GetDomain, (const OrtNode*, const char**))                                                \
    CALL(353, 23, OrtStatus*, Node_GetNumInputs, (const OrtNode*, size_t*))                                                  \
    CALL(354, 23, OrtStatus*, Node_GetInputs, (const OrtNode*, const OrtValueInfo**, size_t))                                \
    CALL(355, 23, OrtStatus*, Node_GetNumOutputs, (const OrtNode*, size_t*))                                                 \
    CALL(356, 23, OrtStatus*, Node_GetOutputs, (const OrtNode*, const OrtValueInfo**, size_t))                               \
    CALL(357, 23, OrtStatus*, Node_GetNumImplicitInputs, (const OrtNode*, size_t*))                                          \
    CALL(358, 23, OrtStatus*, Node_GetImplicitInputs, (const OrtNode*, const OrtValueInfo**, size_t))                        \
    CALL(359, 23, OrtStatus*, Node_GetNumAttributes, (const OrtNode*, size_t*))                                              \
    CALL(360, 23, OrtStatus*, Node_GetAttributes, (const OrtNode*, const OrtOpAttr**, size_t))                               \
    CALL(362, 23, OrtStatus*, OpAttr_GetTensorAttributeAsOrtValue, (const OrtOpAttr*, OrtValue**))                           \
    CALL(363, 23, OrtStatus*, OpAttr_GetType, (const OrtOpAttr*, int*))                                                      \
    CALL(364, 23, OrtStatus*, OpAttr_GetName, (const OrtOpAttr*, const char**))                                              \
    CALL(365, 23, OrtStatus*, Node_GetNumSubgraphs, (const OrtNode*, size_t*))                                               \
    CALL(366, 23, OrtStatus*, Node_GetSubgraphs, (const OrtNode*, const OrtGraph**, size_t, const char**))                   \
    CALL(379, 23, OrtStatus*, GetSessionOptionsConfigEntries, (const OrtSessionOptions*, OrtKeyValuePairs**))                \
    CALL(390, 24, bool, TensorTypeAndShape_HasShape, (const OrtTensorTypeAndShapeInfo*))

#define DMLVK_ORT_EP_API(CALL)                                                                                               \
    CALL(0, 22, OrtStatus*, CreateEpDevice,                                                                                  \
         (OrtEpFactory*, const OrtHardwareDevice*, const OrtKeyValuePairs*, const OrtKeyValuePairs*, OrtEpDevice**))         \
    CALL(1, 22, void, ReleaseEpDevice, (OrtEpDevice*))                                                                       \
    CALL(2, 23, OrtStatus*, EpGraphSupportInfo_AddNodesToFuse,                                                               \
         (OrtEpGraphSupportInfo*, const OrtNode* const*, size_t, const OrtNodeFusionOptions*))                               \
    CALL(5, 23, OrtStatus*, EpDevice_AddAllocatorInfo, (OrtEpDevice*, const OrtMemoryInfo*))                                 \
    CALL(6, 23, const OrtMemoryDevice*, MemoryInfo_GetMemoryDevice, (const OrtMemoryInfo*))                                  \
    CALL(7, 23, const OrtMemoryDevice*, Value_GetMemoryDevice, (const OrtValue*))                                            \
    CALL(9, 23, int, MemoryDevice_GetDeviceType, (const OrtMemoryDevice*))                                                   \
    CALL(11, 23, uint32_t, MemoryDevice_GetVendorId, (const OrtMemoryDevice*))                                               \
    CALL(12, 23, uint32_t, MemoryDevice_GetDeviceId, (const OrtMemoryDevice*))                                               \
    CALL(65, 25, OrtStatus*, CreateProfilingEvent,                                                                           \
         (int, int32_t, int32_t, const char*, int64_t, int64_t, const char* const*, const char* const*, size_t,              \
          OrtProfilingEvent**))                                                                                              \
    CALL(66, 25, void, ReleaseProfilingEvent, (OrtProfilingEvent*))                                                          \
    CALL(72, 25, OrtStatus*, ProfilingEventsContainer_AddEvents,                                                             \
         (OrtProfilingEventsContainer*, const OrtProfilingEvent* const*, size_t))

#define DMLVK_ORT_MODEL_EDITOR_API(CALL)                                                                                     \
    CALL(6, 22, OrtStatus*, CreateNode,                                                                                      \
         (const char*, const char*, const char*, const char* const*, size_t, const char* const*, size_t, OrtOpAttr**, size_t, \
          OrtNode**))

struct OrtApiBase {
    const void*(DMLVK_ORT_CALL* GetApi)(uint32_t);
    const char*(DMLVK_ORT_CALL* GetVersionString)();
};

#define DMLVK_ORT_MEMBER(slot, since, result, name, parameters) result(DMLVK_ORT_CALL* name) parameters = nullptr;

/// OrtApi's functions, null where the ONNX Runtime at hand is older than one.
struct Api {
    DMLVK_ORT_API(DMLVK_ORT_MEMBER)
};

/// OrtEpApi's.
struct EpApi {
    DMLVK_ORT_EP_API(DMLVK_ORT_MEMBER)
};

/// OrtModelEditorApi's.
struct ModelEditorApi {
    DMLVK_ORT_MODEL_EDITOR_API(DMLVK_ORT_MEMBER)
};

/// The interface of the ONNX Runtime that loaded the plug-in.
struct Interface {
    uint32_t version = 0;
    uint32_t patch = 0;  // The last number of ONNX Runtime's own version.
    Api api;
    EpApi ep;
    ModelEditorApi model_editor;
};

/// Takes the newest version that both sides know.
///
/// Throws std::runtime_error where there is none, or where a slot that the version promises is empty.
Interface negotiated(const OrtApiBase* base);

}  // namespace dmlvk::ort
