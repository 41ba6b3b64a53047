package question

import (
	"context"
	stdjson "encoding/json"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/argument"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// fillIn prompts for every field until the user confirms. A single yes or no needs no confirmation.
func (p *Asker) fillIn(ctx context.Context, fields []argument.Field) (stdjson.RawMessage, error) {
	single := len(fields) == 1 && fields[0].IsYesNo()
	for {
		content, err := p.askFields(ctx, fields)
		if err != nil || single {
			return content, err
		}
		if len(fields) > 1 {
			p.IO.Err.Printf("\n  %s", term.CleanJSON(string(content)))
		}
		send, err := p.Confirm(ctx, "Send this? y, or n to fill in the form again", "y")
		if err != nil || send {
			return content, err
		}
	}
}

// askFields prompts for every field, and returns an object.
func (p *Asker) askFields(ctx context.Context, fields []argument.Field) (stdjson.RawMessage, error) {
	a := argument.List{Values: map[string]stdjson.RawMessage{}}
	for i := range fields {
		f := &fields[i]
		p.IO.Err.Printf("\n%s", term.Wrap(f.Heading(), p.IO.Err.Width(), "  "))
		value, err := Prompt(ctx, p, f.PromptText(), func(ctx context.Context, text string) (string, error) {
			line, err := p.PromptText(ctx, text)
			if err == nil && f.Members != nil && strings.TrimSpace(line) == "" {
				return p.askObjects(ctx, f)
			}
			return line, err
		}, f.Parse)
		if err != nil {
			return nil, err
		}
		if value != nil {
			a.Put(f.Name, value)
		}
	}
	return a.Object(), nil
}

// askObjects prompts for the objects of an array, and returns the array as the JSON that a user would type.
func (p *Asker) askObjects(ctx context.Context, f *argument.Field) (string, error) {
	var all [][]byte
	for again := true; again; {
		p.IO.Err.Printf("\n  %s, object %d:", term.CleanLine(f.Name), len(all)+1)
		object, err := p.askFields(ctx, f.Members)
		if err == nil {
			again, err = p.Confirm(ctx, "Another object?", "n")
		}
		if err != nil {
			return "", err
		}
		all = append(all, object)
	}
	return string(argument.ListOf(all)), nil
}
