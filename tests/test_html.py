"""The report as a page: whole, harmless whatever the verdict holds, and usable in a real browser."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bucketproof.diff import Baseline
from bucketproof.html import page
from bucketproof.markup import cut, seen
from bucketproof.properties.outcome import Failure, Mark, Outcome, Step, Storage
from bucketproof.verdict import Verdict

COMMAND = Path(sys.executable).with_name("bucketproof")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HARMFUL = (
    "<script>harmed = 1</script>",
    "\"'><img src=x onerror='harmed = 1'>",
    "</style></title></svg></pre><h1>harmed</h1>",
    "]]><!-- ",
    "\u202egnp.exe \u2066 \u200b",
    "\x00\x1b[31m \ud800 \ufffe \x85",
    "weiß 重み שלום 🏋️",
    "model." + "x" * 10_000,
)


def failing(cell: str, name: str = "w", level: str = "MUST", length: int = 1) -> Outcome:
    """A cell that failed on a stream of so many items, at the last of them."""
    failure = Failure(
        sentence="Bucket values stay bit-equal however the lender is overwritten afterwards.",
        what=f"{name!r}: its bits were no longer those handed over",
        plan=f"Plan(\n    items=(Item({name!r}),),\n)",
        items=tuple(f"{name!r} number {number}: detach, lent" for number in range(length)),
        steps=(
            *(Step(f"produced {name!r} number {number}") for number in range(length)),
            Step("bucket 0 delivered: 1 item, 4 bytes"),
            Step(f"{name!r}: still in the lender's memory", depth=1, wrong=True),
            Step("the stream ended"),
        ),
        storages=(
            Storage(
                "a buffer of the lender, 16 bytes",
                16,
                (
                    Mark("handed-over", f"handed over as {name!r}", 4, 8),
                    Mark("overwritten", "overwritten by the lender", 0, 16),
                    Mark("held", f"bucket 0 holds {name!r}", 4, 8),
                ),
            ),
        ),
    )
    return Outcome(cell, "fail", level, 20, 0.5, failure=failure)


SMOKE = Outcome("smoke", "pass", "MUST")
CELLS = (
    SMOKE,
    Outcome("aliasing.survives-overwrite[slice]", "pass", "MUST", 20, 0.1),
    failing("aliasing.survives-overwrite[detach]"),
    failing("aliasing.survives-overwrite[data]"),
    failing("aliasing.survives-overwrite[set_]", name="other"),
    replace(failing("aliasing.survives-overwrite[numpy]"), status="known", reason="waits", link="https://x.test/7"),
    Outcome("ownership.no-copy[fresh]", "pass", "MUST", 20, 0.1),
    Outcome("ownership.no-copy[cat]", "fixed", "MUST", 20, 0.1, reason="waited"),
    Outcome("ownership.no-copy[stack]", "error", "MUST", reason="the process died while this cell was judged"),
    Outcome("values.order", "pass", "MUST", 20),
    Outcome("values.tied", "skipped", "MUST", reason="not judged"),
    failing("lifecycle.early-close", level="SHOULD"),
    Outcome("values.order[long-stream]", "unpromised", "MUST", reason="the target promises order=None"),
)
VERDICT = Verdict(
    target="verl@0.9.1",
    origin={"project": "verl", "version": "0.9.1"},
    profile="smoke",
    seed=7,
    environment={"python": "3.12.1", "torch": "2.13.0"},
    seconds=12.34,
    cells=CELLS,
    provenances={
        **dict.fromkeys(("slice", "detach", "data", "set_", "numpy"), "lent"),
        **dict.fromkeys(("fresh", "cat", "stack"), "owned"),
    },
    promises={"order": "kept", "lookahead": 1, "padding": None, "atomic_groups": [["q_proj", "k_proj"]]},
)


def harmful(text: str) -> Verdict:
    """A verdict that has the text wherever a verdict has one."""
    cell = replace(failing(f"aliasing.x[{text}]", text), reason=text, link=f"javascript:{text}")
    assert cell.failure is not None
    cell = replace(cell, failure=replace(cell.failure, script=f"import torch\n\nprint({text!r})  # {text}\n"))
    cells = (SMOKE, cell, replace(cell, cell=text), replace(SMOKE, cell=f"{text}.y", status="error", reason=text))
    return replace(
        VERDICT,
        target=text,
        profile=text,
        origin={text: text},
        environment={text: text},
        cells=cells,
        provenances={text: "lent"},
        promises={text: text},
        baseline=Baseline(text, text, 7, {text: "pass", f"{text}.gone": "fail"}),
    )


def parsed(verdict: Verdict) -> ElementTree.Element:
    """The page, which is XML, too."""
    return ElementTree.fromstring(page(verdict))


def texts(element: ElementTree.Element) -> str:
    """What the element says."""
    return "".join(element.itertext())


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [each for each in root.iter() if name in each.get("class", "").split()]


def test_the_verdict_stands_at_the_top_and_in_the_title() -> None:
    root = parsed(VERDICT)

    assert root.get("lang") == "en"
    assert next(map(texts, root.iter("title"))) == "verl@0.9.1: a promise is broken - bucketproof"
    counts = "13 cells: 4 pass, 4 fail, 1 known failure, 1 fixed, 1 no verdict, 1 skipped, 1 unpromised."
    assert texts(of_class(root, "verdict")[0]) == f"✗A promise is broken. {counts}"


@pytest.mark.parametrize(
    ("cells", "told", "status"),
    [
        (CELLS[:2], "Every promise holds.", "pass"),
        (CELLS[:3], "A promise is broken.", "fail"),
        ((SMOKE, CELLS[8]), "No verdict.", "error"),
        ((), "No verdict.", "error"),
    ],
)
def test_the_verdict_has_words_and_a_mark_as_well_as_a_colour(
    cells: tuple[Outcome, ...], told: str, status: str
) -> None:
    [line] = of_class(parsed(replace(VERDICT, cells=cells)), "verdict")

    assert told in texts(line)
    assert texts(line)[0] in "✓✗!"
    assert status in line.get("class", "")


def test_every_failing_cell_is_explained_once_and_can_be_reached_from_where_it_is_shown() -> None:
    root = parsed(VERDICT)
    failed = [cell.cell for cell in CELLS if cell.status in ("fail", "known")]

    explained = [texts(each.find("summary/h4")) for each in of_class(root, "cell")]  # type: ignore[arg-type]
    links = {link.get("title"): link.get("href", "") for link in root.iter("a") if link.get("title")}
    assert explained == [
        "✗ fail aliasing.survives-overwrite[detach] and 1 alike",
        "✗ fail aliasing.survives-overwrite[data]",
        "✗ fail aliasing.survives-overwrite[set_]",
        "≈ known failure aliasing.survives-overwrite[numpy]",
        "✗ fail lifecycle.early-close SHOULD",
    ]
    assert sorted(links) == sorted(failed)
    for cell, href in links.items():
        target = next(each for each in root.iter() if f"#{each.get('id')}" == href)
        holder = next(each for each in of_class(root, "cell") if each.find("div") is target)
        assert cell in texts(holder.find("summary"))  # type: ignore[arg-type]


def test_what_fails_alike_is_folded_into_the_first_and_what_does_not_is_not() -> None:
    root = parsed(VERDICT)

    [alike] = of_class(root, "alike")
    told = "1 more fails alike, but for the provenance's name and the bytes shown: data"
    assert texts(alike.find("summary")) == told  # type: ignore[arg-type]
    assert len(of_class(alike, "cell")) == 1


def test_an_explanation_has_all_that_is_known() -> None:
    root = parsed(replace(VERDICT, cells=(SMOKE, CELLS[2])))

    [cell] = of_class(root, "cell")
    assert [texts(head) for head in cell.iter("h5")] == [
        "What happened",
        "Smallest stream",
        "Step by step",
        "Memory",
        "The plan, as code",
    ]
    failure = CELLS[2].failure
    assert failure is not None
    told = texts(cell)
    for text in (failure.sentence, failure.what, failure.plan, *failure.items, *(step.text for step in failure.steps)):
        assert text in told
    [wrong] = of_class(cell, "wrong")
    assert texts(wrong) == "✗ wrong: 'w': still in the lender's memory"
    assert cell.get("open") is not None  # it is the first one


def test_a_script_is_folded_away_and_whole() -> None:
    script = "import torch\n\nprint('<b>&</b>')\n"
    failure = CELLS[2].failure
    assert failure is not None
    root = parsed(replace(VERDICT, cells=(replace(CELLS[2], failure=replace(failure, script=script)),)))

    [fold] = of_class(root, "script")
    assert (fold.tag, fold.get("open")) == ("details", None)
    assert texts(fold[0]) == "A script that shows it with torch and the target alone (3 lines)"
    assert next(map(texts, fold.iter("pre"))) == script
    assert not of_class(parsed(VERDICT), "script")


def test_the_picture_has_labels_offsets_and_patterns() -> None:
    root = parsed(replace(VERDICT, cells=(SMOKE, CELLS[2])))

    [storage] = of_class(root, "storage")
    titles = [texts(title) for title in storage.iter("title")]
    assert titles == [
        "handed over as 'w': 4 bytes from byte 4 on, of 16",
        "overwritten by the lender: 16 bytes from byte 0 on, of 16",
        "bucket 0 holds 'w': 4 bytes from byte 4 on, of 16",
    ]
    assert [(part.get("x"), part.get("width")) for part in of_class(storage, "part")] == [
        ("25.00%", "25.00%"),
        ("0.00%", "100.00%"),
        ("25.00%", "25.00%"),
    ]
    assert [texts(text) for text in of_class(storage, "axis")[0].iter("text")] == ["byte 0", "8", "16"]
    patterns = list(root.iter("pattern"))
    assert len({ElementTree.tostring(pattern).split(b">", 1)[1] for pattern in patterns}) == 3


@pytest.mark.parametrize(("start", "end", "nbytes"), [(0, 0, 0), (5, 3, 8), (9, 99, 8), (10**30, 10**31, 10**31)])
def test_a_picture_of_odd_numbers_stays_in_its_frame(start: int, end: int, nbytes: int) -> None:
    cell = CELLS[2]
    assert cell.failure is not None
    storage = Storage("memory", nbytes, (Mark("held", "held", start, end),))
    root = parsed(replace(VERDICT, cells=(replace(cell, failure=replace(cell.failure, storages=(storage,))),)))

    [part] = of_class(root, "part")
    for place in (part.get("x", ""), part.get("width", "")):
        assert 0 <= float(place.removesuffix("%")) <= 100


def test_the_matrix_says_of_every_cell_what_it_is_in_words() -> None:
    [matrix] = of_class(parsed(VERDICT), "matrix")

    assert [texts(head) for head in matrix.iter("th") if head.get("scope") == "col"] == [
        "provenance",
        "aliasing.survives-overwrite",
        "ownership.no-copy",
    ]
    rows = {texts(row[0]): [texts(cell) for cell in row[1:]] for row in matrix.iter("tr") if len(row) > 1}
    assert rows["detach"] == ["✗fail", "·not applicable"]
    assert rows["numpy"] == ["≈known failure", "·not applicable"]
    assert [rows[name][1] for name in ("fresh", "cat", "stack")] == ["✓pass", "★fixed", "!no verdict"]
    groups = [texts(head) for head in matrix.iter("th") if head.get("scope") == "rowgroup"]
    assert [group.partition(":")[0] for group in groups] == ["owned", "lent"]


def test_other_cells_reasons_promises_and_the_environment_are_told() -> None:
    sections = {section.get("id"): texts(section) for section in parsed(VERDICT).iter("section")}

    assert "values.order[long-stream]o unpromisedMUSTthe target promises order=None" in sections["others"]
    assert "! no verdict the process died while this cell was judged" in sections["noted"]
    assert "★ fixed waited" in sections["noted"]
    assert "paddingnot promised" in sections["promises"]
    assert 'atomic_groups[["q_proj", "k_proj"]]' in sections["promises"]
    assert "torch2.13.0" in sections["environment"]
    assert "changes" not in sections


def test_what_there_is_nothing_to_say_of_is_left_out() -> None:
    root = parsed(replace(VERDICT, cells=CELLS[:2], promises={}, environment={}))

    assert [section.get("id") for section in root.iter("section")] == ["matrix", "others"]
    links = [link.get("href") for nav in root.iter("nav") for link in nav.iter("a")]
    assert links == ["#matrix", "#others"]


def test_changes_since_the_baseline_are_listed() -> None:
    baseline = Baseline("verl@0.9.0", "smoke", 7, {"aliasing.survives-overwrite[detach]": "pass", "gone": "fail"})
    root = parsed(replace(VERDICT, cells=CELLS[:3], baseline=baseline))

    [changes] = [texts(each) for each in root.iter("section") if each.get("id") == "changes"]
    assert "Two kinds of run are compared: target verl@0.9.0 then, verl@0.9.1 now." in changes
    assert "worse (pass -> fail)" in changes
    assert "gone (fail -> no cell)" in changes


def test_a_target_that_failed_smoke_is_said_to_be_wrong_itself() -> None:
    assert "The target cannot bucket a single tensor" in page(replace(VERDICT, cells=(failing("smoke"),)))
    assert "The target cannot bucket a single tensor" not in page(VERDICT)


def test_of_a_long_stream_the_middle_is_folded_and_what_went_wrong_is_not() -> None:
    root = parsed(replace(VERDICT, cells=(failing("memory.peak", length=300),)))

    [cell] = of_class(root, "cell")
    folds = [fold for fold in cell.iter("details") if fold.get("class") is None]
    assert [texts(fold.find("summary")) for fold in folds] == [  # type: ignore[arg-type]
        "288 more",
        "292 more steps, in which nothing went wrong",
    ]
    assert [(items.tag, items.get("start")) for items in of_class(cell, "items")] == [("ol", "0"), ("ol", "12")]
    numbers = [int(step.get("value", "0")) for step in cell.iter("li") if step.get("value")]
    assert numbers == list(range(1, 303))
    assert not any(of_class(fold, "wrong") for fold in folds)


def test_headings_are_in_order_places_are_unique_and_every_link_leads_somewhere() -> None:
    root = parsed(VERDICT)

    levels = [int(each.tag[1]) for each in root.iter() if each.tag in {f"h{level}" for level in range(1, 7)}]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    places = Counter(each.get("id") for each in root.iter() if each.get("id"))
    assert set(places.values()) == {1}
    for link in root.iter("a"):
        href = link.get("href", "")
        assert href == "https://x.test/7" or href.removeprefix("#") in places


class Tags(HTMLParser):
    """The elements that a reader of HTML, not XML, sees."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("text", HARMFUL)
