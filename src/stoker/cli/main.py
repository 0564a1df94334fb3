"""The `stoker` command: puts the commands together and turns errors into exit codes."""

from __future__ import annotations

import os
import platform
import sys
from typing import Annotated, Any

import msgspec
import typer
from typer.core import TyperGroup

import stoker
from stoker.cli import (
    autoscale,
    edit_command,
    hints,
    job_commands,
    log_commands,
    move_commands,
    output,
    run_commands,
    submit_command,
    system_commands,
    top,
)
from stoker.cli.bulk_commands import bulk_app
from stoker.cli.dead_letter_commands import dlq_app
from stoker.cli.exits import MEANINGS, Exit, exit_for
from stoker.cli.migrate_commands import migrate_app
from stoker.cli.option_groups import command
from stoker.cli.options import Api, Json
from stoker.cli.queue_commands import queues_app
from stoker.cli.schedule_commands import schedules_app
from stoker.client.errors import StokerError
from stoker.settings import SettingsError

_HELP = "Stoker: submit jobs, and a pool of workers runs them."

_EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value}  {meaning.replace('`', '')}" for code, meaning in MEANINGS.items()
)


class _Commands(TyperGroup):
    """Commands raise errors that say what to do; here each becomes lines on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SettingsError as error:
            for problem in error.problems:
                output.error(hints.named(problem))
            raise typer.Exit(exit_for(error)) from None
        except StokerError as error:
            output.refusal(error)
            raise typer.Exit(exit_for(error)) from None


app = typer.Typer(
    cls=_Commands,
    name="stoker",
    help=_HELP,
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

for _run in (run_commands.up, run_commands.serve, run_commands.worker, autoscale.autoscale):
    command(app)(_run)
# It refuses what is too much itself, with an example.
command(app, context_settings={"allow_extra_args": True})(submit_command.submit)
for _command in (
    job_commands.job,
    job_commands.jobs,
    job_commands.why,
    log_commands.logs,
    log_commands.attempts,
    edit_command.edit,
    job_commands.cancel,
    job_commands.retry,
):
    command(app)(_command)
app.add_typer(dlq_app, name="dlq")
app.add_typer(bulk_app, name="bulk")
app.add_typer(schedules_app, name="schedules")
app.add_typer(system_commands.workers_app, name="workers")
app.add_typer(queues_app, name="queues")
for _show in (system_commands.types, system_commands.stats, top.top):
    command(app)(_show)
app.command("export")(move_commands.export)
app.command("import")(move_commands.import_)
app.add_typer(migrate_app, name="migrate")


@app.command()
def version(as_json: Json = False) -> None:
    """Print the version.

    \b
    Examples:
      stoker version
    """
    import apsw

    versions = {
        "stoker": stoker.__version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
    }
    if as_json:
        output.print_json(versions)
    else:
        print(f"stoker {versions['stoker']} (Python {versions['python']}, SQLite {versions['sqlite']})")


@command(app)
def doctor(api: Api) -> None:
    """Check this machine, the settings and the coordinator, and say how to fix what is wrong.

    \b
    Examples:
      stoker doctor
      stoker doctor --url http://jobs.example.com:8080
    """
    from stoker.cli.doctor import examine_here

    findings = examine_here(api.url, api.token)
    if api.as_json:
        output.print_json({"findings": msgspec.to_builtins(findings)})
    else:
        rows = [(finding.state, finding.check, finding.detail) for finding in findings]
        output.print_table(["STATE", "CHECK", "FOUND"], rows)
        for finding in findings:
            if finding.fix:
                print(f"\n{finding.check}: {output.plain(finding.detail)}\n  fix: {finding.fix}")
    raise typer.Exit(Exit.ERROR if any(finding.state == "broken" for finding in findings) else Exit.OK)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Stoker: submit jobs, and a pool of workers runs them."""


def main() -> None:
    """The entry point."""
    output.escape_what_cannot_be_shown()
    app(prog_name=hints.NAME if _completes() else hints.program())


def _completes() -> bool:
    """Shells complete a program by its bare name."""
    return "_STOKER_COMPLETE" in os.environ or any(arg.endswith("-completion") for arg in sys.argv[1:])


if __name__ == "__main__":
    main()
