"""A notebook kernel's bridge to the browsers that show its views.

The kernel has no GPU in reach; the browser of whoever looks at the notebook has one. From the bottom up:

- :mod:`.protocol`: the messages between kernel and front end, and how they carry arrays.
- :mod:`.channel`: sends messages to one page and waits for its answers.
- :mod:`.bridge`: a page's ``GPUDevice`` as a :class:`py_attn.gpu.bridge.DeviceBridge`.
- :mod:`.page`: one browser page and the device that all views in it share.
- :mod:`.host`: Jupyter, marimo or Pyodide: how messages arrive while a cell waits.
- :mod:`.session`: the views and pages of this process, in one object.
"""
