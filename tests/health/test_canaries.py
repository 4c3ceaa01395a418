"""What each canary proves, with the answers of real servers (recorded) and of broken ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_vllm_docker.health.answers import Answer, Canary, Proof, Wanted
from spark_vllm_docker.health.canaries import judge_metrics, run_canaries
from spark_vllm_docker.health.clips import load_clip
from spark_vllm_docker.health.questions import CHAT, COMPLETIONS, RENDER

RECORDED = Path(__file__).resolve().parent.parent / "data/http"
Reply = tuple[int, Any] | str | Callable[[dict[str, Any]], tuple[int, Any]]


def recorded(name: str) -> tuple[int, Any]:
    data = json.loads((RECORDED / f"{name}.json").read_text())
    return data["status"], data["response"]


TEXT = recorded("cpu-0.20.0.ok-tiny-llama-eager.chat")
LOGPROBS = recorded("cpu-0.20.0.ok-tiny-llama-eager.chat-logprobs")
NAN = recorded("cpu-0.20.0.nan-tiny-nan-eager.chat-logprobs")
NAN_TEXT = recorded("cpu-0.20.0.nan-tiny-nan-eager.chat")
RENDERED = recorded("cpu-0.20.0.omni-ready.o2-render-flag-true")
RENDERED_SILENT = recorded("cpu-0.20.0.omni-ready.o2-render-flag-absent")
RENDERED_NEMOTRON = recorded("cpu-0.20.0.nemotron-omni-ready.c2-render-flag-true")
WITH_SOUND = recorded("cpu-0.20.0.omni-ready.c-video-flag-top-level-true")
WITHOUT_SOUND = recorded("cpu-0.20.0.omni-ready.b-video-flag-absent")
PLAIN = recorded("cpu-0.20.0.omni-ready.a-text-only")
NO_AUDIO_EXTRA = recorded("cpu-0.20.0.omni-without-vllm-audio-extra.video-flag-true")
GONE = (404, {"detail": "Not Found"})


def has_part(body: dict[str, Any], kind: str) -> bool:
    content = body.get("messages", [{}])[0].get("content")
    return isinstance(content, list) and any(part["type"] == f"{kind}_url" for part in content)


class Server:
    """Answers by path; a chat request for log probabilities or with a clip has its own answer."""

    def __init__(self, **replies: Reply) -> None:
        self.replies = replies
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def ask(self, path: str, body: dict[str, Any]) -> Answer | str:
        self.seen.append((path, body))
        name = {RENDER: "render", COMPLETIONS: "completions"}.get(path, "chat")
        if name == "chat" and "logprobs" in body:
            name = "sounds" if "cache_salt" in body else "logprobs"
        elif name == "chat" and "tools" in body:
            name = "tools"
        elif name == "chat" and any(has_part(body, k) for k in ("image", "audio", "video")):
            name = (
                "clip"
                if "mm_processor_kwargs" in body or "silent" not in self.replies
                else "silent"
            )
        reply = self.replies.get(name, GONE)
        if callable(reply):
            reply = reply(body)
        if isinstance(reply, str):
            return reply
        status, data = reply
        text = data if isinstance(data, str) else json.dumps(data)
        return Answer(path, status, text.encode(), 0.1)

    def prove(
        self,
        *modalities: str,
        tools: bool = False,
        tasks: tuple[str, ...] = (),
        clip_tokens: dict[str, int] | None = None,
    ) -> Proof:
        wanted = Wanted(("text", *modalities), tools, clip_tokens=clip_tokens or {})
        return Proof(tuple(run_canaries(self.ask, "m", tasks, wanted)))


def named(proof: Proof, name: str) -> Canary:
    (found,) = [canary for canary in proof.canaries if canary.name == name]
    return found


def test_a_good_server() -> None:
    proof = Server(chat=TEXT, logprobs=LOGPROBS).prove()
    assert [canary.name for canary in proof.canaries] == ["numbers", "text"]
    assert proof.error == ""
    assert named(proof, "numbers").text.startswith("finite (log probability -")
    assert "tokens in 0.10 s" in proof.shown


@pytest.mark.parametrize(
    "answer",
    [
        NAN,
        recorded("cpu-0.32.0.tiny-nan-logprobs"),
        (200, {"choices": [{"logprobs": {"content": [{"token": "!", "logprob": None}]}}]}),
        (200, '{"choices": [{"logprobs": {"content": [{"token": "!", "logprob": NaN}]}}]}'),
        (200, {"choices": [{"logprobs": {"token_logprobs": [None]}}]}),
    ],
)
def test_nan_is_found_whatever_the_text_looks_like(answer: Reply) -> None:
    server = Server(chat=TEXT, logprobs=answer)
    proof = server.prove()
    assert [canary.name for canary in proof.canaries] == ["numbers"]
    assert proof.error.startswith("the model computes NaN")
    assert "stock image" in proof.fix
    assert len(server.seen) == 1


def test_nan_of_a_model_without_chat() -> None:
    no_chat = (400, {"error": {"message": "you must provide a chat template"}})
    nan = recorded("cpu-0.20.0.nan-tiny-nan-eager.completions-logprobs")
    assert (
        Server(chat=no_chat, logprobs=no_chat, completions=nan)
        .prove()
        .error.startswith("the model computes NaN")
    )


def test_one_character_over_and_over_is_the_second_sign() -> None:
    refused = (400, {"error": {"message": "max_logprobs is 0"}})
    repeated = {
        "choices": [{"message": {"content": "!" * 12}}],
        "usage": {"completion_tokens": 12},
    }
    assert Server(chat=(200, repeated), logprobs=refused).prove().error == (
        "nothing but '!': NaN, or a kernel that is broken"
    )
    # Where the numbers are finite, a model may repeat itself.
    assert Server(chat=(200, repeated), logprobs=LOGPROBS).prove().error == ""


def test_reasoning_that_takes_all_tokens_is_said() -> None:
    choice = {"message": {"content": None, "reasoning": "Hmm, two and"}, "finish_reason": "length"}
    answer = (200, {"choices": [choice], "usage": {"completion_tokens": 32}})
    proof = Server(chat=answer, logprobs=LOGPROBS).prove()
    assert proof.error == ""
    assert "reasoning took all of them: clients need a larger max_tokens" in proof.shown


def test_a_video_with_its_sound() -> None:
    server = Server(chat=TEXT, logprobs=LOGPROBS, clip=WITH_SOUND, render=RENDERED)
    proof = server.prove("audio", "video")
    assert named(proof, "video with sound").text == "in the prompt 2,343 tokens of video and sound"
    bodies = [b for path, b in server.seen if path == CHAT and has_part(b, "video")]
    assert len(bodies) == 2
    for body in bodies:
        assert body["mm_processor_kwargs"] == {"use_audio_in_video": True}
    nemotron = Server(chat=TEXT, logprobs=LOGPROBS, clip=WITH_SOUND, render=RENDERED_NEMOTRON)
    text = named(nemotron.prove("audio", "video"), "video with sound").text
    assert text == "in the prompt 1,366 tokens of video and 53 tokens of audio"


def test_a_video_whose_sound_is_dropped_is_found() -> None:
    server = Server(
        chat=TEXT,
        logprobs=LOGPROBS,
        clip=WITHOUT_SOUND,
        render=lambda body: RENDERED if has_part(body, "audio") else RENDERED_SILENT,
    )
    proof = server.prove("audio", "video")
    assert proof.error == "answered 200, and its sound was dropped in silence"
    assert "vllm[audio]" in proof.fix


def test_without_render_the_lengths_of_prompts_are_compared() -> None:
    server = Server(chat=TEXT, logprobs=LOGPROBS, clip=WITH_SOUND, silent=WITHOUT_SOUND)
    proof = server.prove("video", "audio")
    # The same clip with and without the flag: 2,389 and 2,286 tokens.
    assert named(proof, "video with sound").text == "the prompt grew by 103 tokens"
    dropped = Server(chat=TEXT, logprobs=LOGPROBS, clip=WITHOUT_SOUND, silent=WITHOUT_SOUND)
    found = Proof(tuple(run_canaries(dropped.ask, "m", (), Wanted(("video", "audio")))))
    assert "dropped in silence" in found.error


def test_a_picture_that_is_not_taken_in_is_found() -> None:
    empty: Reply = (200, {"features": {"mm_placeholders": {}}})
    proof = Server(chat=TEXT, logprobs=LOGPROBS, clip=PLAIN, render=empty).prove("image")
    assert proof.error == "answered 200, and it was not taken in"
    taken = (200, {"features": {"mm_placeholders": {"image": [{"offset": 3, "length": 64}]}}})
    proof = Server(chat=TEXT, logprobs=LOGPROBS, clip=PLAIN, render=taken).prove("image")
    assert named(proof, "image").text == "in the prompt 64 tokens of image"


@pytest.mark.parametrize(
    ("answer", "fix"),
    [
        (NO_AUDIO_EXTRA, "vllm[audio]"),
        (
            (
                400,
                {"error": {"message": "mm_processor_kwargs needs --trust-request-mm-kwargs"}},
            ),
            "trust-request-mm-kwargs: true",
        ),
        (
            (400, {"error": {"message": "At most 0 video(s) may be provided in one prompt."}}),
            "limit-mm-per-prompt: {video: 1}",
        ),
        ((500, {"error": {"message": "EngineCore encountered an issue."}}), ""),
    ],
)
def test_a_refused_clip_says_what_mends_it(answer: Reply, fix: str) -> None:
    proof = Server(chat=TEXT, logprobs=LOGPROBS, clip=answer).prove("video")
    assert proof.error
    assert fix in proof.fix
    assert bool(fix) == bool(proof.fix)


def test_tools() -> None:
    called = {"choices": [{"message": {"tool_calls": [{"id": "1"}]}}]}
    good = Server(chat=TEXT, logprobs=LOGPROBS, tools=(200, called))
    assert named(good.prove(tools=True), "tools").text == "called"
    refused = (400, {"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice'}})
    bad = Server(chat=TEXT, logprobs=LOGPROBS, tools=refused).prove(tools=True)
    assert "answered 400" in bad.error
    assert "tool-call-parser" in bad.fix


@pytest.mark.parametrize(
    ("content", "finish", "text", "failed"),
    [
        ('{"a": true}', "stop", "of the form", False),
        ('{"a": tr', "length", "taken; the answer was cut off", False),
        ("Yes, it is.", "stop", "not of the form: 'Yes, it is.'", True),
    ],
)
def test_structured_output(content: str, finish: str, text: str, failed: bool) -> None:
    choice = {"message": {"content": content}, "finish_reason": finish}
    answer = (200, {"choices": [choice], "usage": {"completion_tokens": 3}})
    server = Server(chat=answer, logprobs=LOGPROBS)
    wanted = Wanted(("text",), structured=True)
    found = named(Proof(tuple(run_canaries(server.ask, "m", (), wanted))), "structured output")
    assert (found.text, found.failed) == (text, failed)


def test_the_servers_own_count_of_nan() -> None:
    name = "vllm:corrupted_requests_total"
    assert judge_metrics("vllm:other 1.0\n") is None
    good = judge_metrics(f'# HELP {name} x\n{name}{{engine="0"}} 0.0\n')
    assert good == Canary("corrupted requests", "none counted")
    bad = judge_metrics(f'{name}{{engine="0"}} 2.0\n{name}{{engine="1"}} 1.0\n')
    assert bad is not None
    assert (bad.failed, bad.text) == (True, "the server counts 3 answers with NaN in them")


@pytest.mark.parametrize(
    ("tasks", "reply", "shown"),
    [
        (("embed",), {"data": [{"embedding": [0.1] * 8}]}, "embed: an embedding of 8 numbers"),
        (("score",), {"data": [{"score": 0.7}]}, "score: a score"),
        (("classify",), {"data": [{"probs": [0.2, 0.8]}]}, "classify: a score"),
        (("transcription",), {}, "tasks: not asked: no short question is known for transcription"),
    ],
)
def test_models_that_do_not_generate(tasks: tuple[str, ...], reply: Any, shown: str) -> None:
    assert Server(chat=(200, reply)).prove(tasks=tasks).shown == shown


@pytest.mark.parametrize("reply", ['{"data": [{"embedding": [NaN]}]}', '{"data": []}', "<html>"])
def test_embeddings_that_are_none(reply: str) -> None:
    assert Server(chat=(200, reply)).prove(tasks=("embed",)).error


@pytest.mark.parametrize(
    "reply",
    [
        (200, "<html>"),
        (200, {"choices": []}),
        (302, ""),
        (401, {"error": "Unauthorized"}),
        (500, "x"),
        "closed",
        (200, "[" * 100_000),
        (200, None),
    ],
)
def test_a_broken_server_is_a_finding_and_no_error(reply: Reply) -> None:
    assert Server(chat=reply, logprobs=reply, clip=reply, render=reply).prove("image").error


@pytest.mark.parametrize(
    "reply", [(200, "<html>"), (200, {"features": None}), (500, "x"), "closed"]
)
def test_a_broken_render_falls_back(reply: Reply) -> None:
    server = Server(chat=TEXT, logprobs=LOGPROBS, clip=WITH_SOUND, render=reply)
    proof = server.prove("image")
    assert proof.error in ("", "answered 200, and it was not taken in")


def test_the_clips_are_there_and_small() -> None:
    for name in ("picture.png", "speech.wav", "tone.wav", "video.mp4", "video-tone.mp4"):
        url = load_clip(name)
        assert url.startswith("data:")
        assert 1000 < len(url) < 130_000


def said(content: str, tokens: int = 32, finish: str = "length", **message: Any) -> tuple[int, Any]:
    choice = {"message": {"content": content, **message}, "finish_reason": finish}
    return 200, {"choices": [choice], "usage": {"completion_tokens": tokens}}


def logged(*values: Any) -> tuple[int, Any]:
    content = [{"token": "a", "logprob": value} for value in values]
    return 200, {"choices": [{"logprobs": {"content": content}}]}


NO_LOGPROBS = (400, {"error": {"message": "logprobs are off"}})
TOO_LONG = (
    400,
    {
        "error": {
            "message": "This model's maximum context length is 32 tokens. However, you requested"
        }
    },
)


@pytest.mark.parametrize(
    "numbers", [logged(-0.1, None), logged(-0.1, -9999.0), logged(5.0), logged(-0.1, True)]
)
def test_a_number_that_is_no_log_probability_is_found_at_any_token(numbers: Reply) -> None:
    proof = Server(chat=TEXT, logprobs=numbers).prove()
    assert proof.error.startswith("the model computes NaN")


@pytest.mark.parametrize(
    "answer",
    [
        said("! " * 16),
        said("!!\n" * 16),
        said("<unk>" * 32),
        said("'s" * 32),
        said(" " * 32),
        said(" ", reasoning="!" * 32),
        said(""),
        said("5", 1, "error"),
        said("5", 1, "abort"),
    ],
)
def test_an_answer_that_says_nothing_fails_where_no_numbers_are_known(answer: Reply) -> None:
    assert Server(chat=answer, logprobs=NO_LOGPROBS).prove().error


@pytest.mark.parametrize(
    "answer",
    [said("five"), said("5 5 5"), said("", reasoning="Two and three"), said("", 1, "stop")],
)
def test_a_short_or_hidden_answer_is_no_fault(answer: Reply) -> None:
    assert Server(chat=answer, logprobs=NO_LOGPROBS).prove().error == ""


def test_a_small_context_is_no_fault() -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        return said("a", 1) if body["max_tokens"] == 1 else TOO_LONG

    assert Server(chat=answer, logprobs=LOGPROBS).prove().error == ""
    assert Server(chat=TOO_LONG, logprobs=TOO_LONG).prove().error == ""


@pytest.mark.parametrize("status", [400, 500, 501])
def test_a_base_model_is_asked_for_a_completion(status: int) -> None:
    refusal = (
        status,
        {"error": {"message": "Cannot use chat: tokenizer.chat_template is not set"}},
    )
    completion = (
        200,
        {
            "choices": [{"text": " five", "logprobs": {"token_logprobs": [None, -0.2]}}],
            "usage": {"completion_tokens": 2},
        },
    )
    proof = Server(chat=refusal, logprobs=refusal, completions=completion).prove()
    assert (proof.error, len(proof.canaries)) == ("", 2)


def test_a_server_that_fails_at_log_probabilities_alone_can_still_answer() -> None:
    proof = Server(chat=TEXT, logprobs=(501, {"error": {"message": "not here"}})).prove()
    assert proof.error == ""


def test_a_pooling_model_whose_tasks_are_not_known_is_asked_what_fits() -> None:
    class Pooling(Server):
        def ask(self, path: str, body: dict[str, Any]) -> Answer | str:
            reply = self.replies.get(path.strip("/").replace("/", "_"), GONE)
            assert isinstance(reply, tuple)
            return Answer(path, reply[0], json.dumps(reply[1]).encode(), 0.1)

    embedding = (200, {"data": [{"embedding": [0.5, -0.5]}]})
    assert Pooling(v1_embeddings=embedding).prove().shown == "embed: an embedding of 2 numbers"
    score = (200, {"data": [{"score": 0.5}]})
    assert Pooling(v1_score=score).prove().shown == "score: a score"
    assert Pooling().prove().error
    zeros = (200, {"data": [{"embedding": [0.0, 0.0]}]})
    assert "zeros" in Pooling(v1_embeddings=zeros).prove().error


def test_a_200_without_an_answer_is_none() -> None:
    error = (200, {"error": {"message": "no"}})
    assert Server(chat=TEXT, logprobs=LOGPROBS, clip=error).prove("image").error
    assert Server(chat=TEXT, logprobs=LOGPROBS, tools=error).prove(tools=True).error


def test_what_is_seen_may_have_another_name() -> None:
    rendered = (200, {"features": {"mm_placeholders": {"vision_chunk": [{"length": 9}]}}})
    server = Server(chat=TEXT, logprobs=LOGPROBS, clip=TEXT, render=rendered)
    assert server.prove("image").error == ""


@pytest.mark.parametrize(
    ("line", "failed"),
    [
        ("vllm:corrupted_requests_total 3 1700000000", True),
        ('vllm:corrupted_requests_total{model="a}b"} 3.0\r', True),
        ("vllm:corrupted_requests_total 1.0e", None),
        ("vllm:corrupted_requests_total ..", None),
        ("vllm:corrupted_requests_total 0.0", False),
    ],
)
def test_metrics_in_any_form_are_read(line: str, failed: bool | None) -> None:
    canary = judge_metrics(f"# HELP\n{line}\nother 1\n")
    assert (canary.failed if canary else None) is failed


def placed(**counts: int) -> Reply:
    places = {kind: [{"offset": 0, "length": length}] for kind, length in counts.items()}
    return 200, {"features": {"mm_placeholders": places}}


@pytest.mark.parametrize(
    ("found", "said", "failed"),
    [
        ({"video": 1366, "audio": 53}, "1,366 tokens of video (the formula gives 1,366)", False),
        ({"video": 1366, "audio": 51}, "51 tokens of audio (the formula gives 53)", False),
        ({"video": 700, "audio": 53}, "700 tokens of video (unlike the 1,366 of", False),
        ({"video": 2600, "audio": 53}, "2,600 tokens of video (unlike the 1,366 of", False),
        ({"video": 300, "audio": 53}, "300 tokens of video, but the model's formula gives", True),
        ({"video": 1366, "audio": 2}, "2 tokens of audio, but the model's formula gives 53", True),
    ],
)
def test_tokens_in_the_prompt_are_those_of_the_formula(
    found: dict[str, int], said: str, failed: bool
) -> None:
    server = Server(chat=TEXT, logprobs=LOGPROBS, clip=WITH_SOUND, render=placed(**found))
    proof = server.prove("video", "audio", clip_tokens={"video": 1366, "sound": 53})
    canary = named(proof, "video with sound")
    assert said in canary.text
    assert canary.failed is failed


@pytest.mark.parametrize(
    ("formula", "said", "failed"),
    [
        (103, "103 tokens (the formula gives 103)", False),
        (99, "103 tokens (the formula gives 99)", False),
        (150, "103 tokens (unlike the 150 of the formula)", False),
        (300, "103 tokens, but the model's formula gives 300: most was dropped", True),
    ],
)
def test_the_growth_of_the_prompt_is_that_of_the_formula(
    formula: int, said: str, failed: bool
) -> None:
    server = Server(chat=TEXT, logprobs=LOGPROBS, clip=WITH_SOUND, silent=WITHOUT_SOUND)
    proof = server.prove("video", "audio", clip_tokens={"sound": formula})
    canary = named(proof, "video with sound")
    assert canary.text == f"the prompt grew by {said}"
    assert canary.failed is failed


SOUNDS = "cpu-0.20.0.omni-audio-content"


def by_sound(speech: str, tone: str) -> Reply:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        (part, _) = body["messages"][0]["content"]
        first = part["video_url"]["url"] == load_clip("video.mp4")
        return recorded(f"{SOUNDS}.{speech if first else tone}")

    return answer


def test_two_sounds_shape_two_answers() -> None:
    sounds = by_sound("2-flag-true-speech-own-salt", "2-flag-true-tone-own-salt")
    server = Server(chat=TEXT, logprobs=LOGPROBS, clip=WITH_SOUND, render=RENDERED, sounds=sounds)
    proof = server.prove("audio", "video")
    assert (
        named(proof, "two sounds").text
        == "two sounds with the same frames are answered differently"
    )
    salts = [b["cache_salt"] for _, b in server.seen if "cache_salt" in b]
    assert len(salts) == len(set(salts)) == 3


def test_a_model_that_does_not_hear_is_found() -> None:
    sounds = by_sound("1-flag-true-speech-no-salt", "1-flag-true-tone-no-salt")
    server = Server(chat=TEXT, logprobs=LOGPROBS, clip=WITH_SOUND, render=RENDERED, sounds=sounds)
    assert "answered alike, number for number" in server.prove("audio", "video").error


@pytest.mark.parametrize(
    ("answer", "said", "failed"),
    [
        (
            recorded("cpu-0.20.0.nemotron-omni-ready.o-logprobs-speech-flag-true"),
            "computes NaN when it hears",
            True,
        ),
        (NO_LOGPROBS, "not compared", False),
        ((500, {"error": {"message": "EngineCore encountered an issue."}}), "answered 500", True),
        ((200, {"choices": []}), "not compared", False),
        ((200, {"choices": [{"logprobs": {"content": [{}]}}]}), "not compared", False),
        (TEXT, "not proved: no log probabilities", False),
        ("/v1/chat/completions: closed", "closed", True),
    ],
)
def test_two_sounds_that_cannot_be_compared(answer: Reply, said: str, failed: bool) -> None:
    server = Server(chat=TEXT, logprobs=LOGPROBS, clip=WITH_SOUND, render=RENDERED, sounds=answer)
    canary = named(server.prove("audio"), "two sounds")
    assert said in canary.text
    assert canary.failed is failed


def by_turn(*answers: tuple[str, list[float]]) -> Reply:
    turns = iter(answers)

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        words, numbers = next(turns)
        content = [{"token": "a", "logprob": number} for number in numbers]
        choice = {"message": {"content": words}, "logprobs": {"content": content}}
        return 200, {"choices": [choice]}

    return answer


@pytest.mark.parametrize(
    ("speech", "again", "tone", "said", "failed"),
    [
        (("a", [-0.5]), ("a", [-0.5]), ("b", [-0.5]), "are answered differently", False),
        (("a", [-0.5]), ("a", [-0.5]), ("a", [-0.9]), "are answered differently", False),
        (("a", [-0.5]), ("a", [-0.50001]), ("a", [-0.50002]), "does not hear", True),
        (("a", [-0.5]), ("a", [-0.52]), ("a", [-0.53]), "one sound, asked twice", False),
        (("a", [-0.5]), ("b", [-0.5]), ("c", [-0.5]), "one sound, asked twice", False),
        (("a", [0.0, -1e-6]), ("a", [0.0, -1e-6]), ("a", [0.0, -1e-6]), "to everything", False),
        (("a", [-0.5]), ("a", [-0.5]), ("a", [-0.5, -0.1]), "are answered differently", False),
    ],
)
def test_a_difference_is_more_than_that_of_the_same_sound(
    speech: Any, again: Any, tone: Any, said: str, failed: bool
) -> None:
    sounds = by_turn(speech, again, tone)
    server = Server(chat=TEXT, logprobs=LOGPROBS, clip=WITH_SOUND, render=RENDERED, sounds=sounds)
    canary = named(server.prove("audio"), "two sounds")
    assert said in canary.text
    assert canary.failed is failed
