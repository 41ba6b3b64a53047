package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Limits of the lists that a client reads: more than any host shows, or any model reads.
const (
	maxListed      = 10_000
	maxPages       = 1000
	maxListedBytes = 64 << 20
	// maxCursorText is the longest cursor of a server, in bytes.
	maxCursorText = 4 << 10
)

// A list describes a kind of list of a server.
type list[V any] struct {
	method string
	key    string         // of the items in the result
	check  func(*V) error // returns why an item is left out; nil accepts all
}

// Collect returns the values of an iterator such as [Client.Tools], and the error that ends it.
func Collect[T any](values iter.Seq2[T, error]) (all []T, err error) {
	for v, err := range values {
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

// Spec: server/utilities/pagination.
func items[V any](ctx context.Context, c *Client, l list[V]) iter.Seq2[*V, error] {
	return func(yield func(*V, error) bool) {
		var cursor, last []byte
		seen := map[string]bool{}
		count, size := 0, 0
		for {
			raw, next, err := c.page(ctx, l.method, cursor)
			if err != nil {
				if e := asError(err); e != nil && e.Code == CodeInvalidParams && cursor != nil {
					c.cache.invalidate(l.method) // the cached pages belong to an older list
				}
				yield(nil, err)
				return
			}
			array, _ := jsonscan.Get(raw, l.key)
			if len(array) > len("[]") && bytes.Equal(array, last) && isStuck(ctx, c.opts.Logger, l.method) {
				return // the server ignores the cursor
			}
			last = array
			size += len(raw)
			if !l.yieldPage(ctx, c, raw, &count, yield) {
				return
			}
			switch {
			case count > maxListed || size > maxListedBytes:
				err = fmt.Errorf("more than %d items or %d bytes", maxListed, maxListedBytes)
			case next == nil, seen[string(next)] && isStuck(ctx, c.opts.Logger, l.method):
				return
			case len(seen) == maxPages-1:
				err = fmt.Errorf("more than %d pages", maxPages)
			}
			if err != nil {
				yield(nil, invalidResult(l.method, err))
				return
			}
			seen[string(next)] = true
			cursor = next
		}
	}
}

// yieldPage yields the items of a page, adds their number to count and reports whether to go on.
func (l list[V]) yieldPage(ctx context.Context, c *Client, raw RawResult, count *int, yield func(*V, error) bool) bool {
	for v, err := range l.decode(ctx, c, raw) {
		if *count++; *count > maxListed {
			break
		}
		if v == nil && err == nil {
			continue // left out
		}
		if !yield(v, err) || err != nil {
			return false
		}
	}
	return true
}

// isStuck logs that the cursor of a server does not advance, which ends the list, and returns true.
func isStuck(ctx context.Context, log *slog.Logger, method string) bool {
	log.WarnContext(ctx, "mcp: nextCursor does not advance: the list ends with this page", "method", method)
	return true
}

// page requests a page. Cursors are JSON strings: nil begins and ends the list, "" does not.
func (c *Client) page(ctx context.Context, method string, cursor []byte) (raw RawResult, next []byte, err error) {
	var members []byte
	if cursor != nil {
		members = append([]byte(`,"cursor":`), cursor...)
	}
	raw, err = c.do(ctx, &clientRequest{method: method, members: members})
	if err != nil {
		return nil, nil, err
	}
	next, ok := jsonscan.Get(raw, "nextCursor")
	switch {
	case !ok || jsonscan.Kind(next) == 'n':
		return raw, nil, nil
	case jsonscan.Kind(next) != '"' || len(next) > maxCursorText+2:
		err := fmt.Errorf("invalid nextCursor: must be a string of at most %d bytes", maxCursorText)
		return nil, nil, invalidResult(method, err)
	}
	return raw, next, nil
}

// decode returns the items of a page. An invalid item is nil, so that the others can be used.
func (l list[V]) decode(ctx context.Context, c *Client, raw RawResult) iter.Seq2[*V, error] {
	return func(yield func(*V, error) bool) {
		array, ok := jsonscan.Get(raw, l.key)
		if !ok || jsonscan.Kind(array) != '[' {
			yield(nil, invalidResult(l.method, fmt.Errorf("missing array %q", l.key)))
			return
		}
		for value := range jsonscan.Elements(array) {
			v := new(V)
			err := jsonv2.Unmarshal(value, v)
			if err == nil && l.check != nil {
				err = l.check(v)
			}
			if err != nil {
				c.opts.Logger.WarnContext(ctx, "mcp: invalid list item ignored",
					"list", l.key, "item", shorten(string(value)), "reason", err)
				v = nil
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}

// Resources returns the resources of the server. Errors and invalid items are handled as by
// [Client.Tools].
//
// Spec: server/resources, Listing Resources.
func (c *Client) Resources(ctx context.Context) iter.Seq2[*Resource, error] {
	return items(ctx, c, list[Resource]{wire.MethodResourcesList, "resources",
		func(r *Resource) error { return wantName("uri", r.URI) }})
}

// ResourceTemplates returns the resource templates of the server. Errors and invalid items are
// handled as by [Client.Tools].
//
// Spec: server/resources, Resource Templates.
func (c *Client) ResourceTemplates(ctx context.Context) iter.Seq2[*ResourceTemplate, error] {
	return items(ctx, c, list[ResourceTemplate]{wire.MethodResourcesTemplatesList, "resourceTemplates",
		func(t *ResourceTemplate) error { return wantName("uriTemplate", t.URITemplate) }})
}

// Prompts returns the prompts of the server. Errors and invalid items are handled as by
// [Client.Tools].
//
// Spec: server/prompts, Listing Prompts.
func (c *Client) Prompts(ctx context.Context) iter.Seq2[*Prompt, error] {
	return items(ctx, c, list[Prompt]{wire.MethodPromptsList, "prompts",
		func(p *Prompt) error { return wantName("name", p.Name) }})
}

func wantName(key, value string) error {
	if value == "" {
		return fmt.Errorf("missing %s", key)
	}
	return nil
}

// ReadResource reads a resource. If it does not exist, the error is an [*Error] with code -32602,
// in every revision.
//
// Spec: server/resources, Reading Resources.
func (c *Client) ReadResource(ctx context.Context, uri string) (*ReadResourceResult, error) {
	members := jsonscan.AppendQuote([]byte(`,"uri":`), uri)
	raw, err := c.do(ctx, &clientRequest{method: wire.MethodResourcesRead, members: members})
	if err != nil {
		return nil, err
	}
	r := &ReadResourceResult{}
	return r, decodeResult(wire.MethodResourcesRead, raw, "contents", r, &r.Meta)
}

// GetPrompt returns the messages of a prompt with the given arguments.
//
// Spec: server/prompts, Getting a Prompt.
func (c *Client) GetPrompt(ctx context.Context, name string, args map[string]string) (*GetPromptResult, error) {
	members := jsonscan.AppendQuote([]byte(`,"name":`), name)
	if len(args) > 0 {
		arguments, err := jsonv2.Marshal(args, deterministic)
		if err != nil {
			return nil, fmt.Errorf("mcp: encode arguments: %w", err)
		}
		members = append(append(members, `,"arguments":`...), arguments...)
	}
	raw, err := c.do(ctx, &clientRequest{method: wire.MethodPromptsGet, members: members})
	if err != nil {
		return nil, err
	}
	r := &GetPromptResult{}
	return r, decodeResult(wire.MethodPromptsGet, raw, "messages", r, &r.Meta)
}

// Complete requests possible values of an argument.
//
// Spec: server/utilities/completion.
func (c *Client) Complete(ctx context.Context, p *CompleteParams) (*Completion, error) {
	if (p.Prompt == "") == (p.Template == "") {
		return nil, errors.New("mcp: invalid CompleteParams: exactly one of Prompt and Template must be set")
	}
	ref := map[string]string{"type": "ref/prompt", "name": p.Prompt}
	if p.Prompt == "" {
		ref = map[string]string{"type": "ref/resource", "uri": p.Template}
	}
	params := map[string]any{"argument": map[string]string{"name": p.Argument, "value": p.Value}, "ref": ref}
	if len(p.Arguments) > 0 {
		params["context"] = map[string]any{"arguments": p.Arguments}
	}
	members, err := appendParams(nil, params)
	if err != nil {
		return nil, err
	}
	raw, err := c.do(ctx, &clientRequest{method: wire.MethodCompletionComplete, members: members})
	if err != nil {
		return nil, err
	}
	r := &CompleteResult{}
	if err := decodeResult(wire.MethodCompletionComplete, raw, "completion", r, &r.Meta); err != nil {
		return nil, err
	}
	return &r.Completion, nil
}

// Ping checks the connection. It sends ping, or server/discover to servers of revisions since
// 2026-07-28, which do not define ping.
//
// Spec: basic/utilities/ping (2025-11-25); server/discover (2026-07-28).
func (c *Client) Ping(ctx context.Context) error {
	conn, err := c.connector.live(ctx)
	if err != nil {
		return err
	}
	method := wire.MethodPing
	if _, ok := conn.revision.Method(method); !ok {
		method = wire.MethodDiscover
	}
	o := *callOptionsFrom(ctx)
	o.NoCache = true
	_, err = c.do(WithCallOptions(ctx, o), &clientRequest{method: method})
	return err
}

// decodeResult decodes a result with a required member.
func decodeResult(method string, raw RawResult, member string, v any, meta *Meta) error {
	if _, ok := jsonscan.Get(raw, member); !ok {
		return invalidResult(method, fmt.Errorf("missing %s", member))
	}
	if err := jsonv2.Unmarshal(raw, v); err != nil {
		return invalidResult(method, err)
	}
	if r, ok := v.(interface{ setCacheHints(Cache) }); ok {
		r.setCacheHints(decodeCache(raw))
	}
	if value, ok := jsonscan.Get(raw, "_meta"); ok {
		var err error
		d := jsonscan.Descend(value)
		if *meta, err = decodeMeta(&d); err != nil {
			return invalidResult(method, fmt.Errorf("_meta: %w", err))
		}
	}
	return nil
}
