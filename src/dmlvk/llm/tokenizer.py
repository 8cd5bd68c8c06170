"""Text to tokens and back: the one place that imports the package tokenizers."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dmlvk.llm.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from dmlvk.spec.errors import MissingPackageError, ModelError, UnsupportedError

try:
    import tokenizers
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
except ImportError as error:
    raise MissingPackageError("language models' text needs the package tokenizers: pip install dmlvk[llm]") from error


class _Kind(enum.IntEnum):
    """GGUF's types of tokens."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_SPACE: Final = "\u2581"
"""What SentencePiece writes for a space."""
_BYTE: Final = re.compile("<0x([0-9A-F]{2})>")
"""What it calls a byte by itself."""
_PLAIN: Final = (*range(33, 127), *range(161, 173), *range(174, 256))
_BYTES: Final = {chr(byte): byte for byte in _PLAIN} | {
    chr(256 + index): byte for index, byte in enumerate(sorted({*range(256)} - {*_PLAIN}))
}
"""The letters as which byte-level tokenizers write bytes."""
_CHARACTERS: Final = 8
"""Characters a token: of a text that has more for each token that it may have, a beginning is looked at first."""
_BROKEN: Final = "\ufffd"
"""What bytes decode to that are no whole character."""
_ENDS: Final = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "</s>")
"""Tokens that end an answer, where a control token has such a name."""


class Tokenizer:
    """A model's tokenizer.

    Args:
        backend: What cuts and merges.
        begin: The token that a text begins with; None for none.
        ends: Tokens that end an answer.
        special: The texts of tokens that templates are given, by the templates' names, such as "bos_token".
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        begin: int | None = None,
        ends: Sequence[int] = (),
        special: Mapping[str, str] | None = None,
    ) -> None:
        self._backend = backend
        self._added = frozenset(backend.get_added_tokens_decoder())
        self.begin = begin
        self.ends = frozenset(ends)
        self.special = dict(special or {})

    @staticmethod
    def of_file(
        path: str | os.PathLike[str], *, ends: Sequence[int] = (), special: Mapping[str, str] | None = None
    ) -> Tokenizer:
        """The tokenizer of a file tokenizer.json, which says itself what a text begins with; the others are as of the class.

        Raises:
            ModelError: it cannot be read.
        """
        try:
            backend = tokenizers.Tokenizer.from_file(os.fspath(path))
        except Exception as error:  # the package raises nothing narrower
            raise ModelError(f"{path}: no tokenizer that can be read: {error}") from error
        whole, bare = (backend.encode("a", add_special_tokens=special).ids for special in (True, False))
        begin = whole[0] if whole[:1] != bare[:1] else None
        return Tokenizer(backend, begin=begin, ends=ends, special=special)

    @staticmethod
    def of_metadata(metadata: Mapping[str, Any]) -> Tokenizer:
        """The tokenizer that the keys of a GGUF file describe.

        Raises:
            ModelError: a key that it takes is missing.
            UnsupportedError: a kind of tokenizer, or a way to cut text, that is not supported.
        """
        return _from_gguf(metadata)

    def encode(self, text: str, *, begins: bool = True, special: bool = True) -> list[int]:
        """The tokens of a text.

        Args:
            text: The text.
            begins: Whether the token comes first that a text begins with, if the model has one.
            special: Whether the texts of control tokens stand for these, as in templates; else they are text like any other.
        """
        self._backend.encode_special_tokens = not special
        tokens: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        first = [self.begin] if begins and self.begin is not None and tokens[:1] != [self.begin] else []
        return first + tokens

    def encode_at_most(self, text: str, count: int) -> list[int]:
        """The tokens of a text; of one that has more than twice so many, those of a beginning that has, too.

        Cutting a text into tokens takes some 80 times its bytes of memory, which a text that is much too long is not worth.
        """
        length = max(_CHARACTERS * count, 1)
        while length < len(text):
            tokens = self.encode(text[:length])
            if len(tokens) > 2 * count:
                return tokens
            length *= 2
        return self.encode(text)

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for inside a text, which need not be whole characters; a control token's name."""
        name = self._backend.id_to_token(token)
        if name is None or token in self._added:
            return (name or "").encode()
        if isinstance(self._backend.decoder, decoders.ByteLevel):
            return bytes(_BYTES.get(letter, 32) for letter in name)
        if byte := _BYTE.fullmatch(name):
            return bytes.fromhex(byte[1])
        return str(name.replace(_SPACE, " ")).encode()

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of tokens, with those of control tokens where ``special``."""
        text: str = self._backend.decode(list(tokens), skip_special_tokens=not special)
        return text


class TextStream:
    """The text of tokens that come one by one, cut only between whole characters.

    Args:
        tokenizer: The tokenizer.
        before: The tokens before the first one, which say whether that begins with a space.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(before)[-4:]
        self._given = len(self._tokens)

    def push(self, token: int) -> str:
        """The text that a token completes; "" where a character is open."""
        self._tokens.append(token)
        return self._take(complete=False)

    def close(self) -> str:
        """What is left, whole or not."""
        return self._take(complete=True)

    def _take(self, *, complete: bool) -> str:
        known = self._tokenizer.decode(self._tokens[: self._given])
        text = self._tokenizer.decode(self._tokens)
        if not complete and text.endswith(_BROKEN):
            return ""
        piece = text[len(known) :]
        if piece:  # what was given last tells whether the next token begins with a space
            del self._tokens[: self._given]
        self._given = len(self._tokens)
        return piece


