// trust.js contains the only Trusted Types policy of the console and the only parser of HTML. A fragment
// is HTML that the server rendered; an element or attribute that could run code is refused all the same.

const policy = globalThis.trustedTypes
  ? trustedTypes.createPolicy("console", { createHTML: (html) => html })
  : { createHTML: (html) => html };

const refusedElements = new Set(["SCRIPT", "IFRAME", "FRAME", "OBJECT", "EMBED", "STYLE", "LINK", "META", "BASE",
  "TEMPLATE", "FRAMESET", "PORTAL", "FENCEDFRAME"]);
// address matches relative URLs, URLs that run no code, and the URL that templ writes for a refused URL.
const address = /^(https?:|mailto:|data:(image|audio)\/|blob:|about:invalid#TemplFailedSanitizationURL$|[/?#]|$)/i;
const addresses = new Set(["href", "src", "action", "formaction", "xlink:href", "poster", "data", "srcset", "ping"]);

function check(element) {
  if (refusedElements.has(element.nodeName.toUpperCase())) {
    throw new Error(`refused a fragment with the element ${element.nodeName}`);
  }
  for (const { name, value } of element.attributes) {
    const lower = name.toLowerCase();
    if (lower.startsWith("on") || lower === "style" || lower === "srcdoc") {
      throw new Error(`refused a fragment with the attribute ${name}`);
    }
    if (addresses.has(lower) && !address.test(value)) {
      throw new Error(`refused a fragment with the address ${value}`);
    }
  }
}

// parse returns the single element of a fragment. The document that contains it runs nothing.
export function parse(html) {
  const parsed = new DOMParser().parseFromString(policy.createHTML(`<template>${html}</template>`), "text/html");
  const content = parsed.querySelector("template").content;
  if (content.childElementCount !== 1) {
    throw new Error("refused a fragment: must be one element");
  }
  const root = content.firstElementChild;
  check(root);
  for (const element of root.querySelectorAll("*")) {
    check(element);
  }
  return document.importNode(root, true);
}
