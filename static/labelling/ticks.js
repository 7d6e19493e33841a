/* The review list's ticks: how many there are, a range with Shift, and which labels the dialog offers first. */
const form = document.getElementById("send-back-form");
const boxes = [...document.querySelectorAll('[form="send-back-form"][name="judgement"]')];
let last = null;

function countTicks() {
  const count = boxes.filter((box) => box.checked).length;
  form.querySelector("[data-ticked]").textContent = count ? `The ${count === 1 ? "1 ticked label" : `${count} ticked labels`}` : "The ticked labels: none is ticked in the list";
  const [ticked, all] = form.querySelectorAll("[name=all]");
  ticked.disabled = !count;
  ticked.checked = count > 0;
  all.checked = !count;
}

for (const box of boxes) {
  box.addEventListener("click", (event) => {
    if (event.shiftKey && last) {
      const [from, to] = [boxes.indexOf(last), boxes.indexOf(box)].sort((one, other) => one - other);
      for (const between of boxes.slice(from, to + 1)) between.checked = box.checked;
    }
    last = box;
    countTicks();
  });
}
countTicks();
const dialog = document.getElementById("send-back");
if ("again" in dialog.dataset) dialog.showModal(); // it came back with problems
