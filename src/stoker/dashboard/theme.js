// Before the first paint, so that a dark room stays dark. The rest of the theme is in src/lib/theme.ts.
(() => {
  try {
    const theme = localStorage.getItem("stoker.theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is off: the system's choice stands.
  }
})();
