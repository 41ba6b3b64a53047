// Signs a delivery with standardwebhooks. Arguments: the secret, the id, and the body. Prints the header fields as a JSON object.
import { Webhook } from 'standardwebhooks';

const [secret, id, body] = process.argv.slice(2);
const now = new Date();
console.log(JSON.stringify({
  'webhook-id': id,
  'webhook-timestamp': String(Math.floor(now / 1000)),
  'webhook-signature': new Webhook(secret).sign(id, now, body),
}));
