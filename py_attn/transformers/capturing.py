"""``capture``: a context in which a model's attention layers leave behind what their maps need."""

from __future__ import annotations

import functools
import re
import sys
from collections import Counter
from types import TracebackType
from typing import Any

from py_attn.transformers.recording import Call, Recording, Rules, Stack

#: Parts of modules' names that tell cross-attention.
_CROSS = re.compile(r"cross|encoder_attn|encdecattention", re.IGNORECASE)
#: Attention functions that are causal by themselves where they get no mask.
_CAUSAL_WITHOUT_MASK = ("sdpa", "flash")

#: The captures whose `with` is being executed.
_active: list[Captured] = []
#: What `AttentionInterface.get_interface` was before the first of them.
_original: Any = None


def capture(model: Any, *, values: bool = False) -> Captured:
    """Keep what the attention maps of a model need while it runs.

    >>> with pa.transformers.capture(model) as captured:
    ...     model(**inputs)
    >>> AttentionView(captured)

    The model computes as it always does, with the attention function that it was loaded with (sdpa, eager,
    flash): that function is called with its own arguments, and afterwards its queries and keys are copied.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A model, or a part of one, whose attention goes through transformers' ``AttentionInterface``.
    values : bool
        Whether to keep values too, which maps do not need; the view's gradients and timings use them.

    Returns
    -------
    Captured
        To be used in one ``with``.

    Raises
    ------
    ModuleNotFoundError
        Without the package ``transformers``.
    ImportError
        Where its version has no ``AttentionInterface.get_interface``.
    TypeError, ValueError
        Where ``model`` is no model, or its attention does not go through the interface.
    """
    _interface()
    if not callable(getattr(model, "named_modules", None)):
        raise TypeError(
            f"model: expected a model of transformers (a torch module), got {type(model).__name__}"
        )
    sources = {type(module).__module__ for module in model.modules()}
    if not any(hasattr(sys.modules.get(source), "ALL_ATTENTION_FUNCTIONS") for source in sources):
        raise ValueError(
            f"model: expected attention that goes through transformers' AttentionInterface, which that of "
            f"{type(model).__name__} does not; use output_attentions=True and AttentionView.from_attentions"
        )
    return Captured(model, values)


class Captured:
    """The attention layers of a model, as its last run left them.

    A forward pass without a cache begins anew and replaces what was kept; one that continues a cached text,
    as in ``generate``, adds to it. A module that a forward pass calls several times is as many layers, as in
    ALBERT, whose layers share their weights.

    Attributes
    ----------
    title : str
        The model's class.
    """

    def __init__(self, model: Any, values: bool) -> None:
        self.title = type(model).__name__
        self._model = model
        self._modules: dict[int, str] = {id(module): name for name, module in model.named_modules()}
        self._values = values
        self._recordings: dict[tuple[str, int], Recording] = {}
        self._hooks: list[Any] = []
        self._depth = 0  # how many of the model's modules are being called, one within the other
        self._calls: Counter[str] = Counter()  # of each attention module in this forward pass
        self._rules = Rules()
        self._follows = False
        self._used = False
        self._stacks: dict[str, Stack] | None = None

    def __enter__(self) -> Captured:
        if self._used:
            raise RuntimeError("a capture is for one `with`; call pa.transformers.capture(model) again")
        if any(self._modules.keys() & other._modules.keys() for other in _active):
            raise RuntimeError("this model is being captured already; leave that `with` first")
        self._used = True
        for module in self._model.modules():
            self._hooks.append(module.register_forward_pre_hook(self._enter_module))
            self._hooks.append(module.register_forward_hook(self._leave_module, always_call=True))
        _install()
        _active.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _active.remove(self)
        _uninstall()
        self._rules = Rules()  # it holds masks
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _enter_module(self, *_: Any) -> None:
        if not self._depth:
            self._calls.clear()  # a forward pass begins
        self._depth += 1

    def _leave_module(self, *_: Any) -> None:
        self._depth -= 1

    def __repr__(self) -> str:
        if not self._recordings:
            return f"<Captured {self.title}: nothing yet>"
        counts = ", ".join(f"{name!r} ({len(stack.layers)} layers)" for name, stack in self.stacks.items())
        return f"<Captured {self.title}: {counts}>"

    @property
    def stacks(self) -> dict[str, Stack]:
        """The layers by kind, e.g. "encoder", "decoder" and "cross"; the one that ran last comes last.

        Raises
        ------
        ValueError
            When nothing was captured, or what was captured is not one whole text.
        """
        if not self._recordings:
            raise ValueError(
                f"no attention of {self.title} was captured: call the model inside the `with`, and not as "
                "torch.compile returns it"
            )
        if self._stacks is None:
            self._stacks = _stacks(list(self._recordings.values()))
        return self._stacks

    def __getitem__(self, name: str) -> Stack:
        found = self.stacks.get(name)
        if found is None:
            raise KeyError(f"expected one of {', '.join(self.stacks)}, got {name!r}")
        return found

    @property
    def main(self) -> Stack:
        """What a view shows by itself: the self-attention that ran last."""
        stacks = list(self.stacks.values())
        return next((stack for stack in reversed(stacks) if not stack.cross), stacks[-1])

    def record(self, implementation: str, module: Any, names: dict[str, Any]) -> None:
        """Keep a call of an attention function by one of the model's modules."""
        name = self._modules.get(id(module))
        if name is None:
            return
        self._stacks = None
        number = self._calls[name]
        self._calls[name] += 1
        # The order of the dictionary is that of the last calls.
        known = self._recordings.pop((name, number), None)
        known = self._recordings[name, number] = known or Recording(name, number, bool(_CROSS.search(name)))
        call = _call(implementation, module, names)
        if call is None:
            known.problem = f"{implementation} has masks of its own kind; load the model with sdpa or eager"
            return
        known.add(call, self._rules, values=self._values, follows=self._follows)
        if not known.cross:
            self._follows = known.length > call.query.shape[2]


