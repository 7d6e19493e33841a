"""Rankings and single answers by keyboard alone: tiers and the pairs they imply, marks on steps, spans of tokens, hostile texts."""

from collections.abc import Callable

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from lab.labelling.labels.models import Claim, Judgement, Kind, Preference, Queue
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Status
from tests.browser.training import add
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, rollout, started
from trainers.contract.arrays import pack_array, pack_ids

PARTS = ["Two", " plus", " two", ".", "\n\n", "It", " is", " 5", ".", "\n\n", "<answer>", "5", "</answer>"]
SELECT = """([first, last]) => { const unit = (at) => document.querySelector(`.token-text [data-at="${at}"]`).firstChild;
  getSelection().setBaseAndExtent(unit(first), 0, unit(last), unit(last).length); }"""
HARM = f"""[window.{MARK} || 0, document.querySelectorAll('.item :is(script, img, svg, iframe, b)').length,
  document.documentElement.scrollWidth <= innerWidth]"""  # what ran, what became markup, whether the page fits


def answers(team: Team, *completions: str) -> list[Rollout]:
    """A group of a finished run, one rollout a completion, a token a character; PARTS are its tokens where they are the text."""
    made = []
    for sample, text in enumerate(completions):
        lengths = [len(part) for part in PARTS] if text == "".join(PARTS) else [1] * len(text)
        zeros = pack_array([0.0] * len(lengths), "e")
        arrays = {"ids": pack_ids(range(10, 10 + len(lengths))), "lengths": pack_array(lengths, "H"), "logprobs": zeros, "entropies": zeros}
        made.append(rollout(1, 0, sample, completion=text, length=len(lengths), **arrays))
    run = make_run(team, status=Status.FINISHED)
    add(run, [started(), *made])
    return list(Rollout.objects.filter(run=run).order_by("sample"))


def queue_of(team: Team, kind: Kind, *items: list[Rollout], **settings: object) -> Queue:
    return make_queue(team, None, name="q", kind=kind, items=[NewItem(one[0].prompt_id, tuple(row.pk for row in one)) for one in items], **settings)


def work(page: Page, queue: Queue) -> None:
    page.goto(f"/label/{queue.pk}/work/")
    expect(page.locator("[data-stage] .item")).to_be_visible()


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


@pytest.fixture
def group(team: Team, owner: User, sign_in: Callable[[User], None]) -> list[Rollout]:
    sign_in(owner)
    return answers(team, *(f"The answer is {number}." for number in range(5)))


@pytest.mark.feature(55, 91)
def test_a_group_is_ranked_by_keyboard_and_only_the_implied_pairs_are_written(page: Page, team: Team, group: list[Rollout]) -> None:
    queue = queue_of(team, Kind.RANKING, group, group[:3])
    work(page, queue)
    expect(page.locator(".rank-card")).to_have_count(5)
    press(page, "1", "1", "2", "3", "Enter")
    expect(page.locator("[data-say]")).to_contain_text("E has none yet")
    press(page, "3")
    expect(page.locator(".rank-count .mono")).to_have_text("A = B > C > D = E")
    expect(page.locator(".rank-count strong")).to_have_text("gives 8 pairs")
    order = Claim.across_teams.get(item__rollouts__len=5).order
    press(page, "Enter")
    expect(page.locator(".rank-card")).to_have_count(3)
    expect(page.locator("[data-done]")).to_have_text("1/2")
    shown = [group[place].pk for place in order]
    better = [(0, 2), (1, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 3), (2, 4)]
    assert sorted(Preference.across_teams.values_list("chosen", "rejected")) == sorted((shown[one], shown[other]) for one, other in better)
    press(page, "u")
    expect(page.locator(".rank-count .mono")).to_have_text("A = B > C > D = E")
    assert Preference.across_teams.count() == 0
    with page.expect_response("**/submit/"):
        press(page, "Enter")
    expect(page.locator(".rank-card")).to_have_count(3)
    assert Preference.across_teams.count() == 8