def test_no_text_of_a_verdict_is_ever_markup(text: str) -> None:
    html = page(harmful(text))

    tags, plain = Tags(), Tags()
    tags.feed(html)
    plain.feed(page(harmful("plain")))
    assert not tags.open
    assert tags.tags == plain.tags
    assert tags.attributes == plain.attributes
    assert "javascript:" not in str([link.get("href") for link in ElementTree.fromstring(html).iter("a")])
    html.encode()
    assert cut(seen(text), 400) in texts(ElementTree.fromstring(html))


@pytest.mark.parametrize(
    ("text", "shown"), [("a\u202eb", "a\\u202eb"), ("a\x00\ud800b", "a\\x00\\ud800b"), ("ß\n\t", "ß\n\t")]
)
def test_what_cannot_be_seen_is_shown_as_python_would_write_it(text: str, shown: str) -> None:
    assert seen(text) == shown


@pytest.mark.parametrize(("length", "most"), [(1, 10), (10, 10), (11, 10), (10_000, 400)])
def test_what_is_cut_keeps_both_ends(length: int, most: int) -> None:
    text = "".join(chr(ord("a") + number % 26) for number in range(length))

    short = cut(text, most)
    assert len(short) == min(length, most)
    assert (short[0], short[-1]) == (text[0], text[-1])
    assert (" … " in short) == (length > most)


