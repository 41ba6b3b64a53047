// What every official TypeScript client does with the servers behind a gateway, or with one of these servers. The first argument is
// a JSON object: {kind: 'http' | 'stdio', url, key, command, root, id, servers: [{name, is}], plain}. Prints one JSON object of what
// the client saw; the Go test judges it. gateway_exercise_test.go does the same with the clients of the Go SDKs.
import { writeFileSync } from 'node:fs';

const logLevel = 'io.modelcontextprotocol/logLevel';
const text = (result) => result.content.map((c) => c.text ?? '').join('\n');
const failure = (e) => `${e.code}: ${e.message}`;

// answer fills in the required fields of a form, and accepts every page.
function answer(params) {
  if (params.mode === 'url') return { action: 'accept' };
  const content = {};
  for (const name of params.requestedSchema.required ?? []) {
    const { type, format } = params.requestedSchema.properties[name];
    content[name] = type === 'boolean' ? true : type === 'string' ? (format === 'email' ? 'ada@example.com' : 'Ada') : 7;
  }
  return { action: 'accept', content };
}

// host returns the handlers of a client, and records what they get.
export function host(plan) {
  const asked = [], logs = [], updated = [], changed = [];
  return {
    asked, logs, updated, changed,
    elicit: (params) => { asked.push(`${params.mode ?? 'form'}: ${params.message}${params.url ? ` ${params.url}` : ''}`); return answer(params); },
    sample: () => {
      asked.push('sampling');
      return { model: 'test-model', role: 'assistant', content: { type: 'text', text: 'a summary' }, stopReason: 'endTurn' };
    },
    roots: () => ({ roots: [{ uri: plan.root, name: 'area' }] }),
    log: (params) => logs.push(`${params.level} ${params.logger ?? ''}: ${JSON.stringify(params.data)}`),
    update: (params) => updated.push(params.uri),
    change: () => changed.push('resources'),
  };
}

