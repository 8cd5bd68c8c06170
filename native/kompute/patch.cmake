# Writes Kompute 0.9.0's Sequence.hpp and Sequence.cpp into the build folder with these changes:
#
# - Kompute creates and destroys a fence for every submit, which alone takes 560 us on an NVIDIA H200. The sequence
#   submits through dmlvk::SubmitQueue instead, whose timeline semaphore is kept: it holds a timeline value, no fence.
# - A wait that times out destroyed the fence while the GPU still used it. Now the sequence simply stays running.
# - The results of submitting, waiting and creating the command pool and buffer were dropped, so that a lost device or
#   exhausted memory looked like success. Now each is checked, and a constructor that fails leaves no pool behind.
# - A command buffer that could not be ended may never be submitted. The next submit records it once more.
#
# The sources are pinned by digest, so every text below is there exactly once; if not, the build stops.

function(dmlvk_replace variable old new)
  string(FIND "${${variable}}" "${old}" first)
  string(FIND "${${variable}}" "${old}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "native/kompute/patch.cmake: not exactly once in Kompute's ${variable}:\n${old}")
  endif()
  string(REPLACE "${old}" "${new}" text "${${variable}}")
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

function(dmlvk_patch_kompute source_dir output_dir)
  file(READ "${source_dir}/include/kompute/Sequence.hpp" header)
  dmlvk_replace(header "#include \"kompute/Core.hpp\"\n" "#include \"kompute/Core.hpp\"\n#include \"submit_queue.h\"\n")
  dmlvk_replace(header "std::shared_ptr<vk::Queue> computeQueue," "std::shared_ptr<dmlvk::SubmitQueue> computeQueue,")
  dmlvk_replace(header "std::shared_ptr<vk::Queue> mComputeQueue = nullptr;"
                       "std::shared_ptr<dmlvk::SubmitQueue> mComputeQueue = nullptr;")
  dmlvk_replace(header "vk::Fence mFence;" "uint64_t mSubmitValue = 0;
    bool mIsInvalid = false;")
  dmlvk_replace(header "    bool isRunning() const;\n" "    bool isRunning() const;

    /**
     * The queue's timeline value of the last submit.
     */
    uint64_t submitValue() const { return this->mSubmitValue; }
")

  file(READ "${source_dir}/Sequence.cpp" source)
  dmlvk_replace(source "#include \"kompute/Sequence.hpp\"\n" "#include \"kompute/Sequence.hpp\"\n#include \"errors.h\"\n")
  dmlvk_replace(source "std::shared_ptr<vk::Queue> computeQueue," "std::shared_ptr<dmlvk::SubmitQueue> computeQueue,")
  # A submit that fails must not leave the sequence running: the flag is set after it.
  dmlvk_replace(source "    this->mIsRunning = true;\n" "")
  dmlvk_replace(source "    vk::SubmitInfo submitInfo(
      0, nullptr, nullptr, 1, this->mCommandBuffer.get());

    this->mFence = this->mDevice->createFence(vk::FenceCreateInfo());
" "")
  dmlvk_replace(source "    this->mComputeQueue->submit(1, &submitInfo, this->mFence);
" "    this->mSubmitValue = this->mComputeQueue->submit(*this->mCommandBuffer);
    this->mIsRunning = true;
")
  dmlvk_replace(source "    vk::Result result =
      this->mDevice->waitForFences(1, &this->mFence, VK_TRUE, waitFor);
    this->mDevice->destroy(
      this->mFence, (vk::Optional<const vk::AllocationCallbacks>)nullptr);

    this->mIsRunning = false;

    if (result == vk::Result::eTimeout) {
        KP_LOG_WARN(\"Kompute Sequence evalAwait reached timeout of {}\",
                    waitFor);
        return shared_from_this();
    }
" "    if (!this->mComputeQueue->wait(this->mSubmitValue, waitFor)) {
        return shared_from_this();
    }
    this->mIsRunning = false;
")
  dmlvk_replace(source "    this->mDevice->createCommandPool(
      &commandPoolInfo, nullptr, this->mCommandPool.get());
" "    dmlvk::check(static_cast<VkResult>(this->mDevice->createCommandPool(
                   &commandPoolInfo, nullptr, this->mCommandPool.get())),
                 \"vkCreateCommandPool\");
")
  dmlvk_replace(source "    this->mDevice->allocateCommandBuffers(&commandBufferAllocateInfo,
                                          this->mCommandBuffer.get());
" "    dmlvk::check(static_cast<VkResult>(this->mDevice->allocateCommandBuffers(
                   &commandBufferAllocateInfo, this->mCommandBuffer.get())),
                 \"vkAllocateCommandBuffers\");
    this->mFreeCommandBuffer = true;
")
  dmlvk_replace(source "    this->mFreeCommandBuffer = true;

    vk::CommandBufferAllocateInfo" "    vk::CommandBufferAllocateInfo")
  dmlvk_replace(source "    this->createCommandPool();
    this->createCommandBuffer();
" "    this->createCommandPool();
    try {
        this->createCommandBuffer();
    } catch (...) {
        this->destroy();
        throw;
    }
")
  dmlvk_replace(source "        this->mCommandBuffer->end();
        this->mRecording = false;
" "        this->mRecording = false;
        this->mIsInvalid = true;
        this->mCommandBuffer->end();
        this->mIsInvalid = false;
")
  dmlvk_replace(source "Sequence::evalAsync()
{
" "Sequence::evalAsync()
{
    if (this->mIsInvalid) {
        this->mDevice->resetCommandPool(*this->mCommandPool, vk::CommandPoolResetFlags());
        this->begin();
        for (const std::shared_ptr<OpBase>& operation : this->mOperations) {
            operation->record(*this->mCommandBuffer);
        }
    }
")

  # Written only when changed, so that configuring again does not compile again.
  file(CONFIGURE OUTPUT "${output_dir}/include/kompute/Sequence.hpp" CONTENT "${header}" @ONLY)
  file(CONFIGURE OUTPUT "${output_dir}/Sequence.cpp" CONTENT "${source}" @ONLY)
endfunction()
