"""Shows developers the running process: its stacks, its name, and the list of profiles (rest.md 3)."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import traceback
from html import escape
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.http.access import Access
from kornel.core.rest.serving.answers import HTML, JSON, Answer, json_headers, text_answer
from kornel.core.rest.serving.routing import redirect_to
from kornel.core.rest.serving.rows import PREFIX, Row

GO_ONLY: Final = ("allocs", "block", "goroutine", "heap", "mutex", "profile", "symbol", "threadcreate", "trace")


@Row("/debug/stack", "stack", "Debug", access=Access.ADMIN)
async def stack(_request: Request) -> ASGIApp:
    """Returns the stacks of threads and tasks, as text.

    The content type says JSON, as in YuniKorn."""
    return Answer([_format_stacks().encode("utf-8", "replace")], JSON, headers=json_headers())


@Row(f"{PREFIX}/stack", "stackMoved", "Debug", content=("text/html",), status=301)
async def stack_moved(_request: Request) -> ASGIApp:
    """Redirects to the stacks."""
    return redirect_to("/debug/stack")


@Row(f"{PREFIX}/fullstatedump", "dumpMoved", "Debug", content=("text/html",), status=301)
async def dump_moved(_request: Request) -> ASGIApp:
    """Redirects to the state dump."""
    return redirect_to("/debug/fullstatedump")


@Row("/debug/pprof/", tag="Debug", access=Access.ADMIN)
async def profiles(_request: Request) -> ASGIApp:
    """Serves the list of profiles (D3)."""
    items = "".join(f"<li>{escape(name)}: not available, because it is a format of Go</li>" for name in GO_ONLY)
    known = '<li><a href="/debug/pprof/cmdline">cmdline</a></li>'
    page = f"<!doctype html><title>/debug/pprof/</title><ul>{known}{items}</ul>\n"
    return text_answer(page, content_type=HTML)


@Row("/debug/pprof/cmdline", tag="Debug", access=Access.ADMIN)
async def command_line(_request: Request) -> ASGIApp:
    """Returns the program's name without its arguments, which may be confidential."""
    return text_answer(f"{sys.argv[0]}\n")


@Row("/debug/pprof/{profile}", tag="Debug", access=Access.ADMIN)
async def no_profile(request: Request) -> ASGIApp:
    """Serves a profile that only a Go program has (D3)."""
    name = request.path_params["profile"]
    if name not in GO_ONLY:
        return text_answer("404 page not found", status=404)
    return text_answer("this core is not a Go program and has no such profile\n", status=501)


def _format_stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    shown = io.StringIO()
    for ident, frame in sys._current_frames().items():
        shown.write(f"thread {names.get(ident, '?')} ({ident}):\n")
        traceback.print_stack(frame, file=shown)
        shown.write("\n")
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        shown.write(f"task {task.get_name()}:\n")
        try:
            task.print_stack(file=shown)
        except TypeError:
            shown.write("  in compiled code, which has no lines\n")
        shown.write("\n")
    return shown.getvalue()
