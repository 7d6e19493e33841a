"""One rollout in a browser: overlays, the hover card, the chart, finding, 200,000 tokens, and hostile text."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.browser.conftest import of_module
from tests.browser.training import add
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.supervisor.spools import alternatives, make_run, rollout, started
from trainers.contract.arrays import pack_array, pack_ids
from trainers.contract.events import Message, Turn

CALL = '<tool_call>{"name": "look_up"}'
WORDS = ["<think>", "so", " 🦊", "", "", "\n", "12", "</think>", CALL, "</tool_call>", "found: 4", "<answer>4</answer>", ""]
MOST_FREEZE_MS = 300  # between two frames while scrolling: a fifth of it on a machine with nothing else to do
MOST_ELEMENTS = 12_000


# Scrolls sixty screens, then leaps back; the time in ms between two frames that nineteen of twenty keep under.
SCROLL = """async (down) => {
  const gaps = [];
  let before = 0;
  for (let turn = 0; turn < 80; turn += 1) {
    scrollBy(0, (turn < 60 ? 700 : -4000) * (down ? 1 : -1));
    const now = await new Promise(requestAnimationFrame);
    if (before) gaps.push(now - before);
    before = now;
  }
  return gaps.sort((one, other) => one - other)[Math.floor(gaps.length * 0.95)];
}"""
SELECTION = of_module("rollouts/trajectory-selection.js", "module.readSelection()")
COPIED = """() => {
  const clipboard = new DataTransfer();
  document.dispatchEvent(new ClipboardEvent("copy", { clipboardData: clipboard, bubbles: true, cancelable: true }));
  return clipboard.getData("text/plain");
}"""


@pytest.fixture
def run(team: Team, owner: User, sign_in: Callable[[User], None]) -> Run:
    sign_in(owner)
    return make_run(team, status=Status.RUNNING)


def annotated(step: int = 1, sample: int = 0, **fields: Any) -> Any:
    """A rollout with everything a token can have: thinking, a call, the tool's answer, a fox in three tokens, a special token."""
    count = len(WORDS)
    entropies = [0.1, 0.2, 0.9, 0, 0, 1.5, 2.0, 0.1, 0.3, 0.1, 0, 0.4, 0.05]
    arrays = {
        "ids": pack_ids([*range(10, 10 + count - 1), 4]),
        "lengths": pack_array([7, 2, 0, 0, 2, *(len(word) for word in WORDS[5:])], "H"),
        "logprobs": pack_array([-0.5 - index / 10 for index in range(count)], "e"),
        "entropies": pack_array(entropies, "e"),
        "mask": pack_array([0 if index == 10 else 1 for index in range(count)], "B"),
        "reference_logprobs": pack_array([-0.5] * count, "e"),
        "ratios": pack_array([1.0, 2.0, 0.5, *[1.0] * (count - 3)], "e"),
        "clipped": pack_array([0, 1, *[0] * (count - 2)], "B"),
    }
    turns = [Turn("assistant", 0, 10), Turn("tool", 10, 11), Turn("assistant", 11, 13)]
    return rollout(step, 0, sample, **{"completion": "".join(WORDS), "turns": turns, "advantage": 0.5, **arrays, **fields})


def long_rollout(count: int) -> Any:
    numbers = np.arange(count)
    text = "".join("needle\n" if index == 150_000 else f"word{index % 10}" + ("\n" if index % 40 == 39 else " ") for index in range(count))
    lengths = [7 if index == 150_000 else 6 for index in range(count)]
    measured = np.abs(np.sin(numbers / 50)) * 2
    arrays = {
        "ids": pack_ids(numbers % 50_000),
        "lengths": pack_array(lengths, "B"),
        "logprobs": pack_array(-measured, "e"),
        "entropies": pack_array(measured, "e"),
    }
    return rollout(1, completion=text, length=count, **arrays)


def visit(page: Page, query: str = "", **which: Any) -> Rollout:
    found = Rollout.across_teams.get(**which)
    page.goto(f"/rollouts/{found.pk}/{query}")
    expect(page.locator("#trajectory")).to_have_attribute("data-ready", "1")
    return found


def unit(page: Page, position: int) -> Any:
    return page.locator(f'#text [data-first="{position}"]')


