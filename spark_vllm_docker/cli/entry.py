"""The console script: `spark-recipe`. Three endings: done, known trouble, a bug."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from spark_vllm_docker import __version__

EXIT_BUG = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def main() -> None:
    """Run the command line and exit with its code."""
    # A closed stream (`>&-`) is None here, and every write to it would be a bug of ours.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):  # before click is loaded: the answer is one line
        sys.stdout.write(f"spark-recipe {__version__}\n")
        return
    try:
        code = run(arguments or ["--help"])
    except KeyboardInterrupt:  # before or after the part that tells it in words
        code = EXIT_INTERRUPTED
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    # pydantic looks for plugins in the metadata of every installed package; we have none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    import click

    from spark_vllm_docker.cli.group import spark_recipe
    from spark_vllm_docker.errors import SparkRecipeError

    try:
        result = spark_recipe.main(arguments, prog_name="spark-recipe", standalone_mode=False)
        sys.stdout.flush()
    except SparkRecipeError as error:
        from spark_vllm_docker.cli.trouble import show_trouble

        return show_trouble(error, arguments)
    except click.ClickException as error:
        from spark_vllm_docker.cli.trouble import show_usage

        return show_usage(error, arguments)
    except (KeyboardInterrupt, click.Abort):
        from spark_vllm_docker.cli.trouble import show_interrupt

        return show_interrupt(arguments)
    except (BrokenPipeError, SystemExit):  # click makes a SystemExit of a broken pipe
        # The reader has what it wanted. Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except Exception:
        import traceback

        traceback.print_exc()
        sys.stderr.write(
            f"this is a bug in spark-recipe {__version__}: please report the lines above\n"
        )
        return EXIT_BUG
    return result if isinstance(result, int) else 0
