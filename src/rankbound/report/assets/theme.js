// Light or dark: the reader's choice on this page, or else the preference of the system. Runs before the first paint.
(() => {
  const key = "rankbound-theme";
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem(key); } catch { return null; } };
  const apply = () => {
    const theme = stored() ?? (prefersDark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = theme === "dark" ? "Light" : "Dark";
    document.dispatchEvent(new Event("theme"));
  };
  apply();
  prefersDark.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      try { localStorage.setItem(key, next); } catch { /* private windows may refuse: the choice then lasts until the page is closed */ }
      document.documentElement.dataset.theme = next;
      apply();
    });
  });
})();
