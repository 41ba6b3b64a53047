// A server of the official TypeScript SDK whose tools run as tasks of 2025-11-25. The first line is its URL; with --stdio it
// serves one client on its standard streams.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { z } from 'zod';
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { InMemoryTaskMessageQueue, InMemoryTaskStore } from '@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js';
import { CreateTaskResultSchema, ElicitResultSchema } from '@modelcontextprotocol/sdk/types.js';

const text = (value, more) => ({ content: [{ type: 'text', text: value }], ...more });
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const store = new InMemoryTaskStore();
const form = { type: 'object', properties: { value: { type: 'boolean' } }, required: ['value'] };

function newServer() {
  const s = new McpServer({ name: 'typescript-tasks', version: '1.0.0' },
    { capabilities: { tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } }, taskStore: store, taskMessageQueue: new InMemoryTaskMessageQueue() });
  s.registerTool('plain', {}, () => text('plain'));
  s.registerTool('survey', {}, async (extra) => text(JSON.stringify(await survey(s.server, { relatedRequestId: extra.requestId }))));

  // A tool whose handler runs after its task was made. What it throws fails the task.
  const tool = (name, taskSupport, inputSchema, f) => s.experimental.tasks.registerToolTask(name, { inputSchema, execution: { taskSupport } }, {
    createTask: async (args, extra) => {
      const task = await extra.taskStore.createTask({ ttl: extra.taskRequestedTtl ?? 60000, pollInterval: 50 });
      const progressToken = extra._meta?.progressToken;
      const run = {
        relatedTask: { taskId: task.taskId },
        ask: async (message) => {
          await extra.taskStore.updateTaskStatus(task.taskId, 'input_required');
          const r = await s.server.request({ method: 'elicitation/create', params: { mode: 'form', message, requestedSchema: form } },
            ElicitResultSchema, { relatedTask: run.relatedTask });
          await extra.taskStore.updateTaskStatus(task.taskId, 'working');
          return r;
        },
        progress: (n) => progressToken !== undefined && s.server.notification(
          { method: 'notifications/progress', params: { progressToken, progress: n, total: 3 } }, { relatedTask: run.relatedTask }),
        over: async () => ['cancelled', 'failed', 'completed'].includes((await extra.taskStore.getTask(task.taskId)).status),
      };
      (async () => {
        const result = await f(args, run);
        if (!await run.over()) await extra.taskStore.storeTaskResult(task.taskId, result.isError ? 'failed' : 'completed', result);
      })().catch((e) => console.error(name, e));
      return { task };
    },
    getTask: (_args, extra) => extra.taskStore.getTask(extra.taskId),
    getTaskResult: (_args, extra) => extra.taskStore.getTaskResult(extra.taskId),
  });
  tool('slow', 'optional', { label: z.string() }, async ({ label }, run) => {
    for (let i = 1; i <= 3; i++) {
      await sleep(60);
      await run.progress(i);
    }
    return text(`slow: ${label}`);
  });
  tool('must', 'required', {}, async () => {
    await sleep(120);
    return text('as a task');
  });
  tool('confirm', 'required', { file: z.string() }, async ({ file }, run) => {
    const r = await run.ask(`Delete ${file}?`);
    return text(r.action === 'accept' && r.content.value ? `deleted ${file}` : `kept ${file}`);
  });
  tool('twice', 'required', {}, async (_args, run) => {
    const first = await run.ask('First?');
    await sleep(100);
    const second = await run.ask('Second?');
    return text(`${first.action} ${second.action}`);
  });
  tool('fail_tool', 'required', {}, async () => text('it failed, as it should', { isError: true }));
  tool('forever', 'required', {}, async (_args, run) => {
    while (!await run.over()) await sleep(20);
    return text('over');
  });
  return s;
}

// survey asks its client by tasks of the client, and gives what came of them.
async function survey(server, on) {
  const tasks = server.experimental.tasks;
  const code = (promise) => promise.then(() => 0, (e) => e.code);
  const follow = async (stream) => {
    const seen = { statuses: [] };
    for await (const m of stream) {
      if (m.type === 'result') seen.result = m.result;
      else if (m.type === 'error') seen.error = m.error.message;
      else {
        seen.statuses.push(m.task.status);
        seen.task = m.task;
      }
    }
    return seen;
  };
  const question = (message) => ({ mode: 'form', message, requestedSchema: form });
  const asTask = { ...on, task: { ttl: 30000 } };
  const seen = { capability: server.getClientCapabilities().tasks };
  seen.user = await follow(tasks.elicitInputStream(question('Sure?'), asTask));
  seen.model = await follow(tasks.createMessageStream(
    { messages: [{ role: 'user', content: { type: 'text', text: 'A haiku, please.' } }], maxTokens: 50 }, asTask));
  seen.refused = await follow(tasks.elicitInputStream(question('Fail?'), asTask));

  const { task } = await server.request({ method: 'elicitation/create', params: question('For ever?') }, CreateTaskResultSchema, asTask);
  await server.elicitInput(question('Is it asked?'), on); // and an ordinary question meanwhile
  const blocked = code(tasks.getTaskResult(task.taskId, ElicitResultSchema, on));
  seen.cancelled = (await tasks.cancelTask(task.taskId, on)).status;
  seen.codes = [await blocked, await code(tasks.cancelTask(task.taskId, on)), await code(tasks.getTask('no-such-task', on)),
    await code(tasks.listTasks('no-such-cursor', on))];
  seen.list = (await tasks.listTasks(undefined, on)).tasks.map((t) => t.status);
  return seen;
}

if (process.argv.includes('--stdio')) {
  await newServer().connect(new StdioServerTransport());
  process.stdin.on('end', () => process.exit(0)); // tasks that are kept would keep the process
} else {
  const app = createMcpExpressApp();
  const sessions = new Map();
  app.all('/mcp', async (req, res) => {
    let transport = sessions.get(req.headers['mcp-session-id']);
    if (!transport) {
      if (req.headers['mcp-session-id']) {
        res.status(404).json({ jsonrpc: '2.0', error: { code: -32001, message: 'Session not found' }, id: null });
        return;
      }
      transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized: (id) => sessions.set(id, transport) });
      await newServer().connect(transport);
    }
    await transport.handleRequest(req, res, req.body);
  });
  const server = createServer(app);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  console.log(`http://127.0.0.1:${server.address().port}/mcp`);
}
process.on('SIGTERM', () => process.exit(0));
