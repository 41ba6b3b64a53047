// What the official TypeScript SDK's client does with tasks of 2025-11-25. Prints one JSON object of what it saw; the Go test
// judges it. The arguments are `http <url>` or `stdio <command> <args…>`.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CallToolResultSchema, CreateTaskResultSchema, CreateMessageRequestSchema, ElicitRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

const related = 'io.modelcontextprotocol/related-task';
const [kind, ...target] = process.argv.slice(2);
const transport = (who) => (kind === 'http'
  ? new StreamableHTTPClientTransport(new URL(target[0]), { requestInit: { headers: { Authorization: who } } })
  : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env, stderr: 'inherit' }));

const seen = { asked: [] };
let answer = () => ({ action: 'accept', content: { value: true } });
async function connect(who) {
  const client = new Client({ name: 'typescript-tasks', version: '1' }, { capabilities: { elicitation: { form: {} }, sampling: {} } });
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    seen.asked.push({ message: params.message, task: params._meta?.[related]?.taskId });
    return answer(params);
  });
  client.setRequestHandler(CreateMessageRequestSchema, async ({ params }) => {
    seen.asked.push({ message: 'sampling', task: params._meta?.[related]?.taskId });
    return { model: 'm', role: 'assistant', content: { type: 'text', text: 'a haiku' } };
  });
  await client.connect(transport(who));
  return client;
}

const client = await connect('ann');
const tasks = client.experimental.tasks;
const text = (result) => result.content.map((c) => c.text).join('');
const code = (promise) => promise.then(() => 0, (e) => e.code);

// run calls a tool as a task and waits for it.
async function run(name, args, options, onTask = () => {}) {
  const at = { statuses: [] };
  const stream = tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, { task: { ttl: 60000 }, ...options });
  for await (const m of stream) {
    if (m.type === 'taskCreated') {
      at.task = m.task;
      await onTask(m.task);
    } else if (m.type === 'taskStatus') {
      if (at.statuses.at(-1) !== m.task.status) at.statuses.push(m.task.status);
      at.last = m.task;
    } else if (m.type === 'result') {
      at.text = text(m.result);
      at.isError = m.result.isError === true;
      at.related = m.result._meta?.[related]?.taskId;
    } else {
      at.error = m.error.message;
    }
  }
  return at;
}

const create = (name, args, task = {}) => client.request({ method: 'tools/call', params: { name, arguments: args, task } }, CreateTaskResultSchema);
const ended = async (id) => {
  for (;;) {
    const task = await tasks.getTask(id);
    if (['completed', 'failed', 'cancelled'].includes(task.status)) return task;
    await new Promise((resolve) => setTimeout(resolve, task.pollInterval));
  }
};

seen.capability = client.getServerCapabilities().tasks;
seen.extensions = client.getServerCapabilities().extensions ?? null;
seen.support = Object.fromEntries((await client.listTools()).tools.map((t) => [t.name, t.execution?.taskSupport ?? '']));

seen.slow = await run('slow', { label: 'one' });
if (seen.slow.error) throw new Error(seen.slow.error);
seen.slowAgain = await tasks.getTask(seen.slow.task.taskId);
const progress = [];
const pending = await client.request({ method: 'tools/call', params: { name: 'slow', arguments: { label: 'two' }, task: {} } },
  CreateTaskResultSchema, { onprogress: (p) => progress.push(p.progress) });
seen.waited = text(await tasks.getTaskResult(pending.task.taskId, CallToolResultSchema)); // blocks
seen.progress = progress;
seen.direct = text(await client.callTool({ name: 'slow', arguments: { label: 'direct' } }));

seen.confirm = await run('confirm', { file: 'a.txt' });
answer = () => ({ action: 'decline' });
seen.declined = await run('confirm', { file: 'b.txt' });
answer = () => ({ action: 'accept', content: { value: true } });
seen.many = await run('many', { questions: 40 });
seen.haiku = await run('haiku', {});

const open = (await create('confirm', { file: 'c.txt' })).task.taskId; // asked, and cancelled while its user thinks
let dismissed;
const thinks = new Promise((resolve) => { dismissed = resolve; });
const shown = new Promise((resolve) => { answer = () => { resolve(); return thinks; }; });
const blocked = tasks.getTaskResult(open, CallToolResultSchema).then(() => 'a result', (e) => `error ${e.code}`);
await shown;
seen.cancelledOpen = (await tasks.cancelTask(open)).status;
seen.blocked = await blocked;
dismissed({ action: 'cancel' });

seen.cancelled = await run('forever', {}, {}, async (task) => { seen.cancel = await tasks.cancelTask(task.taskId); });
seen.cancelTwice = await code(tasks.cancelTask(seen.cancelled.task.taskId));
seen.cancelledResult = await code(tasks.getTaskResult(seen.cancelled.task.taskId, CallToolResultSchema));

const failing = (await create('fail_tool', {})).task.taskId;
seen.failedTool = await ended(failing);
const failure = await tasks.getTaskResult(failing, CallToolResultSchema);
seen.failedToolResult = { isError: failure.isError, text: text(failure), related: failure._meta?.[related]?.taskId };
const broken = (await create('fail_protocol', {})).task.taskId;
seen.failedProtocol = await ended(broken);
seen.failedProtocolResult = await code(tasks.getTaskResult(broken, CallToolResultSchema));
const late = (await create('forever', {}, { ttl: 1000 })).task;
seen.ttl = late.ttl;
seen.expired = (await ended(late.taskId)).status;

const raw = (params) => code(client.request({ method: 'tools/call', params }, CallToolResultSchema));
seen.required = (await run('must', {})).text;
seen.requiredWithout = await raw({ name: 'must', arguments: {} });
seen.forbidden = await raw({ name: 'plain', arguments: {}, task: {} });
seen.unknown = await code(tasks.getTask('no-such-task'));

// A call that is cancelled after it has become a task, and the session that it was made in, take nothing with them.
const outlives = (await create('slow', { label: 'outlives' })).task.taskId;
if (seen.capability.list) {
  const list = await tasks.listTasks();
  seen.listed = list.tasks.map((t) => t.taskId);
  seen.badCursor = await code(tasks.listTasks('nonsense'));
  const bob = await connect('bob');
  const his = bob.experimental.tasks;
  seen.bob = {
    list: (await his.listTasks()).tasks.length,
    get: await code(his.getTask(outlives)), cancel: await code(his.cancelTask(outlives)),
    result: await code(his.getTaskResult(outlives, CallToolResultSchema)),
  };
  await bob.close();
  await client.transport.terminateSession();
  await client.close();
  const again = await connect('ann');
  seen.outlived = text(await again.experimental.tasks.getTaskResult(outlives, CallToolResultSchema));
  seen.made = [seen.slow.task.taskId, open, failing, broken, late.taskId, outlives];
  await again.close();
} else {
  seen.list = await code(tasks.listTasks());
  await client.close();
}
console.log(JSON.stringify(seen));
process.exit(0);
