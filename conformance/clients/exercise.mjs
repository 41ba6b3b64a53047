// What every official client does with the demo server. Prints one JSON object of what it saw; the Go test judges it.

export const answers = {
  elicit: (params) => ({ action: 'accept', content: params.message.startsWith('Deploy') ? { value: true } : { name: 'Ada' } }),
  sample: () => ({ model: 'test-model', role: 'assistant', content: { type: 'text', text: 'a summary' } }),
};

export async function exercise(client, onUpdate) {
  const text = (res) => res.content.map((c) => c.text).join('');
  const seen = {};
  seen.tools = (await client.listTools()).tools.map((t) => t.name);
  const sum = await client.callTool({ name: 'add', arguments: { a: 20, b: 22 } });
  seen.add = { text: text(sum), structured: sum.structuredContent ?? null };
  const wrong = await client.callTool({ name: 'roll_dice', arguments: { sides: 1 } }).catch((e) => ({ isError: true, content: [{ text: e.message }] }));
  seen.wrong = { isError: wrong.isError === true, text: text(wrong) };
  seen.who = (await client.callTool({ name: 'who_am_i', arguments: {} })).structuredContent;

  seen.progress = [];
  const counted = await client.callTool({ name: 'count', arguments: { steps: 3 } }, ...client.progressArgs((p) => seen.progress.push(p.progress)));
  seen.count = text(counted);

  seen.greet = text(await client.callTool({ name: 'greet', arguments: {} }));
  seen.deploy = text(await client.callTool({ name: 'deploy', arguments: { environment: 'staging' } }));
  seen.summarize = text(await client.callTool({ name: 'summarize', arguments: { text: 'long' } }));

  seen.resources = (await client.listResources()).resources.map((r) => r.uri);
  seen.templates = (await client.listResourceTemplates()).resourceTemplates.map((r) => r.uriTemplate);
  seen.read = (await client.readResource({ uri: 'demo://cities/japan/kyoto' })).contents[0].text;
  seen.guide = (await client.readResource({ uri: 'demo://guide/welcome.md' })).contents[0].mimeType;
  seen.missing = await client.readResource({ uri: 'demo://nowhere' }).then(() => 'found', (e) => e.code);

  seen.prompts = (await client.listPrompts()).prompts.map((p) => p.name);
  seen.prompt = (await client.getPrompt({ name: 'review', arguments: { language: 'go', code: 'x := 1' } })).messages[0].content.text;
  seen.languages = (await client.complete({ ref: { type: 'ref/prompt', name: 'review' }, argument: { name: 'language', value: 'p' } })).completion.values;
  seen.cities = (await client.complete({
    ref: { type: 'ref/resource', uri: 'demo://cities/{country}/{city}' },
    argument: { name: 'city', value: '' }, context: { arguments: { country: 'japan' } },
  })).completion.values;

  const updated = new Promise((resolve, reject) => {
    onUpdate(resolve);
    setTimeout(() => reject(new Error('no update within 5 s')), 5000).unref();
  });
  await client.watch('demo://counter');
  await client.callTool({ name: 'increment', arguments: {} });
  seen.updated = await updated;
  return seen;
}

export async function main(connect) {
  const [kind, ...target] = process.argv.slice(2);
  const { client, onUpdate, close } = await connect(kind, target);
  const seen = await exercise(client, onUpdate);
  console.log(JSON.stringify(seen));
  await close();
  process.exit(0);
}