def _key(metadata: Mapping[str, Any], name: str) -> Any:
    try:
        return metadata[f"tokenizer.ggml.{name}"]
    except KeyError:
        raise ModelError(f"the file has no tokenizer: no key tokenizer.ggml.{name}") from None


def _from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    kind = _key(metadata, "model")
    if kind not in ("gpt2", "llama"):
        raise UnsupportedError(
            f"tokenizers of the kind {kind!r} are not supported, only gpt2 (byte-level) and llama (SentencePiece)"
        )
    texts: list[str] = _key(metadata, "tokens")
    kinds: list[int] = metadata.get("tokenizer.ggml.token_type") or [_Kind.NORMAL] * len(texts)
    if kind == "gpt2":
        row = _pre_tokenizer(metadata)
        backend, begins = _byte_level(texts, _key(metadata, "merges"), row), row.begins
    else:
        backend, begins = _sentence_pieces(texts, kinds, metadata), True
    added = [
        AddedToken(text, special=own != _Kind.USER_DEFINED, normalized=False)
        for text, own in zip(texts, kinds, strict=True)
        if own in (_Kind.UNKNOWN, _Kind.CONTROL, _Kind.USER_DEFINED)
    ]
    backend.add_tokens([token for token in added if not token.special])
    backend.add_special_tokens([token for token in added if token.special])

    special = {}
    for name, short in (("bos", "bos"), ("eos", "eos"), ("unknown", "unk"), ("padding", "pad")):
        token = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if token is not None and 0 <= token < len(texts):
            special[f"{short}_token"] = texts[token]
    begin = metadata.get("tokenizer.ggml.bos_token_id") if metadata.get("tokenizer.ggml.add_bos_token", begins) else None
    control = {text for text, own in zip(texts, kinds, strict=True) if own in (_Kind.CONTROL, _Kind.USER_DEFINED)}
    ends = [texts.index(text) for text in _ENDS if text in control]
    ends += [metadata[key] for key in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id") if key in metadata]
    return Tokenizer(backend, begin=begin, ends=ends, special=special)


def _pre_tokenizer(metadata: Mapping[str, Any]) -> PreTokenizer:
    name = metadata.get("tokenizer.ggml.pre", "gpt-2")
    if name not in PRE_TOKENIZERS:
        known = ", ".join(PRE_TOKENIZERS)
        raise UnsupportedError(f"tokenizers that cut text as {name!r} does are not supported, only {known}")
    return PRE_TOKENIZERS[name]


def _byte_level(texts: Sequence[str], merges: Sequence[str], row: PreTokenizer) -> tokenizers.Tokenizer:
    """Merges of bytes, which are written as letters."""
    pairs = [(first, second) for first, _, second in (merge.partition(" ") for merge in merges)]
    vocabulary = {text: token for token, text in enumerate(texts)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=row.whole_words))
    if row.normal_form:
        backend.normalizer = getattr(normalizers, row.normal_form)()
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in row.patterns]
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentence_pieces(texts: Sequence[str], kinds: Sequence[int], metadata: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """SentencePiece's merges: of all two neighbours that make a piece, those of the best piece first."""
    scores = _key(metadata, "scores")
    vocabulary = {text: token for token, text in enumerate(texts)}
    pieces = {text for text, kind in zip(texts, kinds, strict=True) if kind in (_Kind.NORMAL, _Kind.UNUSED)}
    ranked = []
    for token, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
        if kind != _Kind.NORMAL:
            continue
        halves = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        ranked += [(-scores[token], token, pair) for pair in halves if pair[0] in pieces and pair[1] in pieces]
    ranked.sort(key=lambda item: (item[0], item[1], vocabulary[item[2][0]], vocabulary[item[2][1]]))
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=[pair for _, _, pair in ranked],
            unk_token=texts[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    leads = metadata.get("tokenizer.ggml.add_space_prefix", True)
    steps: list[Any] = [normalizers.Prepend(_SPACE)] if leads else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    ends: list[Any] = [decoders.Strip(" ", 1, 0)] if leads else []
    backend.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *ends])
    return backend
