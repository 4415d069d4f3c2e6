/* Deleting is for good: ask once more. Without scripts the action works all the same. */
document.addEventListener("submit", (event) => {
  const form = event.target;
  const action = form.id === "changelist-form" && form.querySelector("select[name=action]");
  const notes = form.querySelector("[data-confirm-prune]");
  if (action && action.value === "prune" && notes && !window.confirm(notes.dataset.confirmPrune)) {
    event.preventDefault();
  }
});

/* Times by the clock of the reader's own machine, where that is another one than those that the page shows. */
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".pgj-schedule table")) {
    const shown = [...table.querySelectorAll("th")].map((heading) => heading.textContent);
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const cells = table.querySelectorAll("[data-pgj-browser]");
    if (!cells.length || shown.includes(zone)) continue;
    for (const cell of cells) {
      const time = cell.querySelector("time");
      if (time) time.textContent = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
      cell.hidden = false;
    }
  }
});