def show_card(page: Page, position: int) -> Any:
    """Points at a token until its card stands: a page that still settles under a busy machine can move the token from under the pointer."""
    card = page.locator("#token-card")
    for _ in range(20):
        page.mouse.move(5, 5)
        unit(page, position).hover()
        page.wait_for_timeout(200)
        if card.is_visible():
            break
    expect(card).to_be_visible()
    return card


def pressed(page: Page, choice: str) -> str:
    return page.locator(f'[data-choice="{choice}"] [aria-pressed="true"]').inner_text()


def parameters(page: Page) -> dict[str, str]:
    found: dict[str, str] = page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")
    return found


@pytest.mark.feature(33)
def test_the_units_are_those_of_the_server_and_blocks_say_who_wrote_them(page: Page, run: Run) -> None:
    add(run, [started(special_tokens={4: "<|end|>"}), annotated()])
    found = visit(page)
    served = page.evaluate(f"fetch('/rollouts/{found.pk}/tokens/').then((answer) => answer.json())")
    assert page.evaluate(of_module("rollouts/trajectory-text.js", "module.completion.data.units.map((unit) => unit.slice(0, 4))")) == served["units"]
    heads = page.locator("#text .turn-head .role-name").all_inner_texts()
    assert heads == ["thinking", "call · look_up", "tool · not in the loss", "assistant"]
    expect(unit(page, 2)).to_have_text(" 🦊")  # three tokens, one unit
    expect(unit(page, 2)).to_have_attribute("data-last", "4")
    expect(unit(page, 12)).to_be_hidden()
    page.get_by_text("Show", exact=True).click()
    page.get_by_label("Special tokens").check()
    expect(unit(page, 12)).to_have_text("<|end|>")
    assert parameters(page) == {"special": "1"}
    page.keyboard.press("Escape")
    page.keyboard.press("z")
    assert page.locator("#text details[open]").count() == 0
    page.keyboard.press("z")
    assert page.locator("#text details:not([open])").count() == 0


@pytest.mark.feature(39)
def test_overlays_are_in_the_address_and_go_along_with_the_keys(page: Page, run: Run) -> None:
    add(run, [started(), annotated(), annotated(sample=1), rollout(2)])
    first = visit(page, step=1, sample=0)
    page.keyboard.press("o")
    assert (pressed(page, "tokens"), parameters(page)) == ("Entropy", {"tokens": "entropy"})
    expect(unit(page, 6)).to_have_class("unit level-9")
    expect(unit(page, 10)).to_have_class("unit out")  # the tool's
    page.get_by_role("button", name="KL", exact=True).click()
    expect(page.locator("#token-legend")).to_contain_text("k3 estimate")
    page.get_by_label("End of the colour scale").select_option("90")
    page.get_by_role("button", name="Raw tokens").click()
    unit(page, 7).click()
    assert parameters(page) == {"tokens": "kl", "clip": "90", "mode": "tokens", "token": "7"}
    page.keyboard.press("j")
    page.wait_for_url(f"**/rollouts/{first.pk + 1}/**")
    expect(page.locator("#trajectory")).to_have_attribute("data-ready", "1")
    assert parameters(page) == {"tokens": "kl", "clip": "90", "mode": "tokens", "token": "7"}
    assert (pressed(page, "tokens"), pressed(page, "mode")) == ("KL", "Raw tokens")
    expect(unit(page, 7)).to_have_class("unit level-3 pinned")
    page.keyboard.press("p")
    page.wait_for_url(f"**/rollouts/{first.pk}/**")
    page.keyboard.press("]")
    page.wait_for_url("**/rollouts/*/?mode=tokens&tokens=kl&clip=90&token=7")
    expect(page.locator("#token-legend")).to_contain_text("this run has no reference policy")
    page.get_by_role("button", name="Advantage", exact=True).dispatch_event("click")
    expect(page.locator("#token-legend")).to_contain_text("every token has the rollout's advantage")


@pytest.mark.feature(41)
def test_ratios_are_signed_in_logarithms_and_clipped_tokens_are_boxed(page: Page, run: Run) -> None:
    add(run, [started(), annotated()])
    visit(page, "?tokens=ratio&clip=100")
    expect(unit(page, 1)).to_have_class("unit level-9 clipped")
    expect(unit(page, 2)).to_have_class("unit level-9 negative")
    expect(unit(page, 0)).to_have_class("unit level-0")
    assert "underline" in unit(page, 2).evaluate("(span) => getComputedStyle(span).textDecorationLine")
    expect(page.locator("#token-legend")).to_contain_text("× 0.500")


