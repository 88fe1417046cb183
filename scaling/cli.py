"""The `scaling` command."""

import inspect
import re
import sys
from typing import NoReturn

import typer

from scaling.commands import (
    ablate,
    analyse,
    compile,
    flops,
    launch,
    mixing,
    page,
    plan,
    plot,
    status,
    tune,
    variants,
)
from scaling.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Scaling laws for residual connections: train a size x variant grid, fit, compare, plot.",
)
app.command()(launch.launch)
app.command()(flops.flops)
app.command()(plan.plan)
app.command()(tune.tune)
app.command("compile")(compile.compile_study)
app.command()(variants.variants)
app.command("check-variant")(variants.check_variant)
app.command("mixing-matrix")(mixing.mixing_matrix)
app.command("ablate-sources")(ablate.ablate_sources)
app.command()(status.status)
app.command()(status.results)
app.command()(analyse.fit)
app.command()(analyse.gap)
app.command()(plot.plot)
app.command()(page.report)
for command in app.registered_commands:  # a terminal breaks lines where it needs to
    command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command.callback))


def main() -> None:
    """Runs the command line; bad input ends in a sentence and exit code 2."""
    try:
        app()
    except UserError as error:
        _refuse(error)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # a path of the user's that cannot be read or written
        if error.filename is None or isinstance(error, BrokenPipeError):
            raise
        _refuse(UserError(f"{error.filename}: {error.strerror}."))
    except Exception as error:
        # Only the analysis commands load that package, and only it knows its refusals.
        refusal = getattr(sys.modules.get("analysis.errors"), "Refusal", None)
        if refusal is None or not isinstance(error, refusal):
            raise
        _refuse(error)


def _refuse(error: Exception) -> NoReturn:
    print(f"scaling: {error}", file=sys.stderr)
    sys.exit(2)
