from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_vllm_docker.errors import InvalidRecipe, Refused, UsageError
from spark_vllm_docker.recipe.load import load_recipe, parse_recipe
from spark_vllm_docker.recipe.lookup import find_recipe
from spark_vllm_docker.recipe.overrides import Overrides, parse_set
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.serve import parse_serve
from spark_vllm_docker.render.build import build_deployment, container_name
from spark_vllm_docker.render.command import LaunchOptions
from spark_vllm_docker.render.deployment import Deployment
from spark_vllm_docker.render.docker_py import docker_py_kwargs, render_docker_py
from spark_vllm_docker.render.docker_run import render_docker_run
from spark_vllm_docker.render.masking import MASK
from spark_vllm_docker.render.secrets import find_secrets, mask_deployment
from spark_vllm_docker.render.spec import ContainerSpec, Gpus, Mount, PublishedPort

from .docker_run_reader import bash_words, read_docker_run

ENVIRON = {"HOME": "/home/u", "HF_TOKEN": "hf_secret_value"}
GOLDEN = Path(__file__).parent / "golden"


def port(number: int | str) -> Overrides:
    return Overrides((parse_set(f"port={number}"),))


def recipe(extra: str = "", command: str = "vllm serve m --port {port} --host {host}") -> Recipe:
    text = (
        'recipe_version: "1"\nname: My model 1\ncontainer: image:1\n'
        f"defaults: {{port: 8000, host: 0.0.0.0}}\n{extra}command: |\n  {command}\n"
    )
    return parse_recipe(text, Path("/r/a.yaml"))


def build(what: Recipe | None = None, **options: object) -> Deployment:
    return build_deployment(what or recipe(), LaunchOptions(**options), ENVIRON)  # type: ignore[arg-type]


def omni(**options: object) -> Deployment:
    return build(load_recipe(find_recipe("nemotron-omni", {})), **options)


# What the owner's article prints, word for word.
ARTICLE_SERVE = [
    "vllm", "serve", "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-NVFP4",
    "--served-model-name", "nemotron-omni", "--trust-remote-code",
    "--gpu-memory-utilization", "0.8", "--max-model-len", "65536", "--max-num-seqs", "8",
    "--max-num-batched-tokens", "8192", "--kv-cache-dtype", "fp8",
    "--reasoning-parser", "nemotron_v3", "--enable-auto-tool-choice",
    "--tool-call-parser", "qwen3_coder",
    "--limit-mm-per-prompt", '{"video":1,"image":1,"audio":1}',
    "--media-io-kwargs", '{"video":{"fps":2,"num_frames":512}}',
    "--enable-prefix-caching", "--host", "0.0.0.0", "--port", "8004",
]  # fmt: skip


def test_nemotron_omni_serves_what_the_article_serves() -> None:
    setup, _, serve = omni().command.partition("&&")
    assert bash_words(setup) == ["pip", "install", "-q", "vllm[audio]"]
    assert bash_words(serve.lstrip(" \\\n")) == ARTICLE_SERVE


def test_nemotron_omni_with_the_hosts_network_is_the_articles_docker_run() -> None:
    words = bash_words(render_docker_run(omni(network="host").spec))
    line = " ".join(words)
    for flags in (
        "--gpus all",
        "--network host",
        "--ipc=host",
        "--shm-size 16g",
        "-v /home/u/.cache/huggingface:/root/.cache/huggingface",
        "--entrypoint /bin/bash vllm/vllm-openai:v0.20.0 -c",
    ):
        assert flags in line
    assert "-p" not in words
    assert "privileged" not in line.replace("no-new-privileges", "")


def test_by_default_the_port_is_published_on_loopback_only() -> None:
    spec = omni().spec
    assert spec.ports == (PublishedPort(8004, "127.0.0.1", 8004),)
    assert spec.network == "bridge"
    assert docker_py_kwargs(spec, {})["ports"] == {"8004/tcp": ("127.0.0.1", 8004)}


def test_an_override_moves_flag_port_and_endpoint_together() -> None:
    deployment = omni(overrides=port(9000))
    assert "--port 9000" in deployment.command
    assert deployment.spec.ports[0].host == 9000
    assert deployment.endpoint == "http://127.0.0.1:9000"
    assert omni(extra_arguments=("--port", "9001")).endpoint == "http://127.0.0.1:9001"