def test_the_card_tells_everything_by_pointer_and_by_arrow_keys(page: Page, run: Run) -> None:
    add(run, [started(), annotated()])
    visit(page)
    card = show_card(page, 6)
    said = dict(zip(card.locator("dt").all_inner_texts(), card.locator("dd").all_inner_texts(), strict=True))
    assert (said["token"], said["id"], said["entropy"]) == ("12", "16  (position 6)", "2 nats")
    assert (said["rank by entropy"], said["rank by −log-probability"]) == ("1 of 12", "6 of 12")
    assert (said["log policy / reference"], said["clipped"], said["in the loss"]) == ("-0.600 nats", "no", "yes")
    assert said["KL, k3"] == "0.222 nats"  # exp(0.6) − 0.6 − 1
    page.mouse.move(5, 5)
    page.locator("#text").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(unit(page, 2)).to_have_class("unit pinned")
    expect(card).to_contain_text("3 tokens make it")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert (parameters(page), page.evaluate(f"{SELECTION}.then((range) => range.text)")) == ({"token": "6", "tokens_at": "2-7"}, " 🦊\n12")
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    assert parameters(page) == {}


@pytest.mark.feature(41)
@pytest.mark.feature(42)
def test_the_card_lists_alternatives_and_the_sampler_overlay_is_signed(page: Page, run: Run) -> None:
    """Among the two likeliest, below them with its rank, and in a rollout that keeps none; what a model names a token is text."""
    Run.across_teams.filter(pk=run.pk).update(spec=run.spec | {"telemetry": {"alternatives_share": 0.5}})
    count = len(WORDS)
    kept = alternatives(count, ("<img src=x>\u202e", "\n", "a"))
    kept["alternative_ids"] = pack_ids([1, 16] * (count - 1) + [1, 2])
    add(run, [started(), annotated(**kept), annotated(sample=1)])
    visit(page, "?tokens=sampler", sample=0)
    expect(page.locator("#token-legend")).to_contain_text("Sampler mismatch")
    expect(unit(page, 6)).to_have_class(re.compile(r"\bnegative\b"))
    card = show_card(page, 6)
    rows = card.locator(".alternatives tr")
    assert [" ".join(row.split()) for row in rows.all_inner_texts()] == [
        "#1 <img·src=x>⟨U+202E⟩ 50.0 %",
        "#2 a sampled 25.0 %",
        "all other tokens 25.0 %",
    ]
    expect(rows.nth(1)).to_have_class("sampled")
    expect(card).to_contain_text("trainer / sampler")
    assert card.locator("img").count() == 0
    page.mouse.move(5, 5)
    page.locator("#text").focus()
    page.keyboard.press("End")
    expect(rows.nth(2)).to_have_text(re.compile(r"^#5.*sampled"))
    visit(page, sample=1)
    card = show_card(page, 6)
    expect(card).to_contain_text("not recorded for this rollout")
    assert card.locator("table").count() == 0


@pytest.mark.feature(43)
def test_chart_and_text_lead_to_each_other_and_dragging_selects_tokens(page: Page, run: Run) -> None:
    add(run, [started(), annotated()])
    visit(page)
    canvas = page.locator("#token-chart")
    at = canvas.bounding_box()
    assert at is not None

    def place(position: int) -> tuple[float, float]:
        return at["x"] + (position + 0.5) / len(WORDS) * at["width"], at["y"] + 30

    page.mouse.move(*place(6))
    expect(unit(page, 6)).to_have_class("unit active")
    expect(page.locator("#token-chart-words")).to_have_text("6: “12”, entropy 2 nats")
    page.mouse.down()
    page.mouse.up()
    assert parameters(page) == {"token": "6"}
    page.mouse.move(*place(5))
    page.mouse.down()
    page.mouse.move(*place(7))
    page.mouse.up()
    assert parameters(page)["tokens_at"] == "5-8"
    assert page.evaluate(SELECTION) == {"start": 5, "end": 8, "text": "\n12</think>"}
    unit(page, 1).hover()
    expect(page.locator("#token-chart-words")).to_have_text("1: “so”, entropy 0.200 nats")
    page.reload()
    expect(unit(page, 7)).to_have_class("unit chosen")