async function until(what, met) {
  for (const end = Date.now() + 20000; Date.now() < end;) {
    if (await met()) return true;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  console.error(`within 20 s: no ${what}`);
  return false;
}

async function all(list, key) {
  const items = [];
  for (let cursor; ;) {
    const page = await list(cursor === undefined ? undefined : { cursor });
    items.push(...page[key]);
    cursor = page.nextCursor;
    if (cursor === undefined) return items;
  }
}

// exercise uses everything. c has the official client and what differs between the two.
async function exercise(plan, h, c) {
  const { client } = c;
  const seen = { ...c.peer(), instructions: client.getInstructions() ?? '', servers: {} };
  await until('tools of all servers', async () => { // servers that start slowly are listed later
    seen.tools = (await all((p) => client.listTools(p), 'tools')).map((t) => t.name);
    return plan.plain || plan.servers.every((s) => seen.tools.some((t) => t.startsWith(`${s.name}__`)));
  });
  seen.prompts = (await all((p) => client.listPrompts(p), 'prompts')).map((t) => t.name);
  seen.resources = (await all((p) => client.listResources(p), 'resources')).map((t) => t.uri);
  seen.templates = (await all((p) => client.listResourceTemplates(p), 'resourceTemplates')).map((t) => t.uriTemplate);
  await c.setLevel('debug');
  for (const { name, is } of plan.servers) {
    const item = (original) => { // a name of more than 48 characters ends in a hash
      const full = plan.plain ? original : `${name}__${original}`;
      return seen.tools.find((t) => t.length === 48 && full.length > 48 && t.startsWith(`${full.slice(0, 41)}_`)) ?? full;
    };
    const call = (tool, args = {}, options = {}) => c.call(item(tool), args, options);
    const mapped = `patchbay://${name}/`;
    const uri = (original) => seen.resources.find((u) => u.startsWith(mapped) && decodeURIComponent(u.slice(mapped.length)) === original) ?? original;
    const template = (original) => seen.templates.find((u) => u === mapped + original) ?? original;
    const before = h.asked.length;
    const parts = { everything, filesystem, memory, thinking, fixtures };
    seen.servers[name] = await parts[is]({ plan, h, c, client, name, item, call, uri, template });
    seen.servers[name].asked = h.asked.slice(before);
  }
  seen.unknown = await c.call('no_such_tool', {}).then((r) => `${r.isError}: ${text(r)}`, failure);
  return seen;
}

async function everything({ plan, h, c, client, name, item, call, uri, template }) {
  const seen = {};
  seen.echo = text(await call('echo', { message: `hé from ${plan.id}` }));
  seen.sum = text(await call('get-sum', { a: 20, b: 22 }));
  seen.structured = (await call('get-structured-content', { location: 'Chicago' })).structuredContent;
  seen.image = (await call('get-tiny-image')).content.filter((p) => p.type === 'image').map((p) => p.mimeType);
  seen.links = (await call('get-resource-links', { count: 3 })).content.filter((p) => p.type === 'resource_link').map((p) => p.uri);
  seen.wrong = await call('get-sum', { a: 'x' }).then((r) => r.isError === true, () => true);

  // A log message is sent while the call runs; where it arrives otherwise is not defined.
  seen.progress = [];
  let toggled;
  seen.long = text(await call('trigger-long-running-operation', { duration: 0.6, steps: 3 }, {
    onprogress: (p) => { // the client of 2026-07-28 adds one without a total when it is asked something
      if (p.total) seen.progress.push(p.progress / p.total);
      toggled ??= call('toggle-simulated-logging');
    },
  }));
  await toggled;
  seen.logged = await until(`log message of ${name}`, () => h.logs.some((l) => l.includes('essage')));
  h.logs.length = 0;
  await call('toggle-simulated-logging');

  const stop = new AbortController();
  seen.cancelled = await call('trigger-long-running-operation', { duration: 2, steps: 20 },
    { onprogress: () => stop.abort(), signal: stop.signal }).then(() => 'a result', () => 'cancelled');
  seen.afterwards = text(await call('echo', { message: 'still there' }));

  seen.form = text(await call('trigger-elicitation-request'));
  seen.page = text(await call('trigger-url-elicitation', { url: 'https://example.com/consent', message: 'Please consent.' }));
  seen.sample = text(await call('trigger-sampling-request', { prompt: 'hello' }));
  seen.roots = text(await call('get-roots-list'));
  if (plan.plain) {
    seen.async = text(await call('trigger-sampling-request-async', { prompt: 'hello' }));
    h.asked.pop(); // as the one before
  }

  const document = uri('demo://resource/static/document/features.md');
  const read = (await client.readResource({ uri: document })).contents[0];
  seen.read = { asked: document, uri: read.uri, mimeType: read.mimeType, length: read.text.length };
  const blobs = template('demo://resource/dynamic/blob/{resourceId}');
  const blob = (await client.readResource({ uri: blobs.replace('{resourceId}', '7') })).contents[0];
  seen.blob = Buffer.from(blob.blob, 'base64').toString().split(':')[0];
  seen.missing = await client.readResource({ uri: 'demo://nowhere' }).then(() => 0, (e) => e.code);
  seen.prompt = (await client.getPrompt({ name: item('args-prompt'), arguments: { city: 'Kyoto' } })).messages[0].content.text;
  seen.completion = (await client.complete({
    ref: { type: 'ref/prompt', name: item('completable-prompt') }, argument: { name: 'name', value: 'A' },
    context: { arguments: { department: 'Engineering' } },
  })).completion.values;
  seen.templateCompletion = (await client.complete({
    ref: { type: 'ref/resource', uri: template('demo://resource/dynamic/text/{resourceId}') }, argument: { name: 'resourceId', value: '7' },
  })).completion.values;

  await c.watch([document], true);
  await call('toggle-subscriber-updates');
  seen.updated = await until(`update from ${name}`, () => h.updated.includes(document));
  await call('toggle-subscriber-updates');
  const file = `${plan.id}.gz`;
  h.changed.length = 0;
  seen.made = (await call('gzip-file-as-resource', { name: file, data: 'data:text/plain,hi', outputType: 'resourceLink' })).content[0].uri;
  seen.changed = await until(`list change from ${name}`, () => h.changed.length > 0);
  seen.listed = await until(`new resource of ${name}`, async () =>
    (await all((p) => client.listResources(p), 'resources')).some((r) => r.name === file || r.uri === seen.made));
  await c.unwatch(document);
  return seen;
}

async function filesystem({ plan, call }) {
  const dir = plan.root.slice('file://'.length);
  const path = `${dir}/${plan.id}.txt`;
  writeFileSync(path, 'hé\nllo');
  const read = await call('read_text_file', { path });
  return {
    allowed: text(await call('list_allowed_directories')).includes(dir),
    written: text(await call('write_file', { path: `${dir}/${plan.id}-new.txt`, content: 'new' })),
    read: read.structuredContent?.content ?? text(read),
    denied: (await call('read_text_file', { path: '/etc/passwd' })).isError === true,
  };
}

async function memory({ plan, call }) {
  const entity = { name: plan.id, entityType: 'person', observations: [`writes ${plan.id}`] };
  await call('create_entities', { entities: [entity] });
  return { found: text(await call('search_nodes', { query: `writes ${plan.id}` })) };
}

async function thinking({ call }) {
  const thought = { thought: 'First.', nextThoughtNeeded: true, thoughtNumber: 1, totalThoughts: 2 };
  return { thought: (await call('sequentialthinking', thought)).structuredContent };
}

// fixtures is the server of the conformance suites, ../server.
async function fixtures({ h, c, client, call, item }) {
  const seen = { progress: [] };
  seen.simple = text(await call('test_simple_text'));
  await call('test_tool_with_progress', {}, { onprogress: (p) => seen.progress.push(p.progress) });
  h.logs.length = 0;
  await call('test_tool_with_logging');
  seen.logged = await until('log messages', () => h.logs.length >= 3);
  seen.form = text(await call('test_elicitation', { message: 'Who are you?' }));
  seen.rounds = text(await call('test_input_required_result_multi_round'));
  seen.three = text(await call('test_input_required_result_multiple_inputs'));
  seen.sample = text(await call('test_sampling', { prompt: 'hello' }));
  seen.roots = text(await call('test_input_required_result_list_roots'));
  seen.failed = (await call('test_error_handling')).isError === true;
  seen.read = (await client.readResource({ uri: 'test://static-text' })).contents[0].text;
  seen.template = (await client.readResource({ uri: 'test://template/7/data' })).contents[0].text;
  seen.prompt = (await client.getPrompt({ name: item('test_prompt_with_arguments'), arguments: { arg1: 'a', arg2: 'b' } })).messages[0].content.text;
  seen.completion = (await client.complete({
    ref: { type: 'ref/prompt', name: item('test_prompt_with_arguments') }, argument: { name: 'arg1', value: 'test' },
  })).completion.values;
  return seen;
}

export const levelOf = (level) => ({ [logLevel]: level });

export async function main(connect) {
  const plan = JSON.parse(process.argv[2]);
  const h = host(plan);
  const c = await connect(plan, h);
  console.log(JSON.stringify(await exercise(plan, h, c)));
  await c.client.close();
  process.exit(0);
}
