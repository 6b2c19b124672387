"""BERT's input embedding (Devlin et al., arXiv 1810.04805), in float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from py_attn.arguments import check_int
from py_attn.gpu.kernel import Arg, Kernel, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.nn.checks import check_rank, check_tensors

_WORKGROUP = 64
_EMBEDDING = Kernel(
    "embedding",
    "nn/embedding.wgsl",
    ParamsLayout(
        tokens="u32",
        width="u32",
        ids_first="u32",
        word_first="u32",
        position_first="u32",
        token_type_first="u32",
    ),
)


def embedding(ids: Sequence[int], word: Tensor, position: Tensor, token_type: Tensor) -> Tensor:
    """BERT's input embedding of a text in one segment: ``word[ids] + position[:T] + token_type[0]``.

    Parameters
    ----------
    ids : sequence of int
        T token ids; checked here, on the host, since a shader could only read something else instead.
    word : Tensor
        [vocabulary, width].
    position : Tensor
        [positions, width], positions >= T.
    token_type : Tensor
        [types, width].

    Returns
    -------
    Tensor
        [T, width].

    Raises
    ------
    ValueError, TypeError
        For an id outside the vocabulary, more ids than positions, or a tensor that does not fit.
    """
    for name, table in {"word": word, "position": position, "token_type": token_type}.items():
        check_rank(name, table, 2)
    vocabulary, width = word.shape
    numbers = [check_int("ids", i) for i in ids]
    wrong = next((i for i in numbers if not 0 <= i < vocabulary), None)
    if wrong is not None:
        raise ValueError(f"ids: expected ids from 0 to {vocabulary - 1}, got {wrong}")
    if len(numbers) > position.shape[0]:
        raise ValueError(f"ids: expected at most {position.shape[0]} (the positions), got {len(numbers)}")
    tables = {"word": word, "position": position, "token_type": token_type}
    check_tensors(tables, {name: (table.shape[0], width) for name, table in tables.items()})
    tensors = {"ids": word.device.tensor(np.array(numbers, np.uint32), name="ids"), **tables}
    tokens = len(numbers)

    def make() -> Planned:
        out = NewTensor("out", (tokens, width))
        if not tokens * width:
            return Planned(word.device, Plan((out,), ()), tensors)
        only = launch(
            _EMBEDDING,
            [
                Arg("ids", "u32"),
                *(Arg(name, "f32") for name in tables),
                Arg("out", "f32", writes=True),
            ],
            tensors,
            word.device.info.limits,
            variant="plain",
            workgroups=-(-tokens * width // _WORKGROUP),
            params={"tokens": tokens, "width": width},
            constants={},
            grid_name="ids",
        )
        return Planned(word.device, Plan((out,), (only,)), tensors)

    return run_call("embedding", tensors, (), make)["out"]
