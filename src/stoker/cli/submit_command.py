"""`stoker submit`: one job, and with --wait its result."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any, NoReturn

import typer

from stoker.cli import completion, hints, output
from stoker.cli.exits import exit_for_status
from stoker.cli.job_options import NewJobOptions
from stoker.cli.options import Api, Waiting, payload
from stoker.cli.waiting import wait_for
from stoker.client.requests import get_job, result_of
from stoker.client.submission import JobTemplate, submit_in_full


def submit(
    context: typer.Context,
    type_name: Annotated[
        str,
        typer.Argument(metavar="TYPE", help="The job type, such as echo.", autocompletion=completion.types),
    ],
    payload_text: Annotated[
        str | None,
        typer.Argument(
            metavar="PAYLOAD",
            help="JSON, or plain text, or - for stdin, or @FILE. What begins with { or is within [ ] must be JSON.",
            show_default=False,
        ),
    ] = None,
    *,
    options: NewJobOptions,
    waiting: Waiting,
    api: Api,
) -> None:
    """Submit a job and print its id; with --wait, print its result as JSON.

    \b
    Examples:
      stoker submit echo '{"hello": "world"}' --wait
      stoker submit echo hello --priority 0 --name "say hello"
      stoker submit sleep '{"seconds": 5}' --timeout 2 --max-attempts 1
      stoker submit report @report.json --run-at 2030-01-31T12:00:00Z
      generate | stoker submit import - --idempotency-key "import-$(date +%F)"
      stoker submit fetch '{"url": "…"}' --retry-delays 1,5,30 --retry-never ValueError --keep 3600
    """
    if context.args:
        _refuse_payloads(type_name, [payload_text or "", *context.args], api)
    template = JobTemplate(type_name, options.for_request())
    request = submit_in_full(template.new(payload(payload_text)))
    with api.connect(patient=bool(waiting)) as transport:
        document = transport.send(request)
        for warning in document.get("warnings") or []:
            output.note(f"warning: {warning}")
        if "unique" in document:
            output.note(f"{document['unique']} job: it holds the unique key {options.unique_key}")
        if not waiting:
            api.show(document, lambda job: print(job["id"]))
            return
        warned = bool(document.get("warnings"))
        final = wait_for(transport, document["id"], waiting.timeout, api.url, warned=warned)
        if api.as_json:
            output.print_json(transport.send(get_job(document["id"], answer=dict[str, Any])))
            raise typer.Exit(exit_for_status(final.status))
        output.print_json(result_of(final))


def _refuse_payloads(type_name: str, texts: list[str], api: Api) -> NoReturn:
    """Say that there is one PAYLOAD, and show what was probably meant."""
    types = completion.looked_up(api.url, api.token, "/types", "types")
    schemas = (row.get("schema") for row in types if row.get("type") == type_name)
    names = list((next(schemas, None) or {}).get("properties") or [])
    meant = " ".join(texts)
    if len(names) >= len(texts):
        meant = json.dumps({name: _value(text) for name, text in zip(names, texts, strict=False)})
    example = hints.command(f"submit {shlex.quote(type_name)} {shlex.quote(meant)}", api.url)
    raise typer.BadParameter(f"one payload, not {len(texts)}; such as: {example}", param_hint="PAYLOAD")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
