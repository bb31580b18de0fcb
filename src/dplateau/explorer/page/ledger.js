// The ledger: budgets per data set, releases on a time line, the tight sum beside the plain one.

import { make } from "./telling.js";

export async function showLedger(section) {
  section.hidden = false;
  section.querySelector("div").replaceChildren(make("p", {}, "…"));
}
