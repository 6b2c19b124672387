"""A text's embedding from those of its tokens, as Sentence-BERT pools them (arXiv 1908.10084), in float32."""

from __future__ import annotations

from py_attn.gpu.binding import most_invocations
from py_attn.gpu.kernel import Arg, Kernel, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.nn.checks import check_rank, check_tensors

_MEAN_POOL = Kernel("mean_pool", "nn/mean_pool.wgsl", ParamsLayout(rows="u32", width="u32", x_first="u32"))
_WORKGROUP = 256


def mean_pool(x: Tensor) -> Tensor:
    """The mean of the rows of ``x`` [rows, width], divided by its L2 norm: [width].

    Raises
    ------
    ValueError
        When `x` has no rows, another number of axes or another dtype.
    """

    def make() -> Planned:
        check_rank("x", x, 2)
        check_tensors({"x": x}, {"x": x.shape})
        rows, width = x.shape
        if rows == 0:
            raise ValueError("x: expected at least one row to take the mean of, got none")
        out = NewTensor("out", (width,))
        if not width:
            return Planned(x.device, Plan((out,), ()), {"x": x})
        only = launch(
            _MEAN_POOL,
            [Arg("x", "f32"), Arg("out", "f32", writes=True)],
            {"x": x},
            x.device.info.limits,
            variant="plain",
            workgroups=1,
            params={"rows": rows, "width": width},
            constants={"WORKGROUP": min(_WORKGROUP, most_invocations(x.device.info.limits))},
            grid_name="x",
        )
        return Planned(x.device, Plan((out,), (only,)), {"x": x})

    return run_call("mean_pool", {"x": x}, (), make)["out"]
