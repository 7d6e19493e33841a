/* The list of comments by keyboard: j and k go through it, Enter opens the rollout a comment is about. */
import { bindListKeys } from "../base/list-keys.js";

bindListKeys({
  items: () => [...document.querySelectorAll(".comment-list > li")],
  next: ["j", "Next comment (Enter opens its rollout)"],
  before: ["k", "Comment before"],
  findFirst: (all) => all[0],
  open: (item) => item.querySelector("a[data-open]")?.click(),
});
