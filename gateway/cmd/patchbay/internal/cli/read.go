package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func read(ctx context.Context, f *factory, c *mcp.Client, words []string) error {
	uri := words[0]
	if len(words) > 1 {
		variables, err := assignments(words[1:])
		if err != nil {
			return usage(err)
		}
		values := map[string]any{}
		for key, value := range variables {
			values[key] = value
		}
		if uri, err = expandTemplate(uri, values); err != nil {
			return usage(err)
		}
	}
	result, err := c.ReadResource(ctx, uri)
	if err != nil {
		return err
	}
	if f.Flags.json {
		f.IO.Out.result(result)
	}
	for _, part := range result.Contents {
		if err := showContents(f, "resource "+part.URI, part); err != nil {
			return err
		}
	}
	return nil
}

// showContents prints text as it is, or describes and saves binary content. With --json it only
// saves.
func showContents(f *factory, what string, part *mcp.ResourceContents) error {
	switch {
	case f.Flags.json:
	case part.Blob != nil:
		f.IO.Out.println(cleanLine(binary(what, part.MIMEType, part.Blob)))
	default:
		f.IO.Out.text(part.Text)
		if f.IO.Out.terminal && !strings.HasSuffix(part.Text, "\n") {
			f.IO.Out.write("\n")
		}
	}
	if part.Blob == nil {
		return nil
	}
	return saveFile(f, part.URI, part.MIMEType, part.Blob)
}

// expandTemplate expands a URI template. Unknown variables are errors.
func expandTemplate(uri string, values map[string]any) (string, error) {
	template := &mcp.ResourceTemplate{URITemplate: uri}
	bare, err := template.Expand(nil)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if with, err := template.Expand(map[string]any{name: "x"}); err == nil && with == bare {
			return "", fmt.Errorf("unknown variable %q: the URI %q does not have it", name, uri)
		}
	}
	return template.Expand(values)
}

func assignments(words []string) (map[string]string, error) {
	all := map[string]string{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("invalid argument %q: want key=value", word)
		}
		all[key] = value
	}
	return all, nil
}

func get(ctx context.Context, f *factory, c *mcp.Client, words []string) error {
	prompts, err := collect(c.Prompts(ctx))
	if err != nil {
		return err
	}
	prompt, err := find(prompts, words[0], "prompt", promptName)
	if err != nil {
		return err
	}
	parameters := promptParameters(prompt)
	a, err := f.Ask.readArguments(ctx, words[1:],
		&arguments{thing: "argument", owner: "prompt", parameters: parameters, closed: true})
	if err != nil {
		return wrongArguments(ctx, f, err, "get", signature(prompt.Name, parameters))
	}
	f.Ask.warnUndeclared(a)
	values := map[string]string{}
	for key, value := range a.values {
		text, err := rawjson.Unquote(value)
		if err != nil {
			text = string(value) // :=5 is the string 5
		}
		values[key] = text
	}
	result, err := c.GetPrompt(ctx, prompt.Name, values)
	if err != nil {
		return err
	}
	if f.Flags.json {
		f.IO.Out.result(result)
		return nil
	}
	for i, m := range result.Messages {
		if i > 0 {
			f.IO.Out.write("\n")
		}
		f.IO.Out.printf("%s:", cleanLine(string(m.Role)))
		if err := show(f, m.Content); err != nil {
			return err
		}
	}
	return nil
}

// promptParameters returns a prompt's arguments as parameters, so that they are parsed like a
// tool's.
func promptParameters(prompt *mcp.Prompt) (all []parameter) {
	for _, a := range prompt.Arguments {
		all = append(all, parameter{name: a.Name, types: []string{"string"}, required: a.Required,
			description: a.Description})
	}
	return all
}

func complete(ctx context.Context, f *factory, c *mcp.Client, words []string) error {
	name, typed, ok := strings.Cut(words[1], "=")
	if !ok || name == "" {
		return usage(fmt.Errorf("invalid argument %q: want NAME=TYPED", words[1]))
	}
	known, err := assignments(words[2:])
	if err != nil {
		return usage(err)
	}
	ref := mcp.CompletionRef{Prompt: words[0]}
	if strings.ContainsAny(words[0], ":{") {
		ref = mcp.CompletionRef{Template: words[0]}
	}
	completion, err := c.Complete(ctx, &mcp.CompleteParams{Ref: ref,
		Argument: mcp.CompleteArgument{Name: name, Value: typed}, Context: mcp.CompleteContext{Arguments: known}})
	if err != nil {
		return err
	}
	if f.Flags.json {
		f.IO.Out.value(map[string]any{"completion": completion})
		return nil
	}
	for _, value := range completion.Values {
		f.IO.Out.println(cleanLine(value))
	}
	if completion.HasMore {
		f.IO.Err.printf("The server has more completions.")
	}
	return nil
}
