"""The page in other states: no WebGPU, a lost device, any sentence, broken downloads, a second visit."""

import re

import pytest
from playwright.sync_api import expect

from e2e.lab import until, wait_until_ready
from e2e.main_thread import longest_task
from e2e.test_site import IMAGE_IS_KEPT

MODEL = "**/models/minilm/model.safetensors*"


def opened(page, site_url, suffix=""):
    page.goto(site_url + suffix)
    info = wait_until_ready(page)
    page.wait_for_selector('#overview[data-painted="1"]')
    return info


def sentence(page):
    return page.get_by_role("textbox", name="Sentence")


def run_sentence(page, text):
    painted = int(page.get_attribute("#overview", "data-painted"))
    sentence(page).fill(text)
    page.get_by_role("button", name=re.compile("Load MiniLM|Show attention")).click()
    page.wait_for_selector(f'#overview[data-painted="{painted + 1}"]')


@pytest.fixture
def without_webgpu(page):
    """The worker's script with navigator.gpu taken away before anything else runs."""

    def patch(route):
        reply = route.fetch()
        body = "Object.defineProperty(navigator, 'gpu', { value: undefined });\n" + reply.text()
        route.fulfill(response=reply, body=body)

    page.context.route(re.compile(r"/assets/worker-[^/]*\.js"), patch)
    return page


def test_without_webgpu_the_numpy_reference_goes_on(without_webgpu, site_url, artifacts):
    page = without_webgpu
    info = opened(page, site_url)
    assert info["adapter"].startswith("none: ")
    assert info["features"] == []
    assert info["software"] is False
    banner = page.locator(".banner")
    expect(banner).to_contain_text("No WebGPU here")
    expect(banner).to_contain_text("Chrome")
    expect(page.locator(".masthead .chip")).to_contain_text("numpy reference")
    expect(page.locator("#overview header p")).to_contain_text("by the numpy reference")
    expect(page.locator(".inspector .weight")).to_have_text(re.compile(r"0\.62"))
    page.locator("#kernel").get_by_role("button", name="Run").click()
    expect(page.locator(".kernel-note")).to_contain_text("Medians")
    expect(page.locator(".timings tbody tr")).to_have_count(1)
    page.locator("#edit").get_by_role("button", name="Sliding window").click()
    expect(page.locator(".edit-status")).to_contain_text("mask_mod run by numpy")
    page.get_by_role("radio", name="Weight × gradient").check(force=True)
    expect(page.locator(".inspector .weight")).to_have_text("0")
    page.locator("#decode").get_by_role("button", name="Compare").click()
    expect(page.locator(".caches-note")).to_contain_text("no time worth showing")
    page.locator("#decode").get_by_role("button", name="Step").click()
    expect(page.locator("#decode .combine")).to_contain_text("float64")
    page.locator("#console .examples").get_by_role("button", name="Attention, checked").click()
    expect(page.locator(".output .stopped")).to_contain_text("runs kernels on WebGPU, which is not here")
    expect(page.locator(".output .took")).to_have_count(0)
    page.locator("#console .examples").get_by_role("button", name="The head in focus").click()
    expect(page.locator(".output .value table")).to_be_visible()
    expect(page.locator(".output .traceback")).to_have_count(0)
    page.get_by_role("radio", name="Write").check(force=True)
    message = page.locator("#write .input-message")
    expect(message).to_contain_text("Writing needs WebGPU")
    expect(message).to_contain_text("for every token here")
    expect(page.get_by_role("textbox", name="Prompt")).to_be_hidden()
    page.get_by_role("radio", name="Synthetic").check(force=True)
    page.wait_for_selector('#overview[data-painted="2"]')
    page.screenshot(path=artifacts / "page-no-webgpu.png", full_page=True)
    assert (
        page.evaluate("window.pyAttn.run('float(pa.reference.attention(*np.ones((3, 1, 1, 2, 2))).sum())')")
        == 4
    )
    with pytest.raises(Exception, match="WebGPUUnavailableError"):
        page.evaluate("window.pyAttn.run('pa.default_device()')")


def test_a_lost_device_is_replaced_and_the_input_kept(page, site_url, artifacts):
    opened(page, site_url)
    page.get_by_role("radio", name="Synthetic").check(force=True)
    page.wait_for_selector('#overview[data-painted="2"]')
    page.locator(".synthetic-form").get_by_label("Length").fill("33")
    page.get_by_role("button", name="Make").click()
    page.wait_for_selector('#overview[data-painted="3"]')
    page.evaluate("window.pyAttn.run('pa.default_device().destroy()')")
    expect(page.locator(".banner")).to_contain_text("A new GPU device is here")
    page.wait_for_selector('#overview[data-painted="4"]')
    expect(page.locator("#overview header p")).to_contain_text("33 × 33")
    page.screenshot(path=artifacts / "page-device-lost.png")
    assert page.evaluate("window.pyAttn.run('pa.default_device().lost')") is False
    page.locator("#kernel").get_by_role("button", name="Run").click()
    expect(page.locator(".kernel-note")).to_contain_text("Medians")


def test_sentences_of_all_kinds(page, site_url, artifacts):
    opened(page, site_url)
    with longest_task(page) as busiest:
        run_sentence(page, "Reading <script>alert('x')</script> as text.")
    assert 0 < busiest.cpu_ms < 100
    slots = page.locator(".slot bdi")
    expect(slots.filter(has_text=re.compile(r"^\s*script\s*$")).first).to_be_attached()
    expect(slots.filter(has_text=re.compile(r"^\s*<\s*$")).first).to_be_attached()
    page.screenshot(path=artifacts / "page-sentence.png")
    run_sentence(page, "A smile 🙂 and a family 👨‍👩‍👧 here.")
    run_sentence(page, "שלום עולם, مرحبا بالعالم")
    assert sentence(page).get_attribute("dir") == "auto"
    # The sentence stays in the address wherever one goes, and a reload runs it again without a click.
    page.get_by_role("link", name="Kernel").click()
    assert "text=" in page.url
    page.reload()
    wait_until_ready(page)
    page.wait_for_selector('#overview[data-painted="2"]')
    assert sentence(page).input_value().startswith("שלום")


