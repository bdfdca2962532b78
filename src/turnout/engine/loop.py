"""The engine's thread: take messages, plan a step, run it, tell the listeners."""

import logging
import queue
import time
from collections.abc import Callable
from functools import partial

import torch

from turnout.core.engine import EngineInfo, EngineStats, Listener
from turnout.core.errors import EngineFailure, TurnoutError
from turnout.core.events import Event, Failed, Finished, FinishReason, Prefilled, PromptScored, Token
from turnout.core.request import Request
from turnout.engine.arena import Arena
from turnout.engine.batch import build_batch
from turnout.engine.blocks import BlockPool
from turnout.engine.config import EngineConfig
from turnout.engine.messages import Abort, Close, Load, Message, Submit, Unload
from turnout.engine.residency import Residency
from turnout.engine.runner import Chosen, Runner, choose, score
from turnout.engine.scheduler import Chunk, Scheduler
from turnout.engine.sequence import Sequence

logger = logging.getLogger(__name__)


class EngineLoop:
    """All that the engine's thread owns. Others use `inbox` and read `stats`, nothing else."""

    def __init__(
        self,
        runner: Runner,
        residency: Residency,
        arena: Arena,
        info: EngineInfo,
        config: EngineConfig,
        on_begun: Callable[[], None],
    ) -> None:
        self.inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.stats = EngineStats()
        self._runner = runner
        self._residency = residency
        self._arena = arena
        self._info = info
        self._check = config.check
        self._on_begun = on_begun
        self._pool = BlockPool(runner.kv.k.shape[1], config.block_size)
        self._scheduler = Scheduler(
            self._pool,
            residency,
            max_batch_tokens=config.max_batch_tokens,
            max_sequences=config.max_sequences,
        )
        self._layout_revision = f"{info.dtype}/{config.block_size}/{info.kernels}"
        self._sequences: dict[str, Sequence] = {}
        self._unbegun: set[str] = set()
        self._steps = 0
        self._outbox: list[Callable[[], object]] = []

    @torch.inference_mode()
    def run(self) -> None:
        """Serve until a Close message."""
        # OpenMP counts threads per calling thread; asked here, torch brings its setting over, for kernels not its own.
        torch.get_num_threads()
        while self._take_messages():
            if self._sequences:
                self._step()
            self._publish()
            self._deliver()

    def fail_all(self, error: TurnoutError) -> None:
        """End every sequence with this error, those in the inbox too, and the thread's promises with it."""
        for sequence in list(self._sequences.values()):
            self._end(sequence, Failed(error))
        while not self.inbox.empty():
            match self.inbox.get():
                case Submit(_, listener):
                    self._on_begun()
                    self._tell(listener, Failed(error))
                case Load(_, done) | Unload(_, done):
                    done.set_exception(error)
                case Abort() | Close():
                    pass
        self._publish()
        self._deliver()

    def _take_messages(self) -> bool:
        """Handle what is in the inbox, waiting for a message if there is nothing to run; False to stop."""
        block = not self._sequences
        while block or not self.inbox.empty():
            block = False
            match self.inbox.get():
                case Submit(request, listener):
                    self._submit(request, listener)
                case Abort(request_id):
                    self._abort(request_id)
                case Load(state, done):
                    self._residency.load(state)
                    self._say(partial(done.set_result, None))
                case Unload(digest, done):
                    self._residency.unload(digest, partial(self._say, partial(done.set_result, None)))
                case Close():
                    return False
        return True

    def _submit(self, request: Request, listener: Listener) -> None:
        if request.id in self._sequences:
            self._on_begun()
            self._tell(listener, Failed(EngineFailure(f"request id {request.id} is in use")))
            return
        sequence = Sequence.start(request, listener, self._layout_revision)
        self._sequences[request.id] = sequence
        self._unbegun.add(request.id)
        self._scheduler.add(sequence)

    def _abort(self, request_id: str) -> None:
        sequence = self._sequences.get(request_id)
        if sequence is not None:
            self._end(sequence, None)

    def _step(self) -> None:
        chunks: list[Chunk] = []
        try:
            chunks = self._scheduler.schedule()
            if not chunks:
                raise RuntimeError("nothing can run although sequences wait")  # noqa: TRY301
            self._note_begun(chunks)
            self._run_chunks(chunks)
            if self._check:
                self._scheduler.check()
        except Exception as error:
            # Whatever went wrong, only the requests in this step pay for it; if planning itself failed, no
            # sequence can be told apart and all of them do.
            failed = [chunk.sequence for chunk in chunks] or list(self._sequences.values())
            logger.exception("engine step failed; requests lost: %s", ", ".join(s.request.id for s in failed))
            failure = EngineFailure(f"the engine failed while it served this request ({type(error).__name__})")
            for sequence in failed:
                if sequence.request.id in self._sequences:
                    self._end(sequence, Failed(failure))
        self._steps += 1

    def _run_chunks(self, chunks: list[Chunk]) -> None:
        device = self._runner.kv.k.device
        batch = build_batch(chunks, self._residency, self._arena.buffer, self._pool.block_size, device)
        logits = self._runner.logits(batch)
        chosen = list(choose(batch, logits))
        for sequence, logprobs in score(batch, logits):
            sequence.prompt_logprobs += logprobs
        now = time.monotonic()
        broken = {c.sequence.request.id for c in chosen if c.token is None}
        for chunk in chunks:
            # State that led to logits which are not finite is not to be found by anyone else.
            if chunk.sequence.request.id not in broken:
                self._scheduler.commit(chunk)
        self._tell_prefilled(chunks, now)
        for choice in chosen:
            self._advance(choice, now)
        self._end_scored_only(chunks)

    def _tell_prefilled(self, chunks: list[Chunk], now: float) -> None:
        for sequence in (chunk.sequence for chunk in chunks):
            # Once per sequence: after a preemption its prompt comes by again.
            if sequence.clock.prefilled or sequence.computed < len(sequence.request.prompt):
                continue
            sequence.clock.prefilled = now
            if sequence.sampling.prompt_logprobs is not None:
                self._tell(sequence.listener, PromptScored(tuple(sequence.prompt_logprobs)))
            self._tell(sequence.listener, Prefilled(sequence.cached_tokens, sequence.clock.phases()))

    def _advance(self, choice: Chosen, now: float) -> None:
        sequence = choice.sequence
        if choice.token is None:
            self._end(sequence, Failed(EngineFailure("the model's output for this request is not finite")))
            return
        sequence.tokens.append(choice.token)
        clock = sequence.clock
        clock.first_token = clock.first_token or now
        clock.last_token = now
        self._tell(sequence.listener, Token(choice.token, choice.logprob))
        reason = self._finish_reason(sequence, choice.token)
        if reason is not None:
            self._finish(sequence, reason)

    def _finish_reason(self, sequence: Sequence, token: int) -> FinishReason | None:
        if token in sequence.sampling.stop_token_ids:
            return "stop"
        full = len(sequence.tokens) >= self._info.context_length
        return "length" if full or sequence.generated >= sequence.sampling.max_tokens else None

    def _end_scored_only(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            if chunk.sequence.sampling.max_tokens == 0 and chunk.reaches_end:
                self._finish(chunk.sequence, "length")

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        self._end(sequence, Finished(reason, sequence.digest, sequence.clock.phases()))

    def _end(self, sequence: Sequence, event: Finished | Failed | None) -> None:
        """Free all a sequence holds and tell its listener."""
        del self._sequences[sequence.request.id]
        self._scheduler.remove(sequence)
        self._leave_queue(sequence)
        if event is not None:
            self._tell(sequence.listener, event)

    def _note_begun(self, chunks: list[Chunk]) -> None:
        if self._unbegun:
            for chunk in chunks:
                self._leave_queue(chunk.sequence)

    def _leave_queue(self, sequence: Sequence) -> None:
        if sequence.request.id in self._unbegun:
            self._unbegun.remove(sequence.request.id)
            self._on_begun()

    def _tell(self, listener: Listener, event: Event) -> None:
        self._say(partial(listener, event))

    def _say(self, saying: Callable[[], object]) -> None:
        self._outbox.append(saying)

    def _deliver(self) -> None:
        """Say what there is to say, after `stats` shows it."""
        outbox, self._outbox = self._outbox, []
        for say in outbox:
            try:
                say()
            except Exception:
                logger.exception("a listener raised, against its promise; others are told all the same")

    def _publish(self) -> None:
        loaded, hot, leases = self._residency.counts()
        scheduler = self._scheduler
        self.stats = EngineStats(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            kv_blocks_total=self._pool.total,
            kv_blocks_free=self._pool.free,
            adapters_loaded=loaded,
            adapters_hot=hot,
            adapter_bytes_used=self._arena.used * self._arena.buffer.itemsize,
            adapter_bytes_total=self._arena.capacity * self._arena.buffer.itemsize,
            leases=leases,
            steps=self._steps,
            preemptions=scheduler.preemptions,
            prefix_hit_tokens=scheduler.prefix_hit_tokens,
            prefix_lookup_tokens=scheduler.prefix_lookup_tokens,
        )
