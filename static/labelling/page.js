/* What the labelling page is made of. A kind of item ("pair", "ranking", "single", "clearer") registers how it is shown and read:

     page.kinds.pair = { render(root, claim, page) { …; return item; } };

   render fills root, an element that is not in the document yet: the next item is rendered while the one before it is answered, so nothing may be
   looked up by document.getElementById, and nothing measured before shown(). claim is a ClaimView of the server: answers in the order shown. It returns

     item = {
       keys()      [{ id, key, also: ["ArrowLeft"], label, once, run(event) }]; once: a key held down counts once; ids are the same for every item of the kind, run acts on this item.
       read()      the answer in places as shown, also when it is not complete: it is the draft, too
       fill(answer)  shows an answer read before; {} is none; unknown parts are ignored
       ready()     "" or what is still missing, in words
       choices     optional: an element for the dock at the foot of the window, which stays in sight (choice buttons, strength)
       shown()     optional: it is in the document now
       problem(field, text)  optional: true when it showed the server's problem at the field
     }

   Keys of the page itself, not for kinds: Enter, s, u, i, p, v, f, l, ? and of the fields q, w, e (strength), r, c, o.
   What kinds use:
     page.queue      {id, kind, name, blind, strength, rationale, correction, steps, spans, rubric, skipping, …}
     page.changed()  the answer changed: draft, buttons; call it after every change by a person
     page.decided()  a person has made the choice; after changed(). It may submit (advance.js)
     makeKeyHint(id, key)   an element that shows the key of an action, also after it was mapped to another
     makeChoiceButton(id, key, text, run)   a choice button with its key on it; setPressed(button, on) marks it
     answerPanels.answer(answer, name)  a panel with one answer as text nodes: {element, text(spans or null)}; .bar in it for what a kind adds
     say(words)  why something cannot be done, at the dock and for screen readers
     answerPanels.shownText(text)  invisible characters named, white space as asked
     makeFields(claim, {better})   rubric, rationale, correction as the queue asks: {element, strength, keys, read, fill, ready, problem, apply(on)};
                     better() gives the text a correction starts from; strength is an element of its own or null, {strength: false} leaves it out;
                     read() gives {strength, rubric, rationale, correction}, to be spread into the answer
   diffTexts(before, after) gives [{kind: "same" | "removed" | "added", text}]; makeDiffNodes(spans, side) the nodes of it. */

/* What the server says of the queue and the person, the kinds of items, and what the frame does for its parts: changed(), decided(), again(lost answer, button),
   left(lost answer), roots(). */
export const page = { kinds: {}, ...JSON.parse(document.getElementById("labelling-config").textContent), changed() {}, decided() {}, again() {}, left() {}, roots: () => [] };

/* An element: make("p", "muted", "text", child, …); text becomes text nodes. */
export function make(tag, className = "", ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function setPressed(button, on) { button.setAttribute("aria-pressed", String(Boolean(on))); }
