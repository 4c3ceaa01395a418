"""A long video, part by part: cut, asked, kept, joined. A broken run goes on where it stopped."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, Queue
from uuid import uuid4

from spark_vllm_docker.errors import BadMedia, RequestRefused, SparkRecipeError
from spark_vllm_docker.launcher.asking import DROPPED, UNKNOWN, Asking, TooLong, ask, hear_nothing
from spark_vllm_docker.launcher.part_answers import Answers, Watching
from spark_vllm_docker.launcher.server_view import ServerView
from spark_vllm_docker.media.chat import ChatServer
from spark_vllm_docker.media.cutting import Part, cut_part, part_suffix, plan_parts
from spark_vllm_docker.media.notes import (
    Chapter,
    Cue,
    ask_for,
    ask_to_join,
    read_chapter,
    read_cues,
    say_span,
    say_time,
)
from spark_vllm_docker.media.probing import probe

TRIES = 3
RETRY_S = 2.0
MOST_AT_ONCE = 8
AUTO = "auto"
SHRINKS = 5
SHORTEST_S = 2.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Watched:
    """The chapters in order; `cues` of a transcript. `unheard` counts parts whose sound was
    dropped (with `strict`: not proved), `cut` those whose answer reached the limit of tokens.
    """

    chapters: tuple[Chapter, ...]
    cues: tuple[Cue, ...]
    unheard: int
    cut: int

    @property
    def failed(self) -> list[Chapter]:
        """The parts without an answer."""
        return [chapter for chapter in self.chapters if chapter.failed]


def watch(
    server: ChatServer, view: ServerView, watching: Watching, answers: Answers, say: Say
) -> Watched:
    """Ask about every part that is not done yet, several at once.

    A part that fails is tried again and then told; when the server is gone, no other is tried. With
    `AUTO`, parts that turn out too long for the server are cut again.

    Raises:
        TooLong: parts of this length do not fit.
        BadMedia: the video cannot be cut, or the disk is full.
    """
    for _ in range(SHRINKS):
        try:
            return _watch_parts(server, view, watching, answers, say)
        except TooLong as error:
            length = max((part.end - part.start for part in answers.parts), default=0.0)
            if watching.segment != AUTO or error.part_s >= length:
                raise
            say(f"parts of {length:.0f} s do not fit; cut again")
            answers.forget()
            watching = replace(watching, part_s=max(SHORTEST_S, error.part_s))
    raise BadMedia("no part of the video fits in the server's context")


def _watch_parts(
    server: ChatServer, view: ServerView, watching: Watching, answers: Answers, say: Say
) -> Watched:
    if not answers.parts:
        answers.plan(plan_parts(watching.video, watching.part_s))
    parts = answers.parts
    kept = sum(answers.find(part) is not None for part in parts)
    if kept:
        say(f"{kept} of {len(parts)} parts are done already")
    elif len(parts) > 1:
        say(f"{len(parts)} parts of about {say_time(watching.video.duration_s / len(parts))}")
    work = _Work(server, view, watching, answers, say, len(parts))
    failures = work.run([part for part in parts if answers.find(part) is None])
    return collect(watching, answers, failures)


def collect(watching: Watching, answers: Answers, failures: Mapping[int, str]) -> Watched:
    """What is done so far; `failures` are the reasons of parts that are not, by number."""
    parts = answers.parts
    chapters, cues, unheard, cut = [], [], 0, 0
    for part in parts:
        found = answers.find(part)
        if found is None:
            chapters.append(Chapter(part, "", "", failures.get(part.number, "it was not asked")))
            continue
        chapters.append(read_chapter(part, found["answer"]))
        cues += read_cues(part, found["answer"]) if watching.mode == "transcript" else []
        unproved = (DROPPED, UNKNOWN) if watching.strict else (DROPPED,)
        unheard += found.get("sound") in unproved
        cut += bool(found.get("cut"))
    return Watched(tuple(chapters), tuple(cues), unheard, cut)


def join(
    server: ChatServer,
    view: ServerView,
    watched: Watched,
    language: str,
    max_tokens: int,
    say: Say,
    question: str = "",
) -> str:
    """One summary of all parts, or one answer to a question; of very many, first of groups.

    Raises:
        RequestRefused: the server does not make one.
    """
    chapters = [chapter for chapter in watched.chapters if not chapter.failed]
    if len(chapters) < 2:
        return ""
    say("joining the notes")
    room = max(1000, (view.max_model_len or 8192) - max_tokens - 200)
    while True:
        groups = _group(chapters, room)
        answers = [
            _summarise(server, view, ask_to_join(group, language, question), max_tokens)
            for group in groups
        ]
        if len(answers) == 1:
            return answers[0]
        chapters = [
            Chapter(replace(group[0].part, end=group[-1].part.end), "", answer)
            for group, answer in zip(groups, answers, strict=True)
        ]


def _group(chapters: list[Chapter], room: int) -> list[list[Chapter]]:
    """Neighbours that fit a prompt together, at least two, at three letters a token."""
    groups: list[list[Chapter]] = [[]]
    used = 0
    for chapter in chapters:
        cost = len(chapter.text) // 3 + 30
        if used + cost > room and len(groups[-1]) > 1:
            groups.append([])
            used = 0
        groups[-1].append(chapter)
        used += cost
    if len(groups) > 1 and len(groups[-1]) == 1:
        groups[-2] += groups.pop()
    return groups


def _summarise(server: ChatServer, view: ServerView, text: str, max_tokens: int) -> str:
    room = 3 * max(300, (view.max_model_len or 8192) - max_tokens - 200)
    asking = Asking(text[:room], max_tokens=max_tokens)
    reply = ask(server, view, asking, hear_nothing, lambda _: None).reply
    return reply.content or reply.reasoning


class _Work:
    def __init__(
        self,
        server: ChatServer,
        view: ServerView,
        watching: Watching,
        answers: Answers,
        say: Say,
        total: int,
    ) -> None:
        self._server, self._view, self._watching = server, view, watching
        self._answers, self._say, self._total = answers, say, total
        self._told: set[str] = set()
        self._gone = threading.Event()
        self._finished: Queue[tuple[Part, str | BaseException]] = Queue()

    def run(self, parts: list[Part]) -> dict[int, str]:
        """Ask about parts; gives the reasons of those that failed, by number."""
        failures: dict[int, str] = {}
        began = time.monotonic()
        at_once = max(1, min(self._view.max_num_seqs, MOST_AT_ONCE, len(parts)))
        waiting: Queue[Part] = Queue()
        for part in parts:
            waiting.put(part)
        # Daemons: one that waits for the server must not hold up an interrupt.
        for _ in range(at_once):
            threading.Thread(target=self._take_parts, args=(waiting,), daemon=True).start()
        try:
            for done in range(1, len(parts) + 1):
                part, failure = self._finished.get()
                if isinstance(failure, BaseException):
                    raise failure
                span = f"part {part.number} of {self._total} ({say_span(part)})"
                # Those that are under way are half done, as a rule.
                half = min(at_once - 1, len(parts) - done) / 2
                rate = (done + half) / (time.monotonic() - began)
                left = (len(parts) - done - half) / rate
                if failure:
                    failures[part.number] = failure
                    self._say(f"{span} failed: {failure}")
                else:
                    rest = f"; about {say_time(left)} left" if done < len(parts) else ""
                    self._say(f"{span} done{rest}")
        finally:
            self._gone.set()
            shutil.rmtree(self._answers.clips, ignore_errors=True)
        return failures

    def _take_parts(self, waiting: Queue[Part]) -> None:
        with suppress(Empty):
            while True:
                part = waiting.get_nowait()
                try:
                    self._finished.put((part, self._ask_part(part)))
                except BaseException as error:  # told by the thread that waits
                    self._finished.put((part, error))

    def _ask_part(self, part: Part) -> str:
        """Empty when it is done, else why not."""
        watching = self._watching
        name = f"part-{part.number:04}-{uuid4().hex[:8]}{part_suffix(watching.video)}"
        target = self._answers.clips / name
        if self._gone.is_set():
            return "the server is gone"
        try:
            whole = self._total == 1
            if not whole:
                self._answers.clips.mkdir(exist_ok=True)
                cut_part(watching.video, part, target)
            media = watching.video if whole else probe(target)
            text = ask_for(
                watching.mode, part, watching.video.duration_s, watching.prompt, watching.language
            )
            asking = Asking(
                text,
                (media,),
                max_tokens=watching.max_tokens,
                use_sound=watching.use_sound,
                strict=watching.strict,
            )
            return self._try(part, asking)
        except TooLong as error:
            if any(self._answers.find(one) for one in self._answers.parts):
                return (
                    f"it does not fit; a new --out with --segment {error.part_s:.0f}s cuts all anew"
                )
            raise
        except BadMedia as error:
            if "no space" in error.message.lower():
                raise
            return error.message
        finally:
            target.unlink(missing_ok=True)

    def _try(self, part: Part, asking: Asking) -> str:
        failure = ""
        for attempt in range(TRIES):
            if self._gone.is_set():
                return failure or "the server is gone"
            try:
                asked = ask(self._server, self._view, asking, hear_nothing, self._say_once)
            except RequestRefused as error:
                failure = error.message
                if 400 <= error.status < 500:
                    return failure
                if not self._server_answers():
                    self._gone.set()
                    return failure
                time.sleep(RETRY_S * 2**attempt)
                continue
            answer, cut = asked.reply.content, asked.reply.finish == "length"
            if not answer and asked.reply.reasoning:
                if cut:
                    return "reasoning took all tokens of its answer: a larger --max-tokens"
                answer = asked.reply.reasoning
            if not answer.strip() and self._watching.mode != "transcript":
                failure = "the model said nothing"
                continue
            self._answers.keep(part, answer, asked.sound, cut=cut)
            return ""
        return failure

    def _say_once(self, note: str) -> None:
        """Every part has the same to say of its frames."""
        kind = note.rpartition(". ")[2]
        if kind not in self._told:
            self._told.add(kind)
            self._say(note)

    def _server_answers(self) -> bool:
        try:
            self._server.list_models()
        except SparkRecipeError:
            return False
        return True