def test_tiers_are_moved_tied_untied_and_drafted(page: Page, team: Team, group: list[Rollout]) -> None:
    queue = queue_of(team, Kind.RANKING, group[:3])
    work(page, queue)
    order = page.locator(".rank-count .mono")
    press(page, "3", "1", "2")  # gaps while ranking: A is not tied with B because B came later
    expect(order).to_have_text("B > C > A")
    press(page, "=")  # C was ranked last and has the focus
    expect(order).to_have_text("B = C > A")
    press(page, "-")
    expect(order).to_have_text("B > C > A")
    press(page, "+")
    expect(order).to_have_text("C > B > A")
    press(page, "Shift+J")
    expect(order).to_have_text("B = C > A")
    press(page, "Shift+K")
    expect(order).to_have_text("C > B > A")
    press(page, "j", "j", "0")
    expect(page.locator(".tier.unranked .rank-card")).to_have_count(1)
    press(page, "w")
    expect(page.locator(".rank-pane .answer-panel:visible ins")).to_have_count(1)
    expect(page.locator(".rank-pane .answer-panel:visible del")).to_have_count(1)
    press(page, "Control+s")
    expect(page.locator("[data-saved]")).to_have_text("Draft saved")
    page.reload()
    expect(order).to_have_text("C > B")
    press(page, "j", "j", "-")
    expect(order).to_have_text("C > B > A")
    card = page.locator('#labelling .rank-card[data-place="0"]')
    card.drag_to(page.locator(".tier").first, target_position={"x": 30, "y": 25})
    expect(order).to_have_text("A = C > B")
    card.drag_to(page.locator(".tier").nth(1), target_position={"x": 30, "y": 3})  # at the border: between the two
    expect(order).to_have_text("C > A > B")
    told = page.evaluate("""() => import("/static/labelling/tiers.js").then(({ makeTiers }) => {
      let seed = 7; const dice = (n) => { seed = (seed * 1103515245 + 12345) % 2147483648; return Math.floor((seed / 2147483648) * n); };
      const wrong = [];
      for (let round = 0; round < 300; round += 1) {
        const size = 2 + dice(25); const tiers = makeTiers(size);
        for (let move = 0; move < 60; move += 1) {
          const place = dice(size); const before = JSON.stringify(tiers.ranks());
          const name = ["up", "down", "tie", "untie", "best", "set"][dice(6)];
          const others = (list) => JSON.stringify(list.map((tier) => tier.filter((one) => one !== place)).filter((tier) => tier.length));
          const rest = others(tiers.read());
          const changed = name === "set" ? tiers.set(place, 1 + dice(9)) : tiers[name](place);
          const all = [...tiers.read().flat(), ...tiers.unranked()].sort((one, other) => one - other);
          if (JSON.stringify(all) !== JSON.stringify([...Array(size).keys()])) wrong.push(`${name} lost somebody`);
          if (others(tiers.read()) !== rest) wrong.push(`${name} moved others`);
          if (changed !== (before !== JSON.stringify(tiers.ranks()))) wrong.push(`${name} says ${changed}`);
          let pairs = 0; const at = new Map(tiers.read().flatMap((tier, index) => tier.map((one) => [one, index])));
          for (const above of at.values()) for (const below of at.values()) if (below > above) pairs += 1;
          if (pairs !== tiers.pairs()) wrong.push(`${tiers.pairs()} pairs, not ${pairs}`);
        }
      }
      return wrong.slice(0, 5);
    })""")
    assert told == []


