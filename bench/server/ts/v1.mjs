// The official TypeScript SDK, version 1, as a server under test: the session era, a transport and a server for each session.
import { randomUUID } from 'node:crypto';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { addTools, main, note, options } from './rig.mjs';

function newServer() {
  const server = new McpServer({ name: 'ts-v1', version: '1.0.0' });
  addTools(server, { v1: true, notify: (extra, n, of) => extra.sendNotification(note(extra._meta.progressToken, n, of)) });
  return server;
}

const sessions = new Map();

async function handle(req, res) {
  let transport = sessions.get(req.headers['mcp-session-id']);
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      enableJsonResponse: !options.sse,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await newServer().connect(transport);
  }
  await transport.handleRequest(req, res);
}

await main({ handle, stdio: () => newServer().connect(new StdioServerTransport()) });
