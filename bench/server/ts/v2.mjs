// The official TypeScript SDK, version 2, as a server under test: stateless in the modern era, which makes a server for each
// request, and a transport and a server for each session in the other one.
import { randomUUID } from 'node:crypto';
import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { addTools, main, note, options } from './rig.mjs';

function newServer() {
  const server = new McpServer({ name: 'ts-v2', version: '1.0.0' });
  addTools(server, { notify: (ctx, n, of) => ctx.mcpReq.notify(note(ctx.mcpReq._meta.progressToken, n, of)) });
  return server;
}

const modern = toNodeHandler(createMcpHandler(newServer, { legacy: 'reject', responseMode: options.sse ? 'sse' : 'auto' }));
const sessions = new Map();

async function inSession(req, res) {
  let transport = sessions.get(req.headers['mcp-session-id']);
  if (!transport) {
    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      enableJsonResponse: !options.sse,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await newServer().connect(transport);
  }
  await transport.handleRequest(req, res);
}

await main({ handle: options.era === 'modern' ? modern : inSession, stdio: () => serveStdio(newServer) });
