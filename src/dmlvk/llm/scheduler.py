"""Many answers at once, as a server gives them: they join and leave one decoder between its steps."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dmlvk.llm.answers import Job, Piece, TokenLogprobs
from dmlvk.llm.decoder import Decoder, Steps, Told
from dmlvk.llm.sampling import Sampling
from dmlvk.spec.errors import DeviceLostError, InvalidArgumentError, QueueFullError, StateError

if TYPE_CHECKING:
    from dmlvk.llm.onnx_decoder import OnnxDecoder

_SECONDS_AHEAD: Final = 0.02
_MOST_AHEAD: Final = 8
"""How long, and for how many tokens, the device goes on before the host looks at what it has chosen."""
_WORTH_WAITING: Final = 16
"""Tokens that two prompts begin with together, from which on one has them from the other."""


class Update(NamedTuple):
    """What a round has brought an answer.

    Attributes:
        pieces: The next parts of it.
        tokens: Tokens that were chosen, one that ended it included.
        ended: Why it is over, as of a ``Job``; "cancelled" or "failed"; "" where it goes on.
        error: What made it fail.
        told: How probable the tokens were, but for one that ended it, where the job asks for that.
    """

    pieces: Sequence[Piece]
    tokens: int
    ended: Literal["", "stop", "length", "cancelled", "failed"]
    error: Exception | None = None
    told: Sequence[TokenLogprobs] = ()


@dataclass(eq=False)
class Request:
    """One answer that somebody waits for.

    Attributes:
        job: The sequence to be continued.
        take: Called with each update, the last of which says that the answer is over. It is called between steps: it must be
            quick, and must not raise.
        reused: Tokens of the prompt that were in the cache already.
        is_cancelled: Whether nobody waits any more.
    """

    job: Job
    take: Callable[[Update], None]
    reused: int = 0
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Ends the answer before the next round; may be called at any time, by any thread."""
        self.is_cancelled = True


class Load(NamedTuple):
    """How much there is to do.

    Attributes:
        waiting: Requests that have no sequence yet.
        running: Requests that have one.
        sequences: Sequences that there are.
        rows: Rows of the cache that running requests take.
        capacity: Rows that the cache has, of all sequences.
    """

    waiting: int
    running: int
    sequences: int
    rows: int
    capacity: int


class _Leader(NamedTuple):
    """A request whose prompt begins as another's does, which waits for it.

    Attributes:
        place: Its sequence.
        request: Whose prompt it reads.
        rows: What both begin with.
    """

    place: int
    request: Request
    rows: int


@dataclass(eq=False)
class _Sequence:
    """A sequence of the decoder.

    Attributes:
        request: Whose it is; None where it is free.
        tokens: The tokens of its cache.
        read: How many of them came as a prompt. Only these serve other requests: what a step has computed of a token may
            differ in its last bits from what a piece of a prompt has, and an answer must not tell what is in the cache.
        leader: Whom it waits for.
        used: When it was last given to a request, counted in requests.
    """

    request: Request | None = None
    tokens: list[int] = field(default_factory=list)
    read: int = 0
    leader: _Leader | None = None
    used: int = 0

    @property
    def prompt(self) -> list[int]:
        """What is to be read before the first step: the prompt but for its last token."""
        return [] if self.request is None else self.request.job.prompt[:-1]

    @property
    def left(self) -> int:
        """How many tokens of the prompt are yet to be read."""
        return 0 if self.request is None else max(len(self.request.job.prompt) - 1 - len(self.tokens), 0)


class _Begun(NamedTuple):
    """Steps that the device takes while the host looks at those before.

    Attributes:
        running: Whose they are, by the places of their sequences.
        steps: The steps.
    """

    running: dict[int, Request]
    steps: Steps


