"""What talks to Vulkan: devices, memory and the recording of dispatches. The only importer of the native module."""
