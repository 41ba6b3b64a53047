// An MCP client with the webhook receiver of @ai-sdk/mcp, whose deliveries standardwebhooks verifies too. Arguments: the URL of the MCP
// server, and the https URL that leads to this process. Prints where it listens, and a JSON object for each thing that happens; the Go test
// judges them. It refreshes its subscription when a line arrives, and unsubscribes at the end of its input.
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { createMCPClient, experimental_createMCPEventWebhook as createWebhook } from '@ai-sdk/mcp';
import { Webhook } from 'standardwebhooks';

const [mcpURL] = process.argv.slice(2);
const report = (what) => console.log(JSON.stringify(what));

const subscriptions = new Map();
const store = {
  get: async (key) => subscriptions.get(key),
  getById: async (id) => [...subscriptions.values()].find((s) => s.id === id),
  set: async (s) => void subscriptions.set(s.key, s),
  update: async (key, patch) => void subscriptions.set(key, { ...subscriptions.get(key), ...patch }),
  delete: async (key) => void subscriptions.delete(key),
};

const handle = createWebhook({
  store,
  onEvent: async ({ event }) => report({ event: event.eventId, data: event.data, cursor: event.cursor }),
  onGap: async ({ gap }) => report({ gap: gap.cursor }),
  onTerminated: async ({ termination }) => report({ terminated: termination.error.code }),
  onError: (error) => report({ error: String(error) }),
});

const server = createServer(async (req, res) => {
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const [subscription] = subscriptions.values();
  try {
    new Webhook(subscription.delivery.secret).verify(body, req.headers);
  } catch (error) {
    report({ standardwebhooks: String(error) });
  }
  const response = await handle(new Request(`https://${req.headers.host}${req.url}`, { method: req.method, headers: req.headers, body }));
  res.writeHead(response.status, Object.fromEntries(response.headers)).end(Buffer.from(await response.arrayBuffer()));
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
console.log(`http://127.0.0.1:${server.address().port}`);

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const callback = (await lines.next()).value;
const client = await createMCPClient({ transport: { type: 'http', url: mcpURL }, experimental_events: { store } });
const events = client.experimental_events;
report({ listed: (await events.list()).events.map((e) => `${e.name} ${e.delivery}`) });
const { id } = await events.subscribe({ name: 'order.paid', arguments: { min: 2 }, delivery: { mode: 'webhook', url: callback }, ttlMs: 600000 });
report({ subscribed: id });
for (;;) {
  const { value, done } = await lines.next();
  if (done || value === 'end') break;
  const refreshed = await events.refresh({ id });
  report({ refreshed: refreshed.id, cursor: refreshed.cursor });
}
if (subscriptions.size > 0) await events.unsubscribe({ id });
report({ left: subscriptions.size });
await client.close();
process.exit(0);
