"""How byte-level tokenizers cut text before they merge: a row for each way, by the names that GGUF files give them."""

from __future__ import annotations

from typing import Final, NamedTuple


class PreTokenizer(NamedTuple):
    """A way to cut text into words.

    Attributes:
        patterns: Regular expressions; each cuts what the one before it has left: what it finds stands alone.
        whole_words: Whether a word that is a token needs no merges.
        begins: Whether a text begins with the token for that, where the file does not say.
        normal_form: Unicode's normal form of text, such as "NFC"; "" for none.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    begins: bool = False
    normal_form: str = ""


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SHORTENED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_ENDS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3 = rf"{_SHORTENED}|{_WORDS}|\p{{N}}{{1,3}}|{_ENDS}"
_QWEN2 = rf"{_SHORTENED}|{_WORDS}|\p{{N}}|{_ENDS}"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_SLASHED_ENDS = _ENDS.replace(r"[\r\n]*", r"[\r\n/]*", 1)


def _cased(shortened: str, digits: str) -> str:
    """Words end where small letters are followed by capitals."""
    start = r"[^\r\n\p{L}\p{N}]?"
    words = f"{start}[{_UPPER}]*[{_LOWER}]+{shortened}|{start}[{_UPPER}]+[{_LOWER}]*{shortened}"
    return f"{words}|{digits}|{_SLASHED_ENDS}"


_LLAMA3_ROW = PreTokenizer((_LLAMA3,), whole_words=True, begins=True)
_GPT2_ROW = PreTokenizer((_GPT2,))
_DIGITS_ROW = PreTokenizer((r"\p{N}", _GPT2))
_QWEN2_ROW = PreTokenizer((_QWEN2,), normal_form="NFC")

PRE_TOKENIZERS: Final[dict[str, PreTokenizer]] = {
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral"), _LLAMA3_ROW),
    **dict.fromkeys(("dbrx", "smaug-bpe"), PreTokenizer((_LLAMA3,))),
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt"), _GPT2_ROW),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r"), _DIGITS_ROW),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2_ROW),
    "stablelm2": PreTokenizer((_QWEN2,)),
    "tekken": PreTokenizer((_cased("", r"\p{N}"),), whole_words=True),
    **dict.fromkeys(("gpt-4o", "llama4"), PreTokenizer((_cased(f"{_SHORTENED}?", r"\p{N}{1,3}"),))),
}
