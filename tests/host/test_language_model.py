"""Answers without a device: a decoder that counts stands in for the model's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from counting_model import byte_tokenizer, model

from dmlvk.llm.chat_template import ChatTemplate
from dmlvk.llm.model import Model
from dmlvk.llm.sampling import Sampling
from dmlvk.llm.tokenizer import TextStream, Tokenizer
from dmlvk.spec.errors import InvalidArgumentError, ModelError, StateError, UnsupportedError


def test_text_and_tokens() -> None:
    own, _ = model("abcdefgh")
    assert list(own.generate("xy", 4)) == ["c", "d", "e", "f"]
    assert list(own.generate([120, 121], 4)) == [ord(letter) for letter in "cdef"]
    assert "".join(own.chat([{"role": "user", "content": "xyz"}], 2)) == "de"
    assert own.logits("abc").shape == (3, 258)
    assert own.usage.new_tokens == 2


def test_an_answer_ends_at_the_models_end_unless_that_is_ignored() -> None:
    own, _ = model("abcd<|im_end|>fg")
    assert list(own.generate("xy", 6)) == ["c", "d"]
    assert list(own.generate([120, 121], 6)) == [99, 100]
    assert list(own.generate([120, 121], 4, ignore_ends=True)) == [99, 100, 257, 102]


@pytest.mark.parametrize(
    ("stop", "expected"),
    [("ef", "cd"), (["fgz", "gh"], "cdef"), ("fgz", "cdefghab"), (("h", "e"), "cd"), ("cd", "")],
)
def test_stops_across_the_borders_of_tokens(stop: Any, expected: str) -> None:
    own, _ = model("abcdefgh")
    assert "".join(own.generate("xy", 8, stop=stop)) == expected


def test_what_may_begin_a_stop_is_held_back_until_it_does_not() -> None:
    own, _ = model("abcdefgh")
    assert list(own.generate("xy", 5, stop="deg")) == ["c", "def", "g"]
    assert list(own.generate("xy", 3, stop="efg")) == ["c", "d", "e"], "what is held at the end is given"
    assert list(own.generate([120, 121], 5, stop=[101])) == [99, 100]


def test_text_is_cut_at_whole_characters() -> None:
    own, _ = model("ab€ü🎉z")
    assert list(own.generate("xy", 10)) == ["€", "ü", "🎉", "z"]
    assert list(own.generate("xy", 2)) == ["\ufffd"], "an answer that ends inside a character says so"


def test_a_prompts_known_beginning_is_not_computed_again() -> None:
    own, decoder = model("abcdefgh")
    list(own.generate("xyz", 3))
    assert decoder.fed == [[[120, 121]]]
    answer = decoder.rows[0][3:]
    assert answer == [ord("d"), ord("e")], "the last token chosen is in no cache"
    list(own.generate([120, 121, 122, *answer, 7, 8], 1))
    assert decoder.fed[1:] == [[[7]]] and own.usage.reused_tokens == 5
    list(own.generate([120, 9], 1))
    assert decoder.fed[2:] == [] and own.usage.reused_tokens == 1


def test_a_batch_shares_beginnings_and_takes_turns() -> None:
    own, decoder = model("abcdefgh", sequences=2)
    long = "xyz" * 6
    prompts = [f"{long}zu", f"{long}zuvw", "xy", "q"]
    found: list[str] = ["", "", "", ""]
    for index, piece in own.generate_batch(prompts, 3):
        found[index] += str(piece)
    assert found == ["efg", "gha", "cde", "bcd"]
    assert decoder.shared[0] == (0, 1, 20) and own.usage.reused_tokens >= 20
    alone, _ = model("abcdefgh")
    assert ["".join(alone.generate(prompt, 3)) for prompt in prompts] == found


def test_steps_ahead_that_an_end_makes_worthless_are_cut_off() -> None:
    own, decoder = model("abcdefghijk<|im_end|>mnopqrstuvwxyz")
    assert "".join(own.generate("xy", 30)) == "cdefghijk"
    assert max(decoder.ahead) > 1, "a device as fast as this one goes ahead"
    assert decoder.lengths == [2 + len("cdefghijk")]
    assert own.usage.new_tokens == 10
    assert len(list(own.generate([120, 121], 7, ignore_ends=True))) == 7


def test_a_job_says_where_its_answer_begins() -> None:
    own, _ = model("abcdefgh")
    job = own.job("xyz", 3, presence_penalty=0.5, frequency_penalty=-1.0, logprobs=2)
    assert job.sampling == Sampling(presence_penalty=0.5, frequency_penalty=-1.0, answer_start=3) and job.logprobs == 2
    with pytest.raises(InvalidArgumentError, match="0 to 20"):
        own.job("xyz", 3, logprobs=21)
    with pytest.raises(InvalidArgumentError, match="options"):
        own.job("xyz", 3, answer_start=1)


def test_an_answer_ends_with_the_capacity() -> None:
    own, decoder = model("abcdefgh", capacity=6)
    assert "".join(own.generate("xyzw", 50)) == "efg"
    assert decoder.lengths == [6]


def test_what_is_refused() -> None:
    own, decoder = model("abcdefgh", capacity=6)
    mixed: Any = ["a"]
    parts: Any = [1.5]
    nothing: Any = None
    for words, field in (
        (lambda: own.generate("1234567"), "prompt"),
        (lambda: own.generate(""), "prompt"),
        (lambda: own.generate([258]), "prompt"),
        (lambda: own.generate(parts), "prompt"),
        (lambda: own.generate(nothing), "prompt"),
        (lambda: own.generate(b"abc"), "prompt"),
        (lambda: own.generate("a", 0), "max_new_tokens"),
        (lambda: own.generate("a", stop=[""]), "stop"),
        (lambda: own.generate([1], stop=mixed), "stop"),
        (lambda: own.generate("a", warmth=1), "options"),
        (lambda: own.generate("a", temperature=-1.0), "temperature"),
        (lambda: own.generate("a", top_p=1.5), "top_p"),
        (lambda: own.chat([{"content": "no role"}]), "messages"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            words()
        assert caught.value.field == field
    assert not decoder.fed and decoder.lengths == [0]
    with pytest.raises(UnsupportedError, match="chat template"):
        Model(decoder, byte_tokenizer()).chat([])


def test_an_answer_that_another_call_has_ended() -> None:
    own, _ = model("abcdefgh")
    first: Iterator[str] = own.generate("xy", 5)
    assert next(first) == "c"
    list(own.generate("z", 2))
    with pytest.raises(StateError):
        next(first)
    late, last = own.generate("xy", 5), own.generate("xy", 5)
    assert next(last) == "c"
    assert own.logits("abcdefg").shape == (7, 258)
    for ended in (late, last):
        with pytest.raises(StateError):
            next(ended)
    assert list(own.generate("xy", 2)) == ["c", "d"]


def test_tokenizers_that_are_not_supported() -> None:
    with pytest.raises(UnsupportedError, match="'martian'"):
        byte_tokenizer(pre="martian")
    with pytest.raises(UnsupportedError, match="'t5'"):
        byte_tokenizer(model="t5")
    with pytest.raises(ModelError, match=r"tokenizer\.ggml\.model"):
        Tokenizer.of_metadata({})


def sentence_pieces(**keys: Any) -> Tokenizer:
    texts = ["<unk>", "<s>", "</s>", "<0xE2>", "<0x82>", "<0xAC>", "\u2581", "a", "b", "ab", "\u2581a", "\u2581ab", "aba"]
    metadata = {
        "model": "llama",
        "tokens": texts,
        "scores": [0.0] * 8 + [-1.0, -2.0, -3.0, -1.0, -9.0],
        "token_type": [2, 3, 3, 6, 6, 6] + [1] * 7,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **keys,
    }
    return Tokenizer.of_metadata({f"tokenizer.ggml.{name}": value for name, value in metadata.items()})


def test_sentence_pieces_are_merged_by_their_scores() -> None:
    own = sentence_pieces()
    assert own.encode("ab a", begins=False) == [11, 10]
    assert own.encode("aba") == [1, 11, 7], "the better pieces first, not the longest"
    assert own.encode("€", begins=False) == [6, 3, 4, 5]
    assert own.decode([11, 10]) == "ab a"
    assert [own.piece(token) for token in (2, 3, 11)] == [b"</s>", b"\xe2", b" ab"]
    assert byte_tokenizer().piece(32) == b" " and byte_tokenizer().piece(256) == b"th"
    assert sentence_pieces(add_space_prefix=False).encode("ab a", begins=False) == [9, 10]
    assert own.encode("</s>", begins=False)[-1] == 2 and 2 not in own.encode("</s>", begins=False, special=False)


def test_a_stream_keeps_the_space_between_prompt_and_answer() -> None:
    own = sentence_pieces()
    stream = TextStream(own, own.encode("ab"))
    assert [stream.push(token) for token in (10, 3, 4, 5, 9)] == [" a", "", "", "€", "ab"]
    assert TextStream(own).push(10) == "a", "a text begins without"
    assert [stream.push(token) for token in (2, 10)] == ["", " a"], "a token without text changes nothing"


def test_a_long_stream_decodes_a_few_tokens_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    own = byte_tokenizer()
    decode, most = own.decode, 0

    def counted(tokens: Sequence[int], **attributes: Any) -> str:
        nonlocal most
        most = max(most, len(tokens))
        return decode(tokens, **attributes)

    monkeypatch.setattr(own, "decode", counted)
    stream = TextStream(own, own.encode("before"))
    text = "A long text, with € and 🎉. " * 5
    assert "".join(stream.push(token) for token in own.encode(text)) == text
    assert most <= 8


def test_of_a_text_that_is_much_too_long_a_beginning_is_cut_to_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    own = byte_tokenizer()
    encode, cut = own.encode, []

    def noted(text: str, **attributes: Any) -> list[int]:
        cut.append(len(text))
        return encode(text, **attributes)

    monkeypatch.setattr(own, "encode", noted)
    assert own.encode_at_most("x" * 80, 10) == encode("x" * 80) and cut == [80]
    assert len(own.encode_at_most("x" * 10**6, 10)) == 80 and cut == [80, 80]
    assert own.encode_at_most("th" * 81, 81) == encode("th" * 81), "162 characters may be 81 tokens"
    joined = "th" * 100  # tokens of two characters each
    assert own.encode_at_most(joined, 10) == encode(joined)[:40] and cut[-1] == 80


def test_templates_reach_nothing_but_what_they_are_given() -> None:
    special = {"bos_token": "<s>"}
    refusal = "{% if m.role == 'x' %}{{ raise_exception('no x') }}{% endif %}"
    text = f"{{{{ bos_token }}}}{{% for m in messages %}}\n{refusal}\n{{{{ m | tojson }}}}{{% endfor %}}"
    assert ChatTemplate(text, special).text([{"role": "user", "content": "é<"}]) == '<s>{"role": "user", "content": "é<"}'
    with pytest.raises(InvalidArgumentError, match="no x"):
        ChatTemplate(text, special).text([{"role": "x", "content": ""}])
    with pytest.raises(InvalidArgumentError, match="unsafe"):
        ChatTemplate("{{ messages.__class__.__mro__[1].__subclasses__() }}", {}).text([{"role": "user", "content": ""}])
    with pytest.raises(ModelError):
        ChatTemplate("{% for %}", {})
