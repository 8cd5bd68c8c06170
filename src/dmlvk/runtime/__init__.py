"""The room that talks to Vulkan: devices, memory and the recording of dispatches. Only it imports the native module."""