class Scheduler:
    """Continues the sequences of many requests, in rounds: each reads a piece of the prompts that have not been read, and
    takes one step of all answers that go on, or several where nothing else is to be done.

    Requests get sequences in the order in which they came. Where it is exact, the tokens of an answer depend on its own
    prompt, options and seed alone, not on what else is being answered.

    ``round`` is for one thread, the rest for any.

    Args:
        decoder: A model's, which nothing else uses meanwhile.
        most_waiting: The most requests that wait for a sequence; None for any number.
        piece: The most tokens of each prompt that a round reads: one of ``decoder.pieces``, its ``usual_piece`` where None.
            With fewer, answers that go on wait less for prompts of others, and prompts take longer.
        exact: Whether all pieces are of one size, and only what came in one serves other requests: what another piece, or a
            step, has computed may differ in its last bits. Where not, prompts come at once, in the cheapest pieces, and all
            that the cache holds is used again.

    Attributes:
        failure: Why nothing is taken any more, such as a lost device; None while it works.

    Raises:
        InvalidArgumentError: the decoder has no such pieces.
    """

    def __init__(
        self, decoder: Decoder | OnnxDecoder, *, most_waiting: int | None = 256, piece: int | None = None, exact: bool = True
    ) -> None:
        self._decoder = decoder
        pieces = self._decoder.pieces
        if piece is not None and piece not in pieces:
            raise InvalidArgumentError(f"must be one of {', '.join(map(str, pieces))}", field="piece", value=piece)
        self._piece = self._decoder.usual_piece if piece is None else piece
        self._most_waiting = most_waiting
        self._exact = exact
        self._sequences = [_Sequence() for _ in self._decoder.lengths]
        self._waiting: deque[Request] = deque()
        self._lock = threading.Lock()
        """Held where requests join or leave those that wait."""
        self._stepped: list[Request | None] = []
        """Whose tokens the last step has left on the device."""
        self._requests = 0
        self._ahead = 1
        self._begun: _Begun | None = None
        self._told_at = 0.0
        """When the last steps were told."""
        self.failure: Exception | None = None

    def submit(self, requests: Sequence[Request]) -> None:
        """Puts requests at the end of the queue, all of them or none.

        Raises:
            QueueFullError: there is no room for them.
            StateError: nothing is taken any more.
        """
        with self._lock:
            if self.failure is not None:
                raise StateError(f"no requests are taken any more: {self.failure}") from self.failure
            waiting = len(self._waiting)
            free = sum(own.request is None for own in self._sequences)
            if self._most_waiting is not None and len(requests) > self._most_waiting + free - waiting:
                raise QueueFullError(f"{waiting} requests wait for a sequence already, and {self._most_waiting} may")
            self._waiting.extend(requests)

    @property
    def load(self) -> Load:
        """How much there is to do now."""
        running = [own for own in self._sequences if own.request is not None]
        rows = sum(len(own.tokens) for own in running)
        count = len(self._sequences)
        return Load(len(self._waiting), len(running), count, rows, count * self._decoder.capacity)

    @property
    def is_busy(self) -> bool:
        """Whether a round would do anything."""
        return bool(self._waiting) or any(own.request is not None for own in self._sequences)

    def round(self) -> None:
        """Does what is to be done next. What fails is told to those whom it concerns; an interrupt, such as Ctrl-C, to the
        caller, too."""
        try:
            self._drop()
            self._admit()
            self._read()
            self._step()
        except DeviceLostError as error:
            self.end(error)
        except Exception as error:
            self._fail(error)
        except BaseException:
            self._fail(StateError("a round was interrupted"))
            raise

    def end(self, error: Exception) -> None:
        """Ends all requests, those that wait too, and takes no others; between rounds."""
        with self._lock:
            self.failure = error
            waiting, self._waiting = self._waiting, deque()
        self._fail(error)
        for request in waiting:
            request.take(Update((), 0, "failed", error))

    def _fail(self, error: Exception) -> None:
        """Ends the requests that have a sequence, and forgets what the cache holds."""
        ended = [own.request for own in self._sequences if own.request is not None]
        self._sequences = [_Sequence() for _ in self._sequences]
        self._stepped, self._begun = [], None
        for request in ended:
            request.take(Update((), 0, "failed", error))

    # -- the parts of a round

    def _drop(self) -> None:
        """Frees what cancelled requests have."""
        with self._lock:
            cancelled = [request for request in self._waiting if request.is_cancelled]
            for request in cancelled:
                self._waiting.remove(request)
        for place, own in enumerate(self._sequences):
            if own.request is not None and own.request.is_cancelled:
                cancelled.append(own.request)
                self._free(place)
        for request in cancelled:
            request.take(Update((), 0, "cancelled"))

    def _admit(self) -> None:
        """Gives free sequences to the requests that have waited longest."""
        while free := [place for place, own in enumerate(self._sequences) if own.request is None]:
            with self._lock:
                if not self._waiting:
                    return
                request = self._waiting[0]  # where it waits until a sequence has it, so that no failure loses it
            wanted = request.job.prompt[:-1]
            known = [common_length(own.tokens[: own.read], wanted) for own in self._sequences]
            coming = [common_length(own.prompt, wanted) if own.left else 0 for own in self._sequences]
            best = max(range(len(known)), key=lambda place: (known[place], self._sequences[place].request is None))
            # A sequence whose beginning alone is wanted keeps the rest of it for those who may want that.
            if best in free and 2 * known[best] >= self._sequences[best].read:
                place, source = best, None
            else:
                place = min(free, key=lambda item: self._sequences[item].used)
                source = best if place != best and known[best] >= _WORTH_WAITING else None
            own = self._sequences[place]
            self._requests += 1
            own.used = self._requests
            own.request = request
            with self._lock:
                self._waiting.popleft()
            if source is None:
                self._keep(place, known[place])
            else:
                self._share(source, place, known[source])
            longest = max(range(len(coming)), key=coming.__getitem__)
            if coming[longest] - own.read >= _WORTH_WAITING:
                leader = self._sequences[longest].request
                assert leader is not None and leader is not request
                own.leader = _Leader(longest, leader, coming[longest])
            request.reused = own.read

    def _free(self, place: int) -> None:
        """Takes a sequence from its request; what was read stays for others."""
        own = self._sequences[place]
        own.request, own.leader = None, None
        self._keep(place, own.read if self._exact else len(own.tokens))

    def _keep(self, place: int, rows: int) -> None:
        """Cuts a sequence back to the first of the tokens that were read."""
        own = self._sequences[place]
        self._decoder.truncate(place, rows)
        del own.tokens[rows:]
        own.read = rows

    def _share(self, source: int, place: int, rows: int) -> None:
        """Makes the first tokens that a sequence has read another one's."""
        own = self._sequences[place]
        self._decoder.share(source, place, rows)
        own.tokens = self._sequences[source].tokens[:rows]
        own.read = rows

    def _read(self) -> None:
        """Brings the next piece of each prompt into the cache."""
        parts: list[list[int]] = [[] for _ in self._sequences]
        for place, own in enumerate(self._sequences):
            if own.left and not self._waits(place, own):
                parts[place] = own.prompt[own.read : own.read + self._piece if self._exact else None]
        if any(parts):
            self._decoder.extend(parts, self._piece if self._exact else None)
            for own, part in zip(self._sequences, parts, strict=True):
                if part:
                    own.tokens += part
                    own.read = len(own.tokens)

    def _waits(self, place: int, own: _Sequence) -> bool:
        """Whether a sequence waits for another's beginning; where that has come, it is given here."""
        if own.leader is None:
            return False
        leader = self._sequences[own.leader.place]
        if leader.request is own.leader.request and leader.read < own.leader.rows:
            return True
        rows = common_length(leader.tokens[: leader.read], own.prompt)
        if own.request is not None and rows - own.read >= _WORTH_WAITING:
            self._share(own.leader.place, place, rows)
            own.request.reused = rows
        own.leader = None
        return not own.left

    def _step(self) -> None:
        """Takes steps of all answers that go on, and tells what they bring, or what those begun before have brought."""
        running = dict(self._running())
        begun, self._begun = self._begun, None
        if begun is None and not running:
            return
        has_joined = not self._stepped or any(self._stepped[place] is not request for place, request in running.items())
        is_alone = not has_joined and not any(own.left for own in self._sequences)
        asks = any(request.job.logprobs is not None for request in running.values())
        before = time.perf_counter()
        if begun is None and is_alone and not asks and self._ahead > 1:
            begun = self._begin(running, 0)
        if begun is not None:
            # The device goes on while the host waits for these, where nobody waits for a place among them.
            if is_alone and not asks and not self._waiting:
                self._begun = self._begin(running, begun.steps.count)
            self._tell(begun.running, begun.steps.tokens())
            if self._begun is not None and not any(self._has(*pair) for pair in running.items()):
                self._begun = None  # Nobody waits for these.
            count, before = begun.steps.count, max(before, self._told_at)
        else:
            self._tell(running, *self._one_step(running, has_joined=has_joined, asks=asks))
            count = 1
        self._told_at = time.perf_counter()
        if is_alone and self._decoder.begins_steps:  # nothing else has taken a part of that time
            self._ahead = max(min(int(_SECONDS_AHEAD * count / (self._told_at - before)), _MOST_AHEAD), 1)

    def _begin(self, running: dict[int, Request], ahead: int) -> _Begun | None:
        """Begins several steps behind some that have been begun; None where an answer has no room for one."""
        room = self._decoder.capacity
        left = (
            min(own.job.room - own.job.made - ahead, room - self._decoder.lengths[place]) for place, own in running.items()
        )
        count = min(self._ahead, *left)
        if count < 1:
            return None
        self._stepped = [running.get(place) for place in range(len(self._sequences))]
        return _Begun(running, self._decoder.begin_steps(self._sampling(running), count))

    def _one_step(
        self, running: dict[int, Request], *, has_joined: bool, asks: bool
    ) -> tuple[npt.NDArray[np.int32], Told | None]:
        """The tokens of one step, (1, sequences), and how probable they are, where somebody asks for that."""
        places = range(len(self._sequences))
        tokens = [running[place].job.last if place in running else 0 for place in places] if has_joined else None
        if asks:
            chosen, told = self._decoder.step_told(self._sampling(running), tokens)
        else:
            chosen, told = self._decoder.step(self._sampling(running), tokens), None
        self._stepped = [running.get(place) for place in places]
        return chosen[None], told

    def _has(self, place: int, request: Request) -> bool:
        """Whether a request has its sequence still."""
        return self._sequences[place].request is request

    def _sampling(self, running: dict[int, Request]) -> list[Sampling | None]:
        places = range(len(self._sequences))
        return [running[place].job.sampling if place in running else None for place in places]

    def _tell(self, running: dict[int, Request], chosen: npt.NDArray[np.int32], told: Told | None = None) -> None:
        """Tells the requests that still have their sequences what steps have chosen."""
        for place, request in running.items():
            if not self._has(place, request):
                continue
            own = self._sequences[place]
            pieces: list[Piece] = []
            count, is_over = 0, False
            for token in chosen[:, place].tolist():
                own.tokens.append(request.job.last)
                own.read += not self._exact
                more, is_over = request.job.push(token)
                pieces += more
                count += 1
                if is_over:
                    break
            if is_over:
                self._free(place)
            probable = [] if told is None or request.job.ended_by_token else _told(told, place, request.job)
            request.take(Update(pieces, count, request.job.ended, told=probable))

    def _running(self) -> Iterator[tuple[int, Request]]:
        """The requests whose prompts have been read, by their places."""
        for place, own in enumerate(self._sequences):
            if own.request is not None and not own.left:
                yield place, own.request


def _told(told: Told, place: int, job: Job) -> list[TokenLogprobs]:
    """What a job hears of its last token."""
    if job.logprobs is None:
        return []
    best = zip(told.top_tokens[place].tolist(), told.top_logprobs[place].tolist(), strict=True)
    return [TokenLogprobs(job.last, float(told.logprobs[place, 0]), list(best)[: job.logprobs])]


def common_length(first: list[int], second: list[int]) -> int:
    """The length of two lists' common beginning, found by halves: lists are compared as fast as memory."""
    same, other = 0, min(len(first), len(second)) + 1
    while other - same > 1:
        middle = (same + other) // 2
        if first[same:middle] == second[same:middle]:
            same = middle
        else:
            other = middle
    return same