@pytest.mark.parametrize("name", ["nemotron-omni", "tiny-cpu"])
@pytest.mark.parametrize("form", ["docker-run", "docker-py", "script"])
def test_the_rendered_text_is_the_golden_one(name: str, form: str) -> None:
    deployment = build(load_recipe(find_recipe(name, {})))
    text = {
        "docker-run": render_docker_run(deployment.spec),
        "docker-py": render_docker_py(deployment.spec),
        "script": deployment.script,
    }[form]
    path = GOLDEN / f"{name}.{form}.txt"
    assert text + "\n" == path.read_text()


def test_the_docker_py_text_is_a_program_with_the_same_arguments() -> None:
    seen: dict[str, object] = {}

    class Containers:
        def run(self, **kwargs: object) -> None:
            seen.update(kwargs)

    class Client:
        containers = Containers()

    text = render_docker_py(omni().spec).replace("import docker\n", "")
    text = text.replace("docker.from_env()", "client").replace("os.environ", "environ")
    exec(text, {"client": Client, "environ": ENVIRON})
    assert seen == docker_py_kwargs(omni().spec, ENVIRON)


WORD = st.text(alphabet="ab1 _-.'\"$\\{}:=\n", max_size=12)
NAME = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True)
SPECS = st.builds(
    ContainerSpec,
    name=st.from_regex(r"[a-z][a-z0-9._-]{1,9}", fullmatch=True),
    image=st.sampled_from(["a", "a/b:c", "a@sha256:00"]),
    entrypoint=st.just("/bin/bash"),
    command=st.lists(WORD, max_size=3).map(tuple),
    env=st.dictionaries(NAME, WORD, max_size=3).map(lambda d: tuple(d.items())),
    env_from_host=st.sampled_from([(), ("HF_TOKEN",), ("HF_TOKEN", "UNSET")]),
    mounts=st.lists(
        st.builds(Mount, st.sampled_from(["/a b", "/c"]), st.just("/d"), st.booleans()), max_size=2
    ).map(tuple),
    ports=st.sampled_from(
        [(), (PublishedPort(1, "127.0.0.1", 2),), (PublishedPort(80, "::1", 81),)]
    ),
    network=st.sampled_from(["bridge", "host"]),
    gpus=st.sampled_from([None, Gpus(), Gpus((0,)), Gpus((0, 2))]),
    ipc=st.sampled_from(["host", "private"]),
    shm_size_bytes=st.sampled_from([1, 1024, 3 << 20, 16 << 30]),
    init=st.booleans(),
    labels=st.dictionaries(NAME, WORD, max_size=2).map(lambda d: tuple(d.items())),
)


@settings(deadline=None, max_examples=60)
@given(SPECS)
def test_docker_run_read_back_equals_docker_py(spec: ContainerSpec) -> None:
    environ = {"HF_TOKEN": "t"}
    assert read_docker_run(render_docker_run(spec), environ) == docker_py_kwargs(spec, environ)


def test_the_digest_is_about_what_runs() -> None:
    one, same = build().spec, build().spec
    assert one.digest() == same.digest()
    assert one.digest() != build(overrides=port(1)).spec.digest()
    assert one.digest() != build(recipe("env: {A: b}\n")).spec.digest()
    assert dict(one.labels)["spark-recipe.spec"] == one.digest()


def test_env_values_keep_their_quotes_and_expand_inside() -> None:
    deployment = build(
        recipe('env: {J: \'{"a":"b"}\', P: "/x:$PATH", Q: \'a "$B" `c`\', T: true}\n')
    )
    assert dict(deployment.spec.env) == {"J": '{"a":"b"}', "T": "True"}
    assert 'export P="/x:$PATH"\n' in deployment.script
    assert 'export Q="a \\"$B\\" \\`c\\`"\n' in deployment.script


def test_no_secret_of_the_host_is_in_a_spec_or_a_text() -> None:
    deployment = omni()
    for text in (
        repr(deployment),
        render_docker_run(deployment.spec),
        render_docker_py(deployment.spec),
        deployment.script,
    ):
        assert "hf_secret_value" not in text
    assert (
        docker_py_kwargs(deployment.spec, ENVIRON)["environment"]["HF_TOKEN"] == "hf_secret_value"
    )


