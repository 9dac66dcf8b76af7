// Before the first paint: the theme that was chosen here, if any; else the system's.
"use strict";
try {
  const chosen = localStorage.getItem("groupflow.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is off: the system's theme it is.
}