def _call(implementation: str, module: Any, names: dict[str, Any]) -> Call | None:
    """The arguments of an attention function; None where its mask is no tensor."""
    mask, query = names.get("attention_mask"), names["query"]
    if mask is not None and not hasattr(mask, "data_ptr"):
        return None
    given = names.get("is_causal")
    causal = bool(getattr(module, "is_causal", True) if given is None else given)
    scale = names.get("scaling")
    return Call(
        query,
        names["key"],
        names["value"],
        mask,
        names.get("position_bias"),
        causal and any(word in (implementation or "") for word in _CAUSAL_WITHOUT_MASK),
        names.get("sliding_window"),
        names.get("softcap"),
        names.get("s_aux"),
        float(query.shape[-1] ** -0.5 if scale is None else scale),
    )


def _stacks(recordings: list[Recording]) -> dict[str, Stack]:
    """The layers by kind; layers of one kind have equally many heads and positions."""
    problem = next((each for each in recordings if each.problem), None)
    if problem is not None:
        raise ValueError(f"{problem.name} was not captured as a whole: {problem.problem}")
    groups: dict[tuple[Any, ...], list[Any]] = {}
    crosses: dict[tuple[Any, ...], bool] = {}
    for each in recordings:
        layer = each.finish()
        facts = (re.sub(r"\d+", "*", each.name), *layer.query.shape[:3], layer.key.shape[2])
        groups.setdefault(facts, []).append(layer)
        crosses[facts] = each.cross
    found: dict[str, Stack] = {}
    for facts, layers in groups.items():
        name = _kind(facts[0], crosses[facts])
        name = name if name not in found else facts[0]
        name = name if name not in found else f"{facts[0]} {len(found)}"
        found[name] = Stack(name, crosses[facts], layers)
    return found


def _kind(path: str, cross: bool) -> str:
    if cross:
        return "cross"
    words = ("vision", "text", "audio", "decoder", "encoder")
    return next((word for word in words if word in path.lower()), "self")


def _interface() -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise ModuleNotFoundError(
            "py_attn.transformers needs transformers: pip install transformers torch", name="transformers"
        ) from None
    interface = getattr(transformers, "AttentionInterface", None)
    if not hasattr(interface, "get_interface"):
        raise ImportError(
            f"py_attn.transformers needs transformers 5.0 or later, this is {transformers.__version__}"
        )
    return interface


def _install() -> None:
    """Have all modules ask for their attention function here, while any capture is active."""
    global _original
    if _active:
        return
    interface = _interface()
    _original = interface.get_interface

    @functools.wraps(_original)
    def get_interface(self: Any, attn_implementation: Any, default: Any) -> Any:
        function = _original(self, attn_implementation, default)
        return functools.partial(_attend, attn_implementation, function)

    interface.get_interface = get_interface


def _uninstall() -> None:
    if not _active:
        _interface().get_interface = _original


def _attend(implementation: str, function: Any, module: Any, *tensors: Any, **options: Any) -> Any:
    """The model's own attention function; what it was called with is kept afterwards."""
    result = function(module, *tensors, **options)
    names = dict(zip(("query", "key", "value", "attention_mask"), tensors, strict=False)) | options
    for each in _active:
        each.record(implementation, module, names)
    return result
