// Questions to the server: lines of JSON as they are found; a question nobody wants any more is cancelled.

export class Refused extends Error {
  constructor(line) {
    super(line.message);
    this.line = line;
  }
}

/** Ask one question; `each` sees every line. Rejects with Refused, or AbortError when cancelled. */
export async function ask(question, each, signal) {
  const response = await fetch("ask", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(question),
    signal,
  });
  if (!response.ok) throw new Refused(await response.json());
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const text of lines) {
      const line = JSON.parse(text);
      if (line.kind === "refused" || line.kind === "stopped") throw new Refused(line);
      each(line);
    }
  }
}

/** One request at a time; of those that come meanwhile only the latest is sent. */
export class Latest {
  constructor(send) {
    this.send = send;
    this.busy = false;
    this.next = null;
  }

  async put(item) {
    this.next = item;
    if (this.busy) return;
    this.busy = true;
    while (this.next !== null) {
      const now = this.next;
      this.next = null;
      await this.send(now);
    }
    this.busy = false;
  }
}

/** A map that forgets what was used longest ago. */
export class Remembered {
  constructor(most) {
    this.most = most;
    this.map = new Map();
  }

  get(key, make) {
    let found = this.map.get(key);
    if (found === undefined && make) found = make();
    if (found === undefined) return undefined;
    this.map.delete(key);
    this.map.set(key, found);
    if (this.map.size > this.most) this.map.delete(this.map.keys().next().value);
    return found;
  }
}
