"""Models behind HTTP: language models as OpenAI's interface has them, ONNX models by the open inference protocol.

``text`` has the first and ``models`` the second; neither needs the packages of the other. Their applications are ASGI
applications: uvicorn runs them (``python -m dmlvk serve``), Ray Serve does (``dmlvk.ray.serve``), and so does any other
server. Needs ``pip install 'dmlvk[serve]'``.
"""