def test_answers_with_the_same_text_share_a_tier(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    group = answers(team, "It is 5.", "It is 4.", "It is 5.")
    queue = queue_of(team, Kind.RANKING, group)
    work(page, queue)
    same = page.locator(".rank-card", has_text="same text as")
    expect(same).to_have_count(1)
    twin = same.locator("strong").inner_text()
    press(page, "1")
    order = page.locator(".rank-count .mono")
    first = f"A = {twin}" if same.get_by_text("same text as A").count() else "A"
    expect(order).to_have_text(first)
    press(page, "-", "Enter")  # what has no tier yet gets one below, its twin with it
    expect(page.locator("[data-done]")).to_have_text("1/1")
    assert Preference.across_teams.count() == 2
    assert not Preference.across_teams.filter(chosen__in=[group[0].pk, group[2].pk], rejected__in=[group[0].pk, group[2].pk]).exists()


@pytest.mark.feature(58)
def test_steps_and_spans_of_an_answer_are_marked_by_keyboard(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    [one] = answers(team, "".join(PARTS))
    queue = queue_of(team, Kind.SINGLE, [one], steps=True, spans=True, correction=True)
    work(page, queue)
    expect(page.locator(".label-steps li")).to_have_count(3)
    press(page, "2", "g", "Enter")
    expect(page.locator("[data-say]")).to_contain_text("Step 2 has no mark yet")
    press(page, "x")
    expect(page.locator(".label-steps .is-first-bad")).to_contain_text("It is 5.")
    press(page, "m", "t", "ArrowRight", "ArrowRight", "Shift+ArrowRight", "g")
    expect(page.locator(".token-text .span-good")).to_have_text([" two", "."])
    press(page, "End", "ArrowLeft", "x")
    expect(page.locator(".token-text .span-bad")).to_have_text("5")
    page.evaluate(SELECT, [5, 7])
    press(page, "x")
    expect(page.locator(".span-list .span-quote")).to_have_text([" two.", "It is 5", "5"])
    press(page, "End", "ArrowLeft", "Delete")
    expect(page.locator(".span-list .span-quote")).to_have_text([" two.", "It is 5"])
    press(page, "Escape", "c", "Control+End")
    page.keyboard.type(" indeed")
    expect(page.locator(".correction-diff ins")).to_have_text(" indeed")
    press(page, "Escape")
    page.reload()
    expect(page.locator(".span-list .span-quote")).to_have_text([" two.", "It is 5"])
    expect(page.locator(".label-steps .is-first-bad")).to_contain_text("It is 5.")
    press(page, "Enter")
    expect(page.locator("[data-done]")).to_have_text("1/1")
    said = Judgement.across_teams.get()
    assert said.verdict == "bad"
    assert said.correction == "".join(PARTS) + " indeed"
    first, second, third = ({"start": 0, "end": 5}, {"start": 5, "end": 10}, {"start": 10, "end": 13})
    texts = ("Two plus two.", "It is 5.", "<answer>5</answer>")
    marks = ("good", "bad", "neutral")
    assert said.steps == [{**place, "mark": mark, "text": text} for place, mark, text in zip((first, second, third), marks, texts, strict=True)]
    assert said.spans == [{"start": 2, "end": 4, "mark": "good", "text": " two."}, {"start": 5, "end": 8, "mark": "bad", "text": "It is 5"}]


def test_hostile_texts_are_text_and_nothing_sticks_out_on_a_phone(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.set_viewport_size({"width": 390, "height": 800})
    group = answers(team, *map(stored, PAYLOADS[:25]))
    ranking = queue_of(team, Kind.RANKING, group)
    work(page, ranking)
    expect(page.locator(".rank-card")).to_have_count(25)
    for key in ("1", "2", "3", "w"):
        page.keyboard.press(key)
    assert page.evaluate(HARM) == [0, 0, True]
    single = queue_of(team, Kind.SINGLE, *([one] for one in group[:6]), steps=True, spans=True, blind=False)
    work(page, single)
    page.keyboard.press("y")
    expect(page.locator(".token-text.view-entropy")).to_have_count(1)
    for _ in range(6):
        expect(page.locator("[data-stage] .item")).to_be_visible()  # on a busy machine the next one may not be there yet
        item = page.locator("#labelling").get_attribute("data-item")
        page.keyboard.press("3")
        page.keyboard.press("m")
        page.evaluate("() => document.querySelector('.token-text')?.focus()")
        for key in ("Home", "Shift+End", "g"):
            page.keyboard.press(key)
        assert page.evaluate(HARM) == [0, 0, True]
        page.keyboard.press("Enter")
        expect(page.locator("#labelling")).not_to_have_attribute("data-item", item or "")
    expect(page.locator("[data-done]")).to_have_text("6/6")
    saved = {one.item.rollouts[0]: one.spans for one in Judgement.objects.filter(queue=single).select_related("item")}
    assert {pk: [span["text"] for span in spans] for pk, spans in saved.items()} == {one.pk: [one.completion] for one in group[:6]}
    assert Claim.objects.filter(queue=single, expires_at__gt=timezone.now()).count() == 0
