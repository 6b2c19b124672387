"""The site under the Content-Security-Policy of docs/hosting.md: all of it works, and nothing is reported."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import expect

from e2e.conftest import SUB_PATH
from e2e.lab import until
from scripts.build import build
from scripts.serve import HOST, POLICY, serving

DOCS = Path(__file__).parent.parent / "docs"
ELEMENT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Somebody's page</title>
<script type="module" src="../py-attn.js"></script><py-attn src="../sample/minilm.npz"></py-attn></html>"""


@pytest.fixture
def reports():
    """A server for reports of violations: its address, and what they name, as they come in."""
    found = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.append(json.loads(body)["csp-report"]["effective-directive"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://{HOST}:{server.server_address[1]}/", found
        server.shutdown()
        thread.join()


@pytest.fixture
def policy_site(reports):
    """The address of the site, whose server sends the policy with every file."""
    with serving(build(), SUB_PATH, policy=f"{POLICY}; report-uri {reports[0]}") as url:
        yield url


def test_the_docs_recommend_the_tested_policy():
    assert f"Content-Security-Policy: {POLICY}\n" in (DOCS / "hosting.md").read_text("utf-8")


@pytest.mark.expects_console_errors("Content Security Policy", "EvalError")
def test_the_page_works_under_it(page, policy_site, reports):
    page.goto(policy_site)
    page.wait_for_selector('#overview[data-painted="1"]')
    page.wait_for_selector("[data-shown]")
    page.locator("#kernel").get_by_role("button", name="Run").click()
    expect(page.locator(".kernel-note")).to_contain_text("Medians")
    page.locator("#edit").get_by_role("button", name="Sliding window").click()
    expect(page.locator(".edit-status")).to_contain_text("mask_mod")
    page.locator("#console .cm-content").click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text("float(np.pi)")
    page.keyboard.press("ControlOrMeta+Enter")
    expect(page.locator(".output")).to_contain_text("3.14159")
    scroller = "document.querySelector('#console .cm-scroller')"
    assert page.evaluate(f"getComputedStyle({scroller}).display") == "flex"  # by CodeMirror's own style sheet
    assert reports[1] == []
    # Both would be reported: a style element of the page, and text that becomes code in the worker.
    page.evaluate(
        "document.head.append(Object.assign(document.createElement('style'), { textContent: 'a {}' }))"
    )
    with pytest.raises(Exception, match="EvalError"):
        page.evaluate("window.pyAttn.run('import js; js.eval(\"1\")')")
    until(page, lambda: set(reports[1]) == {"style-src-elem", "script-src"}, "two reports")


def test_the_element_works_under_it(page, policy_site, reports):
    headers = {"Content-Security-Policy": f"{POLICY}; report-uri {reports[0]}"}
    address = f"{policy_site}host/index.html"
    page.route(address, lambda route: route.fulfill(body=ELEMENT, content_type="text/html", headers=headers))
    page.goto(address)
    page.wait_for_selector("py-attn [data-shown]")
    assert reports[1] == []
