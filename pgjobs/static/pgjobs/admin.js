/* Deleting is for good: ask once more. Without scripts the action works all the same. */
document.addEventListener("submit", (event) => {
  const form = event.target;
  const action = form.id === "changelist-form" && form.querySelector("select[name=action]");
  const notes = form.querySelector("[data-confirm-prune]");
  if (action && action.value === "prune" && notes && !window.confirm(notes.dataset.confirmPrune)) {
    event.preventDefault();
  }
});
