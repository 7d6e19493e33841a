/* The list of comments by keyboard: j and k go through it, Enter opens the rollout a comment is about. */
import { bindKey } from "../base/page.js";

const items = () => [...document.querySelectorAll(".comment-list > li")];

function walk(by) {
  const all = items();
  const at = all.indexOf(document.activeElement?.closest?.(".comment-list > li"));
  const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
  if (!next) return;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

bindKey("j", "Next comment (Enter opens its rollout)", () => walk(1));
bindKey("k", "Comment before", () => walk(-1));
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches?.(".comment-list > li")) event.target.querySelector("a[data-open]")?.click();
});
