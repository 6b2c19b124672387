"""A page that executes the remote bridge's commands on a recording bridge; all messages go through JSON."""

import json
from dataclasses import asdict

import numpy as np

from py_attn.remote.page import RemotePage
from py_attn.remote.protocol import pack, unpack
from tests.recording_bridge import RecordingBridge


class FakePage:
    """Answers at once, unless it is ``deaf``; ``messages`` holds what it received."""

    def __init__(self, name="page", **adapter):
        self.gpu = RecordingBridge(**adapter)
        self.messages = []
        self.deaf = False
        self.refuse = None
        self.handles = {}
        self.errors = []
        self.page = RemotePage(name, self.take)
        self.answer = self.page.receive

    def take(self, message, buffers):
        message, buffers = json.loads(json.dumps(message)), [bytes(b) for b in buffers]
        self.messages.append(message)
        if self.deaf:
            return
        if message["kind"] == "ping":
            self.answer({"kind": "pong", "id": message["id"]}, [])
        if message["kind"] == "bridge":
            for command in message["ops"]:
                self.execute(message, command, buffers)

    def execute(self, message, command, buffers):
        args = unpack(command["args"], buffers)
        try:
            result = getattr(self, f"op_{command['op']}")(*args)
        except Exception as error:
            if "id" not in command:
                raise
            self.answer({"kind": "bridge-answer", "id": command["id"], "error": str(error)}, [])
            return
        if "id" in command:
            out = []
            result = pack(result, out)
            reply = {"kind": "bridge-answer", "id": command["id"], "result": result}
            self.answer(json.loads(json.dumps(reply)), [bytes(b) for b in out])

    def op_request_device(self):
        if self.refuse:
            raise RuntimeError(self.refuse)
        return asdict(self.gpu.info) | {"features": sorted(self.gpu.info.features)}

    def op_create_buffer(self, handle, size, label):
        self.handles[handle] = self.gpu.create_buffer(size, label)

    def op_destroy_buffer(self, handle):
        self.gpu.destroy_buffer(self.handles.pop(handle))

    def op_write_buffer(self, handle, offset, data):
        self.gpu.write_buffer(self.handles[handle], offset, data)

    def op_read_buffer(self, handle, offset, size):
        memory = self.gpu.memory[self.handles[handle]]
        return np.frombuffer(bytes(memory[offset : offset + size]), np.uint8)

    def op_create_pipeline(self, handle, label, wgsl, access):
        self.handles[handle] = self.gpu.create_pipeline(label, wgsl, access)

    def op_destroy_pipeline(self, handle):
        self.gpu.destroy_pipeline(self.handles.pop(handle))

    def op_check_shader(self, wgsl):
        self.gpu.log.append(("check_shader", wgsl))
        return [{"kind": "error", "message": "no entry point", "line": 1, "column": 2}]

    def op_compile_us(self, handle):
        assert self.handles[handle] in self.gpu.pipelines
        return 1000.0

    def op_create_program(self, handle, words):
        assert words.dtype == np.uint32
        words, at = words.tolist(), 0
        while at < len(words):
            words[at] = self.handles[words[at]]
            count = words[at + 5]
            for binding in range(at + 6, at + 6 + 3 * count, 3):
                words[binding] = self.handles[words[binding]]
            at += 6 + 3 * count
        self.handles[handle] = self.gpu.create_program(words)

    def op_submit_program(self, handle, params, times):
        self.gpu.submit_program(self.handles[handle], params, times)

    def op_submit_timed(self, ticket, handle, params, together, times):
        self.handles[ticket] = self.gpu.submit_timed(self.handles[handle], params, together, times)

    def op_destroy_program(self, handle):
        self.gpu.destroy_program(self.handles.pop(handle))

    def op_timings(self, ticket):
        clock = 5.0 if "timestamp-query" in self.gpu.info.features else None
        return [[clock, 10.0 + n] for n in range(self.gpu._tickets.pop(self.handles.pop(ticket)))]

    def op_synchronize(self):
        errors, self.errors = self.errors, []
        return errors

    def op_destroy(self):
        self.gpu.destroy()
