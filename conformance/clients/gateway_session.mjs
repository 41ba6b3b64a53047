// The official TypeScript SDK of the session era, for gateway.mjs.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema, LoggingMessageNotificationSchema,
  ResourceListChangedNotificationSchema, ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { main } from './gateway.mjs';

await main(async (plan, h) => {
  const client = new Client({ name: 'typescript-session', version: '1' },
    { capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } } });
  client.setRequestHandler(ElicitRequestSchema, async (r) => h.elicit(r.params));
  client.setRequestHandler(CreateMessageRequestSchema, async (r) => h.sample(r.params));
  client.setRequestHandler(ListRootsRequestSchema, async () => h.roots());
  client.setNotificationHandler(LoggingMessageNotificationSchema, (n) => { h.log(n.params); });
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, (n) => { h.update(n.params); });
  client.setNotificationHandler(ResourceListChangedNotificationSchema, () => { h.change(); });
  const transport = plan.kind === 'http'
    ? new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers: plan.key ? { Authorization: `Bearer ${plan.key}` } : {} } })
    : new StdioClientTransport({ command: plan.command[0], args: plan.command.slice(1), env: process.env, stderr: 'inherit' });
  await client.connect(transport);
  return {
    client,
    peer: () => ({ revision: transport.protocolVersion ?? transport._protocolVersion ?? '2025-11-25', server: client.getServerVersion() }),
    call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
    setLevel: (level) => client.setLoggingLevel(level),
    watch: (uris) => Promise.all(uris.map((uri) => client.subscribeResource({ uri }))),
    unwatch: (uri) => client.unsubscribeResource({ uri }),
  };
});
