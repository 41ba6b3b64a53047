// The official TypeScript client of 2026-07-28, which finds the era by itself, for gateway.mjs.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { levelOf, main } from './gateway.mjs';

await main(async (plan, h) => {
  const client = new Client({ name: 'typescript-modern', version: '1' },
    { capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }, versionNegotiation: { mode: 'auto' } });
  client.setRequestHandler('elicitation/create', async (r) => h.elicit(r.params));
  client.setRequestHandler('sampling/createMessage', async (r) => h.sample(r.params));
  client.setRequestHandler('roots/list', async () => h.roots());
  client.setNotificationHandler('notifications/message', (n) => { h.log(n.params); });
  client.setNotificationHandler('notifications/resources/updated', (n) => { h.update(n.params); });
  client.setNotificationHandler('notifications/resources/list_changed', () => { h.change(); });
  const transport = plan.kind === 'http'
    ? new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers: plan.key ? { Authorization: `Bearer ${plan.key}` } : {} } })
    : new StdioClientTransport({ command: plan.command[0], args: plan.command.slice(1), env: process.env, stderr: 'inherit' });
  await client.connect(transport);
  const modern = client.getProtocolEra?.() === 'modern';
  let meta, open;
  return {
    client,
    peer: () => ({ revision: client.getNegotiatedProtocolVersion?.(), server: client.getServerVersion() }),
    call: (name, args, options) => client.callTool({ name, arguments: args, _meta: meta }, options),
    setLevel: async (level) => { if (modern) meta = levelOf(level); else await client.setLoggingLevel(level); },
    watch: async (uris, lists) => { open = await client.listen({ resourceSubscriptions: uris, resourcesListChanged: lists }); },
    unwatch: () => open.close(),
  };
});
