"""What attention heads are known to do: the labels that a head may get, and what each of them means.

Heads that attend to the previous or next token, to ``[CLS]`` and ``[SEP]``, to punctuation, to themselves
or broadly: Clark et al. 2019, arXiv 1906.04341. Positional heads: Voita et al. 2019, arXiv 1905.09418.
Induction: Olsson et al. 2022, arXiv 2209.11895. The first token as a sink of attention: Xiao et al. 2023,
arXiv 2309.17453.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A label is shown from this score on, unless it has a minimum of its own.
MINIMUM = 0.3


@dataclass(frozen=True)
class Label:
    """Something that a head may do.

    Attributes
    ----------
    name : str
        A short name, for programs.
    title : str
        For people.
    description : str
        What the head does, as a sentence.
    synonyms : str
        Other words by which people look for it.
    minimum : float
        The lowest score from which the label is shown.
    beside : bool
        False: the label is only shown on a head that has no other one.
    implied_by : tuple of str
        Narrower labels; where one of these is shown, this one would say nothing new.
    """

    name: str
    title: str
    description: str
    synonyms: str = ""
    minimum: float = MINIMUM
    beside: bool = True
    implied_by: tuple[str, ...] = ()


LABELS = (
    Label(
        "previous",
        "previous token",
        "Attends to the token before the query.",
        "prev preceding last left one back offset -1 positional",
    ),
    Label(
        "next",
        "next token",
        "Attends to the token after the query.",
        "following succeeding right one ahead offset +1 positional",
    ),
    Label("self", "itself", "Attends to the query’s own position.", "self diagonal identity same position"),
    Label(
        "same",
        "same word",
        "Attends to other occurrences of the query’s token.",
        "duplicate repeated repetition identical equal copy",
    ),
    Label(
        "induction",
        "induction",
        "Attends to the token after an earlier occurrence of the query’s token.",
        "repeat pattern copying after earlier in-context",
    ),
    Label(
        "first",
        "first token",
        "Attends to the first token of the text ([CLS] in BERT’s family).",
        "cls bos start beginning sink",
    ),
    Label(
        "separator",
        "separators",
        "Attends to tokens that separate or end texts, such as [SEP].",
        "sep eos end special delimiter sink im_end endoftext",
    ),
    Label(
        "punctuation",
        "punctuation",
        "Attends to punctuation marks.",
        "comma period full stop dot mark quote bracket",
    ),
    Label(
        "nearby",
        "nearby tokens",
        "Attends to the three tokens on either side of the query.",
        "local window neighbours neighbors close neighbourhood neighborhood",
        implied_by=("previous", "next"),
    ),
    Label(
        "broad",
        "broad",
        "Spreads its weight evenly over the keys that it may see.",
        "wide uniform diffuse even spread average high entropy",
        minimum=0.8,
        beside=False,
    ),
    Label(
        "narrow",
        "narrow",
        "Gives each query’s weight to few keys, which no other label describes.",
        "sparse sharp focused peaked low entropy",
        minimum=0.5,
        beside=False,
    ),
)

#: The labels by their names.
BY_NAME = {label.name: label for label in LABELS}


def shown(scores: dict[str, float]) -> list[tuple[str, float]]:
    """The labels that one head gets: names and scores, the highest score first.

    Parameters
    ----------
    scores : dict
        The head's score for each label, from 0 to 1; NaN where there is none.
    """
    reached = {name for name, score in scores.items() if score >= BY_NAME[name].minimum}
    kept = {name for name in reached if BY_NAME[name].beside}
    kept -= {name for name in kept if kept.intersection(BY_NAME[name].implied_by)}
    return sorted(((name, scores[name]) for name in kept or reached), key=lambda found: -found[1])
