"""What a page's front end does with one view."""

import asyncio
import json

from py_attn.remote.protocol import unpack
from tests.fake_page import FakePage


class FrontEnd:
    """Talks to a view in JSON, and passes on to a fake page what is for its GPU."""

    def __init__(self, shown, gpu=None, name="page"):
        self.view, self.name, self.calls = shown, name, 0
        self.gpu = gpu or FakePage(name)
        self.gpu.answer = self.to_kernel
        self.answers = {}
        self.kinds = []
        shown.send = self.take

    def to_kernel(self, message, buffers=()):
        self.view._on_message(self.view, {**message, "page": self.name}, list(buffers))

    def take(self, message, buffers=None):
        self.kinds.append(message["kind"])
        if message.get("page", self.name) != self.name:
            return
        if message["kind"] == "answer":
            self.answers[message["id"]] = (json.loads(json.dumps(message)), [bytes(b) for b in buffers or []])
        elif message["kind"] in ("bridge", "ping"):
            self.gpu.take(message, buffers or [])

    async def hello(self, **what):
        self.to_kernel({"kind": "hello", "webgpu": True, "reason": "", **what})
        self.to_kernel({"kind": "views", "count": 1})
        await asyncio.sleep(0)

    async def call(self, method, *buffers, **payload):
        self.calls += 1
        number = self.calls
        self.to_kernel({"kind": "call", "id": number, "method": method, "payload": payload}, buffers)
        for _ in range(1000):
            await asyncio.sleep(0.001)
            if number in self.answers:
                message, buffers = self.answers.pop(number)
                if "error" in message:
                    raise RuntimeError("{type}: {message}".format(**message["error"]))
                return unpack(message["result"], buffers)
        raise AssertionError(f"{method} was not answered")
