/* A Vulkan layer for tests: it counts calls and objects, and answers chosen calls with chosen errors instead of making them.
 *
 * The test process loads this file a second time by ctypes, which gives the same library, and calls what is exported at
 * the end. registry.py writes functions.inc, the wrappers, which use enter(), leave(), count() and next() from here.
 * It is loaded before all else (LD_PRELOAD), so that its malloc() is the one that dmlvk's native module calls.
 *
 * After an injected VK_ERROR_DEVICE_LOST every function that may return it does so for this device. What had been
 * submitted is awaited first, so that nothing runs any more on a lost device.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define EXPORT __attribute__((visibility("default")))

struct entry {
    const char* name;
    PFN_vkVoidFunction function;
};

/* An instance or a device. Handles of one share the first word behind them, the loader's table. */
struct owner {
    void* key;
    VkInstance instance;
    VkDevice device;
    PFN_vkGetInstanceProcAddr instance_function;
    PFN_vkGetDeviceProcAddr device_function;
    PFN_vkVoidFunction* below; /* of `entries`; the loader gives the right ones of an instance only while it is made */
    PFN_vkDestroyInstance destroy_instance;
    atomic_int lost;
    struct owner* next;
};

struct allocation {
    uint64_t handle;
    uint64_t bytes;
    struct allocation* next;
};

