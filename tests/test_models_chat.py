"""Chat templates: what SmolLM2's makes of a conversation, wrong messages and templates that fail."""

import pytest

from py_attn.models.chat import render
from py_attn.models.gguf import GGUF
from tests.tiny_gguf import CHAT_TEMPLATE

USER = {"role": "user", "content": "Hi"}
SYSTEM_TEXT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
)


def test_conversation():
    start = SYSTEM_TEXT + "<|im_start|>user\nHi<|im_end|>\n"
    assert render(CHAT_TEMPLATE, [USER]) == start + "<|im_start|>assistant\n"
    assert render(CHAT_TEMPLATE, [USER], add_generation_prompt=False) == start
    assert render(
        CHAT_TEMPLATE,
        [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": " Hello <&>"}],
    ) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n Hello <&><|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_published_template(smollm2_file):
    assert GGUF(smollm2_file).metadata["tokenizer.chat_template"] == CHAT_TEMPLATE


def test_blocks_are_trimmed_as_templates_expect():
    template = "{% for m in messages %}\n  {% if m.content %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\n"
    assert render(template, [USER, USER]) == "Hi\nHi\n"
    template = "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}"
    assert render(template, [USER, USER]) == "user"


@pytest.mark.parametrize(
    ("messages", "error", "message"),
    [
        ("Hi", TypeError, "messages: expected a list of messages, got str"),
        (USER, TypeError, "messages: expected a list of messages, got dict"),
        (None, TypeError, "messages: expected a list of messages, got NoneType"),
        ([], ValueError, "messages: expected at least one message, got none"),
        ([USER, "Hi"], TypeError, r"messages\[1\]: expected a dict, got str"),
        ([{"role": "user"}], ValueError, r"messages\[0\]: .* 'content' is missing"),
        ([{"content": "Hi"}], ValueError, r"messages\[0\]: .* 'role' is missing"),
        ([USER | {"content": 1}], TypeError, r"messages\[0\]\['content'\]: expected a string, got int"),
        ([USER | {"role": None}], TypeError, r"messages\[0\]\['role'\]: expected a string, got NoneType"),
    ],
)
def test_wrong_messages(messages, error, message):
    with pytest.raises(error, match=message):
        render(CHAT_TEMPLATE, messages)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for %}", "chat template: line 1: "),
        (
            "{{ raise_exception('Roles must alternate') }}",
            "chat template: TemplateError: Roles must alternate",
        ),
        ("{{ messages[0].name.first }}", "chat template: UndefinedError: "),
        ("{{ 1 / 0 }}", "chat template: ZeroDivisionError: "),
        ("{{ messages[0].content + 1 }}", "chat template: TypeError: "),
        ("{{ messages.append(1) }}", "chat template: SecurityError: "),
        ("{{ messages.__class__.__mro__ }}", "chat template: SecurityError: "),
        ("{% for i in range(10**9) %}{% endfor %}", "chat template: OverflowError: "),
        ("{% include 'other' %}", "chat template: TypeError: no loader"),
    ],
)
def test_templates_that_fail(template, message):
    with pytest.raises(ValueError, match=message):
        render(template, [USER])
