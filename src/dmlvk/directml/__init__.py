"""DirectML's objects: device, operators, initialisers, binding tables, command recorder and command lists."""