@pytest.mark.parametrize(
    "what",
    [
        recipe("env: {MY_API_KEY: sk-12345}\n"),
        recipe("env: {HF_TOKEN: sk-12345}\n"),
        recipe("env: {DB_PASSWORD: 'pa$sk-12345'}\n"),
        recipe('env: {DB_PASSWORD: "it\'s sk-12345 \\\\ \\" x"}\n'),
        recipe(command="vllm serve m --api-key sk-12345 --port {port} --host {host}"),
        recipe(command="vllm serve m --api-key=sk-12345 --port {port} --host {host}"),
    ],
)
def test_secrets_of_a_recipe_are_masked(what: Recipe) -> None:
    deployment = build(what)
    secrets = find_secrets(deployment, what.keys.env, {}, ENVIRON)
    masked = mask_deployment(deployment, secrets)
    for text in (render_docker_run(masked.spec), render_docker_py(masked.spec), masked.script):
        assert "sk-12345" not in text
    assert MASK in render_docker_run(masked.spec)


def test_outside_a_container_the_server_listens_on_loopback() -> None:
    for what in (
        recipe(),
        recipe(command="vllm serve m --port {port}"),
        recipe(command="vllm serve m --port {port} --host 0.0.0.0"),
    ):
        deployment = build(what, in_container=False)
        serve = parse_serve(deployment.command)
        assert serve is not None
        assert serve.host == "127.0.0.1"
        assert deployment.spec.ports == ()


def test_volumes_are_relative_to_the_recipe() -> None:
    mounts = build(recipe('volumes: ["./d:/data:ro", "~/m:/m"]\n')).spec.mounts
    assert mounts[1:] == (Mount("/r/d", "/data", read_only=True), Mount("/home/u/m", "/m"))


@pytest.mark.parametrize("volume", ["/a", "/a:b", "/a:/b:x", "a:b:c:d", ":/x"])
def test_a_malformed_volume(volume: str) -> None:
    with pytest.raises(InvalidRecipe):
        recipe(f'volumes: ["{volume}"]\n')


def test_only_the_own_home_is_expanded() -> None:
    assert build(recipe('volumes: ["~alice/x:/y"]\n')).spec.mounts[1].source == "/r/~alice/x"


@pytest.mark.parametrize("gpus", ["[]", "[-1]", "[1.5]", "[a]"])
def test_gpus_that_cannot_be(gpus: str) -> None:
    with pytest.raises(InvalidRecipe):
        recipe(f"gpus: {gpus}\n")


def test_a_variable_of_the_recipe_wins_over_the_hosts() -> None:
    spec = build(recipe("env: {HF_TOKEN: own}\n")).spec
    assert spec.env_from_host == ()
    assert docker_py_kwargs(spec, ENVIRON)["environment"] == {"HF_TOKEN": "own"}


def test_an_override_keeps_the_type_of_its_default() -> None:
    what = recipe(command="vllm serve m --port {port:d} --host {host}")
    assert "--port 9 " in build(what, overrides=port(9)).command


def test_an_ipv6_address_is_bracketed() -> None:
    assert build(listen="::1").endpoint == "http://[::1]:8000"


def test_a_name_that_only_bash_knows_is_not_expected() -> None:
    assert (
        build(recipe("env: {M: m}\n", command="vllm serve $M --port {port} --host {host}")).served
        == ()
    )


def test_without_a_container_an_unknown_server_is_refused() -> None:
    with pytest.raises(UsageError, match="keeps a server off the network"):
        build(recipe(command="python3 -m http.server {port}"), in_container=False)


@pytest.mark.parametrize(
    ("extra", "options", "message"),
    [
        ("cluster_only: true\n", {}, "needs several machines"),
        ("mods: [mods/x]\n", {}, "there is no mods/x/run.sh beside the recipe"),
        ("", {"network": "host", "listen": "0.0.0.0"}, "--listen has no effect"),
        ("", {"overrides": port("many")}, "not a number"),
        ("", {"extra_arguments": ("a\0b",)}, "NUL"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    extra: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises((UsageError, Refused), match=message):
        build(recipe(extra), **options)


def test_a_format_that_does_not_fit_its_value() -> None:
    with pytest.raises(UsageError, match="does not go with its format"):
        build(recipe(command="vllm serve m --port {port} --host {host:.2f}"))


@pytest.mark.parametrize(
    ("name", "container"),
    [
        ("a", "recipe-a"),
        ("My model 1", "My-model-1"),
        ("GLM-4.7", "GLM-4.7"),
        ("  ", "recipe-"),
        ("é", "recipe-"),
    ],
)
def test_container_names(name: str, container: str) -> None:
    assert container_name(name) == container


def test_gpus_by_number_and_none() -> None:
    assert build(recipe("gpus: [0, 1]\n")).spec.gpus == Gpus((0, 1))
    assert build(recipe("gpus: none\n")).spec.gpus is None
    assert build(use_gpus=False).spec.gpus is None
