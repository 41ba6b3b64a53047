package schema

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// rootURI is the base URI of a schema without $id. No URI is ever fetched.
var rootURI = url.URL{Scheme: "schema", Path: "/"}

// A resource is a schema with a URI: the root, and each subschema with an $id.
type resource struct {
	uri     *url.URL
	raw     []byte
	anchors map[string][]byte // text by name
	dynamic map[string]*node  // by name of $dynamicAnchor
}

func (c *compiler) addResource(uri *url.URL, raw []byte) *resource {
	r := &resource{uri: uri, raw: raw, anchors: map[string][]byte{}, dynamic: map[string]*node{}}
	c.resources[uri.String()] = r
	return r
}

// identify records the URI and the anchors of the schema at raw.
func (c *compiler) identify(n *node, raw []byte) error {
	if value, ok := jsonscan.Get(raw, "$id"); ok {
		id, err := parseURI(value)
		if err != nil {
			return at("$id", err)
		}
		anchor := id.Fragment
		id.Fragment, id.RawFragment = "", ""
		if *id != (url.URL{}) {
			uri := n.home.uri.ResolveReference(id)
			if c.resources[uri.String()] != nil {
				return at("$id", fmt.Errorf("%.200q occurs twice", uri))
			}
			n.home = c.addResource(uri, raw)
		}
		if anchor != "" {
			if !c.draft7 {
				return at("$id", fmt.Errorf("%.200q has a fragment, want $anchor", anchor))
			}
			n.home.anchors[anchor] = raw
		}
	}
	for _, key := range []string{"$anchor", "$dynamicAnchor"} {
		value, ok := jsonscan.Get(raw, key)
		if !ok || c.draft7 {
			continue
		}
		name, err := stringValue(value)
		if err != nil {
			return at(key, err)
		}
		if n.home.anchors[name] != nil {
			return at(key, fmt.Errorf("%.200q occurs twice", name))
		}
		n.home.anchors[name] = raw
		if key == "$dynamicAnchor" {
			n.home.dynamic[name] = n
		}
	}
	return nil
}

func parseURI(raw []byte) (*url.URL, error) {
	text, err := stringValue(raw)
	if err != nil {
		return nil, err
	}
	return url.Parse(text)
}

// A reference is a $ref or $dynamicRef, which is resolved when all names are known.
type reference struct {
	from    *node
	uri     *url.URL
	text    string
	dynamic bool
}

func (c *compiler) addReference(n *node, raw []byte, dynamic bool) error {
	uri, err := parseURI(raw)
	if err != nil {
		return err
	}
	c.references = append(c.references, reference{n, n.home.uri.ResolveReference(uri), string(raw), dynamic})
	return nil
}

// resolveReferences resolves the references. Compiling a target may add more references.
func (c *compiler) resolveReferences() error {
	for i := 0; i < len(c.references); i++ {
		r := c.references[i]
		target, err := c.target(r)
		if err != nil {
			return err
		}
		ref := resolvedReference{target: target}
		if r.dynamic && target.home.dynamic[r.uri.Fragment] == target {
			ref.dynamic, c.dynamic = r.uri.Fragment, true
		}
		rules := r.from.compounds()
		rules.refs = append(rules.refs, ref)
	}
	return nil
}

func (c *compiler) target(r reference) (*node, error) {
	base := *r.uri
	base.Fragment, base.RawFragment = "", ""
	home := c.resources[base.String()]
	if home == nil {
		return nil, fmt.Errorf("reference %.200s is to another document, which is not fetched", r.text)
	}
	fragment := r.uri.Fragment
	raw, ok := home.raw, true
	if strings.HasPrefix(fragment, "/") {
		for step := range strings.SplitSeq(fragment[1:], "/") {
			if raw, ok = c.child(raw, pointerUnescapes.Replace(step)); !ok {
				break
			}
			if n := c.nodes[&raw[0]]; n != nil {
				home = n.home
			}
		}
	} else if fragment != "" {
		raw, ok = home.anchors[fragment]
	}
	if !ok {
		return nil, fmt.Errorf("reference %.200s has no target", r.text)
	}
	n, err := c.schema(raw, home)
	if err != nil {
		return nil, fmt.Errorf("reference %.200s: %w", r.text, err)
	}
	return n, nil
}

// child returns the member or item of a container that a step of a JSON pointer names. Containers
// are indexed once, since a schema may hold thousands of references into a container.
func (c *compiler) child(raw []byte, step string) ([]byte, bool) {
	parts := c.parts[&raw[0]]
	if parts == nil {
		parts = map[string][]byte{}
		for key, value := range jsonscan.Members(raw) {
			parts[string(key)] = value
		}
		for item := range jsonscan.Elements(raw) {
			parts[strconv.Itoa(len(parts))] = item
		}
		c.parts[&raw[0]] = parts
	}
	value, ok := parts[step]
	return value, ok
}

// same returns the schemas that a node applies to its own value, without dynamic references.
func (n *node) same() []*node {
	var all []*node
	if r := n.compound; r != nil {
		all = slices.Concat(r.allOf, r.anyOf, r.oneOf)
		for _, ref := range r.refs {
			if ref.dynamic == "" {
				all = append(all, ref.target)
			}
		}
		all = append(all, r.not, r.when, r.then, r.otherwise)
	}
	if n.object != nil {
		for _, d := range n.object.dependent {
			all = append(all, d.node)
		}
	}
	return slices.DeleteFunc(all, func(n *node) bool { return n == nil })
}

// findLoops returns an error if a schema applies itself to the same value, which would not end.
func findLoops(nodes []*node) error {
	const open, done = 1, 2
	state := make(map[*node]int, len(nodes))
	var visit func(n *node) error
	visit = func(n *node) error {
		switch state[n] {
		case open:
			return fmt.Errorf("the references are circular")
		case done:
			return nil
		}
		state[n] = open
		for _, next := range n.same() {
			if err := visit(next); err != nil {
				return err
			}
		}
		state[n] = done
		return nil
	}
	for _, n := range nodes {
		if err := visit(n); err != nil {
			return err
		}
	}
	return nil
}