@pytest.mark.feature(34)
def test_a_selection_is_known_in_tokens_and_copied_as_the_text_it_is(page: Page, run: Run) -> None:
    add(run, [started(), annotated(completion="".join(WORDS).replace("found", "f\u200bund"))])
    visit(page, "?spaces=1")
    chosen = """([first, last]) => {
      const [a, b] = [first, last].map((one) => document.querySelector(`#text [data-first="${one}"]`).firstChild);
      getSelection().setBaseAndExtent(a, 1, b, b.length);
      return import('/static/rollouts/trajectory-selection.js').then((module) => module.readSelection());
    }"""
    found, copied = page.evaluate(chosen, [1, 10]), page.evaluate(COPIED)
    text = 'so 🦊\n12</think><tool_call>{"name": "look_up"}</tool_call>f\u200bund: 4'
    assert found == {"start": 1, "end": 11, "text": text}
    assert copied == text[1:]


def test_the_most_uncertain_tokens_are_jumped_through(page: Page, run: Run) -> None:
    add(run, [started(), annotated()])
    visit(page)
    forks = page.locator("#forks .fork")
    assert [forks.nth(index).get_attribute("data-position") for index in range(3)] == ["6", "5", "2"]
    expect(forks.first).to_contain_text("33.3 %")  # exp(−1.1)
    forks.first.click()
    expect(unit(page, 6)).to_have_class("unit pinned")
    page.keyboard.press("Shift+E")
    expect(unit(page, 5)).to_have_class("unit pinned")
    page.keyboard.press("e")
    expect(unit(page, 6)).to_have_class("unit pinned")


@pytest.mark.feature(38)
def test_200_000_tokens_open_scroll_and_are_searched_without_freezing(page: Page, run: Run) -> None:
    add(run, [started(), long_rollout(200_000)])
    visit(page, "?tokens=entropy")
    ready = page.evaluate("performance.now()")
    assert ready < 6000, ready  # about one second on an idle machine
    freezes = [page.evaluate(SCROLL, down) for down in (True, False, True)]
    assert min(freezes) < MOST_FREEZE_MS, freezes
    assert page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS
    assert page.evaluate(of_module("rollouts/trajectory-text.js", "module.completion.filled")) < 60
    page.keyboard.press("f")
    page.locator("#find-input").fill("NEEDLE")
    expect(page.locator("#find-count")).to_have_text("1 of 1")
    expect(unit(page, 150_000)).to_be_in_viewport()
    page.keyboard.press("Escape")
    assert page.evaluate("document.querySelector('#text').textContent.length") > 1_000_000  # the browser's own search finds it too
    page.goto(page.url.split("?")[0] + "?token=199999")
    expect(unit(page, 199_999)).to_be_in_viewport()


def test_without_tokens_and_without_scripts_the_text_is_there(page: Page, run: Run, without_scripts: Page) -> None:
    add(run, [started(), annotated()])
    RolloutTokens.across_teams.all().delete()
    found = visit(page, "?tokens=entropy&token=3&tokens_at=1-2")
    expect(page.locator("#no-tokens")).to_contain_text("came without tokens")
    expect(page.locator("#text")).to_contain_text("<answer>4</answer>")
    assert page.locator('[data-choice="tokens"] button:not([aria-disabled])').count() == 1  # off
    assert page.evaluate(SELECTION) is None
    page.locator("#text .chunk span").first.evaluate("(span) => getSelection().setBaseAndExtent(span.firstChild, 3, span.firstChild, 9)")
    assert page.evaluate(COPIED) == "ink>so"
    without_scripts.goto(f"/rollouts/{found.pk}/")
    expect(without_scripts.locator("#text")).to_contain_text("<answer>4</answer>")
    expect(without_scripts.locator("#reader-bar")).to_be_hidden()


