// Runs before anything is drawn, so that a chosen theme never flashes in the other one.
"use strict";
try {
  const chosen = localStorage.getItem("kornel.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be switched off: the theme of the system it is.
}
