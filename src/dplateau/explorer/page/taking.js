// Taking things along: the plan as text, pictures as files, the state as a link.

const at = (id) => document.getElementById(id);
const KINDS = ["python", "command", "json"];
const NO_COMMAND = "This plan has parts that the options of `dplateau account` cannot say (a schedule, an L1 penalty or another domain).\nSave it as plan.json, and use Python or `dplateau explore --plan plan.json`.";

function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function setUpTaking({ figures, link, plan }) {
  let texts = {}, chosen = "python";
  const show = () => {
    at("text").textContent = texts[chosen] ?? (chosen === "command" ? NO_COMMAND : "");
    at("text").setAttribute("aria-labelledby", `tab-${chosen}`);
    for (const kind of KINDS) {
      at(`tab-${kind}`).setAttribute("aria-selected", String(kind === chosen));
      at(`tab-${kind}`).tabIndex = kind === chosen ? 0 : -1;
    }
  };
  for (const [i, kind] of KINDS.entries()) {
    at(`tab-${kind}`).addEventListener("click", () => { chosen = kind; show(); });
    at(`tab-${kind}`).addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      chosen = KINDS[(i + step + KINDS.length) % KINDS.length];
      show();
      at(`tab-${chosen}`).focus();
    });
  }
  const copy = async (text, what) => {
    try {
      await navigator.clipboard.writeText(text);
      at("copied").textContent = `${what} copied.`;
    } catch {
      at("text").textContent = text;
      getSelection().selectAllChildren(at("text"));
      at("copied").textContent = "Press Ctrl+C to copy what is selected.";
    }
  };
  at("copy").addEventListener("click", () => copy(at("text").textContent, "Text"));
  at("copy-link").addEventListener("click", () => copy(link(), "Link"));
  at("save-plan").addEventListener("click", () => save("plan.json", new Blob([plan()], { type: "application/json" })));
  for (const button of document.querySelectorAll("[data-save]")) {
    button.setAttribute("aria-label", `Save the picture as ${button.dataset.save.toUpperCase()}`);
    button.addEventListener("click", async () => {
      const figure = figures[button.dataset.figure];
      const name = `dplateau-${button.dataset.figure}.${button.dataset.save}`;
      save(name, button.dataset.save === "svg" ? new Blob([figure.svg()], { type: "image/svg+xml" }) : await figure.png());
    });
  }
  return { show(found) { texts = found; show(); } };
}
