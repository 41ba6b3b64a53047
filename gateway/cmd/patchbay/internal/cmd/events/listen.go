package events

import (
	"cmp"
	"context"
	stdjson "encoding/json"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// follow connects without a limit for the whole: --timeout bounds connecting alone.
func follow(ctx context.Context, o *Options) error {
	return o.WithServer(ctx, func(ctx context.Context, c *mcp.Client) error { return listen(ctx, o, c) })
}

// listen prints occurrences until an interrupt, which is the usual end, or until there are Count.
func listen(ctx context.Context, o *Options, c *mcp.Client) error {
	e, arguments, err := prepare(ctx, o, c, "listen")
	if err != nil {
		return err
	}
	failed := func(err error) { o.IO.Err.Printf("patchbay: trying again: %s", term.CleanLine(err.Error())) }
	position := o.Cursor
	opts := &events.SubscribeOptions{Cursor: o.Cursor, MaxAge: o.MaxAge, Failed: failed,
		Position: func(cursor string) { position = cursor },
		Gap:      func() { o.IO.Err.Printf("patchbay: events may have been missed") }}
	o.IO.Err.Printf("listening to: %s", term.CleanLine(e.Name))
	received := 0
	for oc, err := range events.Subscribe[stdjson.RawMessage](ctx, c, e.Name, arguments, opts) {
		switch {
		case err != nil && oc.ID == "":
			return err
		case err != nil: // the payload cannot be decoded
			o.IO.Err.Printf("patchbay: %s", term.CleanLine(err.Error()))
			continue
		}
		d := &events.Delivered{ID: oc.ID, Name: e.Name, Time: oc.Time, Data: oc.Data, Meta: oc.Meta}
		if err := showOne(o.Factory, d, oc.Cursor); err != nil {
			return err
		}
		if received++; received == o.Count {
			position = cmp.Or(oc.Cursor, position)
			break
		}
	}
	showCursor(o.Factory, position)
	return nil
}

// showOne prints an occurrence, with --json with its cursor. The error is that of standard output.
func showOne(f *cmdutil.Factory, d *events.Delivered, cursor string) error {
	if !f.Flags.JSON {
		show(f, d)
		return f.IO.Out.Err
	}
	encoded, err := d.Encode(cursor)
	if err != nil {
		return err
	}
	f.IO.Out.Raw(encoded)
	return f.IO.Out.Err
}
