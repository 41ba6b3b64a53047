// serve runs a server whose handler takes a Request and returns a Response, like the handler of a worker. The first line of
// the output is the URL of the server.
import { createServer } from 'node:http';
import { Readable } from 'node:stream';

export async function serve(handlerFor) {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${server.address().port}`;
  const handler = handlerFor(origin);
  server.on('request', async (req, res) => {
    const headers = new Headers();
    for (let i = 0; i < req.rawHeaders.length; i += 2) {
      headers.append(req.rawHeaders[i], req.rawHeaders[i + 1]);
    }
    const body = req.method === 'GET' || req.method === 'HEAD' ? undefined : Readable.toWeb(req);
    try {
      const response = await handler(new Request(origin + req.url, { method: req.method, headers, body, duplex: 'half' }));
      res.writeHead(response.status, [...response.headers].flat());
      res.end(Buffer.from(await response.arrayBuffer()));
    } catch (err) {
      console.error(err);
      res.writeHead(500).end();
    }
  });
  process.on('SIGTERM', () => process.exit(0));
  console.log(origin);
}

// loginForm returns a page with a form for the name and the password of a user.
export function loginForm(hidden = '') {
  return `<!doctype html><title>Log in</title><form method="post">${hidden}
<input name="username"><input name="password" type="password"><button>Log in</button></form>`;
}