/* A command buffer that could not be ended. */
struct spoilt {
    VkCommandBuffer commands;
    struct spoilt* next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  /* Guards everything here. Never held during a call. */
static pthread_mutex_t queues = PTHREAD_MUTEX_INITIALIZER; /* Held during a call that Vulkan wants alone on a queue. */
static struct owner* owners;
static struct allocation* allocations;
static uint64_t allocated;
static struct spoilt* spoilt;
static uint64_t misused; /* submissions of command buffers that could not be ended */

static VkResult enter(void* handle, int function);
static VkResult leave(void* handle, int function, VkResult fault, VkResult result);
static void count(int kind, int change);
static void note_memory(uint64_t handle, uint64_t bytes);
static void forget_memory(uint64_t handle);
static VkResult spoil(VkCommandBuffer commands, VkResult fault);
static void mend(VkCommandBuffer commands);
static void expect_sound(VkCommandBuffer commands);
static int waits_in_vain(const VkSemaphoreWaitInfo* info, uint64_t timeout);
static void note_submission(const VkSubmitInfo* submit);
static void hold_back(uint64_t* value);
static PFN_vkVoidFunction next(void* handle, int entry);

#include "functions.inc"

static uint64_t calls[FUNCTIONS];
static int64_t live[KINDS];
static struct {
    int function; /* -1: none, -2: every one */
    uint64_t first;
    uint64_t times;
    int result;
    uint64_t seen;
    uint64_t fired;
    int is_signal;
} plan = {-1, 0, 0, 0, 0, 0, 0};

/* While a plan lets submitted work go on for ever, the timeline stays before this value. */
static atomic_uint_fast64_t stuck_at = UINT64_MAX;

/* Memory that code between such addresses asks for is counted, and refused as planned. */
enum { MOST_WATCHED = 4 };
static struct { uintptr_t begin, end; } watched[MOST_WATCHED];
static atomic_uint_fast64_t allocations_seen, allocations_refused, refused_first, refused_times;

static struct owner* owner_of(void* handle) {
    void* key = *(void**)handle;
    pthread_mutex_lock(&mutex);
    struct owner* found = owners;
    while (found != NULL && found->key != key) {
        found = found->next;
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

static PFN_vkVoidFunction next(void* handle, int entry) {
    return owner_of(handle)->below[entry];
}

static void count(int kind, int change) {
    pthread_mutex_lock(&mutex);
    live[kind] += change;
    pthread_mutex_unlock(&mutex);
}

static void note_memory(uint64_t handle, uint64_t bytes) {
    struct allocation* made = malloc(sizeof *made);
    pthread_mutex_lock(&mutex);
    *made = (struct allocation){handle, bytes, allocations};
    allocations = made;
    allocated += bytes;
    pthread_mutex_unlock(&mutex);
}

static void forget_memory(uint64_t handle) {
    pthread_mutex_lock(&mutex);
    for (struct allocation** at = &allocations; *at != NULL; at = &(*at)->next) {
        if ((*at)->handle == handle) {
            struct allocation* gone = *at;
            allocated -= gone->bytes;
            *at = gone->next;
            free(gone);
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
}

static void mend(VkCommandBuffer commands) {
    pthread_mutex_lock(&mutex);
    for (struct spoilt** at = &spoilt; *at != NULL; at = &(*at)->next) {
        if ((*at)->commands == commands) {
            struct spoilt* gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
}

static VkResult spoil(VkCommandBuffer commands, VkResult fault) {
    ((PFN_vkEndCommandBuffer)next(commands, E_vkEndCommandBuffer))(commands);
    struct spoilt* made = malloc(sizeof *made);
    pthread_mutex_lock(&mutex);
    *made = (struct spoilt){commands, spoilt};
    spoilt = made;
    pthread_mutex_unlock(&mutex);
    return fault;
}

static void expect_sound(VkCommandBuffer commands) {
    pthread_mutex_lock(&mutex);
    for (struct spoilt* at = spoilt; at != NULL; at = at->next) {
        misused += at->commands == commands;
    }
    pthread_mutex_unlock(&mutex);
}

static int waits_in_vain(const VkSemaphoreWaitInfo* info, uint64_t timeout) {
    if (info->pValues[0] < stuck_at) {
        return 0;
    }
    const uint64_t most = 100000000;
    struct timespec rest = {0, (long)(timeout < most ? timeout : most)};
    nanosleep(&rest, NULL);
    return 1;
}

static void note_submission(const VkSubmitInfo* submit) {
    const VkTimelineSemaphoreSubmitInfo* timeline = submit->pNext;
    stuck_at = timeline->pSignalSemaphoreValues[0];
}

static void hold_back(uint64_t* value) {
    if (*value >= stuck_at) {
        *value = stuck_at - 1;
    }
}

/* Asking for the timeline's value again, where nothing else was called in between, is one call: how often a wait asks is a
 * matter of time. Of such a call the first answer alone fails, or all. */
static VkResult planned(int function) {
    static int previous = -1;
    VkResult result = VK_SUCCESS;
    int interrupt = 0;
    pthread_mutex_lock(&mutex);
    const int again = function == F_vkGetSemaphoreCounterValue && previous == function && calls[function] > 0;
    previous = function;
    calls[function] += !again;
    if (plan.function == function || plan.function == -2) {
        plan.seen += !again;
        if (plan.seen >= plan.first && plan.seen - plan.first < plan.times && !(again && plan.times == 1)) {
            plan.fired++;
            interrupt = plan.is_signal;
            result = plan.is_signal ? VK_SUCCESS : plan.result;
        }
    }
    pthread_mutex_unlock(&mutex);
    if (interrupt) {
        raise(SIGINT);
    }
    return result;
}

/* What this call is to answer: VK_SUCCESS to make it, a negative result instead of it, a positive one after it. */
static VkResult enter(void* handle, int function) {
    struct owner* owner = owner_of(handle);
    VkResult result = planned(function);
    if (owner->lost && may_be_lost[function]) {
        return VK_ERROR_DEVICE_LOST;
    }
    if (result == VK_ERROR_DEVICE_LOST && owner->device != VK_NULL_HANDLE) {
        pthread_mutex_lock(&queues);
        ((PFN_vkDeviceWaitIdle)owner->below[E_vkDeviceWaitIdle])(owner->device);
        owner->lost = 1;
        pthread_mutex_unlock(&queues);
    }
    return result;
}

static VkResult leave(void* handle, int function, VkResult fault, VkResult result) {
    if (may_be_lost[function] && owner_of(handle)->lost) {
        return VK_ERROR_DEVICE_LOST; /* while this thread was in the call */
    }
    return result < 0 || fault == VK_SUCCESS ? result : fault;
}

static void add_owner(struct owner made) {
    struct owner* added = malloc(sizeof *added);
    *added = made;
    added->below = calloc(ENTRIES, sizeof *added->below);
    for (int i = 0; i < ENTRIES; i++) {
        added->below[i] = made.device != VK_NULL_HANDLE ? made.device_function(made.device, entries[i].name)
                                                        : made.instance_function(made.instance, entries[i].name);
    }
    if (made.device == VK_NULL_HANDLE) {
        added->destroy_instance = (PFN_vkDestroyInstance)made.instance_function(made.instance, "vkDestroyInstance");
    }
    pthread_mutex_lock(&mutex);
    added->next = owners;
    owners = added;
    pthread_mutex_unlock(&mutex);
}

static void remove_owner(struct owner* gone) {
    pthread_mutex_lock(&mutex);
    struct owner** at = &owners;
    while (*at != gone) {
        at = &(*at)->next;
    }
    *at = gone->next;
    pthread_mutex_unlock(&mutex);
    free(gone->below);
    free(gone);
}

/* The loader hands a layer the next one's functions in the chain of the create information. */
static void* link_info(const void* chain, VkStructureType type) {
    for (const VkBaseInStructure* at = chain; at != NULL; at = at->pNext) {
        /* Both kinds of link begin alike: the type, the chain and the function. */
        if (at->sType == type && ((const VkLayerDeviceCreateInfo*)at)->function == VK_LAYER_LINK_INFO) {
            return (void*)at;
        }
    }
    return NULL;
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_vkCreateInstance(const VkInstanceCreateInfo* info,
                                                             const VkAllocationCallbacks* callbacks,
                                                             VkInstance* instance) {
    VkResult fault = planned(F_vkCreateInstance);
    if (fault < 0) {
        return fault;
    }
    VkLayerInstanceCreateInfo* link = link_info(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    PFN_vkGetInstanceProcAddr below = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    VkResult result = ((PFN_vkCreateInstance)below(VK_NULL_HANDLE, "vkCreateInstance"))(info, callbacks, instance);
    if (result >= 0) {
        add_owner((struct owner){.key = *(void**)*instance, .instance = *instance, .instance_function = below});
        count(K_VkInstance, 1);
    }
    return result;
}

static VKAPI_ATTR void VKAPI_CALL layer_vkDestroyInstance(VkInstance instance, const VkAllocationCallbacks* callbacks) {
    struct owner* owner = owner_of(instance);
    owner->destroy_instance(instance, callbacks);
    remove_owner(owner);
    count(K_VkInstance, -1);
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_vkCreateDevice(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                                           const VkAllocationCallbacks* callbacks, VkDevice* device) {
    VkResult fault = enter(physical, F_vkCreateDevice);
    if (fault < 0) {
        memset(device, 0xdb, sizeof *device);
        return fault;
    }
    VkLayerDeviceCreateInfo* link = link_info(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    PFN_vkGetInstanceProcAddr instance_below = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    PFN_vkGetDeviceProcAddr below = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    VkInstance instance = owner_of(physical)->instance;
    VkResult result =
        ((PFN_vkCreateDevice)instance_below(instance, "vkCreateDevice"))(physical, info, callbacks, device);
    if (result >= 0) {
        add_owner((struct owner){.key = *(void**)*device, .device = *device, .device_function = below});
        count(K_VkDevice, 1);
    }
    return result;
}

static VKAPI_ATTR void VKAPI_CALL layer_vkDestroyDevice(VkDevice device, const VkAllocationCallbacks* callbacks) {
    if (device != VK_NULL_HANDLE) {
        struct owner* owner = owner_of(device);
        ((PFN_vkDestroyDevice)owner->device_function(device, "vkDestroyDevice"))(device, callbacks);
        remove_owner(owner);
        count(K_VkDevice, -1);
    }
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char* name);
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance instance, const char* name);

static const struct entry by_hand[] = {
    {"vkGetInstanceProcAddr", (PFN_vkVoidFunction)instance_function},
    {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)device_function},
    {"vkCreateInstance", (PFN_vkVoidFunction)layer_vkCreateInstance},
    {"vkDestroyInstance", (PFN_vkVoidFunction)layer_vkDestroyInstance},
    {"vkCreateDevice", (PFN_vkVoidFunction)layer_vkCreateDevice},
    {"vkDestroyDevice", (PFN_vkVoidFunction)layer_vkDestroyDevice},
};

static PFN_vkVoidFunction wrapper(const char* name) {
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++) {
        if (strcmp(by_hand[i].name, name) == 0) {
            return by_hand[i].function;
        }
    }
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (strcmp(entries[i].name, name) == 0) {
            return entries[i].function;
        }
    }
    return NULL;
}

/* A function that the driver lacks stays missing. */
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char* name) {
    PFN_vkVoidFunction below = owner_of(device)->device_function(device, name);
    PFN_vkVoidFunction own = wrapper(name);
    return below != NULL && own != NULL ? own : below;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance instance, const char* name) {
    PFN_vkVoidFunction own = wrapper(name);
    const struct owner* owner = instance == VK_NULL_HANDLE ? NULL : owner_of(instance);
    if (owner == NULL) { /* the loader, which asks the layer that is nearest to it before there is an instance */
        return own;
    }
    PFN_vkVoidFunction below = owner->instance_function(instance, name);
    return below != NULL && own != NULL ? own : below;
}

EXPORT VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface* versions) {
    versions->loaderLayerInterfaceVersion = 2;
    versions->pfnGetInstanceProcAddr = instance_function;
    versions->pfnGetDeviceProcAddr = device_function;
    versions->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}

/* -- what the test process calls */

/* From now on the calls of a function with these numbers, from 1, answer `result`. */
EXPORT void faults_plan(int function, uint64_t first, uint64_t times, int result) {
    pthread_mutex_lock(&mutex);
    plan.function = function;
    plan.first = first;
    plan.times = times;
    plan.result = result;
    plan.seen = plan.fired = 0;
    plan.is_signal = 0;
    stuck_at = UINT64_MAX;
    refused_times = allocations_seen = allocations_refused = 0;
    memset(calls, 0, sizeof calls);
    pthread_mutex_unlock(&mutex);
}

/* From now on the call with this number, of any function, is preceded by SIGINT. */
EXPORT void faults_interrupt_call(uint64_t number) {
    faults_plan(-2, number, 1, VK_SUCCESS);
    plan.is_signal = 1;
}

/* Sends SIGINT to the process once that time has passed; 0 calls it off. */
EXPORT int faults_interrupt_after(uint64_t nanoseconds) {
    static timer_t timer;
    static int made;
    if (!made) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGINT};
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) {
            return -1;
        }
        made = 1;
    }
    struct itimerspec when = {.it_value = {(time_t)(nanoseconds / 1000000000), (long)(nanoseconds % 1000000000)}};
    return timer_settime(timer, 0, &when, NULL);
}

EXPORT uint64_t faults_fired(void) { return plan.fired + allocations_refused; }

EXPORT void faults_watch_allocations(uint64_t begin, uint64_t end) {
    int at = 0;
    while (watched[at].begin != 0 && watched[at].begin != begin) {
        at++;
    }
    watched[at].end = (uintptr_t)end;
    watched[at].begin = (uintptr_t)begin;
}

static int is_watched(uintptr_t caller) {
    for (int at = 0; at < MOST_WATCHED && watched[at].begin != 0; at++) {
        if (caller >= watched[at].begin && caller < watched[at].end) {
            return 1;
        }
    }
    return 0;
}

/* From now on watched allocations with these numbers, from 1, are refused. */
EXPORT void faults_refuse_allocations(uint64_t first, uint64_t times) {
    faults_plan(-1, 0, 0, VK_SUCCESS);
    refused_first = first;
    refused_times = times;
}

EXPORT uint64_t faults_allocations(void) { return allocations_seen; }

extern void* __libc_malloc(size_t bytes);

EXPORT void* malloc(size_t bytes) {
    const uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    if (is_watched(caller)) {
        const uint64_t number = ++allocations_seen;
        if (number >= refused_first && number - refused_first < refused_times) {
            allocations_refused++;
            return NULL;
        }
    }
    return __libc_malloc(bytes);
}

EXPORT uint64_t faults_calls(int function) { return calls[function]; }

EXPORT int64_t faults_live(int kind) { return live[kind]; }

EXPORT uint64_t faults_memory(void) { return allocated; }

EXPORT uint64_t faults_misused(void) { return misused; }
