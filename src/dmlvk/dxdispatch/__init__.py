"""DxDispatch's files: JSON that describes buffers, DirectML operators, graphs and ONNX models, and commands to run.

``python -m dmlvk dispatch`` is its command line. ``Model`` is a file that has been read and checked; ``Executor`` runs its
commands.
"""