def test_a_long_name_is_shortened_everywhere_but_in_the_plan_and_the_script() -> None:
    text = texts(parsed(harmful("x" * 10_000)))

    assert text.count("x" * 10_000) == 2 * (1 + 2)  # of each of the two failing cells


def test_the_page_needs_nothing_from_elsewhere() -> None:
    html = page(VERDICT)

    [policy] = [each for each in ElementTree.fromstring(html).iter("meta") if each.get("http-equiv")]
    assert "default-src 'none'" in policy.get("content", "")
    assert "<script" not in html
    assert "@import" not in html
    assert html.count("://") == 2  # the link of the known failure, as a link and as nothing else
    assert html.count("url(") == html.count("url(#ink-")


def test_one_verdict_has_one_page_on_any_machine(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text(VERDICT.to_json())
    reports = ("--html=r.html", "--markdown=r.md", "--junit=r.xml", "--badge=r.json")
    made = []
    for environment in (
        {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "UTC", "PYTHONUTF8": "0"},
        {"PYTHONHASHSEED": "2", "LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo", "COLUMNS": "40", "TERM": "xterm"},
    ):
        command = [COMMAND, "report", "v.json", *reports]
        subprocess.run(command, cwd=tmp_path, env={**os.environ, **environment}, check=True, timeout=60)
        made.append([(tmp_path / report.partition("=")[2]).read_bytes() for report in reports])

    assert made[0] == made[1]
    assert made[0][0].decode() == page(VERDICT)


class Browser:
    """A headless Chromium, spoken to through a pipe."""

    def __init__(self, program: str, folder: str) -> None:
        to_it, self._write = os.pipe()
        self._read, from_it = os.pipe()
        # Chromium reads from 3 and writes to 4. The shell puts them there, whatever numbers they have here.
        switches = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
        switches += " --disable-background-networking --disable-component-update --remote-debugging-pipe"
        line = f'exec "$0" {switches} --user-data-dir="$1" about:blank 3<&{to_it} 4>&{from_it}'
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(["bash", "-c", line, program, folder], pass_fds=(to_it, from_it), **quiet)
        os.close(to_it)
        os.close(from_it)
        self._number, self._rest, self._session = 0, b"", ""

    def close(self) -> None:
        os.close(self._write)
        self._process.terminate()
        self._process.wait(timeout=30)
        os.close(self._read)

    def call(self, method: str, **params: Any) -> Any:
        """Ask for something, and wait for the answer."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": params, **session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda said: said.get("id") == self._number)
        assert "error" not in answer, answer
        return answer["result"]

    def _until(self, is_it: Any) -> Any:
        while True:
            while b"\0" not in self._rest:
                assert select.select([self._read], [], [], 60)[0], "the browser does not answer"
                part = os.read(self._read, 1 << 16)
                assert part, "the browser has gone"
                self._rest += part
            said, _, self._rest = self._rest.partition(b"\0")
            if is_it(message := json.loads(said)):
                return message

    def open(self, path: Path, width: int = 1280, dark: bool = False) -> None:
        """Show the page in a window of that width."""
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.as_uri())
        self._until(lambda said: said.get("method") == "Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """What a piece of JavaScript, which is none of the page's, gives."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def press(self, key: str) -> None:
        """A key on the keyboard."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r")}[key]
        facts: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **facts)
        self.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def picture(self, path: Path) -> None:
        """What is seen, as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests that need one."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(CHROMIUM, folder)
        try:
            browser.call("Browser.getVersion")
        except (AssertionError, OSError) as error:
            browser.close()
            pytest.skip(f"{CHROMIUM} does not start: {error}")
        yield browser
        browser.close()


def shown(verdict: Verdict, folder: Path) -> Path:
    """The page as a file."""
    path = folder / "report.html"
    path.write_text(page(verdict), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("text", ["plain", *HARMFUL])
def test_a_browser_shows_it_without_scrolling_sideways_and_runs_nothing(
    browser: Browser, tmp_path: Path, text: str, width: int
) -> None:
    browser.open(shown(VERDICT if text == "plain" else harmful(text), tmp_path), width)

    assert browser.value("document.querySelectorAll('details').forEach(each => each.open = true)") is None
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("typeof harmed") == "undefined"
    assert browser.value("document.querySelectorAll('script, img, iframe, h1 ~ h1').length") == 0
    assert browser.value("performance.getEntriesByType('resource').length") == 0


CONTRASTS = """
(() => {
  document.querySelectorAll('details').forEach(each => each.open = true);
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = each => {
    for (; each; each = each.parentElement) {
      const colour = numbers(getComputedStyle(each).backgroundColor);
      if (colour.length == 3) return colour;
    }
  };
  const texts = [...document.querySelectorAll('body *')].filter(
    each => !each.closest('svg') && [...each.childNodes].some(node => node.nodeType == 3 && node.data.trim()));
  return texts.map(each => {
    const [a, b] = [light(numbers(getComputedStyle(each).color)), light(ground(each))].sort((x, y) => x - y);
    return [(b + 0.05) / (a + 0.05), each.tagName + ' ' + each.className + ' ' + each.textContent.slice(0, 30)];
  });
})()
"""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_told_from_its_ground(browser: Browser, tmp_path: Path, dark: bool) -> None:
    browser.open(shown(VERDICT, tmp_path), dark=dark)

    contrasts = browser.value(CONTRASTS)
    assert len(contrasts) > 100
    assert [each for each in contrasts if each[0] < 4.5] == []


def test_it_is_dark_where_that_is_preferred(browser: Browser, tmp_path: Path) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    colours = []
    for dark in (False, True):
        browser.open(shown(VERDICT, tmp_path), dark=dark)
        colours.append(browser.value(ground))

    assert colours == ["rgb(255, 255, 255)", "rgb(13, 17, 23)"]


def test_an_explanation_is_opened_from_the_matrix_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    browser.open(shown(VERDICT, tmp_path))
    is_open = "[...document.querySelectorAll('.cell')].map(each => each.open && each.closest('.alike')?.open !== false)"
    assert browser.value(is_open).count(True) == 1

    browser.value("document.querySelector('.matrix a[title$=\"[data]\"]').focus()")
    browser.press("Enter")

    # It is one of those that are folded into another.
    place = "document.querySelector(':target')"
    assert browser.value(f"{place}.closest('.cell').querySelector('summary').textContent").endswith("overwrite[data]")
    assert browser.value(f"{place}.getBoundingClientRect().top") < 844
    assert browser.value(f"{place}.checkVisibility()") is True
    assert browser.value(is_open).count(True) == 2


def test_all_that_can_be_used_is_reached_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    browser.open(shown(VERDICT, tmp_path))
    browser.press("Tab")
    assert browser.value("document.activeElement.className") == "skip"
    assert browser.value("document.activeElement.getBoundingClientRect().left") >= 0

    reached = set()
    for _ in range(100):
        browser.press("Tab")
        reached.add(browser.value("document.activeElement.tagName + document.activeElement.textContent.slice(0, 60)"))
    # What is folded away cannot be reached, and need not be.
    wanted = "a, summary, .scroll"
    usable = f"[...document.querySelectorAll('{wanted}')].filter(each => each.checkVisibility())"
    assert reached.issuperset(browser.value(f"{usable}.map(each => each.tagName + each.textContent.slice(0, 60))")[1:])


def test_the_head_of_the_matrix_stays_in_sight(browser: Browser, tmp_path: Path) -> None:
    many = tuple(Outcome(f"values.x[p{number}]", "pass", "MUST") for number in range(100))
    provenances = {f"p{number}": "lent" for number in range(100)}
    browser.open(shown(replace(VERDICT, cells=many, provenances=provenances), tmp_path), 390)

    box = "document.querySelector('.scroll')"
    head = f"({box}.querySelector('thead th').getBoundingClientRect().top - {box}.getBoundingClientRect().top)"
    before = browser.value(head)
    browser.value(f"{box}.scrollTop = 1000")
    assert browser.value(f"{box}.scrollTop") == 1000
    assert browser.value(head) == before


def test_a_picture_of_the_page_is_not_blank(browser: Browser, tmp_path: Path) -> None:
    browser.open(shown(VERDICT, tmp_path))
    browser.picture(tmp_path / "report.png")

    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "report.png").stat().st_size > 20_000
