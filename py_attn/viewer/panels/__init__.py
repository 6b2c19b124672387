"""What each panel of the page asks for: a module for a panel. Importing them fills the table of methods."""

from py_attn.viewer.panels import (  # noqa: F401
    caches,
    compare,
    console,
    decode,
    edit,
    findings,
    input,
    kernel,
    maps,
    own_data,
    own_kernel,
    reading,
    status,
    views,
    why,
    write,
)