@pytest.mark.feature(33)
def test_turns_and_calls_of_a_rollout_without_tokens_are_told_apart(page: Page, run: Run) -> None:
    """As runs of other frameworks come: turns in code points, a long result of a tool and long thinking folded."""
    parts = [("assistant", f"<think>{'hm ' * 300}</think>🦊{CALL}</tool_call>"), ("tool", "4 " * 1500), ("assistant", "<answer>4</answer>")]
    text, turns = "", []
    for role, part in parts:
        turns.append(Turn(role, len(text), len(text) + len(part)))
        text += part
    nothing = {"ids": b"", "lengths": b"", "logprobs": b"", "entropies": b"", "length": None, "finish_reason": ""}
    add(run, [started(), rollout(1, completion=text, turns=turns, **nothing)])
    visit(page, "")
    blocks = page.locator("#text .turn")
    expect(blocks.locator(".role-name")).to_have_text(["thinking", "assistant", "call · look_up", "tool · not in the loss", "assistant"])
    expect(blocks.locator(".muted").nth(3)).to_have_text(" 3000 characters")
    assert blocks.evaluate_all("(all) => all.map((one) => one.open)") == [False, None, True, False, None]
    expect(blocks.nth(4)).to_contain_text("<answer>4</answer>")
    expect(page.locator(".trajectory-facts")).to_contain_text("length not recorded")
    expect(page.locator("#no-tokens")).to_contain_text("came without tokens")


@pytest.mark.parametrize("mode", ["", "text", "tokens"])
def test_hostile_text_is_shown_and_nothing_of_it_runs(mode: str, page: Page, run: Run) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    texts = [stored(text) for text in PAYLOADS if len(text) < 5000]
    whole = "\n".join(texts)
    half = len(whole) // 2
    add(
        run,
        [
            started(special_tokens={6: PAYLOADS[0], 7: PAYLOADS[15]}),
            rollout(
                1,
                completion=whole,
                reference=whole,
                prompt=[Message(text[:60], text) for text in texts],
                rewards={text[:60]: 1.0 for text in texts},
                filtered=whole[:500],
                contributions={text[:60]: 1.0 for text in texts},
                turns=[Turn("assistant", 0, 3), Turn(texts[1][:30], 3, 4)],
                ids=pack_ids([6, 9, 7, 9, 9]),
                lengths=pack_array([0, half, 0, 10, len(whole) - half - 10], "H"),
                logprobs=b"",
                entropies=pack_array([1.0] * 5, "e"),
            ),
        ],
    )
    visit(page, f"?mode={mode}&tokens=entropy&special=1&token=1")
    unit(page, 1).hover()
    page.keyboard.press("z")
    page.keyboard.press("z")
    assert page.evaluate(f"window.{MARK}") is None
    assert (
        page.locator(
            "#trajectory script, #trajectory img, #trajectory iframe, #trajectory b, #trajectory svg[onload], #token-card :not(dl, dt, dd)"
        ).count()
        == 0
    )
    shown = page.locator("#text").text_content() or ""
    for text in texts:
        if text.isascii() and text.isprintable():
            assert text in shown
    for hidden in ("\u202e", "\u200b", "\ufeff", "\u2066"):
        assert hidden not in (page.locator("#trajectory").text_content() or "")
    assert not [url for url in requests if "example.org" in url]


@pytest.mark.feature(89)
def test_text_on_every_level_of_every_ramp_is_readable_and_levels_differ_without_colour(page: Page, run: Run) -> None:
    add(run, [started(), annotated()])
    visit(page)
    for theme in ("light", "dark"):
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        found = page.evaluate(
            """() => {
              const canvas = new OffscreenCanvas(1, 1).getContext("2d");
              const light = (colour) => {
                canvas.fillStyle = colour;
                canvas.fillRect(0, 0, 1, 1);
                const linear = (one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
                const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((one) => linear(one / 255));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
              };
              const rows = [];
              for (const view of ["entropy", "logprob", "kl", "weight", "advantage", "ratio"]) for (const side of ["", " negative"]) {
                const box = Object.assign(document.createElement("div"), { className: `view-${view}` });
                document.body.append(box);
                rows.push(Array.from({ length: 10 }, (none, level) => {
                  const span = Object.assign(document.createElement("span"), { className: `unit level-${level}${side}`, textContent: "x" });
                  box.append(span);
                  const style = getComputedStyle(span);
                  return [light(style.backgroundColor), light(style.color)];
                }));
                box.remove();
              }
              return rows;
            }"""
        )
        for row in found:
            for back, ink in row:
                assert (max(back, ink) + 0.05) / (min(back, ink) + 0.05) >= 4.5
            steps = np.diff([116 * np.cbrt(back) for back, _ in row])  # CIE lightness
            assert np.all(steps < -1.5) if theme == "light" else np.all(steps > 1.5)
            assert np.ptp(steps) < 2.5  # even
