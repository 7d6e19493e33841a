/* What charts are made of: an element with a class and a text, and the style sheet's values. */

export function makeElement(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

/* Plotly reads tags and entities in its texts; a name shows as it is written. */
export function escapeMarkup(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

export function readStyle(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

/* The colour with an opacity; the style sheet's colours are registered, so they resolve to rgb(). */
export function fadeColor(color, opacity) { return color.replace("rgb(", "rgba(").replace(")", `, ${opacity})`); }
