/* Runs before the page is drawn, so that a chosen theme never flashes the other one. */
"use strict";
(function () {
  let theme = "system";
  try { theme = localStorage.getItem("lab-theme") || "system"; } catch { /* storage may be refused */ }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