@pytest.mark.thorough
def test_ten_thousand_characters_are_cut_and_it_says_so(page, site_url):
    opened(page, site_url)
    run_sentence(page, "many words " * 910)
    expect(page.locator(".input-message")).to_contain_text("cut off after 512 tokens")
    expect(page.locator("#overview header p")).to_contain_text("512 × 512")


def test_nothing_typed_gets_a_gentle_word(page, site_url):
    opened(page, site_url)
    for text in ("", "   ", "\u2003\t"):
        sentence(page).fill("x")
        expect(page.locator(".input-message")).not_to_contain_text("Type a few words first")
        sentence(page).fill(text)
        sentence(page).press("Enter")
        expect(page.locator(".input-message")).to_contain_text("Type a few words first")
        expect(page.locator("#overview header p")).to_contain_text("20 × 20")  # the sample stays


@pytest.mark.thorough
def test_loading_the_model_can_be_cancelled(page, site_url):
    held = []
    opened(page, site_url)
    page.context.route(MODEL, lambda route: held.append(route))  # the answer never comes
    sentence(page).fill("cancel this")
    page.get_by_role("button", name=re.compile("Load MiniLM")).click()
    expect(page.locator(".model-loading")).to_contain_text("MB")
    page.locator(".model-loading").get_by_role("button", name="Cancel").click()
    expect(page.locator(".input-message")).to_contain_text("cancelled")
    expect(page.locator(".model-loading")).to_be_hidden()
    page.context.unroute(MODEL)
    page.get_by_role("button", name=re.compile("Load MiniLM")).click()
    page.wait_for_selector('#overview[data-painted="2"]')


@pytest.mark.thorough
def test_loading_the_model_can_be_cancelled_before_its_download_begins(page, site_url):
    opened(page, site_url)
    page.context.route(MODEL, lambda route: None)
    sentence(page).fill("cancel this at once")
    # Both clicks in one turn of the page: the worker hears of the second while it begins with the first.
    page.evaluate(
        """() => {
            document.querySelector('.sentence-form button').click();
            document.querySelector('.model-loading button').click();
        }"""
    )
    expect(page.locator(".input-message")).to_contain_text("cancelled")
    page.context.unroute(MODEL)
    page.get_by_role("button", name=re.compile("Load MiniLM")).click()
    page.wait_for_selector('#overview[data-painted="2"]')


@pytest.mark.expects_console_errors("Failed to load resource")
def test_a_download_that_fails_says_how_and_can_be_repeated(page, site_url):
    opened(page, site_url)
    page.context.route(MODEL, lambda route: route.fulfill(status=200, body=b"short"))
    sentence(page).fill("broken download")
    page.get_by_role("button", name=re.compile("Load MiniLM")).click()
    message = page.locator(".input-message")
    expect(message).to_contain_text("ended after 5 of 90868376 bytes")
    page.context.unroute(MODEL)
    page.context.route(MODEL, lambda route: route.fulfill(status=503))
    page.get_by_role("button", name=re.compile("Load MiniLM")).click()
    expect(message).to_contain_text("503")
    expect(page.locator(".inspector .weight")).to_be_visible()


@pytest.mark.expects_console_errors("Failed to load resource")
def test_a_site_without_its_files_says_so(page, site_url, artifacts):
    page.context.route("**/python/start.pack*", lambda route: route.fulfill(status=404))
    page.goto(site_url)
    expect(page.locator(".boot")).to_contain_text("could not be started")
    expect(page.locator(".boot")).to_contain_text("404")
    page.screenshot(path=artifacts / "page-broken.png")
    page.context.unroute("**/python/start.pack*")
    page.get_by_role("button", name="Try again").click()
    wait_until_ready(page)


KEPT = "async () => (await (await caches.open('py-attn-assets')).keys()).map(({ url }) => url)"


def test_a_second_visit_loads_from_the_cache(page, whole_site_url):
    answers = []
    # Not requests: the interpreter is asked for in the HTTP cache alone, which has no room for it here.
    page.context.on("response", lambda answer: answers.append(answer.url))

    def downloads():
        return [url for url in answers if re.search(r"\.pack|\.wasm|\.zip|\.npz|safetensors", url)]

    def images():
        return {url for url in answers if "image.pack" in url}  # kept as what was made of it

    opened(page, whole_site_url)
    # What a start does without comes some time after the maps, and nobody waits until a file is stored.
    until(
        page,
        lambda: page.evaluate(IMAGE_IS_KEPT) and set(downloads()) - images() <= set(page.evaluate(KEPT)),
        "all downloads to be stored",
    )
    answers.clear()
    page.reload()
    wait_until_ready(page)
    page.wait_for_selector('#overview[data-painted="1"]')
    assert downloads() == []


def test_loading_names_its_stages_and_counts_bytes(page, site_url):
    page.add_init_script(
        "window.said = new Set(); new MutationObserver(() => { const boot = document.querySelector('.boot'); "
        "if (boot) window.said.add(boot.textContent); }).observe(document, { subtree: true, childList: true, "
        "characterData: true });"
    )
    opened(page, site_url)
    said = "\n".join(page.evaluate("[...window.said]"))
    for stage in ("Downloading Python", "Starting Python", "Asking for a GPU"):
        assert stage in said
    assert re.search(r"[\d.]+ MB of 15 MB", said)
